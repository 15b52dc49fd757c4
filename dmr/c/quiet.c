#include "quiet.h"

MPI_Errhandler dmr_quiet(MPI_Comm comm)
{
    MPI_Errhandler before;
    MPI_Comm_get_errhandler(comm, &before);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return before;
}

void dmr_loud(MPI_Comm comm, MPI_Errhandler before)
{
    MPI_Comm_set_errhandler(comm, before);
    if (before != MPI_ERRORS_ARE_FATAL && before != MPI_ERRORS_RETURN)
        MPI_Errhandler_free(&before);
}
