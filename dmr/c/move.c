#include "move.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void dmr_block_bounds(int64_t rows, int size, int rank, int64_t *start, int64_t *stop)
{
    int64_t each = rows / size, extra = rows % size;
    *start = rank * each + (rank < extra ? rank : extra);
    *stop = *start + each + (rank < extra);
}

void dmr_most(const dmr_handler *handler, int64_t *numbers, int count)
{
    int64_t there[DMR_NUMBERS];
    MPI_Allreduce(MPI_IN_PLACE, numbers, count, MPI_INT64_T, MPI_MAX, handler->comm);
    /* Between groups each gets what the other says. */
    MPI_Allreduce(numbers, there, count, MPI_INT64_T, MPI_MAX, handler->inter);
    for (int i = 0; i < count; i++)
        numbers[i] = numbers[i] > there[i] ? numbers[i] : there[i];
}

bool dmr_agreed(const dmr_handler *handler, dmr_cargo mine, dmr_wrong wrong)
{
    static const char *const wrongs[DMR_WRONGS] = {
        [DMR_NO_MEMORY] = "no memory is left",
        [DMR_NEGATIVE] = "a length or an index is negative",
        [DMR_TWICE] = "two old ranks send the same row, or one sends it twice",
        [DMR_NOBODYS] = "a row is received that no old rank sends",
        [DMR_UNWANTED] = "a row is sent that no new rank receives",
    };
    static const char *const names[] = {"the function called", "the number of rows or bytes", "the length of a row",
                                        "the length of a block"};
    const int64_t said[4] = {mine.kind, mine.rows, mine.row_bytes, mine.block};
    int64_t seen[9];
    for (int i = 0; i < 4; i++) {
        seen[i] = said[i];
        seen[4 + i] = -said[i];
    }
    seen[8] = wrong;
    dmr_most(handler, seen, 9);
    if (seen[8] != DMR_FINE) {
        dmr_fail("%s", wrongs[seen[8]]);
        return false;
    }
    for (int i = 0; i < 4; i++)
        if (seen[i] != -seen[4 + i]) {
            dmr_fail("%s must be the same on all old and new ranks: it is between %" PRId64 " and %" PRId64, names[i],
                     -seen[4 + i], seen[i]);
            return false;
        }
    return true;
}

bool dmr_wrong_side(const dmr_handler *handler, bool old)
{
    if (handler->old != old)
        dmr_fail(old ? "the new processes receive, the old ones send" : "the old processes send, the new ones receive");
    return handler->old != old;
}

static int move_bytes(const dmr_handler *handler, void *data, size_t bytes)
{
    dmr_cargo mine = {DMR_BYTES, (int64_t)bytes, 1, 0};
    if (!dmr_agreed(handler, mine, bytes > INT64_MAX ? DMR_NEGATIVE : DMR_FINE))
        return DMR_ERROR;
    int root = !handler->old ? 0 : handler->rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Bcast_c(data, (MPI_Count)bytes, MPI_BYTE, root, handler->inter);
    return 0;
}

MPI_Datatype dmr_row_type(size_t row_bytes)
{
    MPI_Datatype row;
    MPI_Type_contiguous_c((MPI_Count)row_bytes, MPI_BYTE, &row);
    MPI_Type_commit(&row);
    return row;
}

/* Sends on the old side, receives on the new one: so many rows for each rank of the other side, from these places. */
static void all_to_all(const dmr_handler *handler, void *rows, const MPI_Count *counts, const MPI_Aint *places,
                       const MPI_Count *nothing, const MPI_Aint *nowhere, MPI_Datatype row)
{
    if (handler->old)
        MPI_Alltoallv_c(rows, counts, places, row, NULL, nothing, nowhere, row, handler->inter);
    else
        MPI_Alltoallv_c(NULL, nothing, nowhere, row, rows, counts, places, row, handler->inter);
}

/* Counts and places for each rank of the other side, and as many zeros; to be freed as one. */
typedef struct {
    MPI_Count *counts, *nothing;
    MPI_Aint *places, *nowhere;
} tables;

static bool make(tables *made, int ranks)
{
    size_t each = (size_t)ranks;
    made->counts = calloc(2 * each, sizeof *made->counts);
    made->places = calloc(2 * each, sizeof *made->places);
    if (made->counts && made->places) {
        made->nothing = made->counts + each;
        made->nowhere = made->places + each;
        return true;
    }
    free(made->counts);
    free(made->places);
    *made = (tables){.counts = NULL};
    return false;
}

