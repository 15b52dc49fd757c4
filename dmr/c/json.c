#include "json.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_DIGITS = 400 };

bool dmr_json_utf8(const char *text, size_t length)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + length;
    while (at < end) {
        unsigned char lead = *at++;
        if (lead < 0x80)
            continue;
        int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead < 0xc2 || lead > 0xf4 || end - at < more)
            return false;
        unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        if (*at < low || *at > high)
            return false;
        for (at++; --more > 0; at++)
            if (*at < 0x80 || *at > 0xbf)
                return false;
    }
    return true;
}

static void skip_space(dmr_json *json)
{
    while (json->at < json->end && memchr(" \t\r\n", *json->at, 4))
        json->at++;
}

bool dmr_json_take(dmr_json *json, char byte)
{
    skip_space(json);
    if (json->at == json->end || *json->at != byte)
        return false;
    json->at++;
    return true;
}

static bool word(dmr_json *json, const char *text)
{
    size_t length = strlen(text);
    skip_space(json);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, text, length) != 0)
        return false;
    json->at += length;
    return true;
}

static int hex4(dmr_json *json)
{
    int value = 0;
    if (json->end - json->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = *json->at++;
        const char *all = "0123456789abcdefABCDEF", *found = c ? strchr(all, c) : NULL;
        if (!found)
            return -1;
        value = value * 16 + (int)(found - all < 16 ? found - all : found - all - 6);
    }
    return value;
}

/* The character after a backslash; what is not ASCII is '?'. -1: there is no such escape. */
static int escaped(dmr_json *json)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (json->at == json->end)
        return -1;
    char c = *json->at++;
    if (c != 'u') {
        const char *found = c ? strchr(from, c) : NULL;
        return found ? to[found - from] : -1;
    }
    int code = hex4(json);
    if (code >= 0xd800 && code < 0xdc00) {
        /* With its second half it is one character; alone it is one as well. */
        dmr_json ahead = *json;
        if (ahead.end - ahead.at >= 2 && ahead.at[0] == '\\' && ahead.at[1] == 'u') {
            ahead.at += 2;
            int second = hex4(&ahead);
            if (second >= 0xdc00 && second < 0xe000)
                *json = ahead;
        }
    }
    return code < 0x80 ? code : '?';
}

bool dmr_json_string(dmr_json *json, char *out, size_t capacity, size_t *length)
{
    size_t count = 0;
    dmr_json in = *json;
    if (!dmr_json_take(&in, '"'))
        return false;
    while (in.at < in.end) {
        int c = (unsigned char)*in.at++;
        if (c == '"') {
            out[count < capacity ? count : capacity - 1] = '\0';
            *length = count;
            *json = in;
            return true;
        }
        if (c < 0x20 || (c == '\\' && (c = escaped(&in)) < 0))
            return false;
        if (c >= 0x80) {
            while (in.at < in.end && ((unsigned char)*in.at & 0xc0) == 0x80)
                in.at++;
            c = '?';
        }
        if (count + 1 < capacity)
            out[count] = (char)c;
        count++;
    }
    return false;
}

static bool digits(dmr_json *json)
{
    const char *begin = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at > begin && json->at - begin <= MAX_DIGITS;
}

/* Skips a number; `whole` gets whether it has neither fraction nor exponent. */
static bool number(dmr_json *json, bool *whole)
{
    skip_space(json);
    if (json->at < json->end && *json->at == '-')
        json->at++;
    const char *begin = json->at;
    if (!digits(json) || (*begin == '0' && json->at - begin > 1))
        return false;
    *whole = true;
    if (json->at < json->end && *json->at == '.') {
        *whole = false;
        json->at++;
        if (!digits(json))
            return false;
    }
    if (json->at < json->end && (*json->at == 'e' || *json->at == 'E')) {
        *whole = false;
        json->at++;
        if (json->at < json->end && (*json->at == '+' || *json->at == '-'))
            json->at++;
        if (!digits(json))
            return false;
    }
    return true;
}

bool dmr_json_int(dmr_json *json, int *out)
{
    bool whole = false;
    skip_space(json);
    dmr_json in = *json;
    if (!number(&in, &whole) || !whole || *json->at == '-' || in.at - json->at > 10)
        return false;
    int64_t value = 0;
    for (const char *c = json->at; c < in.at; c++)
        value = value * 10 + (*c - '0');
    if (value > INT_MAX)
        return false;
    *out = (int)value;
    *json = in;
    return true;
}

bool dmr_json_bool(dmr_json *json, bool *out)
{
    *out = word(json, "true");
    return *out || word(json, "false");
}

static bool skip(dmr_json *json, int depth)
{
    char ignored[1];
    size_t length;
    bool whole;
    skip_space(json);
    if (json->at == json->end || depth == 0)
        return false;
    char first = *json->at;
    if (first == '"')
        return dmr_json_string(json, ignored, sizeof ignored, &length);
    if (first != '{' && first != '[')
        return word(json, "true") || word(json, "false") || word(json, "null") || number(json, &whole);
    char last = first == '{' ? '}' : ']';
    json->at++;
    if (dmr_json_take(json, last))
        return true;
    do {
        skip_space(json);
        if (first == '{' && (!dmr_json_string(json, ignored, sizeof ignored, &length) || !dmr_json_take(json, ':')))
            return false;
        if (!skip(json, depth - 1))
            return false;
    } while (dmr_json_take(json, ','));
    return dmr_json_take(json, last);
}

bool dmr_json_skip(dmr_json *json) { return skip(json, MAX_DEPTH); }

bool dmr_json_member(dmr_json *json, const char *name)
{
    char key[64];
    size_t length;
    dmr_json found = {NULL, NULL};
    if (!dmr_json_take(json, '{'))
        return false;
    if (dmr_json_take(json, '}'))
        return false;
    do {
        skip_space(json);
        if (!dmr_json_string(json, key, sizeof key, &length) || !dmr_json_take(json, ':'))
            return false;
        if (length < sizeof key && strcmp(key, name) == 0)
            found = *json;
        if (!dmr_json_skip(json))
            return false;
    } while (dmr_json_take(json, ','));
    if (!dmr_json_take(json, '}') || !found.at)
        return false;
    *json = found;
    return true;
}

bool dmr_json_done(dmr_json *json)
{
    skip_space(json);
    return json->at == json->end;
}
