/* Credentials over the digest of a request: those of dmr/credential.py. DMR_KEY_FILE selects the key, else munge. */
#ifndef DMR_CREDENTIAL_H
#define DMR_CREDENTIAL_H

#include <stddef.h>

enum { DMR_MAX_PROBLEM = 400 };

/* The credential, to be freed, or NULL with `problem` filled, which holds no secret. libmunge may take some seconds. */
char *dmr_credential(const char *digest, char problem[DMR_MAX_PROBLEM]);

#endif
