/* Malleable MPI applications in C: programs whose number of processes follows the queue of their cluster.
 *
 *     dmr_handler *parent = dmr_inherited(MPI_COMM_WORLD);  // at the start: not NULL in those that replace others
 *     MPI_Comm world = dmr_world();                         // all processes, of all jobs that hold nodes for us
 *     if (parent) {
 *         dmr_receive(parent, &step, sizeof step);
 *         dmr_receive_blocks(parent, block, rows, row_bytes);
 *         dmr_finish(parent);
 *     }
 *     ...
 *     int size;                                             // between two steps
 *     dmr_handler *handler;
 *     if (dmr_check_status(world, 2, 32, 2, 0, &size, &handler) > 0) {
 *         dmr_send(handler, &step, sizeof step);
 *         dmr_send_blocks(handler, block, rows, row_bytes);
 *         dmr_finish(handler);
 *         return MPI_Finalize();                            // the new processes go on
 *     }
 *
 * examples/jacobi.c is a complete program to copy from. The calls follow the DMR API of "Efficient Scalable Computing
 * through Flexible Applications and Adaptive Workloads" (section 5.1); all processes are replaced in a resize. All of
 * them are collective, over the communicator that was given or that the handler came with, and for the thread that
 * calls MPI. Whatever goes wrong with the agent means "no action"; a warning on standard error of rank 0 says so.
 *
 * Environment, as for the Python library: DMR_AGENT, DMR_AGENT_OTHERS, DMR_TIMEOUT, DMR_INHIBITOR_SECONDS,
 * DMR_INHIBITOR_STEPS, DMR_SIZES, DMR_RANKS_PER_NODE, DMR_KEY_FILE, DMR_MUNGE_SOCKET. Start the program with
 * `python -m dmr.launch` in place of mpiexec.
 */
#ifndef DMR_H
#define DMR_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#define DMR_VERSION "0.2.0"

#ifdef __cplusplus
extern "C" {
#endif

/* What a check did. DMR_ERROR, on all ranks alike: the arguments are wrong or differ; dmr_error() says which. */
enum { DMR_ERROR = -1, DMR_NONE = 0, DMR_EXPAND = 1, DMR_SHRINK = 2 };

/* A resize under way: the old processes' side of it, or the new ones'. */
typedef struct dmr_handler dmr_handler;

/* Asks whether to grow or shrink, and if so starts the new processes.
 *
 * comm: that of dmr_world, or a duplicate of it.
 * minimum, maximum: processes. factor: reachable sizes are the present one times or divided by its powers; 1: any.
 * preferred: the size that the program would like best for what comes next; 0: none.
 * size: gets the number of processes from now on. handler: gets NULL, or what to hand the data to.
 * Returns DMR_NONE, DMR_EXPAND, DMR_SHRINK or DMR_ERROR. */
int dmr_check_status(MPI_Comm comm, int minimum, int maximum, int factor, int preferred, int *size,
                     dmr_handler **handler);

/* The same without waiting for the agent: one call asks, a later one takes the answer, if that still fits its own
 * arguments and the agent confirms that it still stands. Use this or dmr_check_status, on all ranks alike. */
int dmr_icheck_status(MPI_Comm comm, int minimum, int maximum, int factor, int preferred, int *size,
                      dmr_handler **handler);

/* The handler with the state of the processes that this program replaces, or NULL for a normal start. Once, at the
 * start; comm: MPI_COMM_WORLD. */
dmr_handler *dmr_inherited(MPI_Comm comm);

/* The communicator of all processes of this program: MPI_COMM_WORLD, until a resize has started processes in several
 * jobs, which then have a MPI_COMM_WORLD each. Ask after dmr_inherited, and use it in place of MPI_COMM_WORLD
 * everywhere. Only a program that calls it is given nodes that another job of the same user holds (a companion): that
 * is how programs grow on most releases of Slurm. It is gone after dmr_finish in the processes that end. */
MPI_Comm dmr_world(void);

/* How many processes there were before. */
int dmr_size_before(const dmr_handler *handler);

/* The old processes send, the new ones receive the same things in the same order. 0, or DMR_ERROR on all ranks of both
 * sides when these do not fit together; nothing has moved then. */

/* Old rank 0's bytes, to every new rank. */
int dmr_send(dmr_handler *handler, const void *data, size_t bytes);
int dmr_receive(dmr_handler *handler, void *data, size_t bytes);

/* An array of `rows` rows (of the whole, not of this rank) with `row_bytes` bytes each, dealt to the ranks in blocks as
 * dmr_block_bounds says; `block` is this rank's, without halo rows. */
int dmr_send_blocks(dmr_handler *handler, const void *block, int64_t rows, size_t row_bytes);
int dmr_receive_blocks(dmr_handler *handler, void *block, int64_t rows, size_t row_bytes);

/* Rows that are dealt in turn, `block` at a time (1: cyclic, as cards are): `mine` holds this rank's, in order. */
int dmr_send_cyclic(dmr_handler *handler, const void *mine, int64_t rows, size_t row_bytes, int64_t block);
int dmr_receive_cyclic(dmr_handler *handler, void *mine, int64_t rows, size_t row_bytes, int64_t block);

/* How many rows a rank has then, and which row of the whole is its row `at`. */
int64_t dmr_cyclic_rows(int64_t rows, int64_t block, int size, int rank);
int64_t dmr_cyclic_row(int64_t at, int64_t block, int size, int rank);

/* Rows that are dealt as the program says: `mine` holds `count` rows, which are the rows `rows` of the whole, in any
 * order. Each row is sent by one old rank, and received by one new rank or more. */
int dmr_send_irregular(dmr_handler *handler, const void *mine, const int64_t *rows, int64_t count, size_t row_bytes);
int dmr_receive_irregular(dmr_handler *handler, void *mine, const int64_t *rows, int64_t count, size_t row_bytes);

/* Lets go of the other side and frees the handler. The old processes end after it: Slurm can only take a node that
 * nobody uses. */
void dmr_finish(dmr_handler *handler);

/* The rows [start, stop) of rank `rank` of `size` when `rows` rows are dealt in blocks that differ by one at most. */
void dmr_block_bounds(int64_t rows, int size, int rank, int64_t *start, int64_t *stop);

/* What the last DMR_ERROR was about; "" at first. */
const char *dmr_error(void);

#ifdef __cplusplus
}
#endif

#endif
