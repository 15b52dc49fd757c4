/* Damaged replies for the C library's reader, under the sanitizers: fuzz_reply SEED COUNT FILE, a reply on each line of
 * FILE. Each input is in memory of exactly its size, so that one byte too far is found. Ends at a finding. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

enum { MOST_SEEDS = 64, LARGEST = 4096 };

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 16) % below);
}

static size_t changed(char *data, size_t size, char *const *seeds, int count)
{
    static const char *const words[] = {"\"", "\\u0000", "\\ud800", "\\udc00", "\\", "{", "}", "[", "]", ",", ":", "-",
        "0", "2147483648", "99999999999999999999", "1e9", "1.0", "true", "null", "\xc3\xa9", "\xff", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\"nodes\":[\"a\",\"b\"]", "\"v\":1", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["};
    for (uint32_t left = 1 + draw(4); left > 0; left--) {
        uint32_t at = draw((uint32_t)size + 1);
        const char *word = words[draw(sizeof words / sizeof *words)];
        size_t length = strlen(word), cut = draw(3) ? 0 : draw(16);
        switch (draw(5)) {
        case 0:
            if (at < size)
                data[at] = (char)draw(256);
            break;
        case 1:
            size = draw(8) ? size : at;
            break;
        case 2:
            word = seeds[draw((uint32_t)count)];
            word += draw((uint32_t)strlen(word) + 1);
            length = strlen(word);
            /* fall through */
        default:
            if (cut > size - at)
                cut = size - at;
            if (size - cut + length > LARGEST)
                break;
            memmove(data + at + length, data + at + cut, size - at - cut);
            memcpy(data + at, word, length);
            size += length - cut;
        }
    }
    return size;
}

int main(int argc, char **argv)
{
    static char line[LARGEST + 2], data[2 * LARGEST];
    char *seeds[MOST_SEEDS];
    int count = 0;
    FILE *file = argc == 4 ? fopen(argv[3], "r") : NULL;
    if (!file)
        return 2;
    while (count < MOST_SEEDS && fgets(line, sizeof line, file))
        if (!(seeds[count++] = strdup(line)))
            return 2;
    fclose(file);
    state = strtoull(argv[1], NULL, 10) * 2654435761u + 1;
    unsigned long long inputs = strtoull(argv[2], NULL, 10), accepted = 0;
    for (unsigned long long i = 0; count > 0 && i < inputs; i++) {
        const char *seed = seeds[draw((uint32_t)count)];
        size_t size = strlen(seed);
        memcpy(data, seed, size);
        size = changed(data, size, seeds, count);
        char *exact = malloc(size ? size : 1);
        if (!exact)
            return 2;
        memcpy(exact, data, size);
        dmr_reply reply;
        if (!dmr_wire_reply(exact, size, &reply)) {
            accepted++;
            if (reply.kind == DMR_REPLY_CHECK && (reply.size < 1 || !memchr(reply.text, 0, sizeof reply.text)))
                abort();
            dmr_reply_free(&reply);
        }
        free(exact);
    }
    for (int i = 0; i < count; i++)
        free(seeds[i]);
    printf("%llu %llu\n", inputs, accepted);
    return 0;
}
