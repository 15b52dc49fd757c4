#include "talk.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "socket.h"

/* Nothing is due between requests, so a readable connection is one that the agent closed, or that lost its step. */
static bool has_ended(int connection)
{
    struct pollfd poll_it = {.fd = connection, .events = POLLIN};
    return poll(&poll_it, 1, 0) != 0;
}

static bool receive(dmr_talk *talk)
{
    size_t length;
    char *line = dmr_get(talk->connection, DMR_MAX_LINE, talk->deadline, "the agent", &length, talk->problem);
    const char *problem = line ? dmr_wire_reply(line, length, &talk->reply) : NULL;
    if (problem)
        snprintf(talk->problem, sizeof talk->problem, "the reply: %s", problem);
    free(line);
    return line && !problem;
}

bool dmr_exchange(dmr_talk *talk)
{
    char digest[DMR_HEX];
    dmr_wire_digest(&talk->request, digest);
    char *auth = dmr_credential(digest, talk->problem);
    char *line = auth ? dmr_wire_line(&talk->request, auth) : NULL;
    bool good = line;
    if (auth && !line)
        snprintf(talk->problem, sizeof talk->problem, "the request is too long");
    free(auth);
    if (good && talk->connection >= 0 && has_ended(talk->connection))
        dmr_shut(&talk->connection);
    if (good && talk->connection < 0)
        talk->connection = dmr_dial(talk->to.host, talk->to.port, talk->deadline, talk->problem);
    good = good && talk->connection >= 0 && dmr_put(talk->connection, line, talk->deadline, talk->problem) &&
           receive(talk);
    free(line);
    /* A late reply must not be taken for the answer to the next request, so the connection goes. */
    if (!good)
        dmr_shut(&talk->connection);
    return good;
}
