/* Rows that are not dealt in blocks: in turn, or as the program says. */
#include <stdlib.h>
#include <string.h>

#include "move.h"

/* ---- dealt in turn ---- */

int64_t dmr_cyclic_rows(int64_t rows, int64_t block, int size, int rank)
{
    int64_t blocks = rows / block, rest = rows % block;
    int64_t mine = blocks / size + (rank < blocks % size);
    return mine * block + (blocks % size == rank ? rest : 0);
}

int64_t dmr_cyclic_row(int64_t at, int64_t block, int size, int rank)
{
    return (at / block * size + rank) * block + at % block;
}

static int move_cyclic(const dmr_handler *handler, void *mine, int64_t rows, size_t row_bytes, int64_t block)
{
    dmr_cargo cargo = {DMR_CYCLIC, rows, (int64_t)row_bytes, block};
    bool sound = rows >= 0 && block >= 1 && row_bytes <= INT64_MAX;
    int64_t count = sound ? dmr_cyclic_rows(rows, block, handler->size, handler->rank) : 0;
    dmr_parcel *parcels = calloc((size_t)count + 1, sizeof *parcels);
    bool good = dmr_agreed(handler, cargo, !sound ? DMR_NEGATIVE : parcels ? DMR_FINE : DMR_NO_MEMORY);
    for (int64_t at = 0; good && at < count; at++) {
        int64_t row = dmr_cyclic_row(at, block, handler->size, handler->rank);
        parcels[at] = (dmr_parcel){(int)(row / block % handler->other), row, at};
    }
    if (good && !(good = dmr_move_rows(handler, mine, parcels, count, row_bytes)))
        dmr_fail("no memory is left");
    free(parcels);
    return good ? 0 : DMR_ERROR;
}

int dmr_send_cyclic(dmr_handler *handler, const void *mine, int64_t rows, size_t row_bytes, int64_t block)
{
    return dmr_wrong_side(handler, true) ? DMR_ERROR
                                         : move_cyclic(handler, (void *)(uintptr_t)mine, rows, row_bytes, block);
}

int dmr_receive_cyclic(dmr_handler *handler, void *mine, int64_t rows, size_t row_bytes, int64_t block)
{
    return dmr_wrong_side(handler, false) ? DMR_ERROR : move_cyclic(handler, mine, rows, row_bytes, block);
}

/* ---- dealt as the program says ----
 *
 * Nobody knows who holds a row, so each new rank keeps a list for its part of all rows: the old ranks tell it which of
 * these they have, the new ones which they want. It tells both of each other. A note is a parcel: a row, its place on the
 * rank that is to move it, and in the answers who is at the other end. */

/* Notes to each rank of a communicator, and those that came from them, in order of the ranks. */
typedef struct {
    MPI_Count *sent, *received;
    MPI_Aint *from, *to;
    dmr_parcel *came;
    int64_t count;
} mail;

static void throw_away(mail *post)
{
    free(post->sent);
    free(post->from);
    free(post->came);
    *post = (mail){.sent = NULL};
}

static bool prepare(mail *post, int ranks)
{
    size_t each = (size_t)ranks;
    *post = (mail){.sent = calloc(2 * each, sizeof *post->sent), .from = calloc(2 * each, sizeof *post->from)};
    if (!post->sent || !post->from) {
        throw_away(post);
        return false;
    }
    post->received = post->sent + each;
    post->to = post->from + each;
    return true;
}

/* Where the part of each rank begins. */
static void begins(const MPI_Count *counts, MPI_Aint *places, int ranks)
{
    MPI_Aint place = 0;
    for (int i = 0; i < ranks; i++) {
        places[i] = place;
        place += (MPI_Aint)counts[i];
    }
}

/* Sends notes, in order of their receivers, `sent` to each; collective over the communicator. False without memory for
 * what comes: the others must hear of it before `deliver`. */
static bool announce(mail *post, MPI_Comm comm, int ranks)
{
    MPI_Alltoall(post->sent, 1, MPI_COUNT, post->received, 1, MPI_COUNT, comm);
    begins(post->sent, post->from, ranks);
    begins(post->received, post->to, ranks);
    for (int i = 0; i < ranks; i++)
        post->count += post->received[i];
    return (post->came = calloc((size_t)post->count + 1, sizeof *post->came));
}

