/* What becomes of a few jobs in a queue whose future is given. The rules, and the reference, are those of
 * penstock/future/replay.py: this does the same steps in the same order on the same doubles, so that both agree to the
 * last bit, and tests hold them together. Names are those of the reference.
 *
 * Nothing here trusts what it is given but the lengths and the numbers of areas, jobs and parents, which
 * penstock/future/compiled.py checks. No globals. Where memory is short, a call says so and changes nothing that
 * futures_end would not free.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WHEN double
#include "ordered.h"

#include "kernel.h"

enum { DONE = 0, BREATH = 1, WANTS_ARRIVALS = 2, NO_MEMORY = -1 };
enum { LOOKED = 50 };

typedef struct {
    double when, rank;
    int64_t job;
} later;

typedef struct {
    steps steps;
    int known;
} levels;

typedef struct {
    int64_t area, nodes;
    double begin, end;
} reservation;

struct futures {
    futures_world w;
    /* Of areas and cells: free nodes, room for one count by area. */
    int64_t *cells, *free, *by_area;
    /* Of jobs: those that run, those that wait, ours, who comes. */
    int64_t jobs, room, first;
    int64_t *width, *area, *followed, *taken, *given;
    double *limit, *run, *until;
    /* In order of (end by the limit, job); as a heap by (end, job); in order of (rank, job). */
    keys running, ends, queue;
    later *later;
    int64_t later_at, later_count, shut_at;
    int64_t *missing;
    double *start, *end;
    int64_t left;
    /* Who comes that is known so far. */
    double *submit, *came_limit, *came_run;
    int64_t *came_nodes, *came_area;
    int64_t came_at, came_count, came_room;
    int nobody_more, begun, full;
    /* The plan of one look. */
    levels *levels;
    double *protected;
    reservation *made;
    int64_t made_count, made_room;
    int64_t *places, places_room;
    unsigned char *gone;
    double now;
    int64_t looked, done;
};

int64_t kernel_abi(void) {
    return KERNEL_ABI;
}

static int room_for_jobs(futures *f, int64_t wanted) {
    void *larger;
    if (wanted <= f->room)
        return 1;
    int64_t room = roomier(f->room, wanted);
    if (!RESIZED(f->width, room, sizeof *f->width) || !RESIZED(f->area, room, sizeof *f->area) ||
        !RESIZED(f->followed, room, sizeof *f->followed) || !RESIZED(f->limit, room, sizeof *f->limit) ||
        !RESIZED(f->run, room, sizeof *f->run) || !RESIZED(f->until, room, sizeof *f->until) ||
        !RESIZED(f->taken, room, sizeof *f->taken * (size_t)f->w.cells) ||
        !RESIZED(f->given, room, sizeof *f->given * (size_t)f->w.areas))
        return 0;
    f->room = room;
    return 1;
}

static void by_area(const futures *f, const int64_t *cells, int64_t *counts) {
    for (int64_t a = 0; a < f->w.areas; a++) {
        counts[a] = 0;
        for (int64_t c = 0; c < f->w.cells; c++)
            if (f->w.within[a * f->w.cells + c])
                counts[a] += cells[c];
    }
}

/* The number of the new job, -1 without memory. */
static int64_t added(futures *f, int64_t nodes, int64_t area, double limit, double run) {
    if (!room_for_jobs(f, f->jobs + 1))
        return -1;
    int64_t j = f->jobs++;
    f->width[j] = nodes;
    f->area[j] = area;
    f->limit[j] = limit;
    f->run[j] = limit < run ? limit : run;
    f->until[j] = INFINITY;
    f->followed[j] = -1;
    memset(f->taken + j * f->w.cells, 0, sizeof *f->taken * (size_t)f->w.cells);
    memset(f->given + j * f->w.areas, 0, sizeof *f->given * (size_t)f->w.areas);
    return j;
}

/* The step that begins at `time`, made if there is none; -1 without memory. */
static int64_t cut(steps *l, double time) {
    int64_t at = step_at(l, time, 0, l->count);
    if (at == l->count || l->times[at] != time) {
        if (!room_for_steps(l, l->count + 1))
            return -1;
        insert_step(l, at, time);
    }
    return at;
}

static int take(steps *l, int64_t nodes, double begin, double end) {
    int64_t first = cut(l, begin);
    int64_t last = first < 0 || end == INFINITY ? l->count : cut(l, end);
    if (first < 0 || last < 0)
        return 0;
    for (int64_t i = first; i < last; i++)
        l->free[i] -= nodes;
    return 1;
}

