#include "session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "line.h"
#include "quiet.h"

static const double QUICKEST = 1e-6, AGAIN = 60.0;
/* A few quick steps at the start of a program must not silence it for hours, should the later ones be slow. */
enum { GROWTH = 16 };

/* The number in an environment variable, 0 if there is none. */
static int positive(const char *variable)
{
    const char *text = getenv(variable);
    size_t digits = text ? strspn(text, "0123456789") : 0;
    return digits >= 1 && digits <= 9 && !text[digits] ? atoi(text) : 0;
}

dmr_session *dmr_the_session(void)
{
    static dmr_session session;
    static bool begun;
    if (!begun) {
        int per_node = positive("DMR_RANKS_PER_NODE");
        session.per_node = per_node ? per_node : positive("SLURM_NTASKS_PER_NODE");
        session.job = positive("SLURM_JOB_ID");
        session.bound = GROWTH;
        session.given = MPI_COMM_NULL;
        begun = true;
    }
    return &session;
}

bool dmr_session_set_nodes(dmr_session *session, char *const *nodes, const int *jobs, int count)
{
    char **copies = calloc((size_t)count + 1, sizeof *copies);
    int *held = calloc((size_t)count + 1, sizeof *held);
    bool good = copies && held;
    for (int i = 0; good && i < count; i++) {
        good = (copies[i] = strdup(nodes[i]));
        held[i] = jobs ? jobs[i] : 0;
    }
    for (int i = 0; i < session->node_count; i++)
        free(session->nodes[i]);
    free(session->nodes);
    free(session->jobs);
    session->nodes = copies;
    session->jobs = held;
    session->node_count = good ? count : 0;
    session->placed = true;
    return good;
}

int *dmr_session_jobs_after(const dmr_session *session, const dmr_reply *reply)
{
    int *jobs = calloc((size_t)reply->node_count + 1, sizeof *jobs);
    for (int i = 0; jobs && i < reply->node_count; i++) {
        jobs[i] = reply->companion; /* which holds those that are new */
        for (int j = 0; j < session->node_count; j++)
            if (strcmp(session->nodes[j], reply->nodes[i]) == 0)
                jobs[i] = session->jobs[j];
    }
    return jobs;
}

/* Why this process cannot safely spawn on nodes added to its job, or NULL: see dmr/quirks.py. */
static const char *obstacle(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, major = 0, minor = 0;
    const char *launcher = getenv("HYDRA_LAUNCHER");
    MPI_Get_library_version(text, &length);
    const char *found = strstr(text, "MPICH Version:");
    if (!found || sscanf(found, "MPICH Version: %d.%d", &major, &minor) != 2)
        return "only MPICH is known to start processes on nodes that come later";
    if (major < 4 || (major == 4 && minor < 1))
        return "MPICH before 4.1 loses the host list of a spawn";
    if (!getenv("PMI_HOSTNAME"))
        return "the application was not started by MPICH's mpiexec";
    bool by_slurm = getenv("SLURM_JOB_ID") && (!launcher || strcmp(launcher, "slurm") == 0);
    /* Else srun would refuse nodes that come later, or wait for those in use, and hydra with it for ever: see
     * dmr/launch.py, which sets the variable. */
    if (by_slurm && !getenv("DMR_LAUNCHER"))
        return "start it with `python -m dmr.launch` in place of mpiexec, which cannot reach nodes that come later";
    return NULL;
}

/* Whether MPI can open ports. MPICH's UCX has names for them that are longer than its mpi.h allows; the header of the
 * standard ABI (mpicc_abi) allows more [run, MPICH 5.0.2]. */
static bool ports(bool wanted)
{
    char name[MPI_MAX_PORT_NAME], text[MPI_MAX_ERROR_STRING];
    int length;
    /* Releases differ in whose handler counts. */
    MPI_Errhandler of_world = dmr_quiet(MPI_COMM_WORLD), of_self = dmr_quiet(MPI_COMM_SELF);
    int code = MPI_Open_port(MPI_INFO_NULL, name);
    if (code == MPI_SUCCESS)
        MPI_Close_port(name);
    dmr_loud(MPI_COMM_SELF, of_self);
    dmr_loud(MPI_COMM_WORLD, of_world);
    if (code != MPI_SUCCESS && wanted) {
        MPI_Error_string(code, text, &length);
        const char *last = strrchr(text, '\n'); /* of the stack: where it failed */
        dmr_warn("this application cannot use nodes of other jobs; built with mpicc_abi it may (%.300s)",
                 last ? last + 1 : text);
    }
    return code == MPI_SUCCESS;
}

