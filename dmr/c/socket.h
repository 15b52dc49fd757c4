/* TCP connections within a deadline. None of this makes an MPI call. */
#ifndef DMR_SOCKET_H
#define DMR_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "credential.h"

/* Seconds on the monotonic clock; deadlines are on it. */
double dmr_now(void);

/* A connection, or -1 with `problem` filled. Resolving the host does not know the deadline. */
int dmr_dial(const char *host, const char *port, double deadline, char problem[DMR_MAX_PROBLEM]);

/* Sends the whole text; false with `problem` filled. */
bool dmr_put(int connection, const char *text, double deadline, char problem[DMR_MAX_PROBLEM]);

/* The next line of at most `most` bytes, with its newline, which must end what has come so far; `length` gets its
 * length. To be freed; NULL with `problem` filled. `who` is the other side, for it. */
char *dmr_get(int connection, size_t most, double deadline, const char *who, size_t *length,
              char problem[DMR_MAX_PROBLEM]);

/* Closes the connection, if any. */
void dmr_shut(int *connection);

#endif
