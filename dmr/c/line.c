#include "line.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "sha256.h"
#include "socket.h"

static const char ADDRESS[] = "DMR_LAUNCHER", SECRET[] = "DMR_LAUNCHER_SECRET";
static const double HELLO = 10.0, START = 120.0, GRACE = 15.0, SOON = 30.0, DAY = 86400.0;
enum { MAX_LINE = 256 * 1024, NONCE = 33, MAX_PORT = 4096, MAX_TICKET = 64 };

static const char *set(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text ? text : NULL;
}

bool dmr_line_there(void) { return set(ADDRESS) && set(SECRET); }

/* Seconds within which new processes must be up. */
static double start_limit(void)
{
    const char *text = set("DMR_START_TIMEOUT");
    char *end = NULL;
    double limit = text ? strtod(text, &end) : 0;
    return text && !*end && limit > 0 && limit < DAY ? limit : START;
}

static void fresh(char nonce[NONCE])
{
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        memcpy(bytes, &(double){dmr_now()}, sizeof(double)); /* it must differ, no more: the launcher's is random */
    for (int i = 0; i < 16; i++)
        snprintf(nonce + 2 * i, 3, "%02x", bytes[i]);
}

/* Over the four texts with a zero byte between them. False without memory. */
static bool seal(const char *const texts[4], char mac[DMR_HEX])
{
    size_t length = 0, at = 0;
    for (int i = 0; i < 4; i++)
        length += strlen(texts[i]) + 1;
    char *whole = malloc(length);
    if (!whole)
        return false;
    for (int i = 0; i < 4; i++) {
        size_t bytes = strlen(texts[i]) + 1;
        memcpy(whole + at, texts[i], bytes);
        at += bytes;
    }
    dmr_hmac_hex(getenv(SECRET), strlen(getenv(SECRET)), whole, length - 1, mac);
    free(whole);
    return true;
}

static bool same(const char *one, const char *other)
{
    unsigned char differ = strlen(one) != strlen(other);
    for (size_t i = 0; !differ && i < DMR_HEX - 1; i++)
        differ |= (unsigned char)(one[i] ^ other[i]);
    return !differ;
}

/* A text as a JSON string; it is of printable ASCII. */
static void put_string(FILE *to, const char *text)
{
    putc('"', to);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', to);
        putc(*text < ' ' || *text > '~' ? '?' : *text, to);
    }
    putc('"', to);
}

/* The string under `name` in the object that the line holds. To be freed; NULL if there is none. */
static char *member(const char *line, size_t length, const char *name)
{
    dmr_json json = {line, line + length};
    char *text = NULL;
    size_t found = 0;
    if (dmr_json_utf8(line, length) && dmr_json_member(&json, name) && (text = malloc(length + 1)) &&
        dmr_json_string(&json, text, length + 1, &found) && found == strlen(text))
        return text;
    free(text);
    return NULL;
}

static char *sealed(const char *nonce, const char *body, const char *mac)
{
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);
    if (!to)
        return NULL;
    fprintf(to, "{\"nonce\": \"%s\", \"mac\": \"%s\", \"body\": ", nonce, mac);
    put_string(to, body);
    fputs("}\n", to);
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

/* One question and its answer over an open connection; to be freed. */
static char *exchange(int connection, const char *body, double hello, double until, char problem[DMR_MAX_PROBLEM])
{
    char nonce[NONCE], mac[DMR_HEX];
    size_t length;
    char *line = dmr_get(connection, MAX_LINE, hello, "the launcher", &length, problem);
    char *theirs = line ? member(line, length, "nonce") : NULL, *asked = NULL, *answer = NULL, *proof = NULL;
    free(line);
    line = NULL;
    fresh(nonce);
    if (theirs && seal((const char *const[]){"ask", theirs, nonce, body}, mac))
        asked = sealed(nonce, body, mac);
    if (asked && dmr_put(connection, asked, hello, problem))
        line = dmr_get(connection, MAX_LINE, until, "the launcher", &length, problem);
    if (line) {
        answer = member(line, length, "body");
        proof = member(line, length, "mac");
        if (!answer || !proof || !seal((const char *const[]){"answer", theirs, nonce, answer}, mac) ||
            !same(proof, mac)) {
            snprintf(problem, DMR_MAX_PROBLEM, "somebody else answers there");
            free(answer);
            answer = NULL;
        }
    }
    if (!answer && !problem[0])
        snprintf(problem, DMR_MAX_PROBLEM, "no greeting of a launcher");
    free(line);
    free(theirs);
    free(asked);
    free(proof);
    return answer;
}

/* Asks the launcher: its answer, an object, to be freed; or NULL, and `problem` says why. */
static char *ask(double limit, const char *body, char problem[DMR_MAX_PROBLEM])
{
    char *addresses = set(ADDRESS) && set(SECRET) && body ? strdup(getenv(ADDRESS)) : NULL, *rest = NULL;
    char why[DMR_MAX_PROBLEM - 64] = "DMR_LAUNCHER is not set";
    double until = dmr_now() + limit;
    for (char *one = addresses ? strtok_r(addresses, ",", &rest) : NULL; one; one = strtok_r(NULL, ",", &rest)) {
        char *colon = strrchr(one, ':'), *answer = NULL;
        if (!colon)
            continue;
        *colon = '\0';
        double hello = dmr_now() + HELLO < until ? dmr_now() + HELLO : until;
        problem[0] = '\0';
        int connection = dmr_dial(one, colon + 1, hello, problem);
        if (connection >= 0)
            answer = exchange(connection, body, hello, until, problem);
        dmr_shut(&connection);
        if (answer) {
            free(addresses);
            char *refused = member(answer, strlen(answer), "error");
            if (!refused)
                return answer;
            snprintf(problem, DMR_MAX_PROBLEM, "%s", refused);
            free(refused);
            free(answer);
            return NULL;
        }
        snprintf(why, sizeof why, "%s", problem);
    }
    free(addresses);
    snprintf(problem, DMR_MAX_PROBLEM, "the launcher does not answer (%s)", why);
    return NULL;
}

