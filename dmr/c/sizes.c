#include "sizes.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

bool dmr_bounds_sound(const dmr_bounds *bounds, char *problem, size_t capacity)
{
    static const char least[] = "%s must be at least 1, not %d";
    if (bounds->minimum < 1)
        snprintf(problem, capacity, least, "minimum", bounds->minimum);
    else if (bounds->maximum < 1)
        snprintf(problem, capacity, least, "maximum", bounds->maximum);
    else if (bounds->factor < 1)
        snprintf(problem, capacity, least, "factor", bounds->factor);
    else if (bounds->preferred < 0)
        snprintf(problem, capacity, "preferred must be at least 1, or 0 for none, not %d", bounds->preferred);
    else if (bounds->minimum > bounds->maximum)
        snprintf(problem, capacity, "minimum %d is above maximum %d", bounds->minimum, bounds->maximum);
    else if (bounds->preferred && (bounds->preferred < bounds->minimum || bounds->preferred > bounds->maximum))
        snprintf(problem, capacity, "preferred %d is outside %d..%d", bounds->preferred, bounds->minimum,
                 bounds->maximum);
    else
        return true;
    return false;
}

bool dmr_bounds_read(const char *text, dmr_bounds *bounds)
{
    int numbers[4] = {0, 0, 0, bounds->factor}, count = 0;
    char ignored[128];
    do {
        int64_t value = 0;
        size_t digits = strspn(text, "0123456789");
        if (count == 4 || digits < 1 || digits > 10)
            return false;
        while (digits--)
            value = value * 10 + (*text++ - '0');
        if (value > INT_MAX || (count == 2 && value == 0))
            return false;
        numbers[count++] = (int)value;
    } while (*text++ == ':');
    dmr_bounds read = {numbers[0], numbers[1], numbers[3], numbers[2]};
    if (text[-1] || count < 2 || !dmr_bounds_sound(&read, ignored, sizeof ignored))
        return false;
    *bounds = read;
    return true;
}

bool dmr_reachable(int current, int size, int factor)
{
    int64_t small = current < size ? current : size, large = current < size ? size : current;
    if (factor == 1)
        return true;
    while (small < large)
        small *= factor;
    return small == large;
}

static bool allowed(int64_t size, const dmr_bounds *bounds, int per_node)
{
    return size >= bounds->minimum && size <= bounds->maximum && size % per_node == 0;
}

int dmr_nearest(int current, const dmr_bounds *bounds, int per_node)
{
    int64_t below = 0, smallest = 0;
    int preferred = bounds->preferred;
    if (!preferred)
        return 0;
    if (bounds->factor == 1) {
        below = preferred / per_node * (int64_t)per_node;
        smallest = ((int64_t)bounds->minimum + per_node - 1) / per_node * per_node;
        return (int)(allowed(below, bounds, per_node) ? below : allowed(smallest, bounds, per_node) ? smallest : 0);
    }
    int64_t size = current;
    while (size % bounds->factor == 0)
        size /= bounds->factor;
    for (; size <= bounds->maximum; size *= bounds->factor) {
        if (!allowed(size, bounds, per_node))
            continue;
        smallest = smallest ? smallest : size;
        if (size <= preferred)
            below = size;
    }
    return (int)(below ? below : smallest);
}