/* Whether so many are free between two instants, of which a step begins at the first. */
static int fits(const steps *l, int64_t nodes, double from, double until) {
    for (int64_t i = from > l->times[0] ? step_at(l, from, 0, l->count) : 0; i < l->count; i++) {
        if (l->times[i] >= until)
            return 1;
        if (l->free[i] < nodes)
            return 0;
    }
    return 1;
}

static double earliest(const steps *l, int64_t nodes, double limit) {
    int64_t at = 0, end = l->count;
    for (;;) {
        while (at < end && l->free[at] < nodes)
            at++;
        if (at == end)
            return INFINITY;
        double begin = l->times[at], until = begin + limit;
        at++;
        while (at < end && l->times[at] < until && l->free[at] >= nodes)
            at++;
        if (at == end || l->times[at] >= until)
            return begin;
    }
}

/* What a reservation takes of an area: of its own nodes first those that this one has not. */
static int claim(futures *f, int64_t each, const reservation *made) {
    int64_t taken = made->nodes - f->w.beside[made->area * f->w.areas + each];
    return taken <= 0 || take(&f->levels[each].steps, taken, made->begin, made->end);
}

static void step(steps *l, double time, int64_t *free, int64_t change) {
    *free += change;
    if (time == l->times[l->count - 1]) {
        l->free[l->count - 1] = *free;
    } else if (change) {
        l->times[l->count] = time;
        l->free[l->count++] = *free;
    }
}

/* What is free of an area if nobody more starts, less the reservations made so far. */
static steps *levels_of(futures *f, int64_t area) {
    steps *l = &f->levels[area].steps;
    if (f->levels[area].known)
        return l;
    int64_t shut = f->w.shut - f->shut_at, i = 0, free = f->free[area];
    if (!room_for_steps(l, f->running.count + shut + 1))
        return NULL;
    l->count = 1;
    l->times[0] = f->now;
    l->free[0] = free;
    for (int64_t k = f->shut_at; k < f->w.shut; k++) {
        for (; i < f->running.count && f->running.all[i].when <= f->w.shut_when[k]; i++)
            step(l, f->running.all[i].when, &free, f->given[f->running.all[i].job * f->w.areas + area]);
        by_area(f, f->w.shut_cells + k * f->w.cells, f->by_area);
        step(l, f->w.shut_when[k], &free, f->w.shut_sign[k] * f->by_area[area]);
    }
    for (; i < f->running.count; i++)
        step(l, f->running.all[i].when, &free, f->given[f->running.all[i].job * f->w.areas + area]);
    f->looked += 2 * (f->running.count + shut);
    f->levels[area].known = 1;
    for (int64_t m = 0; m < f->made_count; m++)
        if (!claim(f, area, &f->made[m]))
            return NULL;
    return l;
}

/* Whether a job can start now, where it could if nothing were taken from an instant on; -1 without memory. */
static int starts(futures *f, int64_t j, double taken_from) {
    if (f->width[j] > f->free[f->area[j]])
        return 0;
    if (f->made_count == 0 && f->shut_at == f->w.shut)
        return 1;
    const steps *l = levels_of(f, f->area[j]);
    return l == NULL ? -1 : fits(l, f->width[j], taken_from, f->now + f->limit[j]);
}

/* Reserve for a job where it can start first, if it ever can. */
static int reserve(futures *f, int64_t j, double *touched) {
    int64_t area = f->area[j];
    if (f->protected[area] <= 0)
        return 1;
    const steps *l = levels_of(f, area);
    if (l == NULL)
        return 0;
    f->looked += 70 + l->count / 3;
    double begin = earliest(l, f->width[j], f->limit[j]);
    if (begin == INFINITY)
        return 1;
    if (f->made_count == f->made_room) {
        void *larger;
        int64_t room = roomier(f->made_room, f->made_count + 1);
        if (!RESIZED(f->made, room, sizeof *f->made))
            return 0;
        f->made_room = room;
    }
    f->protected[area] -= 1;
    *touched = begin;
    const reservation *made = &f->made[f->made_count];
    f->made[f->made_count++] = (reservation){area, f->width[j], begin, begin + f->limit[j]};
    for (int64_t each = 0; each < f->w.areas; each++)
        if (f->levels[each].known && !claim(f, each, made))
            return 0;
    return 1;
}

