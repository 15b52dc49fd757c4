/* A resize under way, as check.c makes it and move.c uses it. */
#ifndef DMR_RESIZE_H
#define DMR_RESIZE_H

#include <stdbool.h>

#include "dmr.h"
#include "line.h"
#include "passport.h"

struct dmr_handler {
    MPI_Comm comm;  /* of this side */
    MPI_Comm inter; /* to the other side */
    bool old;       /* which side this is */
    int rank, size; /* of this side */
    int other;      /* size of the other side */
    double began, spawn_seconds;
};

/* The length of texts that say what is wrong. */
enum { DMR_TEXT = 512 };

/* Starts this program again; collective over `comm`. The same on all ranks: the intercommunicator to the new processes,
 * or MPI_COMM_NULL and `problem`. */
MPI_Comm dmr_spawn(MPI_Comm comm, int size, const char *hosts, char *problem, int capacity);

/* Why that would fail on this node, or ""; `launched`: it is to be started by a launcher, which has its arguments. */
void dmr_spawn_preflight(const char *hosts, bool launched, char *problem, int capacity);

/* Joins the worlds that a launcher has started, in their order; collective over `comm`, where rank 0's words count.
 *
 * They all get the passport. Returns, the same on all ranks, the intercommunicator to the new processes; or
 * MPI_COMM_NULL and `problem`. `broken` gets whether a connection has broken off then. */
MPI_Comm dmr_join(MPI_Comm comm, const dmr_worlds *worlds, const dmr_layout *layout, const dmr_passport *passport,
                  char problem[DMR_TEXT], bool *broken);

/* The new side, in the processes of one world, `comm`: the intercommunicator to those who were there before, and in
 * `all` the communicator of all new ranks; `comm` itself where they are of one world. The passport is to be freed. It
 * ends the process where nobody comes. */
MPI_Comm dmr_accept(MPI_Comm comm, MPI_Comm *all, dmr_passport *passport);

/* As MPI_Bcast with this root: to all who receive it and have none, who are to free it. */
void dmr_send_passport(MPI_Comm comm, int root, dmr_passport *passport);

/* The first text that is not empty, of all ranks, on all of them; whether there is one. */
bool dmr_first_text(MPI_Comm comm, char text[DMR_TEXT]);

/* A barrier that does not keep the processors busy: new processes may be starting on them. */
void dmr_wait(MPI_Comm comm);

/* Keeps a text for dmr_error and returns DMR_ERROR. */
int dmr_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
