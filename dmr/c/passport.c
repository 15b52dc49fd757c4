#include "passport.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

/* Numbers, then who holds each node, then the nodes' names, each with its zero byte. */
typedef struct {
    int job, epoch, per_node, nodes;
} facts;

bool dmr_passport_make(dmr_passport *passport, const dmr_session *session, const dmr_reply *reply, const int *jobs)
{
    facts head = {session->job, reply->epoch, reply->per_node, reply->node_count};
    size_t held = (size_t)head.nodes * sizeof *jobs, length = sizeof head + held;
    char *at = passport->bytes = malloc(length + (size_t)head.nodes * (DMR_MAX_NAME + 1));
    if (!at || length > INT_MAX / 2) {
        free(at);
        return false;
    }
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, jobs, held);
    at += length;
    for (int i = 0; i < head.nodes; i++) {
        size_t bytes = strlen(reply->nodes[i]) + 1;
        memcpy(at, reply->nodes[i], bytes);
        at += bytes;
    }
    passport->length = (int)(at - passport->bytes);
    return true;
}

/* Who holds the nodes; to be freed. NULL without memory. */
static int *jobs_of(const dmr_passport *passport, facts *head)
{
    memcpy(head, passport->bytes, sizeof *head);
    int *jobs = calloc((size_t)head->nodes + 1, sizeof *jobs);
    if (jobs)
        memcpy(jobs, passport->bytes + sizeof *head, (size_t)head->nodes * sizeof *jobs);
    return jobs;
}

bool dmr_passport_read(const dmr_passport *passport, dmr_session *session)
{
    facts head;
    int *jobs = jobs_of(passport, &head);
    char **nodes = calloc((size_t)head.nodes + 1, sizeof *nodes);
    char *at = passport->bytes + sizeof head + (size_t)head.nodes * sizeof *jobs;
    for (int i = 0; nodes && i < head.nodes; i++) {
        nodes[i] = at;
        at += strlen(at) + 1;
    }
    session->job = head.job;
    session->epoch = head.epoch;
    session->per_node = head.per_node;
    bool good = jobs && nodes && dmr_session_set_nodes(session, nodes, jobs, head.nodes);
    free(jobs);
    free(nodes);
    return good;
}

int dmr_passport_rank(const dmr_passport *passport, int place)
{
    facts head;
    dmr_layout layout;
    int rank = place, *jobs = jobs_of(passport, &head);
    if (jobs && dmr_layout_make(&layout, jobs, head.nodes, head.per_node)) {
        for (rank = 0; rank < layout.size - 1 && layout.places[rank] != place;)
            rank++;
        dmr_layout_free(&layout);
    }
    free(jobs);
    return rank;
}
