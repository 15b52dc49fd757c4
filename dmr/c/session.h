/* What this process knows of its job, and rank 0's side of every talk with the agent. */
#ifndef DMR_SESSION_H
#define DMR_SESSION_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include "client.h"
#include "sizes.h"
#include "wire.h"

/* Calls are ignored for ever: it is clear that nothing will ever happen. */
#define DMR_FOR_EVER UINT64_MAX

/* What rank 0 found out: how many of the next calls to ignore, and perhaps a resize (`has_reply`). */
typedef struct {
    uint64_t skip;
    bool has_reply;
    dmr_reply reply;
} dmr_verdict;

typedef struct {
    uint64_t skip; /* calls still to be ignored */
    int job, epoch, per_node;
    bool placed; /* `nodes` is known; none: the ranks are not `per_node` on each */
    char **nodes;
    int *jobs; /* who holds each node; 0: `job`, the application's own */
    int node_count;
    bool knows_world; /* the program takes its communicator from dmr_world */
    bool half_open;   /* a connection to new processes broke off: MPICH may crash in the next one */
    MPI_Comm given;   /* what a resize gave for MPI_COMM_WORLD, or MPI_COMM_NULL */
    /* On rank 0 only: */
    dmr_client *client;
    bool by_port; /* a launcher starts new processes, and MPI ports join them */
    dmr_pending *question; /* whose answer is still to come */
    bool measured;
    double left, step_seconds; /* when the last real call ended; 0: not known */
    uint64_t ignored, bound;
    char told[64]; /* the request for nodes that the launcher has heard of last, and when */
    double told_at;
} dmr_session;

/* The one of this process. */
dmr_session *dmr_the_session(void);

/* Takes over names, and the jobs that hold these nodes (NULL: the application's own), which are copied; the same on all
 * ranks. */
bool dmr_session_set_nodes(dmr_session *session, char *const *nodes, const int *jobs, int count);

/* Who will hold the nodes of a resize, by node; to be freed, NULL without memory. */
int *dmr_session_jobs_after(const dmr_session *session, const dmr_reply *reply);

/* One real check on rank 0 of `size`. `later`: the question goes to the background, and its answer is taken by the
 * first call that finds it there. */
dmr_verdict dmr_session_decide(dmr_session *session, int size, const dmr_bounds *bounds, bool later);

/* Whether the agent confirms that the resize may begin. */
bool dmr_session_accept(dmr_session *session, int epoch);

/* Tells the agent that it will not happen, or that it has. */
void dmr_session_refuse(dmr_session *session, int epoch, const char *why);
void dmr_session_finished(dmr_session *session, int size, double spawn, double move);

#endif
