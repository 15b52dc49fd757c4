/* What new processes must know of the job, as bytes that go from old rank 0 to all of them. */
#ifndef DMR_PASSPORT_H
#define DMR_PASSPORT_H

#include <stdbool.h>

#include "session.h"

typedef struct {
    char *bytes;
    int length;
} dmr_passport;

/* Of a resize whose nodes these jobs hold; `bytes` is to be freed. False without memory. */
bool dmr_passport_make(dmr_passport *passport, const dmr_session *session, const dmr_reply *reply, const int *jobs);

/* Takes it over into the session. False without memory. */
bool dmr_passport_read(const dmr_passport *passport, dmr_session *session);

/* The new rank of the process that has this place among the new ones. */
int dmr_passport_rank(const dmr_passport *passport, int place);

#endif
