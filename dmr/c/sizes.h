/* Which sizes a call allows: those of dmr/limits.py. Sizes are processes; a node is given or taken whole. */
#ifndef DMR_SIZES_H
#define DMR_SIZES_H

#include <stdbool.h>
#include <stddef.h>

/* The four arguments of a check; preferred 0: none. */
typedef struct {
    int minimum, maximum, factor, preferred;
} dmr_bounds;

/* Whether they make sense; else `problem` says why not. */
bool dmr_bounds_sound(const dmr_bounds *bounds, char *problem, size_t capacity);

/* Reads "minimum:maximum[:preferred[:factor]]" into `bounds`, where its factor stays if the text has none. */
bool dmr_bounds_read(const char *text, dmr_bounds *bounds);

/* Whether `size` is `current` times or divided by a power of the factor, where 1 reaches everything. */
bool dmr_reachable(int current, int size, int factor);

/* The reachable size nearest to the preferred one, from below; where there is none below, the smallest; else 0. */
int dmr_nearest(int current, const dmr_bounds *bounds, int per_node);

#endif
