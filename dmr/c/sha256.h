/* SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104). */
#ifndef DMR_SHA256_H
#define DMR_SHA256_H

#include <stddef.h>

/* 64 lower-case hexadecimal digits and a zero byte. */
#define DMR_HEX 65

void dmr_sha256_hex(const void *data, size_t length, char hex[DMR_HEX]);
void dmr_hmac_hex(const void *key, size_t key_length, const void *data, size_t length, char hex[DMR_HEX]);

#endif
