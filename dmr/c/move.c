#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "resize.h"

/* What is to move, as every rank of both sides states it. */
enum { BYTES = 1, BLOCKS = 2 };
typedef struct {
    int64_t kind, rows, row_bytes;
} cargo;

void dmr_block_bounds(int64_t rows, int size, int rank, int64_t *start, int64_t *stop)
{
    int64_t each = rows / size, extra = rows % size;
    *start = rank * each + (rank < extra ? rank : extra);
    *stop = *start + each + (rank < extra);
}

/* Whether all ranks of both sides speak of the same thing, which can be moved; collective over both. */
static bool agreed(const dmr_handler *handler, cargo mine, bool possible)
{
    int64_t seen[7] = {mine.kind, mine.rows, mine.row_bytes, -mine.kind, -mine.rows, -mine.row_bytes, !possible};
    int64_t there[7];
    MPI_Allreduce(MPI_IN_PLACE, seen, 7, MPI_INT64_T, MPI_MAX, handler->comm);
    /* Between groups each gets what the other says. */
    MPI_Allreduce(seen, there, 7, MPI_INT64_T, MPI_MAX, handler->inter);
    for (int i = 0; i < 7; i++)
        seen[i] = seen[i] > there[i] ? seen[i] : there[i];
    if (seen[6]) {
        dmr_fail("a length is negative, or no memory is left");
        return false;
    }
    static const char *const names[] = {"the function called", "the number of rows or bytes", "the length of a row"};
    for (int i = 0; i < 3; i++)
        if (seen[i] != -seen[3 + i]) {
            dmr_fail("%s must be the same on all old and new ranks: it is between %" PRId64 " and %" PRId64, names[i],
                     -seen[3 + i], seen[i]);
            return false;
        }
    return true;
}

static bool wrong_side(const dmr_handler *handler, bool old)
{
    if (handler->old != old)
        dmr_fail(old ? "the new processes receive, the old ones send" : "the old processes send, the new ones receive");
    return handler->old != old;
}

static int move_bytes(const dmr_handler *handler, void *data, size_t bytes)
{
    enum { PIECE = 1 << 30 };
    cargo mine = {BYTES, (int64_t)bytes, 1};
    if (!agreed(handler, mine, bytes <= INT64_MAX))
        return DMR_ERROR;
    int root = !handler->old ? 0 : handler->rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    for (size_t at = 0; at < bytes; at += PIECE)
        MPI_Bcast((char *)data + at, (int)(bytes - at < PIECE ? bytes - at : PIECE), MPI_BYTE, root, handler->inter);
    return 0;
}

/* Rows [0] exchanged with each rank of the other side, and [1] where in this rank's block they begin. */
static void layout(const dmr_handler *handler, int64_t rows, int *counts, int *places)
{
    int64_t low, high, start, stop;
    dmr_block_bounds(rows, handler->size, handler->rank, &low, &high);
    for (int i = 0; i < handler->other; i++) {
        dmr_block_bounds(rows, handler->other, i, &start, &stop);
        start = start > low ? start : low;
        stop = stop < high ? stop : high;
        counts[i] = stop > start ? (int)(stop - start) : 0;
        /* An empty part still needs a place inside the block: MPI may look at it. */
        places[i] = stop > start ? (int)(start - low) : 0;
    }
}

/* One row is one element, so that counts stay small for arrays of any size in bytes. */
static MPI_Datatype row_type(int64_t row_bytes)
{
    enum { PIECE = 1 << 30 };
    MPI_Datatype row, piece, pieces;
    if (row_bytes < PIECE) {
        MPI_Type_contiguous((int)row_bytes, MPI_BYTE, &row);
    } else {
        int rest = (int)(row_bytes % PIECE), lengths[2] = {1, rest};
        MPI_Aint places[2] = {0, (MPI_Aint)(row_bytes - rest)};
        MPI_Type_contiguous(PIECE, MPI_BYTE, &piece);
        MPI_Type_contiguous((int)(row_bytes / PIECE), piece, &pieces);
        MPI_Datatype both[2] = {pieces, MPI_BYTE};
        MPI_Type_create_struct(2, lengths, places, both, &row);
        MPI_Type_free(&piece);
        MPI_Type_free(&pieces);
    }
    MPI_Type_commit(&row);
    return row;
}

static int move_blocks(const dmr_handler *handler, void *block, int64_t rows, size_t row_bytes)
{
    cargo mine = {BLOCKS, rows, (int64_t)row_bytes};
    int ranks = handler->size < handler->other ? handler->size : handler->other;
    int *numbers = calloc(3 * (size_t)handler->other, sizeof *numbers);
    bool possible = numbers && rows >= 0 && rows / ranks < INT_MAX && row_bytes <= PTRDIFF_MAX;
    if (!agreed(handler, mine, possible)) {
        free(numbers);
        return DMR_ERROR;
    }
    if (rows && row_bytes) {
        int *counts = numbers, *places = numbers + handler->other, *nothing = places + handler->other;
        MPI_Datatype row = row_type((int64_t)row_bytes);
        layout(handler, rows, counts, places);
        if (handler->old)
            MPI_Alltoallv(block, counts, places, row, NULL, nothing, nothing, row, handler->inter);
        else
            MPI_Alltoallv(NULL, nothing, nothing, row, block, counts, places, row, handler->inter);
        MPI_Type_free(&row);
    }
    free(numbers);
    return 0;
}

/* A handler on the wrong side is the caller's mistake, which the other side cannot know of: nothing is exchanged. */

int dmr_send(dmr_handler *handler, const void *data, size_t bytes)
{
    return wrong_side(handler, true) ? DMR_ERROR : move_bytes(handler, (void *)(uintptr_t)data, bytes);
}

int dmr_receive(dmr_handler *handler, void *data, size_t bytes)
{
    return wrong_side(handler, false) ? DMR_ERROR : move_bytes(handler, data, bytes);
}

int dmr_send_blocks(dmr_handler *handler, const void *block, int64_t rows, size_t row_bytes)
{
    return wrong_side(handler, true) ? DMR_ERROR
                                     : move_blocks(handler, (void *)(uintptr_t)block, rows, row_bytes);
}

int dmr_receive_blocks(dmr_handler *handler, void *block, int64_t rows, size_t row_bytes)
{
    return wrong_side(handler, false) ? DMR_ERROR : move_blocks(handler, block, rows, row_bytes);
}
