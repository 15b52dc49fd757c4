#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "quiet.h"
#include "resize.h"

enum { CONNECT_LIMIT = 20, TAG = 1 };

bool dmr_first_text(MPI_Comm comm, char text[DMR_TEXT])
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int who = text[0] ? rank : size;
    MPI_Allreduce(MPI_IN_PLACE, &who, 1, MPI_INT, MPI_MIN, comm);
    if (who < size)
        MPI_Bcast(text, DMR_TEXT, MPI_CHAR, who, comm);
    return who < size;
}

/* Waits for it asleep; false if it takes longer than so many seconds. */
static bool done(MPI_Request request, double limit)
{
    double until = MPI_Wtime() + limit;
    int there = 0;
    while (MPI_Test(&request, &there, MPI_STATUS_IGNORE), !there) {
        if (MPI_Wtime() > until)
            return false;
        usleep(1000);
    }
    return true;
}

void dmr_wait(MPI_Comm comm)
{
    MPI_Request request;
    MPI_Ibarrier(comm, &request);
    done(request, INFINITY);
}

void dmr_send_passport(MPI_Comm comm, int root, dmr_passport *passport)
{
    MPI_Bcast(&passport->length, 1, MPI_INT, root, comm);
    if (root >= 0 && !passport->bytes && !(passport->bytes = malloc((size_t)passport->length + 1))) {
        dmr_warn("no memory");
        MPI_Abort(comm, 1);
    }
    MPI_Bcast(passport->bytes, passport->length, MPI_CHAR, root, comm);
}

/* Connects to the port that rank 0 knows; collective over `comm`. The same on all ranks: MPI_COMM_NULL and `problem`
 * where it failed. What is left of the connection stays then: to disconnect would wait for the dead. */
static MPI_Comm meet(MPI_Comm comm, const char *port, char problem[DMR_TEXT])
{
    MPI_Comm inter = MPI_COMM_NULL;
    MPI_Request request;
    MPI_Info info;
    char limit[16], text[MPI_MAX_ERROR_STRING];
    int length;
    snprintf(limit, sizeof limit, "%d", CONNECT_LIMIT);
    MPI_Info_create(&info);
    MPI_Info_set(info, "timeout", limit);
    MPI_Errhandler before = dmr_quiet(comm);
    int code = MPI_Comm_connect(port, info, 0, comm, &inter);
    dmr_loud(comm, before);
    MPI_Info_free(&info);
    problem[0] = '\0';
    if (code != MPI_SUCCESS) {
        MPI_Error_string(code, text, &length);
        snprintf(problem, DMR_TEXT, "MPI_Comm_connect: %.300s", text);
    } else {
        /* A sign of life from everybody, with a time limit: what comes next has none. */
        MPI_Ibarrier(inter, &request);
        if (!done(request, CONNECT_LIMIT))
            snprintf(problem, DMR_TEXT, "the new processes do not answer");
    }
    return dmr_first_text(comm, problem) ? MPI_COMM_NULL : inter;
}

/* Makes one communicator of two; the old ranks are first. */
static MPI_Comm merged(MPI_Comm inter, bool new)
{
    MPI_Comm whole;
    MPI_Intercomm_merge(inter, new, &whole);
    MPI_Comm_disconnect(&inter);
    return whole;
}

/* Meets the next worlds, of which rank 0 of `whole` knows the ports, and joins them to it. `keep`: the communicator
 * that is not ours to let go of. MPI_COMM_NULL where it failed. */
