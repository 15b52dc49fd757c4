#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resize.h"
#include "session.h"

static char last_error[DMR_TEXT];

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
    dmr_session_set_nodes(session, nodes, NULL, good ? count : 0);
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

/* Starts the new processes by the launcher, and joins them. `reply` and `jobs` are rank 0's. */
static MPI_Comm start_by_launcher(dmr_session *session, MPI_Comm comm, int rank, const dmr_reply *reply,
                                  const int *jobs, const dmr_passport *passport, char problem[DMR_TEXT])
{
    dmr_layout layout = {.worlds = 0};
    dmr_worlds worlds = {.count = 0};
    MPI_Comm inter = MPI_COMM_NULL;
    bool broken = false;
    int good = rank != 0 || (dmr_layout_make(&layout, jobs, reply->node_count, reply->per_node) &&
                             dmr_line_start(&layout, reply->nodes, reply->per_node, &worlds, problem));
    if (!good && !problem[0])
        snprintf(problem, DMR_TEXT, "no memory");
    dmr_wait(comm);
    MPI_Bcast(&good, 1, MPI_INT, 0, comm);
    if (good)
        inter = dmr_join(comm, &worlds, &layout, passport, problem, &broken);
    else
        MPI_Bcast(problem, DMR_TEXT, MPI_CHAR, 0, comm);
    if (inter == MPI_COMM_NULL && rank == 0)
        dmr_line_abandon(&worlds);
    session->half_open = broken && inter == MPI_COMM_NULL;
    dmr_worlds_free(&worlds);
    dmr_layout_free(&layout);
    return inter;
}

/* The same by MPI itself. */
static MPI_Comm start_by_spawn(MPI_Comm comm, int rank, const dmr_reply *reply, const char *hosts,
                               dmr_passport *passport, char problem[DMR_TEXT])
{
    MPI_Comm inter = dmr_spawn(comm, reply->size, hosts, problem, DMR_TEXT);
    if (inter != MPI_COMM_NULL)
        dmr_send_passport(inter, rank == 0 ? MPI_ROOT : MPI_PROC_NULL, passport);
    return inter;
}

/* Collective: accept, start the new processes; on any failure refuse, and the application goes on. `reply` is rank
 * 0's, whose action, size and epoch the others have as well. */
static dmr_handler *begin(dmr_session *session, MPI_Comm comm, int rank, const dmr_reply *reply)
{
    char problem[DMR_TEXT] = "no memory";
    char *hosts = rank == 0 ? host_list(reply) : NULL;
    int *jobs = rank == 0 ? dmr_session_jobs_after(session, reply) : NULL;
    dmr_passport passport = {NULL, 0};
    dmr_handler *handler = NULL;
    int launched = session->by_port;
    MPI_Bcast(&launched, 1, MPI_INT, 0, comm);
    if (rank != 0 || (hosts && jobs && dmr_passport_make(&passport, session, reply, jobs)))
        dmr_spawn_preflight(hosts ? hosts : "", launched, problem, sizeof problem);
    if (!problem[0] && session->half_open)
        snprintf(problem, sizeof problem,
                 "a connection to new processes broke off, after which MPICH may crash in the next one");
    dmr_first_text(comm, problem);
    int accepted = !problem[0] && rank == 0 && dmr_session_accept(session, reply->epoch);
    MPI_Bcast(&accepted, 1, MPI_INT, 0, comm);
    if (accepted) {
        double began = MPI_Wtime();
        MPI_Comm inter = launched
                             ? start_by_launcher(session, comm, rank, reply, jobs, &passport, problem)
                             : start_by_spawn(comm, rank, reply, hosts ? hosts : "", &passport, problem);
        if (inter != MPI_COMM_NULL) {
            double seconds = MPI_Wtime() - began;
            MPI_Bcast(&seconds, 1, MPI_DOUBLE, rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
            handler = handler_of(comm, inter, true);
        }
    }
    if (rank == 0 && problem[0]) {
        dmr_warn("this application cannot be resized now, going on as is: %s", problem);
        dmr_session_refuse(session, reply->epoch, problem);
    }
    free(hosts);
    free(jobs);
    free(passport.bytes);
    return handler;
}

/* Whether `comm` holds all processes: those of MPI_COMM_WORLD are not all where a resize has brought several jobs'. */
static bool whole(const dmr_session *session, int size)
{
    int all = size;
    if (session->given != MPI_COMM_NULL)
        MPI_Comm_size(session->given, &all);
    if (all != size)
        dmr_fail("the communicator holds %d of %d processes: take it from dmr_world()", size, all);
    return all == size;
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
    if (!whole(session, size) || !agreed(comm, bounds, later))
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
    *handler = begin(session, comm, rank, &verdict.reply);
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

/* The intercommunicator to those who were here before, and in `all` that of all new ranks; or MPI_COMM_NULL. */
static MPI_Comm former(MPI_Comm comm, MPI_Comm *all, dmr_passport *passport)
{
    static bool met;
    const char *ticket = getenv(DMR_TICKET);
    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    *all = comm;
    if (met || (parent == MPI_COMM_NULL && !(ticket && *ticket)))
        return MPI_COMM_NULL;
    met = true;
    if (parent == MPI_COMM_NULL)
        return dmr_accept(comm, all, passport);
    dmr_send_passport(parent, 0, passport);
    return parent;
}

dmr_handler *dmr_inherited(MPI_Comm comm)
{
    dmr_session *session = dmr_the_session();
    dmr_passport passport = {NULL, 0};
    MPI_Comm all, inter = former(comm, &all, &passport);
    double seconds;
    if (inter == MPI_COMM_NULL)
        return NULL;
    if (!dmr_passport_read(&passport, session))
        dmr_warn("the nodes of this application are not known");
    free(passport.bytes);
    if (all != comm)
        session->given = all;
    MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, inter);
    dmr_handler *handler = handler_of(all, inter, false);
    if (handler)
        handler->spawn_seconds = seconds;
    return handler;
}

MPI_Comm dmr_world(void)
{
    dmr_session *session = dmr_the_session();
    session->knows_world = true;
    return session->given == MPI_COMM_NULL ? MPI_COMM_WORLD : session->given;
}

int dmr_size_before(const dmr_handler *handler) { return handler->old ? handler->size : handler->other; }

void dmr_finish(dmr_handler *handler)
{
    if (!handler)
        return;
    MPI_Comm_disconnect(&handler->inter);
    /* Those who leave are of several jobs, whose nodes are given back one by one: they end apart. */
    if (handler->old && dmr_the_session()->given != MPI_COMM_NULL)
        MPI_Comm_disconnect(&dmr_the_session()->given);
    if (!handler->old && handler->rank == 0)
        dmr_session_finished(dmr_the_session(), handler->size, handler->spawn_seconds, MPI_Wtime() - handler->began);
    free(handler);
}
