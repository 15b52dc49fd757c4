#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resize.h"
#include "session.h"

enum { TEXT = 512, PASSPORT = 6 };

static char last_error[TEXT];

int dmr_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(last_error, sizeof last_error, format, list);
    va_end(list);
    return DMR_ERROR;
}

const char *dmr_error(void) { return last_error; }

/* Whether the arguments are sound and the same on all ranks; the same answer and error on all of them. */
static bool agreed(MPI_Comm comm, const dmr_bounds *bounds, bool later)
{
    static const char *const names[] = {"minimum", "maximum", "factor", "preferred", "the function called"};
    const int64_t mine[5] = {bounds->minimum, bounds->maximum, bounds->factor, bounds->preferred, later};
    int64_t seen[10];
    char problem[256];
    for (int i = 0; i < 5; i++) {
        seen[i] = mine[i];
        seen[5 + i] = -mine[i];
    }
    MPI_Allreduce(MPI_IN_PLACE, seen, 10, MPI_INT64_T, MPI_MAX, comm);
    for (int i = 0; i < 5; i++)
        if (seen[i] != -seen[5 + i]) {
            dmr_fail("%s must be the same on all ranks: it is between %" PRId64 " and %" PRId64, names[i], -seen[5 + i],
                     seen[i]);
            return false;
        }
    if (!dmr_bounds_sound(bounds, problem, sizeof problem)) {
        dmr_fail("%s", problem);
        return false;
    }
    return true;
}

/* Finds out the nodes, in order of the ranks, if each holds `per_node` consecutive ones. Collective. */
static void place(dmr_session *session, MPI_Comm comm, int size)
{
    char mine[DMR_MAX_NAME + 1] = "";
    const char *name = getenv("PMI_HOSTNAME");
    char *all = calloc((size_t)size, sizeof mine);
    char **nodes = calloc((size_t)size, sizeof *nodes);
    int count = 0, first = 0, good = all && nodes;
    if (!name || !*name)
        name = getenv("SLURMD_NODENAME");
    if (name && dmr_wire_node(name))
        snprintf(mine, sizeof mine, "%s", name);
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, comm);
    if (good) {
        MPI_Allgather(mine, sizeof mine, MPI_CHAR, all, sizeof mine, MPI_CHAR, comm);
        for (int i = 0; i < size; i++)
            first += strcmp(all + (size_t)i * sizeof mine, all) == 0;
        session->per_node = session->per_node ? session->per_node : first;
        good = size % session->per_node == 0;
        for (int i = 0; good && i < size; i++) {
            char *node = all + (size_t)i * sizeof mine;
            if (i % session->per_node == 0) {
                good = *node;
                for (int j = 0; j < count; j++)
                    good = good && strcmp(nodes[j], node) != 0;
                nodes[count++] = node;
            }
            good = good && strcmp(nodes[count - 1], node) == 0;
        }
    }
    session->per_node = session->per_node ? session->per_node : 1;
    dmr_session_set_nodes(session, nodes, good ? count : 0);
    free(all);
    free(nodes);
}

/* hydra's host list: "n4,n5", or "n4:2,n5:2" for two ranks on each. To be freed; NULL without memory. */
static char *host_list(const dmr_reply *reply)
{
    size_t capacity = (size_t)reply->node_count * (DMR_MAX_NAME + 16) + 1, length = 0;
    char *hosts = malloc(capacity);
    for (int i = 0; hosts && i < reply->node_count; i++) {
        length += (size_t)snprintf(hosts + length, capacity - length, "%s%s", i ? "," : "", reply->nodes[i]);
        if (reply->per_node > 1)
            length += (size_t)snprintf(hosts + length, capacity - length, ":%d", reply->per_node);
    }
    return hosts;
}

/* Names one after another, each with its zero byte. To be freed; NULL without memory. */
static char *packed(char *const *nodes, int count, int *length)
{
    char *text = malloc((size_t)count * (DMR_MAX_NAME + 1) + 1);
    *length = 0;
    for (int i = 0; text && i < count; i++) {
        size_t bytes = strlen(nodes[i]) + 1;
        memcpy(text + *length, nodes[i], bytes);
        *length += (int)bytes;
    }
    return text;
}

static bool unpacked(dmr_session *session, char *text, int length, int count)
{
    char **nodes = calloc((size_t)count + 1, sizeof *nodes);
    int at = 0, found = 0;
    for (; nodes && found < count && at < length; found++) {
        nodes[found] = text + at;
        at += (int)strlen(text + at) + 1;
    }
    bool good = nodes && found == count && dmr_session_set_nodes(session, nodes, count);
    free(nodes);
    return good;
}

/* The first text that is not empty, of all ranks, on all of them. */
static void first_text(MPI_Comm comm, int rank, int size, char text[TEXT])
{
    int who = text[0] ? rank : size;
    MPI_Allreduce(MPI_IN_PLACE, &who, 1, MPI_INT, MPI_MIN, comm);
    if (who < size)
        MPI_Bcast(text, TEXT, MPI_CHAR, who, comm);
}

/* What the new processes must know of the job: from old rank 0 to all of them. */
static void send_passport(const dmr_session *session, MPI_Comm inter, int rank, const dmr_reply *reply, int old_size,
                          double spawn_seconds)
{
    int root = rank == 0 ? MPI_ROOT : MPI_PROC_NULL, numbers[PASSPORT] = {0}, length = 0;
    char *text = rank == 0 ? packed(reply->nodes, reply->node_count, &length) : NULL;
    if (rank == 0) {
        int nodes = text ? reply->node_count : 0;
        int mine[PASSPORT] = {session->job, reply->epoch, reply->per_node, old_size, nodes, length};
        memcpy(numbers, mine, sizeof mine);
    }
    MPI_Bcast(numbers, PASSPORT, MPI_INT, root, inter);
    MPI_Bcast(&spawn_seconds, 1, MPI_DOUBLE, root, inter);
    MPI_Bcast(text, length, MPI_CHAR, root, inter);
    free(text);
}

