/* Which processes are started together to replace all, and who is which rank afterwards: dmr/worlds.py. Pure.
 *
 * What one mpiexec starts is a world. The nodes of each job get one, because a job is given back as a whole. */
#ifndef DMR_LAYOUT_H
#define DMR_LAYOUT_H

#include <stdbool.h>

/* `jobs`: who holds the nodes of each world, 0: the application's own job; that one comes first. `world_of`: by node.
 * `places`: by new rank, its place among the new processes when they stand in the order of the worlds. */
typedef struct {
    int worlds, node_count, size;
    int *jobs, *world_of, *places;
} dmr_layout;

/* `jobs` are by node. False without memory; then there is nothing to free. */
bool dmr_layout_make(dmr_layout *layout, const int *jobs, int node_count, int per_node);
void dmr_layout_free(dmr_layout *layout);

#endif
