/* Conservative backfilling and replanning over a whole trace. The rules, and the reference, are those of
 * penstock_lab/sim/replay.py, conservative.py and replan.py, and of penstock/future/counts.py: the same steps in the same
 * order on whole numbers, so that both find the same starts, and tests hold them together. Names are those of the
 * reference, which says why it is right.
 *
 * The trace must be one that `Trace.check` takes: widths that fit, times whose sum fits. No globals.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WHEN int64_t
#include "ordered.h"

#include "kernel.h"

enum { DONE = 0, MORE = 1, NO_MEMORY = -1 };
#define NEVER ((int64_t)1 << 62)

/* Of jobs as wide: no window as long as `shortest`, which was looked for last, lies before `until`. */
typedef struct {
    int64_t shortest, until;
    int known;
} in_vain;

/* Of jobs as wide and as long: none of them begins earlier any more in this pass. */
typedef struct {
    int64_t width, length, begin, pass;
} least_begin;
enum { KINDS = 1024 };

struct schedule {
    schedule_trace t;
    int64_t now, next, due;
    keys ends;      /* a heap of (end, job, or its place in `begun`) */
    int64_t *begun; /* jobs in the order in which they began */
    int64_t begun_count;
    int64_t *started, started_count, *ended;
    steps profile;
    /* Conservative. */
    int64_t *begin, *following, *preceding; /* who waits, as a ring around `jobs` */
    unsigned char *waiting;
    keys promises; /* a heap of (begin, job); those that were moved since are stale */
    int one_ended, settled;
    in_vain *vain;
    int64_t *widths, widths_count;
    /* Replan. */
    int64_t *queue, queue_count, *begins, planned, free, *narrow, narrow_count, *places;
    int stale;
    keys running;            /* in order of (estimated end, job) */
    int64_t *estimated_end;
    least_begin *least;
    int64_t pass, kinds;
};

/* -- the profile -------------------------------------------------------------------------------------------------- */

static void remove_steps(steps *p, int64_t at, int64_t count) {
    size_t bytes = (size_t)(p->count - at - count) * sizeof(int64_t);
    memmove(p->times + at, p->times + at + count, bytes);
    memmove(p->free + at, p->free + at + count, bytes);
    p->count -= count;
}

static void join(steps *p, int64_t at) {
    if (at > 0 && at < p->count && p->free[at] == p->free[at - 1])
        remove_steps(p, at, 1);
}

static void advance(steps *p, int64_t now) {
    if (p->count > 1 && p->times[1] <= now)
        remove_steps(p, 0, step_at(p, now + 1, 0, p->count) - 1);
    if (p->times[0] < now)
        p->times[0] = now;
}

static int64_t earliest(const steps *p, int64_t width, int64_t length, int64_t first) {
    int64_t good = first;
    for (;;) {
        int64_t from = first + 1 < p->count ? first + 1 : p->count;
        int64_t stop = step_at(p, p->times[first] + length, from, p->count), at = stop - 1;
        while (at >= good && p->free[at] >= width)
            at--;
        if (at < good)
            return p->times[first];
        if (at + 1 == p->count) /* never: all that are wider than the last step are refused */
            return NEVER / 4;
        first = at + 1;
        good = stop;
    }
}

static int64_t earlier(const steps *p, int64_t width, int64_t length, int64_t begin, int64_t after) {
    int64_t last = step_at(p, begin, 0, p->count);
    int64_t first = after > p->times[0] ? step_at(p, after, 0, p->count) : 0, good = first;
    while (first < last) {
        int64_t end = p->times[first] + length, stop = end >= begin ? last : step_at(p, end, first + 1, last);
        int64_t at = stop - 1;
        while (at >= good && p->free[at] >= width)
            at--;
        if (at < good)
            return p->times[first];
        first = at + 1;
        good = stop;
    }
    return begin;
}

static int take(steps *p, int64_t width, int64_t begin, int64_t end) {
    if (width == 0)
        return 1;
    if (!room_for_steps(p, p->count + 2))
        return 0;
    int64_t first = step_at(p, begin, 0, p->count);
    int fresh = first == p->count || p->times[first] != begin;
    if (fresh)
        insert_step(p, first, begin);
    int64_t last = step_at(p, end, first, p->count);
    int ends = last == p->count || p->times[last] != end;
    if (ends)
        insert_step(p, last, end);
    for (int64_t i = first; i < last; i++)
        p->free[i] -= width;
    if (!ends)
        join(p, last);
    if (!fresh)
        join(p, first);
    return 1;
}

