#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "wire.h"

bool dmr_wire_node(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strlen(name);
    return length >= 1 && length <= DMR_MAX_NAME && strspn(name, letters) == length && !strchr("._-", name[0]);
}

typedef enum { ABSENT, WRONG, GOOD } presence;

/* A string of at most 500 printable characters; those beyond ASCII are '?' already. */
static presence text_field(dmr_json *json, char *out, size_t capacity)
{
    size_t length;
    if (!dmr_json_string(json, out, capacity, &length))
        return WRONG;
    bool printable = length <= DMR_MAX_TEXT && length < capacity;
    for (const char *c = out; *c; c++)
        printable = printable && *c >= ' ' && *c <= '~';
    /* A zero byte inside would have ended the loop early. */
    return printable && strlen(out) == length ? GOOD : WRONG;
}

static presence int_field(dmr_json *json, int *out) { return dmr_json_int(json, out) ? GOOD : WRONG; }

static int by_name(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

static bool distinct(char *const *nodes, int count)
{
    char **sorted = malloc((size_t)(count ? count : 1) * sizeof *sorted);
    if (!sorted)
        return false;
    if (count)
        memcpy(sorted, nodes, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_name);
    bool good = true;
    for (int i = 1; i < count; i++)
        good = good && strcmp(sorted[i - 1], sorted[i]) != 0;
    free(sorted);
    return good;
}

static presence nodes_field(dmr_json *json, dmr_reply *reply)
{
    char name[DMR_MAX_NAME + 2];
    size_t length, capacity = 0;
    if (!dmr_json_take(json, '['))
        return WRONG;
    if (dmr_json_take(json, ']'))
        return GOOD;
    do {
        if (!dmr_json_string(json, name, sizeof name, &length) || length != strlen(name) || !dmr_wire_node(name))
            return WRONG;
        if ((size_t)reply->node_count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            char **more = realloc(reply->nodes, capacity * sizeof *more);
            if (!more)
                return WRONG;
            reply->nodes = more;
        }
        if (!(reply->nodes[reply->node_count] = strdup(name)))
            return WRONG;
        reply->node_count++;
    } while (dmr_json_take(json, ','));
    return dmr_json_take(json, ']') && distinct(reply->nodes, reply->node_count) ? GOOD : WRONG;
}

/* An object, kept as it is written; null is none. */
static presence object_field(dmr_json *json, char **out)
{
    bool some = dmr_json_take(json, '{');
    const char *start = json->at - 1;
    if (!some)
        return dmr_json_skip(json) ? GOOD : WRONG;
    dmr_json in = {start, json->end};
    if (!dmr_json_skip(&in) || !(*out = strndup(start, (size_t)(in.at - start))))
        return WRONG;
    *json = in;
    return GOOD;
}

enum { V, OK, ACTION, SIZE, EPOCH, NODES, PER_NODE, COMPANION, NODE_REQUEST, REASON, ERROR, MESSAGE, FIELDS };

static const char *const NAMES[FIELDS] = {"v",        "ok",        "action",       "size",   "epoch", "nodes",
                                          "per_node", "companion", "node_request", "reason", "error", "message"};
static const char *const ACTIONS[] = {"none", "expand", "shrink", NULL};
static const char *const ERRORS[] = {"not-permitted", "unknown-job", "bad-request", "stale-epoch",
                                     "busy",          "unavailable", NULL};

static bool one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words;
}

typedef struct {
    presence has[FIELDS];
    int version;
    bool ok;
    char action[32], error[32], reason[DMR_MAX_TEXT + 1], message[DMR_MAX_TEXT + 1];
} raw;

static presence field(dmr_json *json, int key, raw *got, dmr_reply *reply)
{
    switch (key) {
    case V: return int_field(json, &got->version);
    case OK: return dmr_json_bool(json, &got->ok) ? GOOD : WRONG;
    case ACTION: return text_field(json, got->action, sizeof got->action);
    case SIZE: return int_field(json, &reply->size);
    case EPOCH: return int_field(json, &reply->epoch);
    case NODES: return nodes_field(json, reply);
    case PER_NODE: return int_field(json, &reply->per_node);
    case COMPANION: return int_field(json, &reply->companion);
    case NODE_REQUEST: return object_field(json, &reply->node_request);
    case REASON: return text_field(json, got->reason, sizeof got->reason);
    case ERROR: return text_field(json, got->error, sizeof got->error);
    default: return text_field(json, got->message, sizeof got->message);
    }
}