static void deliver(mail *post, const dmr_parcel *notes, MPI_Comm comm)
{
    MPI_Datatype type = dmr_row_type(sizeof *notes);
    MPI_Alltoallv_c(notes, post->sent, post->from, type, post->came, post->received, post->to, type, comm);
    MPI_Type_free(&type);
}

/* Which new rank keeps the list for a row. */
static int keeper(int64_t row, int64_t rows, int ranks)
{
    int64_t each = rows / ranks, extra = rows % ranks, large = extra * (each + 1);
    return (int)(row < large ? row / (each + 1) : extra + (row - large) / (each ? each : 1));
}

/* The notes of this rank's rows in order of the keepers; NULL without memory. */
static dmr_parcel *sorted(const int64_t *rows, int64_t count, int64_t all, int ranks, mail *post)
{
    dmr_parcel *notes = calloc((size_t)count + 1, sizeof *notes);
    MPI_Aint *next = post->to; /* not in use yet */
    for (int64_t i = 0; i < count; i++)
        post->sent[keeper(rows[i], all, ranks)]++;
    begins(post->sent, next, ranks);
    for (int64_t i = 0; notes && i < count; i++)
        notes[next[keeper(rows[i], all, ranks)]++] = (dmr_parcel){0, rows[i], i};
    return notes;
}

/* Fills in who holds each wanted row, and where (`places`, by what came); what is wrong with the rows of this keeper. */
static dmr_wrong match(const mail *held, int held_ranks, mail *wanted, int64_t *places, int64_t start, int64_t stop)
{
    dmr_wrong wrong = DMR_FINE;
    dmr_parcel *owners = malloc((size_t)(stop - start + 1) * sizeof *owners);
    if (!owners)
        return DMR_NO_MEMORY;
    for (int64_t i = 0; i < stop - start; i++)
        owners[i] = (dmr_parcel){-1, 0, 0};
    for (int rank = 0; rank < held_ranks; rank++)
        for (MPI_Count i = 0; i < held->received[rank]; i++) {
            const dmr_parcel *one = &held->came[held->to[rank] + (MPI_Aint)i];
            dmr_parcel *owner = &owners[one->row - start];
            wrong = owner->peer < 0 ? wrong : DMR_TWICE;
            *owner = (dmr_parcel){rank, 0, one->at};
        }
    for (int64_t i = 0; i < wanted->count; i++) {
        dmr_parcel *owner = &owners[wanted->came[i].row - start];
        wrong = owner->peer >= 0 || wrong ? wrong : DMR_NOBODYS;
        wanted->came[i].peer = owner->peer;
        places[i] = owner->at;
        owner->row = 1; /* somebody wants it */
    }
    for (int64_t i = 0; i < stop - start; i++)
        wrong = owners[i].row || owners[i].peer < 0 || wrong ? wrong : DMR_UNWANTED;
    free(owners);
    return wrong;
}

/* Whether some rank of either side lacks memory, which is an error on all of them. */
static bool lacks(const dmr_handler *handler, bool here)
{
    int64_t seen = here;
    dmr_most(handler, &seen, 1);
    if (seen)
        dmr_fail("no memory is left");
    return seen;
}

/* What the keepers tell the old ranks: the rows that each new one wants of them. NULL without memory. */
static dmr_parcel *orders(const mail *wanted, int ranks, const int64_t *places, mail *post, int old_ranks)
{
    dmr_parcel *notes = calloc((size_t)wanted->count + 1, sizeof *notes);
    MPI_Aint *next = post->to; /* not in use yet */
    for (int64_t i = 0; i < wanted->count; i++)
        post->sent[wanted->came[i].peer]++;
    begins(post->sent, next, old_ranks);
    for (int rank = 0; notes && rank < ranks; rank++)
        for (MPI_Count i = 0; i < wanted->received[rank]; i++) {
            MPI_Aint at = wanted->to[rank] + (MPI_Aint)i;
            notes[next[wanted->came[at].peer]++] = (dmr_parcel){rank, wanted->came[at].row, places[at]};
        }
    return notes;
}

