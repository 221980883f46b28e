/* SPDX-License-Identifier: Apache-2.0
 * DEFLATE in the two wrappings that volumes come in: gzip, of one member or several, and bare in
 * zip archives. The caller always knows how many bytes must come out, from a header that was read
 * first, so nothing here grows with what a stream claims or holds. Called by nifti.c and npz.c on a
 * worker's thread.
 *
 * zlib reads as much of the beginning as a header needs. The whole goes through libdeflate where it
 * is there, which is two to three times as fast and has no streaming; whatever it calls damaged
 * zlib reads again, so that verdicts and words are zlib's in every build. */
#include <errno.h>
#include <string.h>

#ifdef PSTI_HAVE_GZIP
#include <zlib.h>
#endif
#if defined(PSTI_HAVE_GZIP) && defined(PSTI_HAVE_DEFLATE)
#include <libdeflate.h>
#define FAST 1
#endif

#include "codec/codec_priv.h"

/* The most that DEFLATE makes of a byte: 258 of two bits. */
enum { RATIO_MOST = 1032 };

bool psti_packed_may_hold(size_t packed, uint64_t bytes)
{
    return bytes / RATIO_MOST <= packed;
}

#ifdef PSTI_HAVE_GZIP

enum { STEP_MOST = 1 << 30 }; /* zlib counts in 32 bits */

static int fail_large(const psti_packed *in, pst_error *err)
{
    return psti_fail(err, PST_ECORRUPT, "decode", NULL,
                     "%s: the stream holds more than the %zu bytes that its header tells of: "
                     "damaged, or a bomb",
                     in->name, in->whole);
}

static int fail_short(const psti_packed *in, size_t made, pst_error *err)
{
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)in->size,
                        "%s: the stream ends after %zu of the %zu bytes that its header tells of: "
                        "the file is cut off",
                        in->name, made, in->whole);
}

/* gzip(1) and others pass over zeros behind the last member. */
static bool only_zeros(const uint8_t *at, size_t size)
{
    return size == 0 || (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0);
}

/* ---- zlib ---- */

static void *take_memory(void *opaque, unsigned items, unsigned size)
{
    (void)opaque;
    return psti_calloc(PSTI_MEM_CODEC, items, size);
}

static void give_memory(void *opaque, void *memory)
{
    (void)opaque;
    psti_free(memory);
}

typedef struct stream {
    z_stream z;
    const psti_packed *in;
    size_t used; /* of the input */
    uint8_t *dst;
    size_t made, want;
    bool head; /* stop once want is there */
} stream;

static unsigned step_of(size_t left)
{
    return (unsigned)(left < STEP_MOST ? left : STEP_MOST);
}

static int fail_zlib(const stream *s, int status, pst_error *err)
{
    if (status == Z_MEM_ERROR)
        return psti_fail(err, -ENOMEM, "decode", NULL, "%s: out of memory", s->in->name);
    if (status == Z_BUF_ERROR)
        return fail_short(s->in, s->made, err);
    return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)s->used,
                        "%s: the stream is damaged (%s)", s->in->name,
                        s->z.msg ? s->z.msg : "a dictionary is asked for");
}

/* One call of inflate. When all bytes are there, one more is asked for, which must not come. */
static int inflate_on(stream *s)
{
    uint8_t spare;
    const bool full = s->made == s->want;
    s->z.next_in = (uint8_t *)s->in->bytes + s->used; /* zlib 1.2 has no const */
    s->z.avail_in = step_of(s->in->size - s->used);
    s->z.next_out = full ? &spare : s->dst + s->made;
    s->z.avail_out = full ? 1 : step_of(s->want - s->made);
    const uint8_t *from = s->z.next_in, *to = s->z.next_out;
    const int status = inflate(&s->z, Z_NO_FLUSH);
    s->used += (size_t)(s->z.next_in - from);
    s->made += (size_t)(s->z.next_out - to);
    return status;
}

static int inflate_all(stream *s, pst_error *err)
{
    for (;;) {
        const int status = inflate_on(s);
        if (s->made > s->want)
            return fail_large(s->in, err);
        if (s->head && s->made == s->want)
            return 0;
        if (status == Z_STREAM_END) {
            if (!s->in->gzip || only_zeros(s->in->bytes + s->used, s->in->size - s->used))
                return 0;
            inflateReset(&s->z);
        } else if (status != Z_OK) {
            return fail_zlib(s, status, err);
        }
    }
}

