/* A resize under way, as check.c makes it and move.c uses it. */
#ifndef DMR_RESIZE_H
#define DMR_RESIZE_H

#include <stdbool.h>

#include "dmr.h"

struct dmr_handler {
    MPI_Comm comm;  /* of this side */
    MPI_Comm inter; /* to the other side */
    bool old;       /* which side this is */
    int rank, size; /* of this side */
    int other;      /* size of the other side */
    double began, spawn_seconds;
};

/* Starts this program again; collective over `comm`. The same on all ranks: the intercommunicator to the new processes,
 * or MPI_COMM_NULL and `problem`. */
MPI_Comm dmr_spawn(MPI_Comm comm, int size, const char *hosts, char *problem, int capacity);

/* Why that would fail on this node, or "". */
void dmr_spawn_preflight(const char *hosts, char *problem, int capacity);

/* Keeps a text for dmr_error and returns DMR_ERROR. */
int dmr_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
