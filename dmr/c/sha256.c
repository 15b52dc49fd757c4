#include "sha256.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK = 64, DIGEST = 32 };

typedef struct {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[BLOCK];
} sha256;

/* Fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2). */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void compress(sha256 *s)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 |
               (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t low = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t high = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    memcpy(v, s->state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t choice = (e & v[5]) ^ (~e & v[6]), majority = (a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]);
        uint32_t first = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice + K[i] + w[i];
        uint32_t second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        s->state[i] += v[i];
}

static void begin(sha256 *s)
{
    /* Fractional parts of the square roots of the first 8 primes (5.3.3). */
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, initial, sizeof initial);
    s->length = 0;
}

static void add(sha256 *s, const void *data, size_t length)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < length; i++) {
        s->block[s->length++ % BLOCK] = bytes[i];
        if (s->length % BLOCK == 0)
            compress(s);
    }
}

static void finish(sha256 *s, uint8_t digest[DIGEST])
{
    uint64_t bits = s->length * 8;
    uint8_t tail[8], one = 0x80, zero = 0;
    for (int i = 0; i < 8; i++)
        tail[i] = (uint8_t)(bits >> (56 - 8 * i));
    add(s, &one, 1);
    while (s->length % BLOCK != BLOCK - sizeof tail)
        add(s, &zero, 1);
    add(s, tail, sizeof tail);
    for (int i = 0; i < DIGEST; i++)
        digest[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

static void to_hex(const uint8_t digest[DIGEST], char hex[DMR_HEX])
{
    for (int i = 0; i < DIGEST; i++) {
        hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    hex[2 * DIGEST] = '\0';
}

void dmr_sha256_hex(const void *data, size_t length, char hex[DMR_HEX])
{
    sha256 s;
    uint8_t digest[DIGEST];
    begin(&s);
    add(&s, data, length);
    finish(&s, digest);
    to_hex(digest, hex);
}

void dmr_hmac_hex(const void *key, size_t key_length, const void *data, size_t length, char hex[DMR_HEX])
{
    sha256 s;
    uint8_t padded[BLOCK] = {0}, digest[DIGEST];
    if (key_length > BLOCK) {
        begin(&s);
        add(&s, key, key_length);
        finish(&s, padded);
    } else {
        memcpy(padded, key, key_length);
    }
    for (int i = 0; i < BLOCK; i++)
        padded[i] ^= 0x36;
    begin(&s);
    add(&s, padded, BLOCK);
    add(&s, data, length);
    finish(&s, digest);
    for (int i = 0; i < BLOCK; i++)
        padded[i] ^= 0x36 ^ 0x5c;
    begin(&s);
    add(&s, padded, BLOCK);
    add(&s, digest, DIGEST);
    finish(&s, digest);
    to_hex(digest, hex);
}