/* What is written to `to` is the question. */
static char *asked(FILE *to, char **body, double limit, char problem[DMR_MAX_PROBLEM])
{
    char *answer = NULL;
    if (!to || fclose(to) != 0)
        snprintf(problem, DMR_MAX_PROBLEM, "no memory");
    else
        answer = ask(limit, *body, problem);
    free(*body);
    return answer;
}

void dmr_worlds_free(dmr_worlds *worlds)
{
    for (int i = 0; i < worlds->count; i++) {
        free(worlds->tickets[i]);
        free(worlds->ports[i]);
    }
    free(worlds->tickets);
    free(worlds->ports);
    *worlds = (dmr_worlds){.count = 0};
}

/* Reads [[ticket, port], ...], as many as were asked for. */
static bool read_worlds(const char *answer, int count, dmr_worlds *worlds)
{
    dmr_json json = {answer, answer + strlen(answer)};
    char ticket[MAX_TICKET], port[MAX_PORT];
    size_t one, other;
    worlds->tickets = calloc((size_t)count + 1, sizeof *worlds->tickets);
    worlds->ports = calloc((size_t)count + 1, sizeof *worlds->ports);
    bool good = worlds->tickets && worlds->ports && dmr_json_member(&json, "worlds") && dmr_json_take(&json, '[');
    for (int i = 0; good && i < count; i++) {
        good = (i == 0 || dmr_json_take(&json, ',')) && dmr_json_take(&json, '[') &&
               dmr_json_string(&json, ticket, sizeof ticket, &one) && one < sizeof ticket &&
               dmr_json_take(&json, ',') && dmr_json_string(&json, port, sizeof port, &other) &&
               other < sizeof port && dmr_json_take(&json, ']');
        if (good) {
            worlds->tickets[i] = strdup(ticket);
            worlds->ports[i] = strdup(port);
            worlds->count++;
            good = worlds->tickets[i] && worlds->ports[i];
        }
    }
    if (good && dmr_json_take(&json, ']'))
        return true;
    dmr_worlds_free(worlds);
    return false;
}

bool dmr_line_start(const dmr_layout *layout, char *const *nodes, int per_node, dmr_worlds *worlds,
                    char problem[DMR_MAX_PROBLEM])
{
    double limit = start_limit();
    char *body = NULL;
    size_t length;
    FILE *to = open_memstream(&body, &length);
    *worlds = (dmr_worlds){.count = 0};
    for (int world = 0; to && world < layout->worlds; world++) {
        fprintf(to, "%s{\"job\": %d, \"nodes\": [", world ? ", " : "{\"op\": \"start\", \"worlds\": [",
                layout->jobs[world]);
        bool first = true;
        for (int node = 0; node < layout->node_count; node++)
            if (layout->world_of[node] == world) {
                fprintf(to, "%s\"%s\"", first ? "" : ", ", nodes[node]);
                first = false;
            }
        fputs("]}", to);
    }
    if (to)
        fprintf(to, "], \"per_node\": %d, \"limit\": %g}", per_node, limit);
    char *answer = asked(to, &body, limit + GRACE, problem);
    if (!answer)
        return false;
    bool good = read_worlds(answer, layout->worlds, worlds);
    if (!good)
        snprintf(problem, DMR_MAX_PROBLEM, "the launcher's answer is not understood");
    free(answer);
    return good;
}

/* A question about these worlds. */
static char *about(const char *op, const dmr_worlds *worlds, char problem[DMR_MAX_PROBLEM])
{
    char *body = NULL;
    size_t length;
    FILE *to = open_memstream(&body, &length);
    if (to)
        fprintf(to, "{\"op\": \"%s\", \"tickets\": [", op);
    for (int i = 0; to && i < worlds->count; i++) {
        fputs(i ? ", " : "", to);
        put_string(to, worlds->tickets[i]);
    }
    if (to)
        fputs("]}", to);
    return asked(to, &body, SOON, problem);
}

bool dmr_line_joined(const dmr_worlds *worlds, char problem[DMR_MAX_PROBLEM])
{
    char *answer = about("joined", worlds, problem);
    free(answer);
    return answer != NULL;
}

void dmr_line_abandon(const dmr_worlds *worlds)
{
    char ignored[DMR_MAX_PROBLEM];
    if (worlds->count)
        free(about("abandon", worlds, ignored));
}

bool dmr_line_ready(const char *ticket, const char *port)
{
    char *body = NULL, ignored[DMR_MAX_PROBLEM];
    size_t length;
    FILE *to = open_memstream(&body, &length);
    if (to) {
        fputs("{\"op\": \"ready\", \"ticket\": ", to);
        put_string(to, ticket);
        fputs(", \"port\": ", to);
        put_string(to, port);
        putc('}', to);
    }
    char *answer = asked(to, &body, DAY, ignored);
    if (!answer)
        return false;
    bool met = true;
    dmr_json json = {answer, answer + strlen(answer)};
    if (dmr_json_member(&json, "met"))
        dmr_json_bool(&json, &met);
    free(answer);
    return met;
}

bool dmr_line_node_request(const char *request, char problem[DMR_MAX_PROBLEM])
{
    char *body = NULL;
    size_t length;
    FILE *to = open_memstream(&body, &length);
    if (to)
        fprintf(to, "{\"op\": \"node-request\", \"node_request\": %s}", request);
    char *answer = asked(to, &body, SOON, problem);
    free(answer);
    return answer != NULL;
}
