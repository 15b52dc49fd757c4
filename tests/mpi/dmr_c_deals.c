/* For tests: rows dealt in turn and at random, which must be what they were after any number of resizes.
 *
 *     dmr_c_deals ROWS BLOCK STEPS [MISTAKE]
 *
 * Rank 0 writes its sizes; with a mistake in who sends or receives what, every rank the error that it got. */
#include <dmr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t row, step;
    char more[11];
} record;

static int64_t rows, block;
static const char *mistake = "";

/* As good as at random, and the same everywhere. */
static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u + 12345;
    return (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u >> 11;
}

static int owner(int64_t row, int size) { return (int)(mixed((uint64_t)row * 7 + (uint64_t)size) % (uint64_t)size); }

/* The rows of a rank, backwards: the order is the program's business. */
static int64_t owned(int size, int rank, int64_t *mine)
{
    int64_t count = 0;
    for (int64_t row = rows - 1; row >= 0; row--)
        if (owner(row, size) == rank)
            mine[count++] = row;
    return count;
}

static record made(int64_t row, int64_t step)
{
    record it = {row, step, ""};
    snprintf(it.more, sizeof it.more, "%x", (unsigned)mixed((uint64_t)(row + step)) & 0xffffff);
    return it;
}

static void check(const char *what, const record *it, int64_t row, int64_t step)
{
    record right = made(row, step);
    if (it->row != row || it->step != step || strcmp(it->more, right.more) != 0) {
        fprintf(stderr, "%s: row %ld of step %ld is row %ld of step %ld\n", what, (long)row, (long)step, (long)it->row,
                (long)it->step);
        MPI_Abort(MPI_COMM_WORLD, 7);
    }
}

static void wrong(const char *side, int rank)
{
    printf("%s %d: %s\n", side, rank, dmr_error());
    fflush(stdout);
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    dmr_handler *parent = dmr_inherited(MPI_COMM_WORLD), *handler;
    MPI_Comm world = dmr_world();
    int rank, size, new_size, failed = 0;
    int64_t step = 0, steps = atol(words[3]);
    rows = atol(words[1]);
    block = atol(words[2]);
    mistake = count > 4 ? words[4] : "";
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    int64_t *mine = malloc((size_t)(rows + 1) * sizeof *mine), number = owned(size, rank, mine);
    int64_t turns = dmr_cyclic_rows(rows, block, size, rank);
    record *turn = calloc((size_t)turns + 1, sizeof *turn), *any = calloc((size_t)number + 1, sizeof *any);
    if (parent) {
        int64_t wanted = number;
        if (strcmp(mistake, "nobody") == 0 && rank == 0)
            mine[0] = rows + 5;
        if (strcmp(mistake, "unwanted") == 0 && rank == 0)
            wanted--;
        failed = dmr_receive(parent, &step, sizeof step) != 0 ||
                 dmr_receive_cyclic(parent, turn, rows, sizeof *turn, block) != 0 ||
                 dmr_receive_irregular(parent, any, mine, wanted, sizeof *any) != 0;
        if (failed)
            wrong("new", rank);
        dmr_finish(parent);
    } else {
        for (int64_t at = 0; at < turns; at++)
            turn[at] = made(dmr_cyclic_row(at, block, size, rank), 0);
        for (int64_t at = 0; at < number; at++)
            any[at] = made(mine[at], 0);
    }
    if (rank == 0 && !failed)
        printf("size %d at step %ld\n", size, (long)step);
    for (; step < steps && !failed; step++) {
        for (int64_t at = 0; at < turns; at++)
            check("in turn", &turn[at], dmr_cyclic_row(at, block, size, rank), step);
        for (int64_t at = 0; at < number; at++)
            check("at random", &any[at], mine[at], step);
        if (dmr_check_status(world, 1, 8, 1, 0, &new_size, &handler) == DMR_ERROR)
            MPI_Abort(world, 8);
        if (handler) {
            int64_t sent = strcmp(mistake, "block") == 0 ? block + 1 : block;
            if (strcmp(mistake, "twice") == 0 && number)
                mine[0] = 0;
            if (strcmp(mistake, "negative") == 0 && rank == 0)
                mine[0] = -1;
            failed = dmr_send(handler, &step, sizeof step) != 0 ||
                     dmr_send_cyclic(handler, turn, rows, sizeof *turn, sent) != 0 ||
                     dmr_send_irregular(handler, any, mine, number, sizeof *any) != 0;
            if (failed)
                wrong("old", rank);
            dmr_finish(handler);
            break;
        }
        for (int64_t at = 0; at < turns; at++)
            turn[at] = made(turn[at].row, step + 1);
        for (int64_t at = 0; at < number; at++)
            any[at] = made(any[at].row, step + 1);
    }
    if (step == steps && rank == 0)
        printf("made %ld steps\n", (long)step);
    free(mine);
    free(turn);
    free(any);
    MPI_Finalize();
    return 0;
}
