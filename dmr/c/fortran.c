/* The calls of dmr.h that take a communicator, for dmr.f90: there it is an integer. */
#include <stdlib.h>
#include <string.h>

#include "dmr.h"

#ifdef MPI_ABI_VERSION /* the standard ABI has other names for the same */
typedef int fint;
static MPI_Comm of(fint comm) { return MPI_Comm_fromint(comm); }
static fint in_fortran(MPI_Comm comm) { return MPI_Comm_toint(comm); }
#else
typedef MPI_Fint fint;
static MPI_Comm of(fint comm) { return MPI_Comm_f2c(comm); }
static fint in_fortran(MPI_Comm comm) { return MPI_Comm_c2f(comm); }
#endif

int dmr_check_status_f(fint comm, int minimum, int maximum, int factor, int preferred, int later, int *size,
                       dmr_handler **handler);
dmr_handler *dmr_inherited_f(fint comm);
fint dmr_world_f(void);
void dmr_error_f(char *text, int length);

int dmr_check_status_f(fint comm, int minimum, int maximum, int factor, int preferred, int later, int *size,
                       dmr_handler **handler)
{
    return (later ? dmr_icheck_status : dmr_check_status)(of(comm), minimum, maximum, factor, preferred, size, handler);
}

dmr_handler *dmr_inherited_f(fint comm) { return dmr_inherited(of(comm)); }

fint dmr_world_f(void) { return in_fortran(dmr_world()); }

/* Without its zero byte, and filled up with blanks. */
void dmr_error_f(char *text, int length)
{
    size_t capacity = (size_t)length, used = strlen(dmr_error());
    memset(text, ' ', capacity);
    memcpy(text, dmr_error(), used < capacity ? used : capacity);
}