static MPI_Comm extend(MPI_Comm whole, MPI_Comm keep, char *const *ports, int count, char problem[DMR_TEXT])
{
    int rank;
    MPI_Comm_rank(whole, &rank);
    for (int i = 0; i < count; i++) {
        int greeting[2] = {1, count - 1 - i};
        MPI_Comm inter = meet(whole, rank == 0 ? ports[i] : "", problem);
        if (inter == MPI_COMM_NULL) {
            if (whole != keep)
                MPI_Comm_disconnect(&whole);
            return MPI_COMM_NULL;
        }
        MPI_Bcast(greeting, 2, MPI_INT, rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
        MPI_Comm grown = merged(inter, false);
        if (whole != keep)
            MPI_Comm_disconnect(&whole);
        whole = grown;
    }
    return whole;
}

/* The launcher is to know that these worlds belong to the application from now on. */
static bool settled(MPI_Comm comm, int rank, const dmr_worlds *worlds, char problem[DMR_TEXT])
{
    int good = rank != 0 || dmr_line_joined(worlds, problem);
    MPI_Bcast(&good, 1, MPI_INT, 0, comm);
    if (!good)
        MPI_Bcast(problem, DMR_TEXT, MPI_CHAR, 0, comm);
    return good;
}

MPI_Comm dmr_join(MPI_Comm comm, const dmr_worlds *worlds, const dmr_layout *layout, const dmr_passport *passport,
                  char problem[DMR_TEXT], bool *broken)
{
    MPI_Comm inter = MPI_COMM_NULL, whole;
    int rank, size, facts[2] = {worlds->count, layout->size ? layout->places[0] : 0};
    dmr_passport copy = *passport;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Bcast(facts, 2, MPI_INT, 0, comm);
    int root = rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    *broken = true;
    if (facts[0] == 1) {
        int greeting[2] = {0, 0};
        inter = meet(comm, rank == 0 ? worlds->ports[0] : "", problem);
        if (inter == MPI_COMM_NULL || !settled(comm, rank, worlds, problem))
            return MPI_COMM_NULL;
        MPI_Bcast(greeting, 2, MPI_INT, root, inter);
        dmr_send_passport(inter, root, &copy);
        return inter;
    }
    whole = extend(comm, comm, worlds->ports, facts[0], problem);
    if (whole == MPI_COMM_NULL || !settled(comm, rank, worlds, problem))
        return MPI_COMM_NULL;
    /* To the new processes, and past those who are with rank 0. */
    MPI_Comm ignored;
    MPI_Bcast(&size, 1, MPI_INT, 0, whole);
    dmr_send_passport(whole, 0, &copy);
    if (rank != 0)
        free(copy.bytes);
    MPI_Comm_split(whole, MPI_UNDEFINED, 0, &ignored);
    MPI_Intercomm_create(comm, 0, whole, size + facts[1], TAG, &inter);
    MPI_Comm_disconnect(&whole);
    return inter;
}

/* Nobody needs this process. */
static void leave(void)
{
    MPI_Finalize();
    exit(0);
}

MPI_Comm dmr_accept(MPI_Comm comm, MPI_Comm *all, dmr_passport *passport)
{
    MPI_Comm inter, whole;
    MPI_Request request;
    char port[MPI_MAX_PORT_NAME] = "", problem[DMR_TEXT];
    int rank, met = 0, greeting[2], old_size;
    MPI_Comm_rank(comm, &rank);
    if (rank == 0)
        MPI_Open_port(MPI_INFO_NULL, port);
    dmr_wait(comm); /* all of us are up */
    if (rank == 0)
        met = dmr_line_ready(getenv(DMR_TICKET), port);
    /* Until that is known we sleep: those who were there before may be computing beside us. */
    MPI_Ibcast(&met, 1, MPI_INT, 0, comm, &request);
    done(request, INFINITY);
    if (!met)
        leave();
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, comm, &inter);
    MPI_Ibarrier(inter, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE); /* the sign of life that the other side waits for */
    if (rank == 0)
        MPI_Close_port(port);
    MPI_Bcast(greeting, 2, MPI_INT, 0, inter);
    *all = comm;
    if (!greeting[0]) {
        dmr_send_passport(inter, 0, passport);
        return inter;
    }
    whole = extend(merged(inter, true), MPI_COMM_NULL, NULL, greeting[1], problem);
    if (whole == MPI_COMM_NULL)
        leave(); /* those who were here before us go on without us */
    MPI_Bcast(&old_size, 1, MPI_INT, 0, whole);
    dmr_send_passport(whole, 0, passport);
    MPI_Comm_rank(whole, &rank);
    MPI_Comm_split(whole, 0, dmr_passport_rank(passport, rank - old_size), all);
    MPI_Intercomm_create(*all, 0, whole, 0, TAG, &inter);
    MPI_Comm_disconnect(&whole);
    return inter;
}
