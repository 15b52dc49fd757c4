#include "socket.h"

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

int dmr_dial(const char *host, const char *port, double deadline, char problem[DMR_MAX_PROBLEM])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int connection = -1, code = getaddrinfo(host, port, &hints, &found);
    if (code) {
        snprintf(problem, DMR_MAX_PROBLEM, "%s", gai_strerror(code));
        return -1;
    }
    for (struct addrinfo *to = found; to && connection < 0; to = to->ai_next)
        connection = connected(to, deadline);
    if (connection < 0)
        snprintf(problem, DMR_MAX_PROBLEM, "%s", strerror(errno));
    freeaddrinfo(found);
    return connection;
}

/* After a call that could not go on at once: whether it can now. */
static bool waits(int connection, short events, double deadline)
{
    return (errno == EAGAIN || errno == EINTR) && wait_for(connection, events, deadline);
}

bool dmr_put(int connection, const char *text, double deadline, char problem[DMR_MAX_PROBLEM])
{
    for (size_t left = strlen(text); left;) {
        ssize_t sent = send(connection, text, left, MSG_NOSIGNAL);
        if (sent > 0) {
            text += sent;
            left -= (size_t)sent;
        } else if (!waits(connection, POLLOUT, deadline)) {
            snprintf(problem, DMR_MAX_PROBLEM, "%s", strerror(errno));
            return false;
        }
    }
    return true;
}

char *dmr_get(int connection, size_t most, double deadline, const char *who, size_t *length,
              char problem[DMR_MAX_PROBLEM])
{
    char *line = malloc(most + 1);
    problem[0] = '\0';
    *length = 0;
    if (!line)
        snprintf(problem, DMR_MAX_PROBLEM, "no memory");
    while (!problem[0] && !(*length && line[*length - 1] == '\n')) {
        ssize_t got = recv(connection, line + *length, most + 1 - *length, 0);
        if (got > 0)
            *length += (size_t)got;
        else if (got == 0)
            snprintf(problem, DMR_MAX_PROBLEM, "%s closed the connection", who);
        else if (!waits(connection, POLLIN, deadline))
            snprintf(problem, DMR_MAX_PROBLEM, "%s", errno == ETIMEDOUT ? "no answer in time" : strerror(errno));
        if (*length > most)
            snprintf(problem, DMR_MAX_PROBLEM, "the reply is too long");
    }
    if (problem[0]) {
        free(line);
        line = NULL;
    }
    return line;
}
