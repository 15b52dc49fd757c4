/* The messages between rank 0 and the agent: those of dmr/wire.py, which is their specification. */
#ifndef DMR_WIRE_H
#define DMR_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "sha256.h"

enum { DMR_MAX_LINE = 64 * 1024, DMR_MAX_TEXT = 500, DMR_MAX_NAME = 255 };

/* A request: the JSON object in canonical form, without its credential. `text` is NULL if it could not be made. */
typedef struct {
    char *text;
    size_t length;
    size_t capacity;
    bool too_long;
} dmr_request;

/* What a check says (`Check` in dmr/wire.py). `nodes`: names that dmr_wire_node allows; count 0 if not known.
 * `companion`: nodes that another job holds will do, and the launcher can ask for such a job. */
typedef struct {
    int size, minimum, maximum, factor, preferred, per_node;
    const char *const *nodes;
    int node_count;
    bool companion;
} dmr_limits;

typedef enum { DMR_REPLY_DONE, DMR_REPLY_CHECK, DMR_REPLY_FAILURE } dmr_reply_kind;

/* A reply; free it with dmr_reply_free. `word` is the action of a check's, the error of a failure; `text` the reason or
 * message, of printable ASCII. `node_request`: what the launcher is to ask for, as it came (JSON), or NULL. */
typedef struct {
    dmr_reply_kind kind;
    char word[32];
    int size, epoch, per_node, companion;
    char **nodes;
    int node_count;
    char text[DMR_MAX_TEXT + 1];
    char *node_request;
} dmr_reply;

/* Whether this may be the name of a node. */
bool dmr_wire_node(const char *name);

dmr_request dmr_wire_check(int job, int epoch, const dmr_limits *limits);
dmr_request dmr_wire_accept(int job, int epoch);
/* `why` may be any text; what is not printable ASCII in it is replaced. */
dmr_request dmr_wire_refuse(int job, int epoch, const char *why);
/* The durations, in seconds, are sent to the millisecond. */
dmr_request dmr_wire_finished(int job, int epoch, int size, const char *const *nodes, int node_count, double spawn,
                              double move);
void dmr_request_free(dmr_request *request);

/* What the credential is made over. */
void dmr_wire_digest(const dmr_request *request, char hex[DMR_HEX]);

/* The line to send, newline included, with this credential; NULL if it is too long or there is no memory. Free it. */
char *dmr_wire_line(const dmr_request *request, const char *auth);

/* Reads a reply of `length` bytes. NULL, or what is wrong with it; then there is nothing to free. */
const char *dmr_wire_reply(const char *line, size_t length, dmr_reply *reply);
void dmr_reply_free(dmr_reply *reply);

#endif
