/* SHA-256 as in FIPS 180-4, for secrets of less than a block's worth of padding at a time. */
#include "box.h"

#include <string.h>

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t word, int by)
{
    return word >> by | word << (32 - by);
}

static void absorb(uint32_t state[8], const unsigned char block[64])
{
    uint32_t words[64], v[8];
    for (int i = 0; i < 16; i++)
        words[i] = get_number(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];
        words[i] = words[i - 16] + words[i - 7] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3)
                   + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t one = v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25))
                       + ((v[4] & v[5]) ^ (~v[4] & v[6])) + rounds[i] + words[i];
        uint32_t two = (turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22))
                       + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void sha256(const void *data, size_t size, unsigned char digest[SHA256_BYTES])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const unsigned char *from = data;
    size_t left = size;
    for (; left >= 64; from += 64, left -= 64)
        absorb(state, from);
    unsigned char last[128] = {0};
    size_t end = left < 56 ? 64 : 128;
    memcpy(last, from, left);
    last[left] = 0x80;
    put_number(last + end - 8, (uint32_t)((uint64_t)size >> 29));
    put_number(last + end - 4, (uint32_t)(size << 3));
    for (size_t at = 0; at < end; at += 64)
        absorb(state, last + at);
    for (int i = 0; i < 8; i++)
        put_number(digest + 4 * i, state[i]);
}