static int start(futures *f, int64_t j) {
    int64_t *cells = f->taken + j * f->w.cells, *given = f->given + j * f->w.areas, left = f->width[j];
    for (int64_t c = 0; c < f->w.cells; c++) {
        if (!f->w.within[f->area[j] * f->w.cells + c])
            continue;
        int64_t there = f->cells[c] > 0 ? f->cells[c] : 0;
        cells[c] = left < there ? left : there;
        f->cells[c] -= cells[c];
        left -= cells[c];
    }
    by_area(f, cells, given);
    f->until[j] = f->now + f->limit[j];
    for (int64_t a = 0; a < f->w.areas; a++) {
        f->free[a] -= given[a];
        if (given[a] && f->levels[a].known && !take(&f->levels[a].steps, given[a], f->now, f->until[j]))
            return 0;
    }
    if (!inserted(&f->running, (key){f->until[j], j}) || !pushed(&f->ends, (key){f->now + f->run[j], j}))
        return 0;
    if (f->followed[j] >= 0) {
        f->start[f->followed[j]] = f->now;
        f->end[f->followed[j]] = f->now + f->run[j];
    }
    return 1;
}

/* Start whoever can; whether there was memory for that. */
static int look(futures *f) {
    int64_t depth = f->queue.count < f->w.depth ? f->queue.count : f->w.depth, places = 0, begun = 0, first = 0, end = 0;
    if (depth > f->places_room) {
        void *larger;
        int64_t room = roomier(f->places_room, depth);
        if (!RESIZED(f->places, room, sizeof *f->places))
            return 0;
        f->places_room = room;
    }
    for (int64_t i = 0; i < depth; i++) {
        int64_t j = f->queue.all[i].job;
        if (f->width[j] <= f->free[f->area[j]])
            f->places[places++] = i;
    }
    f->looked += depth / 2;
    if (places == 0)
        return 1;
    for (int64_t a = 0; a < f->w.areas; a++) {
        f->levels[a].known = 0;
        f->protected[a] = f->w.protect;
    }
    f->made_count = 0;
    /* From when on something was taken since the one at the last place was found to be able to start. */
    double touched = -INFINITY;
    for (int64_t i = 0;; i++) {
        int may = 1;
        /* Who cannot start behind the reservations made so far cannot behind more of them, and nobody needs one who
         * stands behind the last that still can. */
        while (places > 0 && f->places[places - 1] >= i) {
            int64_t last = f->queue.all[f->places[places - 1]].job;
            if (touched >= f->now + f->limit[last] || (may = starts(f, last, touched)) != 0)
                break;
            places--;
            touched = -INFINITY;
        }
        touched = INFINITY;
        if (may < 0)
            return 0;
        if (places == 0 || f->places[places - 1] < i)
            break;
        int64_t j = f->queue.all[i].job;
        may = starts(f, j, -INFINITY);
        if (may < 0)
            return 0;
        if (!may) {
            if (!reserve(f, j, &touched))
                return 0;
            continue;
        }
        touched = -INFINITY;
        if (!start(f, j))
            return 0;
        f->queue.all[i].job = -1; /* gone */
        if (begun++ == 0)
            first = i;
        end = i + 1;
        if (f->followed[j] >= 0)
            f->left--;
        int any = 0;
        for (int64_t a = 0; a < f->w.areas; a++)
            any |= f->free[a] != 0;
        if (!any)
            break;
    }
    if (begun > 0) {
        int64_t kept = first;
        for (int64_t i = first; i < end; i++)
            if (f->queue.all[i].job >= 0)
                f->queue.all[kept++] = f->queue.all[i];
        memmove(f->queue.all + kept, f->queue.all + end, (size_t)(f->queue.count - end) * sizeof(key));
        f->queue.count -= begun;
    }
    f->looked += f->queue.count;
    return 1;
}

/* Its nodes are free, and who came after it may come. */
static int over(futures *f, int64_t j) {
    removed(&f->running, (key){f->until[j], j});
    for (int64_t a = 0; a < f->w.areas; a++)
        f->free[a] += f->given[j * f->w.areas + a];
    for (int64_t c = 0; c < f->w.cells; c++)
        f->cells[c] += f->taken[j * f->w.cells + c];
    int64_t own = j - f->first;
    if (own < 0 || own >= f->w.own)
        return 1;
    for (int64_t k = f->w.children_begin[own]; k < f->w.children_begin[own + 1]; k++) {
        int64_t child = f->w.children[k];
        double rank = f->w.by_submission ? 0.0 : f->now - f->w.now;
        if (--f->missing[child] == 0 && !inserted(&f->queue, (key){rank, f->first + child}))
            return 0;
    }
    return 1;
}