static int move(steps *p, int64_t width, int64_t begin, int64_t to, int64_t length) {
    int64_t end = to + length;
    return take(p, width, to, end < begin ? end : begin) && take(p, -width, end > begin ? end : begin, begin + length);
}

/* -- conservative ------------------------------------------------------------------------------------------------- */

static int promise(schedule *s, int64_t job, int64_t begin) {
    s->begin[job] = begin;
    return pushed(&s->promises, (key){begin, job});
}

static int compress(schedule *s) {
    steps *p = &s->profile;
    int64_t now = p->times[0];
    s->one_ended = 0;
    s->settled = 1;
    for (; s->widths_count > 0; s->widths_count--)
        s->vain[s->widths[s->widths_count - 1]].known = 0;
    for (int64_t job = s->following[s->t.jobs]; job != s->t.jobs; job = s->following[job]) {
        int64_t width = s->t.width[job], length = s->t.estimate[job], begin = s->begin[job], after = 0;
        in_vain *vain = &s->vain[width];
        int64_t at = step_at(p, begin, 0, p->count);
        if (p->free[at > 0 ? at - 1 : p->count - 1] < width) {
            if (now + length >= begin)
                continue;
            if (vain->known && length >= vain->shortest) {
                if (begin <= vain->until)
                    continue;
                after = vain->until - length + 1;
            }
        }
        int64_t to = earlier(p, width, length, begin, after);
        if (to < begin) {
            if (!move(p, width, begin, to, length) || !promise(s, job, to))
                return 0;
            s->settled = 0;
            int64_t freed = to + length > begin ? to + length : begin;
            for (int64_t i = 0; i < s->widths_count; i++)
                if (s->vain[s->widths[i]].until > freed)
                    s->vain[s->widths[i]].until = freed;
        } else {
            if (!vain->known)
                s->widths[s->widths_count++] = width;
            vain->known = 1;
            vain->shortest = length;
            vain->until = begin;
        }
    }
    return 1;
}

static int conservative_submit(schedule *s, int64_t job) {
    int64_t width = s->t.width[job], length = s->t.estimate[job];
    advance(&s->profile, s->now);
    if (s->one_ended && !s->settled && !compress(s))
        return 0;
    int64_t begin = earliest(&s->profile, width, length, 0);
    if (!take(&s->profile, width, begin, begin + length))
        return 0;
    s->waiting[job] = 1;
    int64_t last = s->preceding[s->t.jobs];
    s->preceding[job] = last;
    s->following[job] = s->t.jobs;
    s->following[last] = s->preceding[s->t.jobs] = job;
    return promise(s, job, begin);
}

static int conservative_end(schedule *s, int64_t job) {
    int64_t end = s->begin[job] + s->t.estimate[job];
    s->one_ended = 1;
    advance(&s->profile, s->now);
    if (end > s->now) {
        s->settled = 0;
        return take(&s->profile, -s->t.width[job], s->now, end);
    }
    return 1;
}

static int conservative_start(schedule *s) {
    if (s->one_ended && !s->settled && !compress(s))
        return 0;
    while (s->promises.count > 0 && s->promises.all[0].when <= s->now) {
        key first = popped(&s->promises);
        int64_t job = first.job;
        if (!s->waiting[job] || s->begin[job] != first.when)
            continue;
        s->waiting[job] = 0;
        s->following[s->preceding[job]] = s->following[job];
        s->preceding[s->following[job]] = s->preceding[job];
        s->started[s->started_count++] = job;
    }
    s->due = s->promises.count > 0 ? s->promises.all[0].when : NEVER;
    return 1;
}

/* -- replan ------------------------------------------------------------------------------------------------------- */

static void replan_end(schedule *s, int64_t job) {
    removed(&s->running, (key){s->estimated_end[job], job});
    s->free += s->t.width[job];
    if (s->estimated_end[job] != s->now)
        s->stale = 1;
}

/* Start the planned jobs at the first so many of `places`; whether there was memory for that. */
static int launch(schedule *s, int64_t count) {
    int64_t next = 0, kept = 0;
    for (int64_t i = 0; count > 0 && i < s->queue_count; i++) {
        int64_t job = s->queue[i];
        if (next < count && s->places[next] == i) {
            next++;
            key x = {s->now + s->t.estimate[job], job};
            if (!inserted(&s->running, x))
                return 0;
            s->estimated_end[job] = x.when;
            s->free -= s->t.width[job];
            s->started[s->started_count++] = job;
        } else {
            s->queue[kept] = job;
            if (i < s->planned)
                s->begins[kept] = s->begins[i];
            kept++;
        }
    }
    if (count > 0)
        s->queue_count = kept;
    s->planned -= count;
    return 1;
}

