/* What the compiled kernel offers. All arrays are the caller's, and stay as they are until futures_end. */
#ifndef PENSTOCK_KERNEL_H
#define PENSTOCK_KERNEL_H

#include <stdint.h>

/* Goes up with each change of what is declared here: penstock/kernel/library.py asks for it. */
#define KERNEL_ABI 2
int64_t kernel_abi(void);

/* A queue and its future (penstock/future/present.py, replay.py). Times in seconds; infinite: never. */
typedef struct {
    int64_t areas, cells;
    double now, last, protect; /* nothing is followed beyond `last` */
    int64_t depth, by_submission;
    const int64_t *within; /* areas x cells: whether the cell belongs to the area */
    const int64_t *beside; /* areas x areas: nodes of the one that are not of the other */
    const int64_t *free;   /* by cell */
    int64_t running;
    const int64_t *running_cells; /* running x cells */
    const double *running_limit, *running_end, *ends;
    int64_t waiting;
    const int64_t *waiting_nodes, *waiting_area;
    const double *waiting_limit, *waiting_after, *runs;
    int64_t own;
    const int64_t *own_nodes;
    const double *own_limit, *own_run;
    const int64_t *own_missing, *children_begin, *children;
    int64_t shut; /* nodes that are closed (-1) and open again (1), in order of (when, sign, cells) */
    const double *shut_when;
    const int64_t *shut_sign, *shut_cells; /* shut, shut x cells */
    int64_t follow;
    const int64_t *followed; /* jobs by number, counted from the running ones on */
} futures_world;

typedef struct {
    int64_t count;
    const double *submit, *limit, *run;
    const int64_t *nodes, *area;
} futures_arrivals;

typedef struct futures futures;

/* NULL: there is no memory. */
futures *futures_begin(const futures_world *world);
/* More who come, in order of submission; NULL: nobody more. 0, or -1: there is no memory. */
int futures_come(futures *f, const futures_arrivals *more);
/* 0: over; 1: `part` units of work are done; 2: who comes next must be told; -1: there is no memory. `done`: since the
 * last time that it was told. */
int futures_go(futures *f, int64_t part, int64_t *done);
void futures_spans(const futures *f, double *start, double *end);
void futures_end(futures *f);

/* Rigid jobs in order of submission, and when each starts under a policy (penstock_lab/sim). Whole seconds. */
typedef struct {
    int64_t jobs, procs;
    int64_t replan; /* else conservative */
    int64_t batch;  /* all ends of a second, then all submissions, then one pass; else a pass for each */
    const int64_t *submit, *run, *width, *estimate;
    int64_t *start;
} schedule_trace;

typedef struct schedule schedule;

/* NULL: there is no memory. */
schedule *schedule_begin(const schedule_trace *trace);
/* 0: over; 1: so many instants have passed; -1: there is no memory. */
int schedule_go(schedule *s, int64_t instants);
void schedule_end(schedule *s);

#endif
