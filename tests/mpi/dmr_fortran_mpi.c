/* For tests: MPI's calls as Fortran makes them, over those of C with the standard ABI. */
#include <mpi.h>
#include <stddef.h>

#define COMM MPI_Comm_fromint(*comm)

void mpi_init_(int *code) { *code = MPI_Init(NULL, NULL); }
void mpi_finalize_(int *code) { *code = MPI_Finalize(); }
void mpi_abort_(int *comm, int *with, int *code) { *code = MPI_Abort(COMM, *with); }
void mpi_comm_rank_(int *comm, int *rank, int *code) { *code = MPI_Comm_rank(COMM, rank); }
void mpi_comm_size_(int *comm, int *size, int *code) { *code = MPI_Comm_size(COMM, size); }
void mpi_barrier_(int *comm, int *code) { *code = MPI_Barrier(COMM); }

void mpi_sendrecv_(void *out, int *sent, int *type, int *to, int *tag, void *in, int *received, int *of, int *from,
                   int *with, int *comm, int *status, int *code)
{
    (void)status;
    *code = MPI_Sendrecv(out, *sent, MPI_Type_fromint(*type), *to, *tag, in, *received, MPI_Type_fromint(*of), *from,
                         *with, COMM, MPI_STATUS_IGNORE);
}

void mpi_allreduce_(void *out, void *in, int *count, int *type, int *op, int *comm, int *code)
{
    *code = MPI_Allreduce(out, in, *count, MPI_Type_fromint(*type), MPI_Op_fromint(*op), COMM);
}
