/* Calls of MPI that may fail without ending the program. */
#ifndef DMR_QUIET_H
#define DMR_QUIET_H

#include <mpi.h>

/* Errors of calls over `comm` come back as codes until dmr_loud is given what this returns. */
MPI_Errhandler dmr_quiet(MPI_Comm comm);
void dmr_loud(MPI_Comm comm, MPI_Errhandler before);

#endif