static int by_when(const void *one, const void *other) {
    const later *a = one, *b = other;
    if (a->when != b->when)
        return a->when < b->when ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int set_up(futures *f) {
    const futures_world *w = &f->w;
    size_t areas = (size_t)w->areas, cells = (size_t)w->cells;
    f->cells = calloc(cells, sizeof *f->cells);
    f->free = calloc(areas, sizeof *f->free);
    f->by_area = calloc(areas, sizeof *f->by_area);
    f->levels = calloc(areas, sizeof *f->levels);
    f->protected = calloc(areas, sizeof *f->protected);
    f->later = malloc(((size_t)w->waiting + 1) * sizeof *f->later);
    f->missing = malloc(((size_t)w->own + 1) * sizeof *f->missing);
    f->start = malloc(((size_t)w->follow + 1) * sizeof *f->start);
    f->end = malloc(((size_t)w->follow + 1) * sizeof *f->end);
    if (!f->cells || !f->free || !f->by_area || !f->levels || !f->protected || !f->later || !f->missing || !f->start ||
        !f->end)
        return 0;
    memcpy(f->cells, w->free, cells * sizeof *f->cells);
    by_area(f, f->cells, f->free);
    for (int64_t i = 0; i < w->running; i++) {
        const int64_t *of = w->running_cells + i * w->cells;
        int64_t nodes = 0;
        for (int64_t c = 0; c < w->cells; c++)
            nodes += of[c];
        int64_t j = added(f, nodes, 0, w->running_limit[i], 0.0);
        if (j < 0)
            return 0;
        f->until[j] = w->running_end[i];
        memcpy(f->taken + j * w->cells, of, cells * sizeof *of);
        by_area(f, of, f->given + j * w->areas);
        if (!inserted(&f->running, (key){f->until[j], j}) || !pushed(&f->ends, (key){w->ends[i], j}))
            return 0;
    }
    for (int64_t i = 0; i < w->waiting; i++) {
        int64_t j = added(f, w->waiting_nodes[i], w->waiting_area[i], w->waiting_limit[i], w->runs[i]);
        double rank = (double)(i - w->waiting);
        if (j < 0)
            return 0;
        if (w->waiting_after[i] <= w->now) {
            if (!room_for_keys(&f->queue, f->queue.count + 1))
                return 0;
            f->queue.all[f->queue.count++] = (key){rank, j};
        } else if (w->waiting_after[i] < INFINITY) {
            f->later[f->later_count++] = (later){w->waiting_after[i], rank, j};
        }
    }
    qsort(f->later, (size_t)f->later_count, sizeof *f->later, by_when);
    f->first = f->jobs;
    for (int64_t i = 0; i < w->own; i++) {
        int64_t j = added(f, w->own_nodes[i], 0, w->own_limit[i], w->own_run[i]);
        if (j < 0 || (w->own_missing[i] == 0 && !room_for_keys(&f->queue, f->queue.count + 1)))
            return 0;
        f->missing[i] = w->own_missing[i];
        if (f->missing[i] == 0)
            f->queue.all[f->queue.count++] = (key){0.0, j};
    }
    for (int64_t i = 0; i < w->follow; i++) {
        f->start[i] = f->end[i] = INFINITY;
        f->followed[w->followed[i]] = i;
    }
    f->left = w->follow;
    f->done = 20 + f->jobs / 4;
    return 1;
}

futures *futures_begin(const futures_world *world) {
    futures *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->w = *world;
    f->now = world->now;
    if (!set_up(f)) {
        futures_end(f);
        return NULL;
    }
    return f;
}

int futures_come(futures *f, const futures_arrivals *more) {
    if (more == NULL) {
        f->nobody_more = 1;
        return DONE;
    }
    int64_t wanted = f->came_count + more->count;
    if (wanted > f->came_room) {
        void *larger;
        int64_t room = roomier(f->came_room, wanted);
        if (!RESIZED(f->submit, room, sizeof *f->submit) || !RESIZED(f->came_limit, room, sizeof *f->came_limit) ||
            !RESIZED(f->came_run, room, sizeof *f->came_run) || !RESIZED(f->came_nodes, room, sizeof *f->came_nodes) ||
            !RESIZED(f->came_area, room, sizeof *f->came_area))
            return NO_MEMORY;
        f->came_room = room;
    }
    size_t bytes = (size_t)more->count * sizeof(double);
    if (bytes > 0) {
        memcpy(f->submit + f->came_count, more->submit, bytes);
        memcpy(f->came_limit + f->came_count, more->limit, bytes);
        memcpy(f->came_run + f->came_count, more->run, bytes);
        memcpy(f->came_nodes + f->came_count, more->nodes, bytes);
        memcpy(f->came_area + f->came_count, more->area, bytes);
    }
    f->came_count = wanted;
    return DONE;
}

/* All that happens at the next instant; whether there was memory for that. */
static int event(futures *f) {
    int hope = 0;
    while (f->ends.count > 0 && f->ends.all[0].when <= f->now) {
        if (!over(f, popped(&f->ends).job))
            return 0;
        hope = 1;
    }
    for (; f->shut_at < f->w.shut && f->w.shut_when[f->shut_at] <= f->now; f->shut_at++) {
        const int64_t *cells = f->w.shut_cells + f->shut_at * f->w.cells, sign = f->w.shut_sign[f->shut_at];
        by_area(f, cells, f->by_area);
        for (int64_t a = 0; a < f->w.areas; a++)
            f->free[a] += sign * f->by_area[a];
        for (int64_t c = 0; c < f->w.cells; c++)
            f->cells[c] += sign * cells[c];
        hope = 1;
    }
    for (; f->later_at < f->later_count && f->later[f->later_at].when <= f->now; f->later_at++) {
        later one = f->later[f->later_at];
        if (!inserted(&f->queue, (key){one.rank, one.job}))
            return 0;
        hope |= f->width[one.job] <= f->free[f->area[one.job]];
    }
    for (; f->came_at < f->came_count && f->submit[f->came_at] <= f->now; f->came_at++) {
        int64_t i = f->came_at, nodes = f->came_nodes[i], area = f->came_area[i];
        int64_t j = added(f, nodes, area, f->came_limit[i], f->came_run[i]);
        if (j < 0 || !inserted(&f->queue, (key){f->submit[i] - f->w.now, j}))
            return 0;
        hope |= nodes <= f->free[area];
    }
    return !hope || look(f);
}

int futures_go(futures *f, int64_t part, int64_t *done) {
    *done = 0;
    if (f->full)
        return NO_MEMORY;
    if (!f->begun) {
        f->begun = 1;
        if (!look(f)) {
            f->full = 1;
            return NO_MEMORY;
        }
    }
    while (f->left > 0) {
        double next = INFINITY;
        if (f->ends.count > 0 && f->ends.all[0].when < next)
            next = f->ends.all[0].when;
        if (f->later_at < f->later_count && f->later[f->later_at].when < next)
            next = f->later[f->later_at].when;
        if (f->shut_at < f->w.shut && f->w.shut_when[f->shut_at] < next)
            next = f->w.shut_when[f->shut_at];
        if (f->came_at < f->came_count && f->submit[f->came_at] < next)
            next = f->submit[f->came_at];
        /* All who come at this instant must be known. */
        if (!f->nobody_more && (f->came_at == f->came_count || f->submit[f->came_count - 1] <= next))
            return WANTS_ARRIVALS;
        if (next > f->w.last)
            break;
        f->now = next;
        if (!event(f)) {
            f->full = 1;
            return NO_MEMORY;
        }
        f->done += 1 + f->looked / LOOKED;
        f->looked %= LOOKED;
        if (f->done >= part) {
            *done = f->done;
            f->done = 0;
            return BREATH;
        }
    }
    *done = f->done;
    f->done = 0;
    return DONE;
}

void futures_spans(const futures *f, double *start, double *end) {
    memcpy(start, f->start, (size_t)f->w.follow * sizeof *start);
    memcpy(end, f->end, (size_t)f->w.follow * sizeof *end);
}

void futures_end(futures *f) {
    if (f == NULL)
        return;
    for (int64_t a = 0; f->levels != NULL && a < f->w.areas; a++) {
        free(f->levels[a].steps.times);
        free(f->levels[a].steps.free);
    }
    void *all[] = {f->cells,    f->free,     f->by_area, f->width,       f->area,      f->followed,   f->taken,
                   f->given,    f->limit,    f->run,     f->until,       f->running.all, f->ends.all, f->queue.all,
                   f->later,    f->missing,  f->start,   f->end,         f->submit,    f->came_limit, f->came_run,
                   f->came_nodes, f->came_area, f->levels, f->protected, f->made,      f->places,     f};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}
