#include "talk.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

double dmr_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void dmr_shut(int *connection)
{
    if (*connection >= 0)
        close(*connection);
    *connection = -1;
}

static bool wait_for(int connection, short events, double deadline)
{
    struct pollfd poll_it = {.fd = connection, .events = events};
    for (;;) {
        double left = deadline - dmr_now();
        int found = left > 0 ? poll(&poll_it, 1, (int)ceil(left * 1000)) : 0;
        if (found > 0)
            return true;
        if (found == 0 || errno != EINTR) {
            if (found == 0)
                errno = ETIMEDOUT;
            return false;
        }
    }
}

static int connected(const struct addrinfo *to, double deadline)
{
    int one = 1, error = 0;
    socklen_t length = sizeof error;
    int connection = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->ai_protocol);
    if (connection < 0)
        return -1;
    if (connect(connection, to->ai_addr, to->ai_addrlen) != 0) {
        if (errno != EINPROGRESS || !wait_for(connection, POLLOUT, deadline))
            goto failed;
        if (getsockopt(connection, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error) {
            errno = error ? error : errno;
            goto failed;
        }
    }
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return connection;
failed:
    error = errno;
    close(connection);
    errno = error;
    return -1;
}

static bool open_connection(dmr_talk *talk)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int code = getaddrinfo(talk->host, talk->port, &hints, &found);
    if (code) {
        snprintf(talk->problem, sizeof talk->problem, "%s", gai_strerror(code));
        return false;
    }
    for (struct addrinfo *to = found; to && talk->connection < 0; to = to->ai_next)
        talk->connection = connected(to, talk->deadline);
    if (talk->connection < 0)
        snprintf(talk->problem, sizeof talk->problem, "%s", strerror(errno));
    freeaddrinfo(found);
    return talk->connection >= 0;
}

/* Nothing is due between requests, so a readable connection is one that the agent closed, or that lost its step. */
static bool has_ended(int connection)
{
    struct pollfd poll_it = {.fd = connection, .events = POLLIN};
    return poll(&poll_it, 1, 0) != 0;
}

/* After a call that could not go on at once: whether it can now. */
static bool waits(const dmr_talk *talk, short events)
{
    return (errno == EAGAIN || errno == EINTR) && wait_for(talk->connection, events, talk->deadline);
}

static bool send_all(dmr_talk *talk, const char *line)
{
    for (size_t left = strlen(line); left;) {
        ssize_t sent = send(talk->connection, line, left, MSG_NOSIGNAL);
        if (sent > 0) {
            line += sent;
            left -= (size_t)sent;
        } else if (!waits(talk, POLLOUT)) {
            snprintf(talk->problem, sizeof talk->problem, "%s", strerror(errno));
            return false;
        }
    }
    return true;
}

static bool receive_line(dmr_talk *talk)
{
    size_t length = 0;
    char *line = malloc(DMR_MAX_LINE + 1);
    const char *problem = line ? NULL : "no memory";
    while (!problem && !(length && line[length - 1] == '\n')) {
        ssize_t got = recv(talk->connection, line + length, DMR_MAX_LINE + 1 - length, 0);
        if (got > 0)
            length += (size_t)got;
        else if (got == 0)
            problem = "the agent closed the connection";
        else if (!waits(talk, POLLIN))
            problem = errno == ETIMEDOUT ? "no answer in time" : strerror(errno);
        if (length > DMR_MAX_LINE)
            problem = "the reply is too long";
    }
    if (!problem && (problem = dmr_wire_reply(line, length, &talk->reply)))
        snprintf(talk->problem, sizeof talk->problem, "the reply: %s", problem);
    else if (problem)
        snprintf(talk->problem, sizeof talk->problem, "%s", problem);
    free(line);
    return !problem;
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
    good = good && (talk->connection >= 0 || open_connection(talk)) && send_all(talk, line) &&
           receive_line(talk);
    free(line);
    /* A late reply must not be taken for the answer to the next request, so the connection goes. */
    if (!good)
        dmr_shut(&talk->connection);
    return good;
}