/* All that is in use between the steps. `mine` are the notes of this rank's rows. */
typedef struct {
    mail offers, wants, orders;
    dmr_parcel *mine, *ordered;
    int64_t *places;
} matching;

/* Finds out where this rank's rows go, or come from: so many `parcels`. -1: dmr_error() says why on all ranks. */
static int64_t matched(const dmr_handler *handler, const int64_t *rows, int64_t count, int64_t all, matching *m,
                       dmr_parcel **parcels)
{
    bool old = handler->old;
    int keepers = old ? handler->other : handler->size, mates = old ? handler->size : handler->other;
    int64_t start, stop;
    bool good = prepare(&m->offers, handler->other) && prepare(&m->orders, handler->other) &&
                prepare(&m->wants, handler->size) &&
                (m->mine = sorted(rows, count, all, keepers, old ? &m->offers : &m->wants));
    if (lacks(handler, !good))
        return -1;
    good = announce(&m->offers, handler->inter, handler->other);
    if (!old)
        good = announce(&m->wants, handler->comm, handler->size) &&
               (m->places = calloc((size_t)m->wants.count + 1, sizeof *m->places)) && good;
    if (lacks(handler, !good))
        return -1;
    deliver(&m->offers, m->mine, handler->inter);
    dmr_wrong wrong = DMR_FINE;
    if (!old) {
        deliver(&m->wants, m->mine, handler->comm);
        dmr_block_bounds(all, handler->size, handler->rank, &start, &stop);
        wrong = match(&m->offers, mates, &m->wants, m->places, start, stop);
        if (wrong == DMR_FINE && !(m->ordered = orders(&m->wants, handler->size, m->places, &m->orders, mates)))
            wrong = DMR_NO_MEMORY;
    }
    if (!dmr_agreed(handler, (dmr_cargo){DMR_IRREGULAR, 0, 0, 0}, wrong) ||
        lacks(handler, !announce(&m->orders, handler->inter, handler->other)))
        return -1;
    deliver(&m->orders, m->ordered, handler->inter);
    *parcels = m->orders.came;
    if (old)
        return m->orders.count;
    MPI_Datatype type = dmr_row_type(sizeof *m->mine); /* back to who asked, in the order of the questions */
    MPI_Alltoallv_c(m->wants.came, m->wants.received, m->wants.to, type, m->mine, m->wants.sent, m->wants.from, type,
                    handler->comm);
    MPI_Type_free(&type);
    *parcels = m->mine;
    return count;
}

static int move_irregular(const dmr_handler *handler, void *mine, const int64_t *rows, int64_t count, size_t row_bytes)
{
    dmr_cargo cargo = {DMR_IRREGULAR, 0, (int64_t)row_bytes, 0};
    int64_t last = -1, moved = -1;
    bool sound = count >= 0 && row_bytes <= INT64_MAX;
    for (int64_t i = 0; sound && i < count; i++) {
        last = rows[i] > last ? rows[i] : last;
        sound = rows[i] >= 0;
    }
    if (!dmr_agreed(handler, cargo, sound ? DMR_FINE : DMR_NEGATIVE))
        return DMR_ERROR;
    dmr_most(handler, &last, 1);
    matching m = {.mine = NULL};
    dmr_parcel *parcels = NULL;
    moved = matched(handler, rows, count, last + 1, &m, &parcels);
    if (moved >= 0 && !dmr_move_rows(handler, mine, parcels, moved, row_bytes)) {
        dmr_fail("no memory is left");
        moved = -1;
    }
    throw_away(&m.offers);
    throw_away(&m.wants);
    throw_away(&m.orders);
    free(m.mine);
    free(m.ordered);
    free(m.places);
    return moved < 0 ? DMR_ERROR : 0;
}

int dmr_send_irregular(dmr_handler *handler, const void *mine, const int64_t *rows, int64_t count, size_t row_bytes)
{
    return dmr_wrong_side(handler, true)
               ? DMR_ERROR
               : move_irregular(handler, (void *)(uintptr_t)mine, rows, count, row_bytes);
}

int dmr_receive_irregular(dmr_handler *handler, void *mine, const int64_t *rows, int64_t count, size_t row_bytes)
{
    return dmr_wrong_side(handler, false) ? DMR_ERROR : move_irregular(handler, mine, rows, count, row_bytes);
}
