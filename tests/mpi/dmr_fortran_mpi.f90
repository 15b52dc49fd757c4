! For tests: as much of MPI's Fortran module as the example needs. The MPI of these tests has none of its own.
module mpi
    implicit none
    integer, parameter :: MPI_COMM_WORLD = 257, MPI_DOUBLE_PRECISION = 540, MPI_MAX = 35
    integer, parameter :: MPI_PROC_NULL = -3, MPI_STATUS_SIZE = 8
    external :: MPI_Init, MPI_Finalize, MPI_Abort, MPI_Comm_rank, MPI_Comm_size, MPI_Barrier, MPI_Sendrecv, MPI_Allreduce
end module
