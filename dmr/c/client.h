/* Rank 0's line to the agent: one request, one reply, a strict time limit.
 *
 * Each request is made in a thread of its own, which makes no MPI call, because neither getaddrinfo() nor libmunge
 * takes a time limit. One that is late is left alone with its connection. After a failure the client waits 1, 2, 4 ...
 * 60 seconds before it tries again, so that a dead agent costs next to nothing. */
#ifndef DMR_CLIENT_H
#define DMR_CLIENT_H

#include <stdbool.h>

#include "wire.h"

typedef struct dmr_client dmr_client;
typedef struct dmr_pending dmr_pending;

/* The client for DMR_AGENT with the limit DMR_TIMEOUT; NULL when unset or not usable, which it says. */
dmr_client *dmr_client_new(void);

/* Begins a request, which is freed. NULL within the back-off, unless `urgent`, and when it cannot be sent at all. */
dmr_pending *dmr_client_start(dmr_client *client, dmr_request request, bool urgent);

/* Whether dmr_client_finish will not wait. */
bool dmr_client_ready(dmr_pending *pending);

/* Whether a reply came in time; it is to be freed then. Waits for it, and frees what is pending (which may be NULL). */
bool dmr_client_finish(dmr_client *client, dmr_pending *pending, dmr_reply *reply);

/* Gives up the answer, without waiting. */
void dmr_client_drop(dmr_pending *pending);

/* Runs this in a thread of its own, which makes no MPI call and hears none of the application's signals. */
bool dmr_in_background(void *(*run)(void *), void *argument);

/* A warning on standard error. */
void dmr_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
