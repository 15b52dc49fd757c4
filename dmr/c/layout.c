#include "layout.h"

#include <stdlib.h>

static int ascending(const void *one, const void *other)
{
    int a = *(const int *)one, b = *(const int *)other;
    return (a > b) - (a < b);
}

bool dmr_layout_make(dmr_layout *layout, const int *jobs, int node_count, int per_node)
{
    *layout = (dmr_layout){.node_count = node_count, .size = node_count * per_node};
    layout->jobs = calloc((size_t)node_count + 1, sizeof *layout->jobs);
    layout->world_of = calloc((size_t)node_count + 1, sizeof *layout->world_of);
    layout->places = calloc((size_t)layout->size + 1, sizeof *layout->places);
    if (!layout->jobs || !layout->world_of || !layout->places) {
        dmr_layout_free(layout);
        return false;
    }
    for (int i = 0; i < node_count; i++)
        layout->jobs[i] = jobs[i];
    qsort(layout->jobs, (size_t)node_count, sizeof *layout->jobs, ascending);
    for (int i = 0; i < node_count; i++)
        if (i == 0 || layout->jobs[i] != layout->jobs[i - 1])
            layout->jobs[layout->worlds++] = layout->jobs[i];
    int place = 0;
    for (int world = 0; world < layout->worlds; world++)
        for (int node = 0; node < node_count; node++) {
            if (jobs[node] != layout->jobs[world])
                continue;
            layout->world_of[node] = world;
            for (int i = 0; i < per_node; i++)
                layout->places[node * per_node + i] = place++;
        }
    return true;
}

void dmr_layout_free(dmr_layout *layout)
{
    free(layout->jobs);
    free(layout->world_of);
    free(layout->places);
    *layout = (dmr_layout){.worlds = 0};
}
