/* One request and its reply over TCP, within a deadline. Makes no MPI call. */
#ifndef DMR_TALK_H
#define DMR_TALK_H

#include <stdbool.h>

#include "credential.h"
#include "wire.h"

typedef struct {
    char host[256], port[8];
} dmr_address;

typedef struct {
    dmr_address to;
    double deadline; /* on the clock of dmr_now */
    int connection;  /* one that is open already, or -1; afterwards the one to keep, or -1 */
    dmr_request request;
    dmr_reply reply;
    char problem[DMR_MAX_PROBLEM]; /* empty: there is a reply */
} dmr_talk;

/* Signs the request, sends it and reads the reply; whether there is one. Neither resolving the host nor signing knows
 * the deadline. */
bool dmr_exchange(dmr_talk *talk);

#endif