/* Whether the job would fit from now on into what the plan leaves. */
static int fits(const schedule *s, int64_t job) {
    int64_t end = step_at(&s->profile, s->now + s->t.estimate[job], 0, s->profile.count);
    for (int64_t i = 0; i < end; i++)
        if (s->profile.free[i] < s->t.width[job])
            return 0;
    return 1;
}

/* The place of a kind of job, or where it would be. There is room. */
static least_begin *least_of(schedule *s, int64_t width, int64_t length) {
    uint64_t at = ((uint64_t)width * 2654435761u ^ (uint64_t)length * 40503u) % KINDS;
    while (s->least[at].pass == s->pass && (s->least[at].width != width || s->least[at].length != length))
        at = (at + 1) % KINDS;
    return &s->least[at];
}

static int plan(schedule *s) {
    int64_t count = 0, place = s->planned, until = NEVER, begin = s->now;
    s->pass++;
    s->kinds = 0;
    for (;;) {
        if (begin < until) {
            while (s->narrow_count > 0 && !fits(s, s->narrow[s->narrow_count - 1]))
                s->narrow_count--;
            if (s->narrow_count == 0)
                break;
            until = s->now + s->t.estimate[s->narrow[s->narrow_count - 1]];
        }
        if (place == s->queue_count || s->narrow[s->narrow_count - 1] < s->queue[place])
            break;
        int64_t job = s->queue[place], width = s->t.width[job], length = s->t.estimate[job];
        /* Where too many kinds are remembered, no further ones are. */
        least_begin *kind = s->kinds < KINDS / 2 ? least_of(s, width, length) : NULL;
        int remembered = kind != NULL && kind->pass == s->pass;
        int64_t first = remembered ? step_at(&s->profile, kind->begin, 0, s->profile.count) : 0;
        begin = earliest(&s->profile, width, length, first);
        if (kind != NULL) {
            s->kinds += !remembered;
            *kind = (least_begin){width, length, begin, s->pass};
        }
        if (!take(&s->profile, width, begin, begin + length))
            return 0;
        s->begins[place] = begin;
        if (begin == s->now)
            s->places[count++] = place;
        place++;
    }
    s->planned = place;
    return launch(s, count);
}

/* Forget the plan; what is left is the running jobs. */
static int renew(schedule *s) {
    steps *p = &s->profile;
    s->stale = 0;
    s->planned = 0;
    if (!room_for_steps(p, s->running.count + 1))
        return 0;
    int64_t free = s->free;
    p->count = 1;
    p->times[0] = s->now;
    p->free[0] = free;
    for (int64_t i = 0; i < s->running.count; i++) {
        key one = s->running.all[i];
        free += s->t.width[one.job];
        if (one.when != p->times[p->count - 1])
            p->times[p->count++] = one.when;
        p->free[p->count - 1] = free;
    }
    return 1;
}

static void find_narrow(schedule *s, int64_t first) {
    s->narrow_count = 0;
    for (int64_t i = first; s->free > 0 && i < s->queue_count; i++)
        if (s->t.width[s->queue[i]] <= s->free)
            s->narrow[s->narrow_count++] = s->queue[i];
}

static int replan_start(schedule *s) {
    if (!s->stale) {
        int64_t count = 0;
        advance(&s->profile, s->now);
        for (int64_t i = 0; i < s->planned; i++)
            if (s->begins[i] <= s->now)
                s->places[count++] = i;
        if (!launch(s, count))
            return 0;
    }
    find_narrow(s, s->planned);
    if (s->narrow_count == 0 && !s->stale)
        return 1;
    if (s->stale) {
        int may = s->narrow_count > 0;
        for (int64_t i = 0; i < s->planned && !may; i++)
            may = s->t.width[s->queue[i]] <= s->free;
        if (s->free == 0 || !may)
            return 1;
        if (!renew(s))
            return 0;
        find_narrow(s, 0);
    }
    return plan(s);
}

/* -- the event loop ----------------------------------------------------------------------------------------------- */

static int submit(schedule *s, int64_t job) {
    if (!s->t.replan)
        return conservative_submit(s, job);
    s->queue[s->queue_count++] = job;
    return 1;
}