static bool connected(dmr_session *session)
{
    const char *agent = getenv("DMR_AGENT"), *why;
    if (session->client)
        return true;
    if (!agent || !*agent || !session->job)
        return false;
    if ((why = obstacle())) {
        dmr_warn("this application cannot be resized: %s", why);
        return false;
    }
    session->by_port = dmr_line_there() && ports(session->knows_world && !session->epoch);
    return (session->client = dmr_client_new());
}

/* ---- the inhibitor: rank 0 turns a time into a number of calls, which all ranks count ---- */

static void enter(dmr_session *session)
{
    if (session->measured)
        session->step_seconds = fmax(0.0, MPI_Wtime() - session->left) / ((double)session->ignored + 1);
}

static uint64_t leave(dmr_session *session, bool soon)
{
    const char *text = getenv("DMR_INHIBITOR_SECONDS");
    char *end = NULL;
    double seconds = text && *text ? strtod(text, &end) : 0;
    uint64_t ignored = 0;
    if (end && (*end || !(seconds >= 0 && seconds < 1e9))) {
        static bool said;
        if (!said)
            dmr_warn("DMR_INHIBITOR_SECONDS is not a number of seconds; ignored");
        said = true;
        seconds = 0;
    }
    if (!soon) {
        int steps = positive("DMR_INHIBITOR_STEPS");
        ignored = steps > 1 ? (uint64_t)steps - 1 : 0;
        if (seconds > 0 && session->measured) {
            double wanted = ceil(seconds / fmax(session->step_seconds, QUICKEST)) - 1;
            uint64_t by_time = (uint64_t)fmax(0, fmin(wanted, (double)session->bound - 1));
            ignored = by_time > ignored ? by_time : ignored;
            session->bound = GROWTH * (ignored + 1);
        }
    }
    session->left = MPI_Wtime();
    session->measured = true;
    session->ignored = ignored;
    return ignored;
}

/* ---- checks ---- */

/* Whether nodes of another job can be used. */
static bool usable(const dmr_session *session) { return session->knows_world && session->by_port; }

static void *pass_on(void *request)
{
    char problem[DMR_MAX_PROBLEM];
    if (!dmr_line_node_request(request, problem))
        dmr_warn("the launcher does not ask Slurm for more nodes: %s", problem);
    free(request);
    return NULL;
}

/* What the agent wants to be asked of Slurm goes to the launcher, once; it is no business of the computation. */
static void node_request(dmr_session *session, int size, const dmr_bounds *bounds, const char *request)
{
    dmr_json json = {request, request + strlen(request)}, count = json;
    char name[sizeof session->told] = "";
    size_t length;
    int nodes = 0;
    bool named = dmr_json_member(&json, "name") && dmr_json_string(&json, name, sizeof name, &length) &&
                 length < sizeof name;
    bool counted = dmr_json_member(&count, "node_count") && dmr_json_int(&count, &nodes);
    if (!named || !counted || nodes > (bounds->maximum - size) / session->per_node) {
        static bool said;
        if (!said)
            dmr_warn("the agent wants %d nodes, which this application has no use for", nodes);
        said = true;
        return;
    }
    /* The launcher does it once, and may not have heard of it. */
    bool heard = strcmp(name, session->told) == 0 && MPI_Wtime() < session->told_at + AGAIN;
    char *copy = heard ? NULL : strdup(request);
    if (copy && dmr_in_background(pass_on, copy)) {
        memcpy(session->told, name, sizeof name);
        session->told_at = MPI_Wtime();
    } else {
        free(copy);
    }
}

static dmr_request question(dmr_session *session, int size, const dmr_bounds *bounds)
{
    dmr_limits limits = {size,
                         bounds->minimum,
                         bounds->maximum,
                         bounds->factor,
                         dmr_nearest(size, bounds, session->per_node),
                         session->per_node,
                         (const char *const *)session->nodes,
                         session->node_count,
                         usable(session)};
    return dmr_wire_check(session->job, session->epoch, &limits);
}

/* Why this resize must not be done, or "". */
static void objection(const dmr_session *session, int size, const dmr_bounds *bounds, const dmr_reply *reply,
                      char *out, size_t capacity)
{
    bool expand = strcmp(reply->word, "expand") == 0;
    out[0] = '\0';
    if (reply->epoch <= session->epoch)
        snprintf(out, capacity, "epoch %d is already finished", reply->epoch);
    else if (reply->size < bounds->minimum || reply->size > bounds->maximum)
        snprintf(out, capacity, "size %d is outside %d..%d", reply->size, bounds->minimum, bounds->maximum);
    else if (reply->size == size || (reply->size > size) != expand)
        snprintf(out, capacity, "%s from %d to %d", reply->word, size, reply->size);
    else if (!dmr_reachable(size, reply->size, bounds->factor))
        snprintf(out, capacity, "size %d is not reachable from %d by factor %d", reply->size, size, bounds->factor);
    else if (reply->companion && !usable(session))
        snprintf(out, capacity, "nodes of another job (%d) cannot be used", reply->companion);
}