static void discard(tables *made)
{
    free(made->counts);
    free(made->places);
}

static int move_blocks(const dmr_handler *handler, void *block, int64_t rows, size_t row_bytes)
{
    dmr_cargo mine = {DMR_BLOCKS, rows, (int64_t)row_bytes, 0};
    tables to = {.counts = NULL};
    bool memory = make(&to, handler->other);
    dmr_wrong wrong = rows < 0 || row_bytes > INT64_MAX ? DMR_NEGATIVE : memory ? DMR_FINE : DMR_NO_MEMORY;
    bool agreed = dmr_agreed(handler, mine, wrong);
    if (agreed && rows && row_bytes) {
        int64_t low, high, start, stop;
        dmr_block_bounds(rows, handler->size, handler->rank, &low, &high);
        for (int i = 0; i < handler->other; i++) {
            dmr_block_bounds(rows, handler->other, i, &start, &stop);
            start = start > low ? start : low;
            stop = stop < high ? stop : high;
            to.counts[i] = stop > start ? stop - start : 0;
            /* An empty part still needs a place inside the block: MPI may look at it. */
            to.places[i] = stop > start ? (MPI_Aint)(start - low) : 0;
        }
        MPI_Datatype row = dmr_row_type(row_bytes);
        all_to_all(handler, block, to.counts, to.places, to.nothing, to.nowhere, row);
        MPI_Type_free(&row);
    }
    discard(&to);
    return agreed ? 0 : DMR_ERROR;
}

static int by_peer_and_row(const void *one, const void *other)
{
    const dmr_parcel *a = one, *b = other;
    return a->peer != b->peer ? (a->peer > b->peer) - (a->peer < b->peer) : (a->row > b->row) - (a->row < b->row);
}

bool dmr_move_rows(const dmr_handler *handler, void *data, dmr_parcel *parcels, int64_t count, size_t row_bytes)
{
    tables to = {.counts = NULL};
    char *rows = malloc((size_t)count * row_bytes + 1), *mine = data;
    int64_t lacks = !make(&to, handler->other) || !rows;
    dmr_most(handler, &lacks, 1);
    if (!lacks && row_bytes) {
        qsort(parcels, (size_t)count, sizeof *parcels, by_peer_and_row);
        for (int64_t i = 0; i < count; i++)
            to.counts[parcels[i].peer]++;
        for (int i = 1; i < handler->other; i++)
            to.places[i] = to.places[i - 1] + (MPI_Aint)to.counts[i - 1];
        for (int64_t i = 0; handler->old && i < count; i++)
            memcpy(rows + (size_t)i * row_bytes, mine + (size_t)parcels[i].at * row_bytes, row_bytes);
        MPI_Datatype row = dmr_row_type(row_bytes);
        all_to_all(handler, rows, to.counts, to.places, to.nothing, to.nowhere, row);
        MPI_Type_free(&row);
        for (int64_t i = 0; !handler->old && i < count; i++)
            memcpy(mine + (size_t)parcels[i].at * row_bytes, rows + (size_t)i * row_bytes, row_bytes);
    }
    free(rows);
    discard(&to);
    return !lacks;
}

int dmr_send(dmr_handler *handler, const void *data, size_t bytes)
{
    return dmr_wrong_side(handler, true) ? DMR_ERROR : move_bytes(handler, (void *)(uintptr_t)data, bytes);
}

int dmr_receive(dmr_handler *handler, void *data, size_t bytes)
{
    return dmr_wrong_side(handler, false) ? DMR_ERROR : move_bytes(handler, data, bytes);
}

int dmr_send_blocks(dmr_handler *handler, const void *block, int64_t rows, size_t row_bytes)
{
    return dmr_wrong_side(handler, true) ? DMR_ERROR
                                         : move_blocks(handler, (void *)(uintptr_t)block, rows, row_bytes);
}

int dmr_receive_blocks(dmr_handler *handler, void *block, int64_t rows, size_t row_bytes)
{
    return dmr_wrong_side(handler, false) ? DMR_ERROR : move_blocks(handler, block, rows, row_bytes);
}
