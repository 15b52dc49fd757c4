/* A strict reader of JSON text, as much as a reply of the agent needs. It never allocates, nor reads beyond `end`. */
#ifndef DMR_JSON_H
#define DMR_JSON_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *at;
    const char *end;
} dmr_json;

/* Whether all bytes are UTF-8 (RFC 3629): no overlong forms, no surrogates. */
bool dmr_json_utf8(const char *text, size_t length);

/* Skips white space, then the byte, if it comes next. */
bool dmr_json_take(dmr_json *json, char byte);

/* Reads a string into `out`, zero-terminated: what is not ASCII becomes '?'. `length` gets its code points.
 * False if it is none. One that does not fit is cut; `length` tells. */
bool dmr_json_string(dmr_json *json, char *out, size_t capacity, size_t *length);

/* Reads an integer from 0 to 2^31 - 1, written without fraction or exponent. */
bool dmr_json_int(dmr_json *json, int *out);

/* Reads true or false. */
bool dmr_json_bool(dmr_json *json, bool *out);

/* Skips any one value, nested at most 32 deep. */
bool dmr_json_skip(dmr_json *json);

/* Goes to the value of this name in the object that comes next: to the last one, as Python does. False if there is none,
 * or it is no object. */
bool dmr_json_member(dmr_json *json, const char *name);

/* Whether nothing but white space is left. */
bool dmr_json_done(dmr_json *json);

#endif
