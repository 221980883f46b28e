/* SPDX-License-Identifier: Apache-2.0
 * Parts of files whose blocks have checksums: a part is read together with what is missing of its
 * first and its last block, by one call that scatters it, and every block it touches is compared.
 * Pure but for asking for the checksums; any thread. */
#include <errno.h>
#include <string.h>

#include "source/reader_priv.h"

/* Checksums that are asked for at once: those of a megabyte of blocks of 16 KiB. */
enum { ASKED = 64 };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void psti_frame_set(psti_frame *f, const psti_extent *at, uint64_t offset, uint64_t length,
                    uint8_t *buf)
{
    *f = (psti_frame){.at = offset, .buf = buf, .length = length};
    if (!at->guard || length == 0)
        return;
    const uint64_t block = at->guard->block_bytes, end = offset + length;
    const uint64_t last = (end + block - 1) / block * block;
    f->lead_bytes = offset % block;
    f->at = offset - f->lead_bytes;
    f->trail_bytes = least(last, most(at->file_size, end)) - end;
}

uint64_t psti_frame_bytes(const psti_frame *f)
{
    return f->lead_bytes + f->length + f->trail_bytes;
}

int psti_frame_rest(const psti_frame *f, uint64_t got, uint64_t cap, struct iovec out[3])
{
    const struct {
        uint8_t *bytes;
        uint64_t size;
    } piece[3] = {{f->edges, f->lead_bytes},
                  {f->buf, f->length},
                  {f->edges ? f->edges + f->lead_bytes : NULL, f->trail_bytes}};
    int count = 0;
    for (int i = 0; i < 3 && cap > 0; i++) {
        const uint64_t skip = least(got, piece[i].size);
        const uint64_t take = least(piece[i].size - skip, cap);
        got -= skip;
        cap -= take;
        if (take > 0)
            out[count++] = (struct iovec){piece[i].bytes + skip, take};
    }
    return count;
}

/* CRC32C of one block, which may lie in all three pieces. */
static uint32_t sum_block(const psti_frame *f, uint64_t from, uint64_t to)
{
    const uint64_t begin = f->at + f->lead_bytes, end = begin + f->length;
    uint32_t crc = 0;
    if (from < begin)
        crc = pst_crc32c(crc, f->edges + (from - f->at), (size_t)(least(to, begin) - from));
    const uint64_t first = most(from, begin), last = least(to, end);
    if (first < last)
        crc = pst_crc32c(crc, f->buf + (first - begin), (size_t)(last - first));
    if (to > end) {
        const uint64_t rest = most(from, end);
        crc = pst_crc32c(crc, f->edges + f->lead_bytes + (rest - end), (size_t)(to - rest));
    }
    return crc;
}

int psti_frame_compare(const psti_frame *f, const psti_extent *at)
{
    uint32_t sums[ASKED];
    if (!at->guard || f->length == 0)
        return 0;
    const uint64_t block = at->guard->block_bytes, end = f->at + psti_frame_bytes(f);
    for (uint64_t from = f->at; from < end;) {
        const uint64_t left = (end - from + block - 1) / block;
        const size_t count = (size_t)least(left, ASKED);
        if (at->guard->blocks(at->guard_user, at->first_block + from / block, count, sums) < 0)
            return PST_ECHANGED; /* mending makes them anew */
        for (size_t i = 0; i < count; i++, from += block)
            if (sum_block(f, from, least(from + block, end)) != sums[i])
                return PST_ECHANGED;
    }
    return 0;
}