static int inflate_zlib(stream *s, pst_error *err)
{
    s->z.zalloc = take_memory;
    s->z.zfree = give_memory;
    const int status = inflateInit2(&s->z, s->in->gzip ? MAX_WBITS + 16 : -MAX_WBITS);
    if (status != Z_OK)
        return fail_zlib(s, Z_MEM_ERROR, err);
    const int rc = inflate_all(s, err);
    inflateEnd(&s->z);
    return rc;
}

int psti_packed_head(const psti_packed *in, uint8_t *dst, size_t want, size_t *got, pst_error *err)
{
    /* Empty members and blocks may stand before the first byte; nobody writes many. */
    enum { LOOK_MOST = 256 << 10 };
    psti_packed begin = *in;
    begin.size = in->size < LOOK_MOST ? in->size : LOOK_MOST;
    begin.whole = want;
    stream s = {.in = &begin, .dst = dst, .want = want, .head = true};
    pst_error local;
    const int rc = inflate_zlib(&s, &local);
    *got = s.made;
    /* Fewer bytes than asked for are an answer: the caller says what is missing. */
    if (rc < 0 && !(rc == PST_ECORRUPT && s.used == begin.size)) {
        if (err)
            *err = local;
        return rc;
    }
    return 0;
}

/* ---- libdeflate ---- */

#ifdef FAST

/* 0; 1 when zlib shall say what is wrong. */
static int inflate_fast(const psti_packed *in, uint8_t *dst, pst_error *err)
{
    struct libdeflate_decompressor *fast = libdeflate_alloc_decompressor();
    if (!fast)
        return psti_fail(err, -ENOMEM, "decode", NULL, "%s: out of memory", in->name);
    size_t used = 0, made = 0;
    enum libdeflate_result result = LIBDEFLATE_SUCCESS;
    do {
        size_t took = 0, gave = 0;
        result = (in->gzip ? libdeflate_gzip_decompress_ex : libdeflate_deflate_decompress_ex)(
            fast, in->bytes + used, in->size - used, dst + made, in->whole - made, &took, &gave);
        if (result != LIBDEFLATE_SUCCESS)
            break;
        used += took;
        made += gave;
    } while (in->gzip && !only_zeros(in->bytes + used, in->size - used));
    libdeflate_free_decompressor(fast);
    if (result == LIBDEFLATE_SUCCESS)
        return made == in->whole ? 0 : fail_short(in, made, err);
    return result == LIBDEFLATE_INSUFFICIENT_SPACE ? fail_large(in, err) : 1;
}

#else

static int inflate_fast(const psti_packed *in, uint8_t *dst, pst_error *err)
{
    (void)in;
    (void)dst;
    (void)err;
    return 1;
}

#endif

int psti_packed_all(const psti_packed *in, uint8_t *dst, pst_error *err)
{
    int rc = inflate_fast(in, dst, err);
    if (rc <= 0)
        return rc;
    stream s = {.in = in, .dst = dst, .want = in->whole};
    rc = inflate_zlib(&s, err);
    return rc == 0 && s.made < s.want ? fail_short(in, s.made, err) : rc;
}

uint32_t psti_crc32(const uint8_t *bytes, size_t size)
{
#ifdef FAST
    return libdeflate_crc32(0, bytes, size);
#else
    return (uint32_t)crc32_z(0, bytes, size);
#endif
}

#else

static int fail_left_out(const psti_packed *in, pst_error *err)
{
    return psti_fail(err, PST_EFORMAT, "decode", NULL,
                     "%s: built without zlib: build again with it, or store the data unpacked",
                     in->name);
}

int psti_packed_head(const psti_packed *in, uint8_t *dst, size_t want, size_t *got, pst_error *err)
{
    (void)dst;
    (void)want;
    *got = 0;
    return fail_left_out(in, err);
}

int psti_packed_all(const psti_packed *in, uint8_t *dst, pst_error *err)
{
    (void)dst;
    return fail_left_out(in, err);
}

uint32_t psti_crc32(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

#endif