static dmr_handler *handler_of(MPI_Comm comm, MPI_Comm inter, bool old)
{
    dmr_handler *handler = calloc(1, sizeof *handler);
    if (!handler) {
        dmr_warn("no memory");
        MPI_Abort(comm, 1);
        return NULL;
    }
    handler->comm = comm;
    handler->inter = inter;
    handler->old = old;
    handler->began = MPI_Wtime();
    MPI_Comm_rank(comm, &handler->rank);
    MPI_Comm_size(comm, &handler->size);
    MPI_Comm_remote_size(inter, &handler->other);
    return handler;
}

/* Collective: accept, start the new processes; on any failure refuse, and the application goes on. `reply` is rank
 * 0's, whose action, size and epoch the others have as well. */
static dmr_handler *begin(dmr_session *session, MPI_Comm comm, int rank, int size, const dmr_reply *reply)
{
    char problem[TEXT] = "no memory";
    char *hosts = rank == 0 ? host_list(reply) : NULL;
    if (hosts || rank != 0)
        dmr_spawn_preflight(hosts ? hosts : "", problem, sizeof problem);
    first_text(comm, rank, size, problem);
    if (!problem[0]) {
        int accepted = rank == 0 && dmr_session_accept(session, reply->epoch);
        MPI_Bcast(&accepted, 1, MPI_INT, 0, comm);
        if (!accepted) {
            free(hosts);
            return NULL;
        }
        double began = MPI_Wtime();
        MPI_Comm inter = dmr_spawn(comm, reply->size, hosts ? hosts : "", problem, sizeof problem);
        if (inter != MPI_COMM_NULL) {
            send_passport(session, inter, rank, reply, size, MPI_Wtime() - began);
            free(hosts);
            return handler_of(comm, inter, true);
        }
    }
    free(hosts);
    if (rank == 0) {
        dmr_warn("this application cannot be resized now, going on as is: %s", problem);
        dmr_session_refuse(session, reply->epoch, problem);
    }
    return NULL;
}

static int check(MPI_Comm comm, const dmr_bounds *bounds, bool later, int *new_size, dmr_handler **handler)
{
    dmr_session *session = dmr_the_session();
    dmr_verdict verdict = {.skip = 0};
    int rank, size;
    *handler = NULL;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    *new_size = size;
    if (session->skip) {
        session->skip -= session->skip != DMR_FOR_EVER;
        return DMR_NONE;
    }
    if (!agreed(comm, bounds, later))
        return DMR_ERROR;
    if (!session->placed)
        place(session, comm, size);
    if (rank == 0)
        verdict = dmr_session_decide(session, size, bounds, later);
    int64_t told[4] = {(int64_t)verdict.skip, verdict.has_reply, verdict.reply.size, verdict.reply.epoch};
    MPI_Bcast(told, 4, MPI_INT64_T, 0, comm);
    session->skip = (uint64_t)told[0];
    if (!told[1])
        return DMR_NONE;
    verdict.reply.size = (int)told[2];
    verdict.reply.epoch = (int)told[3];
    *handler = begin(session, comm, rank, size, &verdict.reply);
    dmr_reply_free(&verdict.reply);
    if (!*handler)
        return DMR_NONE;
    *new_size = (int)told[2];
    return *new_size > size ? DMR_EXPAND : DMR_SHRINK;
}

int dmr_check_status(MPI_Comm comm, int minimum, int maximum, int factor, int preferred, int *size,
                     dmr_handler **handler)
{
    dmr_bounds bounds = {minimum, maximum, factor, preferred};
    return check(comm, &bounds, false, size, handler);
}

int dmr_icheck_status(MPI_Comm comm, int minimum, int maximum, int factor, int preferred, int *size,
                      dmr_handler **handler)
{
    dmr_bounds bounds = {minimum, maximum, factor, preferred};
    return check(comm, &bounds, true, size, handler);
}

dmr_handler *dmr_inherited(MPI_Comm comm)
{
    dmr_session *session = dmr_the_session();
    MPI_Comm parent;
    int numbers[PASSPORT];
    double spawn_seconds;
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL)
        return NULL;
    MPI_Bcast(numbers, PASSPORT, MPI_INT, 0, parent);
    MPI_Bcast(&spawn_seconds, 1, MPI_DOUBLE, 0, parent);
    char *text = calloc((size_t)numbers[5] + 1, 1);
    if (!text) {
        dmr_warn("no memory");
        MPI_Abort(comm, 1);
        return NULL;
    }
    MPI_Bcast(text, numbers[5], MPI_CHAR, 0, parent);
    session->job = numbers[0];
    session->epoch = numbers[1];
    session->per_node = numbers[2];
    if (!unpacked(session, text, numbers[5], numbers[4]))
        dmr_warn("the nodes of this application are not known");
    free(text);
    dmr_handler *handler = handler_of(comm, parent, false);
    if (handler)
        handler->spawn_seconds = spawn_seconds;
    return handler;
}

int dmr_size_before(const dmr_handler *handler) { return handler->old ? handler->size : handler->other; }

void dmr_finish(dmr_handler *handler)
{
    if (!handler)
        return;
    MPI_Comm_disconnect(&handler->inter);
    if (!handler->old && handler->rank == 0)
        dmr_session_finished(dmr_the_session(), handler->size, handler->spawn_seconds, MPI_Wtime() - handler->began);
    free(handler);
}
