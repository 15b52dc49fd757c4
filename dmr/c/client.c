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

enum { MAX_HOSTS = 8 };

struct dmr_client {
    dmr_address hosts[MAX_HOSTS]; /* where the agent may be */
    int count, turn;
    double timeout; /* s, for a whole request */
    int connection; /* -1: none */
    long failures;
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

/* Reads host:port, of which the text has `length` bytes; false where it is not that. */
static bool read_address(const char *text, size_t length, dmr_address *address)
{
    const char *colon = text + length;
    while (colon > text && colon[-1] != ':')
        colon--;
    if (colon == text)
        return false;
    const char *digits = colon--;
    size_t host = (size_t)(colon - text), count = length - host - 1;
    bool good = count >= 1 && count <= 5 && strspn(digits, "0123456789") >= count;
    long port = good ? strtol(digits, NULL, 10) : 0;
    if (port < 1 || port > 65535 || host < 1 || host >= sizeof address->host)
        return false;
    bool bracketed = host > 2 && text[0] == '[' && colon[-1] == ']';
    memset(address, 0, sizeof *address);
    memcpy(address->host, text + bracketed, host - 2 * bracketed);
    snprintf(address->port, sizeof address->port, "%ld", port);
    return true;
}

/* The other hosts on which the agent may be, with commas between them; what is none is left out, which is said. */
static void read_others(dmr_client *client, const char *text)
{
    while (text && *text) {
        size_t length = strcspn(text, ",");
        dmr_address *next = &client->hosts[client->count];
        if (length && client->count < MAX_HOSTS) {
            if (!read_address(text, length, next))
                dmr_warn("DMR_AGENT_OTHERS: %.*s is not host:port; left out", (int)(length < 200 ? length : 200), text);
            else if (memcmp(next, &client->hosts[0], sizeof *next) != 0)
                client->count++;
        }
        text += length + (text[length] == ',');
    }
}

dmr_client *dmr_client_new(void)
{
    const char *address = getenv("DMR_AGENT"), *limit = getenv("DMR_TIMEOUT");
    if (!address || !*address)
        return NULL;
    dmr_client *client = calloc(1, sizeof *client);
    if (!client)
        return NULL;
    if (!read_address(address, strlen(address), &client->hosts[0])) {
        dmr_warn("DMR_AGENT=%.200s is not host:port; this application will not be resized", address);
        free(client);
        return NULL;
    }
    client->count = 1;
    read_others(client, getenv("DMR_AGENT_OTHERS"));
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

/* `there`: somebody has answered, so that no other host is asked. */
static void failed(dmr_client *client, const char *why, bool there)
{
    const dmr_address *at = &client->hosts[client->turn];
    long rounds = client->failures / client->count, asked = client->failures % client->count;
    if (!client->failures)
        dmr_warn("no answer from the agent at %s:%s, going on as is (%s)", at->host, at->port, why);
    if (there || asked == client->count - 1)
        client->retry_at = dmr_now() + fmin(ldexp(1.0, rounds < 16 ? (int)rounds : 16), MAX_BACKOFF);
    if (!there)
        client->turn = (client->turn + 1) % client->count;
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
    pending->talk.to = client->hosts[client->turn];
    pending->talk.deadline = dmr_now() + client->timeout;
    pending->talk.connection = client->connection;
    client->connection = -1;
    if (!dmr_in_background(work, pending)) {
        let_go(pending);
        let_go(pending);
        failed(client, "no thread can be started", true);
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
        failed(client, why, false);
        return false;
    }
    /* These two come from a healthy agent: no reason to stay away from it. */
    bool healthy = strcmp(reply->word, "stale-epoch") == 0 || strcmp(reply->word, "busy") == 0;
    if (reply->kind == DMR_REPLY_FAILURE && !healthy) {
        char text[DMR_MAX_TEXT + 64];
        snprintf(text, sizeof text, "the agent says %s: %s", reply->word, reply->text);
        failed(client, text, true);
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
