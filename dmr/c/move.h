/* How data moves: the ranks of both sides agree on what it is, and then on nothing else. */
#ifndef DMR_MOVE_H
#define DMR_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "resize.h"

/* What every rank of both sides says of it. */
typedef enum { DMR_BYTES = 1, DMR_BLOCKS, DMR_CYCLIC, DMR_IRREGULAR } dmr_kind;
typedef struct {
    dmr_kind kind;
    int64_t rows, row_bytes, block;
} dmr_cargo;

/* What may be wrong with it on a rank; the last of these that a rank has counts. */
typedef enum { DMR_FINE, DMR_NO_MEMORY, DMR_UNWANTED, DMR_NOBODYS, DMR_TWICE, DMR_NEGATIVE, DMR_WRONGS } dmr_wrong;

/* Whether all ranks speak of the same thing, which can be moved; collective over both sides. */
bool dmr_agreed(const dmr_handler *handler, dmr_cargo mine, dmr_wrong wrong);

/* The largest of each number that a rank of either side has, on all of them. At most DMR_NUMBERS. */
enum { DMR_NUMBERS = 16 };
void dmr_most(const dmr_handler *handler, int64_t *numbers, int count);

/* Whether the handler is of the other side; then dmr_error says so. That is the caller's mistake, of which the other
 * side cannot know: nothing is exchanged. */
bool dmr_wrong_side(const dmr_handler *handler, bool old);

/* A row that goes to or comes from a rank of the other side, and its place among this rank's rows. */
typedef struct {
    int peer;
    int64_t row, at;
} dmr_parcel;

/* Exchanges rows, which are sorted first; both sides hold the same ones. Collective over both. False without memory on
 * any rank, and nothing has moved. */
bool dmr_move_rows(const dmr_handler *handler, void *data, dmr_parcel *parcels, int64_t count, size_t row_bytes);

/* One row, so that counts are those of rows. */
MPI_Datatype dmr_row_type(size_t row_bytes);

#endif