/* One key and its value. A known one of the wrong kind counts only if the reply turns out to need it. */
static const char *member(dmr_json *json, raw *got, dmr_reply *reply)
{
    char name[32];
    size_t length;
    int key = 0;
    if (!dmr_json_string(json, name, sizeof name, &length) || !dmr_json_take(json, ':'))
        return "is not JSON";
    while (key < FIELDS && (length != strlen(name) || strcmp(NAMES[key], name) != 0))
        key++;
    dmr_json value = *json;
    if (!dmr_json_skip(json))
        return "is not JSON";
    if (key == FIELDS)
        return NULL;
    if (got->has[key] != ABSENT)
        return "has a key twice";
    got->has[key] = field(&value, key, got, reply);
    if (got->has[key] == GOOD && value.at != json->at)
        got->has[key] = WRONG;
    return NULL;
}

static const char *object(dmr_json *json, raw *got, dmr_reply *reply)
{
    const char *problem;
    if (!dmr_json_take(json, '{'))
        return "must be a JSON object";
    if (dmr_json_take(json, '}'))
        return dmr_json_done(json) ? NULL : "is not JSON";
    do {
        if ((problem = member(json, got, reply)))
            return problem;
    } while (dmr_json_take(json, ','));
    return dmr_json_take(json, '}') && dmr_json_done(json) ? NULL : "is not JSON";
}

static const char *meaning(const raw *got, dmr_reply *reply)
{
    if (got->has[V] != GOOD || got->version != 1)
        return "v: must be 1";
    if (got->has[OK] != GOOD)
        return "ok: must be true or false";
    if (!got->ok) {
        reply->kind = DMR_REPLY_FAILURE;
        if (got->has[ERROR] != GOOD || !one_of(got->error, ERRORS))
            return "error: is none of the known ones";
        if (got->has[MESSAGE] != GOOD)
            return "message: must be printable text";
        memcpy(reply->word, got->error, sizeof reply->word);
        memcpy(reply->text, got->message, sizeof reply->text);
        return NULL;
    }
    if (got->has[ACTION] == ABSENT) {
        reply->kind = DMR_REPLY_DONE;
        return NULL;
    }
    reply->kind = DMR_REPLY_CHECK;
    if (got->has[ACTION] != GOOD || !one_of(got->action, ACTIONS))
        return "action: must be none, expand or shrink";
    if (got->has[SIZE] != GOOD || reply->size < 1)
        return "size: must be an integer of at least 1";
    if (got->has[EPOCH] != GOOD)
        return "epoch: must be an integer of at least 0";
    if (got->has[NODES] != GOOD)
        return "nodes: must be a list of different host names";
    if (got->has[PER_NODE] != GOOD || reply->per_node < 1)
        return "per_node: must be an integer of at least 1";
    if (got->has[COMPANION] == WRONG)
        return "companion: must be an integer of at least 0";
    if (got->has[REASON] != GOOD)
        return "reason: must be printable text";
    if (strcmp(got->action, "none") != 0 && (int64_t)reply->node_count * reply->per_node != reply->size)
        return "nodes: must hold exactly `size` processes, `per_node` on each";
    memcpy(reply->word, got->action, sizeof reply->word);
    memcpy(reply->text, got->reason, sizeof reply->text);
    return NULL;
}

const char *dmr_wire_reply(const char *line, size_t length, dmr_reply *reply)
{
    dmr_json json = {line, line + length};
    raw got = {.version = 0};
    memset(reply, 0, sizeof *reply);
    const char *problem = length > DMR_MAX_LINE          ? "is too long"
                          : !dmr_json_utf8(line, length) ? "is not UTF-8"
                                                         : object(&json, &got, reply);
    if (!problem)
        problem = meaning(&got, reply);
    if (problem)
        dmr_reply_free(reply);
    return problem;
}

void dmr_reply_free(dmr_reply *reply)
{
    for (int i = 0; i < reply->node_count; i++)
        free(reply->nodes[i]);
    free(reply->nodes);
    free(reply->node_request);
    reply->node_request = NULL;
    reply->nodes = NULL;
    reply->node_count = 0;
}
