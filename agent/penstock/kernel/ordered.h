/* What happens when, in order: keys, as a heap or as a sorted list, and what is free from when on. `WHEN` is the type of a
 * time, which a source names before it includes this: seconds with fractions, or whole ones up to 2^60. */
#ifndef PENSTOCK_ORDERED_H
#define PENSTOCK_ORDERED_H

#include <stdint.h>
#include <string.h>

#include "arrays.h"

typedef struct {
    WHEN when;
    int64_t job;
} key;

typedef struct {
    key *all;
    int64_t count, room;
} keys;

/* `free[i]` from `times[i]` on, up to the next. */
typedef struct {
    WHEN *times;
    int64_t *free, count, room;
} steps;

static inline int before(key a, key b) {
    return a.when < b.when || (a.when == b.when && a.job < b.job);
}

static inline int room_for_keys(keys *in, int64_t wanted) {
    void *larger;
    if (wanted <= in->room)
        return 1;
    int64_t room = roomier(in->room, wanted);
    if (!RESIZED(in->all, room, sizeof *in->all))
        return 0;
    in->room = room;
    return 1;
}

/* Where a key is in a sorted list, or would be. */
static inline int64_t place_of(const keys *in, key x) {
    int64_t low = 0, high = in->count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (before(in->all[middle], x))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline int inserted(keys *in, key x) {
    if (!room_for_keys(in, in->count + 1))
        return 0;
    int64_t at = place_of(in, x);
    memmove(in->all + at + 1, in->all + at, (size_t)(in->count - at) * sizeof x);
    in->all[at] = x;
    in->count++;
    return 1;
}

static inline void removed(keys *from, key x) {
    int64_t at = place_of(from, x);
    if (at < from->count) {
        memmove(from->all + at, from->all + at + 1, (size_t)(from->count - at - 1) * sizeof x);
        from->count--;
    }
}

static inline int pushed(keys *heap, key x) {
    if (!room_for_keys(heap, heap->count + 1))
        return 0;
    int64_t i = heap->count++;
    while (i > 0 && before(x, heap->all[(i - 1) / 2])) {
        heap->all[i] = heap->all[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap->all[i] = x;
    return 1;
}

static inline key popped(keys *heap) {
    key first = heap->all[0], x = heap->all[--heap->count];
    int64_t i = 0;
    for (int64_t child = 1; child < heap->count; child = 2 * i + 1) {
        if (child + 1 < heap->count && before(heap->all[child + 1], heap->all[child]))
            child++;
        if (!before(heap->all[child], x))
            break;
        heap->all[i] = heap->all[child];
        i = child;
    }
    heap->all[i] = x;
    return first;
}

/* The first step from `low` on, before `high`, that is not before `time`; else `high`. */
static inline int64_t step_at(const steps *in, WHEN time, int64_t low, int64_t high) {
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (in->times[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline int room_for_steps(steps *in, int64_t wanted) {
    void *larger;
    if (wanted <= in->room)
        return 1;
    int64_t room = roomier(in->room, wanted);
    if (!RESIZED(in->times, room, sizeof *in->times) || !RESIZED(in->free, room, sizeof *in->free))
        return 0;
    in->room = room;
    return 1;
}

/* A step at `time`, with what is free before it. There is room. */
static inline void insert_step(steps *in, int64_t at, WHEN time) {
    memmove(in->times + at + 1, in->times + at, (size_t)(in->count - at) * sizeof *in->times);
    memmove(in->free + at + 1, in->free + at, (size_t)(in->count - at) * sizeof *in->free);
    in->times[at] = time;
    in->free[at] = in->free[at > 0 ? at - 1 : 0]; /* nothing is taken before the first: it begins now */
    in->count++;
}

#endif