static dmr_verdict judge(dmr_session *session, int size, const dmr_bounds *bounds, bool answered, dmr_reply *reply)
{
    char wrong[256];
    dmr_verdict verdict = {.skip = leave(session, false)};
    if (!answered)
        return verdict;
    if (reply->node_request)
        node_request(session, size, bounds, reply->node_request);
    if (reply->kind == DMR_REPLY_CHECK && strcmp(reply->word, "none") != 0) {
        objection(session, size, bounds, reply, wrong, sizeof wrong);
        if (!wrong[0]) {
            verdict.has_reply = true;
            verdict.reply = *reply;
            return verdict;
        }
        dmr_warn("the agent asks for a resize that does not fit (%s); going on as is", wrong);
        dmr_session_refuse(session, reply->epoch, wrong);
    }
    dmr_reply_free(reply);
    return verdict;
}

static void override(dmr_bounds *bounds)
{
    static bool said;
    const char *text = getenv("DMR_SIZES");
    if (text && *text && !dmr_bounds_read(text, bounds) && !said) {
        said = true;
        dmr_warn("DMR_SIZES=%.100s is ignored: it is not minimum:maximum[:preferred[:factor]]", text);
    }
}

dmr_verdict dmr_session_decide(dmr_session *session, int size, const dmr_bounds *bounds, bool later)
{
    dmr_bounds wanted = *bounds;
    dmr_reply reply;
    if (!connected(session))
        return (dmr_verdict){.skip = DMR_FOR_EVER};
    enter(session);
    override(&wanted);
    dmr_pending *pending = session->question;
    session->question = NULL;
    if (!later) {
        dmr_client_drop(pending); /* it is void: this question is newer */
        pending = dmr_client_start(session->client, question(session, size, &wanted), false);
        bool answered = dmr_client_finish(session->client, pending, &reply);
        return judge(session, size, &wanted, answered, &reply);
    }
    if (pending && !dmr_client_ready(pending)) {
        session->question = pending;
        return (dmr_verdict){.skip = leave(session, true)};
    }
    if (pending) {
        bool answered = dmr_client_finish(session->client, pending, &reply);
        dmr_verdict verdict = judge(session, size, &wanted, answered, &reply);
        /* Without an inhibitor the next answer is prepared at once, so that each call can have one. */
        if (verdict.has_reply || verdict.skip)
            return verdict;
    }
    session->question = dmr_client_start(session->client, question(session, size, &wanted), false);
    return (dmr_verdict){.skip = leave(session, session->question != NULL)};
}

/* What the agent answers to a message about a resize under way; false if nothing. The reply is to be freed. */
static bool tell(dmr_session *session, dmr_request request, dmr_reply *reply)
{
    return dmr_client_finish(session->client, dmr_client_start(session->client, request, true), reply);
}

bool dmr_session_accept(dmr_session *session, int epoch)
{
    dmr_reply reply;
    if (!tell(session, dmr_wire_accept(session->job, epoch), &reply)) {
        /* It may have arrived and only its answer be lost: then the agent must hear that nothing will happen. */
        dmr_session_refuse(session, epoch, "no answer to accept arrived in time");
        return false;
    }
    if (reply.kind == DMR_REPLY_FAILURE)
        dmr_warn("the agent withdraws the resize (%s): %s", reply.word, reply.text);
    bool done = reply.kind == DMR_REPLY_DONE;
    dmr_reply_free(&reply);
    return done;
}

void dmr_session_refuse(dmr_session *session, int epoch, const char *why)
{
    dmr_reply reply;
    if (epoch > session->epoch && tell(session, dmr_wire_refuse(session->job, epoch, why), &reply))
        dmr_reply_free(&reply);
}

void dmr_session_finished(dmr_session *session, int size, double spawn, double move)
{
    dmr_reply reply;
    if (!connected(session))
        return;
    /* A lost one does no harm: the next check carries the epoch. */
    dmr_request request = dmr_wire_finished(session->job, session->epoch, size, (const char *const *)session->nodes,
                                            session->node_count, spawn, move);
    if (tell(session, request, &reply))
        dmr_reply_free(&reply);
}
