/* The line to the launcher that started this process: that of dmr/line.py. Makes no MPI call. */
#ifndef DMR_LINE_H
#define DMR_LINE_H

#include <stdbool.h>

#include "credential.h"
#include "json.h"
#include "layout.h"

/* The variable that says which of the launcher's worlds this process is of; not set in the first one. */
#define DMR_TICKET "DMR_TICKET"

/* Worlds that were started, by their order: their tickets, and the MPI ports that they have opened. */
typedef struct {
    int count;
    char **tickets, **ports;
} dmr_worlds;

/* Whether a launcher started this process. */
bool dmr_line_there(void);

/* Has the worlds of a layout started on these nodes, and waits until all of them are ready; else none is left, and
 * `problem` says why. */
bool dmr_line_start(const dmr_layout *layout, char *const *nodes, int per_node, dmr_worlds *worlds,
                    char problem[DMR_MAX_PROBLEM]);
void dmr_worlds_free(dmr_worlds *worlds);

/* They belong to the application now; false if one has ended. */
bool dmr_line_joined(const dmr_worlds *worlds, char problem[DMR_MAX_PROBLEM]);

/* They do not: they are ended. */
void dmr_line_abandon(const dmr_worlds *worlds);

/* From rank 0 of a new world: its port is open. Waits until somebody comes to it, or nobody will. */
bool dmr_line_ready(const char *ticket, const char *port);

/* A request of the agent for nodes, as it came (JSON), for the launcher to run. */
bool dmr_line_node_request(const char *request, char problem[DMR_MAX_PROBLEM]);

#endif
