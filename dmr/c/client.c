#include "client.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "socket.h"
#include "talk.h"

static const double DEFAULT_TIMEOUT = 2.0, MAX_TIMEOUT = 3600.0, MAX_BACKOFF = 60.0, GRACE = 0.1;

struct dmr_client {
    char host[256];
    char port[8];
    double timeout; /* s, for a whole request */
    int connection; /* -1: none */
    int failures;
    double retry_at; /* on the clock of dmr_now */
};

/* Shared by the caller and the thread; who lets go of it last frees it. */
struct dmr_pending {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int users;
    bool done;
    dmr_talk talk; /* the thread's until `done` */
};

void dmr_warn(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "dmr: %s\n", text);
}

dmr_client *dmr_client_new(void)
{
    const char *address = getenv("DMR_AGENT"), *limit = getenv("DMR_TIMEOUT");
    if (!address || !*address)
        return NULL;
    const char *colon = strrchr(address, ':');
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    long port = digits >= 1 && digits <= 5 && !colon[1 + digits] ? strtol(colon + 1, NULL, 10) : 0;
    size_t length = colon ? (size_t)(colon - address) : 0;
    bool bracketed = length > 2 && address[0] == '[' && colon[-1] == ']';
    dmr_client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    if (port < 1 || port > 65535 || length < 1 || length >= sizeof client->host) {
        dmr_warn("DMR_AGENT=%.200s is not host:port; this application will not be resized", address);
        free(client);
        return NULL;
    }
    if (bracketed)
        memcpy(client->host, address + 1, length - 2);
    else
        memcpy(client->host, address, length);
    snprintf(client->port, sizeof client->port, "%ld", port);
    client->connection = -1;
    client->retry_at = -INFINITY;
    client->timeout = DEFAULT_TIMEOUT;
    if (limit && *limit) {
        char *end;
        double seconds = strtod(limit, &end);
        if (*end || !(seconds > 0 && seconds <= MAX_TIMEOUT))
            dmr_warn("DMR_TIMEOUT is not a number of seconds up to %g; using %g", MAX_TIMEOUT, DEFAULT_TIMEOUT);
        else
            client->timeout = seconds;
    }
    return client;
}

static void let_go(dmr_pending *pending)
{
    pthread_mutex_lock(&pending->lock);
    bool last = --pending->users == 0;
    pthread_mutex_unlock(&pending->lock);
    if (!last)
        return;
    dmr_shut(&pending->talk.connection);
    dmr_request_free(&pending->talk.request);
    dmr_reply_free(&pending->talk.reply);
    pthread_cond_destroy(&pending->changed);
    pthread_mutex_destroy(&pending->lock);
    free(pending);
}

static void *work(void *argument)
{
    dmr_pending *pending = argument;
    dmr_exchange(&pending->talk);
    pthread_mutex_lock(&pending->lock);
    pending->done = true;
    pthread_cond_signal(&pending->changed);
    pthread_mutex_unlock(&pending->lock);
    let_go(pending);
    return NULL;
}

bool dmr_in_background(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* The application's signals are for its own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool good = pthread_create(&thread, &attributes, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return good;
}

static void failed(dmr_client *client, const char *why)
{
    if (!client->failures)
        dmr_warn("no answer from the agent at %s:%s, going on as is (%s)", client->host, client->port, why);
    client->retry_at = dmr_now() + fmin(ldexp(1.0, client->failures), MAX_BACKOFF);
    if (client->failures < 16)
        client->failures++;
}

dmr_pending *dmr_client_start(dmr_client *client, dmr_request request, bool urgent)
{
    pthread_condattr_t monotonic;
    dmr_pending *pending = !urgent && dmr_now() < client->retry_at ? NULL : calloc(1, sizeof *pending);
    if (!pending) {
        dmr_request_free(&request);
        return NULL;
    }
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pending->lock, NULL);
    pthread_cond_init(&pending->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pending->users = 2;
    pending->talk.request = request;
    memcpy(pending->talk.host, client->host, sizeof pending->talk.host);
    memcpy(pending->talk.port, client->port, sizeof pending->talk.port);
    pending->talk.deadline = dmr_now() + client->timeout;
    pending->talk.connection = client->connection;
    client->connection = -1;
    if (!dmr_in_background(work, pending)) {
        let_go(pending);
        let_go(pending);
        failed(client, "no thread can be started");
        return NULL;
    }
    return pending;
}

bool dmr_client_ready(dmr_pending *pending)
{
    pthread_mutex_lock(&pending->lock);
    bool ready = pending->done || dmr_now() >= pending->talk.deadline + GRACE;
    pthread_mutex_unlock(&pending->lock);
    return ready;
}

bool dmr_client_finish(dmr_client *client, dmr_pending *pending, dmr_reply *reply)
{
    if (!pending)
        return false;
    double limit = pending->talk.deadline + GRACE;
    struct timespec until = {.tv_sec = (time_t)limit, .tv_nsec = (long)((limit - floor(limit)) * 1e9)};
    pthread_mutex_lock(&pending->lock);
    while (!pending->done && pthread_cond_timedwait(&pending->changed, &pending->lock, &until) == 0)
        continue;
    bool good = pending->done && !pending->talk.problem[0];
    char why[DMR_MAX_PROBLEM];
    snprintf(why, sizeof why, "%s", pending->done ? pending->talk.problem : "no answer in time");
    if (good) {
        *reply = pending->talk.reply;
        pending->talk.reply = (dmr_reply){.nodes = NULL};
        dmr_shut(&client->connection);
        client->connection = pending->talk.connection;
        pending->talk.connection = -1;
    }
    pthread_mutex_unlock(&pending->lock);
    let_go(pending);
    if (!good) {
        failed(client, why);
        return false;
    }
    /* These two come from a healthy agent: no reason to stay away from it. */
    bool healthy = strcmp(reply->word, "stale-epoch") == 0 || strcmp(reply->word, "busy") == 0;
    if (reply->kind == DMR_REPLY_FAILURE && !healthy) {
        char text[DMR_MAX_TEXT + 64];
        snprintf(text, sizeof text, "the agent says %s: %s", reply->word, reply->text);
        failed(client, text);
    } else {
        client->failures = 0;
        client->retry_at = -INFINITY;
    }
    return true;
}

void dmr_client_drop(dmr_pending *pending)
{
    if (pending)
        let_go(pending);
}