static int end(schedule *s, int64_t job) {
    if (!s->t.replan)
        return conservative_end(s, job);
    replan_end(s, job);
    return 1;
}

/* One pass of the policy; who starts, runs. */
static int pass(schedule *s) {
    s->started_count = 0;
    if (!(s->t.replan ? replan_start(s) : conservative_start(s)))
        return 0;
    for (int64_t i = 0; i < s->started_count; i++) {
        int64_t job = s->started[i];
        s->t.start[job] = s->now;
        if (!pushed(&s->ends, (key){s->now + s->t.run[job], s->t.batch ? job : s->begun_count}))
            return 0;
        s->begun[s->begun_count++] = job;
    }
    return 1;
}

static int batch(schedule *s) {
    while (s->ends.count > 0 && s->ends.all[0].when <= s->now)
        if (!end(s, popped(&s->ends).job))
            return 0;
    for (; s->next < s->t.jobs && s->t.submit[s->next] == s->now; s->next++)
        if (!submit(s, s->next))
            return 0;
    return pass(s);
}

static int each(schedule *s) {
    int64_t ended = 0;
    while (s->ends.count > 0 && s->ends.all[0].when <= s->now) {
        int64_t job = s->begun[popped(&s->ends).job];
        s->ended[ended++] = job;
        if (s->t.run[job] == s->t.estimate[job] && !end(s, job))
            return 0;
    }
    for (; s->next < s->t.jobs && s->t.submit[s->next] == s->now; s->next++)
        if (!submit(s, s->next) || !pass(s))
            return 0;
    for (int64_t i = 0; i < ended; i++) {
        int64_t job = s->ended[i];
        if (s->t.run[job] != s->t.estimate[job] && !end(s, job))
            return 0;
        if (!pass(s))
            return 0;
    }
    return s->due > s->now || pass(s);
}

int schedule_go(schedule *s, int64_t instants) {
    for (; instants > 0; instants--) {
        int64_t next = s->due;
        if (s->next < s->t.jobs && s->t.submit[s->next] < next)
            next = s->t.submit[s->next];
        if (s->ends.count > 0 && s->ends.all[0].when < next)
            next = s->ends.all[0].when;
        if (next == NEVER)
            return DONE;
        s->now = next;
        if (!(s->t.batch ? batch(s) : each(s)))
            return NO_MEMORY;
    }
    return MORE;
}

static int set_up(schedule *s) {
    size_t jobs = (size_t)s->t.jobs + 1, number = sizeof(int64_t);
    s->begun = malloc(jobs * number);
    s->started = malloc(jobs * number);
    s->ended = malloc(jobs * number);
    if (!s->begun || !s->started || !s->ended || !room_for_steps(&s->profile, 64))
        return 0;
    s->profile.count = 1;
    s->profile.times[0] = 0;
    s->profile.free[0] = s->t.procs;
    s->due = NEVER;
    if (s->t.replan) {
        s->queue = malloc(jobs * number);
        s->begins = malloc(jobs * number);
        s->narrow = malloc(jobs * number);
        s->places = malloc(jobs * number);
        s->estimated_end = malloc(jobs * number);
        s->least = calloc(KINDS, sizeof *s->least);
        s->free = s->t.procs;
        return s->queue && s->begins && s->narrow && s->places && s->estimated_end && s->least;
    }
    s->begin = malloc(jobs * number);
    s->following = malloc(jobs * number);
    s->preceding = malloc(jobs * number);
    s->waiting = calloc(jobs, 1);
    s->vain = calloc((size_t)s->t.procs + 1, sizeof *s->vain);
    s->widths = malloc(((size_t)s->t.procs + 1) * number);
    s->settled = 1;
    if (!s->begin || !s->following || !s->preceding || !s->waiting || !s->vain || !s->widths)
        return 0;
    s->following[s->t.jobs] = s->preceding[s->t.jobs] = s->t.jobs;
    return 1;
}

schedule *schedule_begin(const schedule_trace *trace) {
    schedule *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->t = *trace;
    if (!set_up(s)) {
        schedule_end(s);
        return NULL;
    }
    return s;
}

void schedule_end(schedule *s) {
    if (s == NULL)
        return;
    void *all[] = {s->ends.all, s->begun,   s->started,      s->ended,  s->profile.times, s->profile.free, s->begin,
                   s->following, s->preceding, s->waiting,   s->promises.all, s->vain,    s->widths,       s->queue,
                   s->begins,   s->narrow,  s->places,       s->running.all, s->estimated_end, s->least,   s};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}
