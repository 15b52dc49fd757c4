#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "wire.h"

static void put(dmr_request *request, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(dmr_request *request, const char *format, ...)
{
    va_list arguments;
    if (!request->text)
        return;
    va_start(arguments, format);
    int length = vsnprintf(request->text + request->length, request->capacity - request->length, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= request->capacity - request->length)
        request->too_long = true;
    else
        request->length += (size_t)length;
}

static dmr_request begun(void)
{
    dmr_request request = {.text = malloc(DMR_MAX_LINE), .capacity = DMR_MAX_LINE};
    if (request.text)
        request.text[0] = '\0';
    return request;
}

/* A fresh number that no other request has, so that none can be used twice. */
static uint64_t nonce(void)
{
    uint64_t value;
    if (getrandom(&value, sizeof value, 0) == (ssize_t)sizeof value)
        return value;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)&value;
}

/* The keys come in alphabetical order, without blanks; then the text is already the canonical one. */
static void put_id(dmr_request *request) { put(request, "\"id\":\"%016llx\"", (unsigned long long)nonce()); }

/* Whole seconds: fractions would have to be written exactly as Python writes them. */
static void put_time(dmr_request *request) { put(request, "\"time\":%lld,\"v\":1", (long long)time(NULL)); }

static void put_nodes(dmr_request *request, const char *const *nodes, int count)
{
    put(request, "\"nodes\":[");
    for (int i = 0; i < count; i++)
        put(request, "%s\"%s\"", i ? "," : "", nodes[i]);
    put(request, "]");
}

/* Milliseconds without zeros at the end: what Python's shortest form of the number is, too. */
static void put_seconds(dmr_request *request, double seconds)
{
    long long milliseconds = isfinite(seconds) && seconds > 0 && seconds < 1e9 ? llround(seconds * 1000) : 0;
    int places = 3;
    long long fraction = milliseconds % 1000;
    while (places && fraction % 10 == 0) {
        fraction /= 10;
        places--;
    }
    if (places)
        put(request, "%lld.%0*lld", milliseconds / 1000, places, fraction);
    else
        put(request, "%lld", milliseconds / 1000);
}

dmr_request dmr_wire_check(int job, int epoch, const dmr_limits *limits)
{
    dmr_request request = begun();
    put(&request, "{%s\"epoch\":%d,\"factor\":%d,", limits->companion ? "\"companion\":true," : "", epoch,
        limits->factor);
    put_id(&request);
    put(&request, ",\"job\":%d,\"maximum\":%d,\"method\":\"replace\",\"minimum\":%d,", job, limits->maximum,
        limits->minimum);
    put_nodes(&request, limits->nodes, limits->node_count);
    put(&request, ",\"op\":\"check\",\"per_node\":%d,", limits->per_node);
    if (limits->preferred)
        put(&request, "\"preferred\":%d,", limits->preferred);
    else
        put(&request, "\"preferred\":null,");
    put(&request, "%s\"size\":%d,", limits->companion ? "\"requests_nodes\":true," : "", limits->size);
    put_time(&request);
    put(&request, "}");
    return request;
}

dmr_request dmr_wire_accept(int job, int epoch)
{
    dmr_request request = begun();
    put(&request, "{\"epoch\":%d,", epoch);
    put_id(&request);
    put(&request, ",\"job\":%d,\"op\":\"accept\",", job);
    put_time(&request);
    put(&request, "}");
    return request;
}

dmr_request dmr_wire_refuse(int job, int epoch, const char *why)
{
    dmr_request request = begun();
    char plain[DMR_MAX_TEXT + 1];
    size_t length = 0;
    for (; why[length] && length < DMR_MAX_TEXT; length++) {
        char c = why[length];
        plain[length] = c < ' ' || c > '~' || c == '"' || c == '\\' ? '?' : c;
    }
    plain[length] = '\0';
    put(&request, "{\"epoch\":%d,", epoch);
    put_id(&request);
    put(&request, ",\"job\":%d,\"op\":\"refuse\",", job);
    put_time(&request);
    put(&request, ",\"why\":\"%s\"}", plain);
    return request;
}

dmr_request dmr_wire_finished(int job, int epoch, int size, const char *const *nodes, int node_count, double spawn,
                              double move)
{
    dmr_request request = begun();
    put(&request, "{\"epoch\":%d,", epoch);
    put_id(&request);
    put(&request, ",\"job\":%d,", job);
    put_nodes(&request, nodes, node_count);
    put(&request, ",\"op\":\"done\",\"size\":%d,\"time\":%lld,\"timings\":{\"move\":", size, (long long)time(NULL));
    put_seconds(&request, move);
    put(&request, ",\"spawn\":");
    put_seconds(&request, spawn);
    put(&request, "},\"v\":1}");
    return request;
}

void dmr_request_free(dmr_request *request)
{
    free(request->text);
    request->text = NULL;
}

void dmr_wire_digest(const dmr_request *request, char hex[DMR_HEX])
{
    dmr_sha256_hex(request->text ? request->text : "", request->length, hex);
}

char *dmr_wire_line(const dmr_request *request, const char *auth)
{
    size_t length = request->length + strlen(auth) + sizeof "\"auth\":\"\",\n";
    if (!request->text || request->too_long || length > DMR_MAX_LINE)
        return NULL;
    char *line = malloc(length);
    if (line)
        snprintf(line, length, "{\"auth\":\"%s\",%s\n", auth, request->text + 1);
    return line;
}
