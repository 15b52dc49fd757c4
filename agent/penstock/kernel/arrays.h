/* Arrays that grow. */
#ifndef PENSTOCK_ARRAYS_H
#define PENSTOCK_ARRAYS_H

#include <stdint.h>
#include <stdlib.h>

/* As realloc, NULL also where the size is too large to say. */
static inline void *resized(void *old, int64_t count, size_t each) {
    return (uint64_t)count > SIZE_MAX / each ? NULL : realloc(old, (size_t)count * each);
}

/* Whether there is memory for so many in an array; else it stays as it is. Needs a `void *larger`. */
#define RESIZED(array, count, each) ((larger = resized((array), (count), (each))) != NULL && ((array) = larger, 1))

/* How much room an array gets that needs room for so many. */
static inline int64_t roomier(int64_t room, int64_t wanted) {
    return 2 * room > wanted ? 2 * room : wanted;
}

#endif
