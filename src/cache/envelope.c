/* SPDX-License-Identifier: Apache-2.0
 * Packing entries and opening them. Descriptions are written in fixed sizes rather than as the
 * structures that memory has, so that a build with other structures reads them too. Everything
 * that is opened is treated as if somebody had made it up. */
#include "cache/envelope.h"

#include <string.h>

#include "core/memory.h"
#include "penstock.h"

enum { FORMAT = 1, ALIGNED = 64, SHAPE = 4 };
static const uint64_t MAGIC = 0x0a31564e45545350; /* "PSTENV1\n" where the low byte comes first */

typedef struct head {
    uint64_t magic;
    uint32_t format;
    uint32_t count; /* pictures */
    uint64_t sample[2], form[2];
    uint64_t size;       /* of the whole envelope */
    uint64_t content_at; /* where the content begins */
    uint64_t plain;      /* bytes, without pictures */
    uint32_t content_crc;
    uint32_t head_crc; /* of head, with 0 in this place, and descriptions */
    uint64_t maker[2]; /* whoever packed it, where that matters; else 0 */
    uint64_t spare[4];
} head;

typedef struct description {
    int64_t header[4]; /* rows, columns, channels, depth */
    double unit[3];
    int64_t shape[SHAPE];
    int64_t corner[3], whole[3]; /* x, y, z; rows, columns, depth */
    int64_t first_damaged_row;
    uint8_t header_dtype, header_axes, kind, dtype, rank, axes, spare[2];
} description;

_Static_assert(sizeof(head) == PSTI_ENVELOPE_ROOM && sizeof(description) == 152,
               "the format has no gaps");

static size_t aligned(size_t n)
{
    return (n + ALIGNED - 1) & ~(size_t)(ALIGNED - 1);
}

static size_t front_bytes(size_t count)
{
    return aligned(sizeof(head) + count * sizeof(description));
}

/* Bytes of a picture's elements; false when there is no such picture. */
static bool picture_bytes(const psti_field *f, size_t *out)
{
    size_t bytes = psti_dtype_bytes(f->dtype);
    if (!bytes || f->rank != (f->axes == PSTI_AXES_VOLUME ? 4 : 3))
        return false;
    for (int d = 0; d < f->rank; d++)
        if (f->shape[d] < 0 || !psti_mul(bytes, (size_t)f->shape[d], &bytes))
            return false;
    *out = bytes;
    return bytes <= SIZE_MAX / 2;
}

size_t psti_envelope_size(const psti_cache_content *content)
{
    if (content->count < 0 || content->count > PSTI_ENVELOPE_PICTURES)
        return 0;
    size_t total = front_bytes((size_t)content->count);
    if (!content->count)
        return psti_add(total, content->bytes, &total) ? total : 0;
    for (int i = 0; i < content->count; i++) {
        size_t bytes;
        if (!picture_bytes(&content->pictures[i].field, &bytes) ||
            !psti_add(total, aligned(bytes), &total))
            return 0;
    }
    return total;
}

static description describe(const psti_decoded *p)
{
    const psti_geom *h = &p->header;
    const psti_field *f = &p->field;
    description d = {.header = {h->rows, h->cols, h->channels, h->depth},
                     .unit = {h->unit[0], h->unit[1], h->unit[2]},
                     .corner = {f->x0, f->y0, f->z0},
                     .whole = {f->whole_rows, f->whole_cols, f->whole_depth},
                     .first_damaged_row = f->first_damaged_row,
                     .header_dtype = (uint8_t)h->dtype,
                     .header_axes = (uint8_t)h->axes,
                     .kind = f->kind,
                     .dtype = f->dtype,
                     .rank = f->rank,
                     .axes = f->axes};
    memcpy(d.shape, f->shape, sizeof d.shape);
    return d;
}

static void undescribe(const description *d, psti_decoded *p)
{
    *p = (psti_decoded){
        .header = {.rows = d->header[0],
                   .cols = d->header[1],
                   .channels = d->header[2],
                   .depth = d->header[3],
                   .dtype = d->header_dtype,
                   .axes = (psti_axes)d->header_axes,
                   .unit = {d->unit[0], d->unit[1], d->unit[2]}},
        .field = {.kind = d->kind,
                  .dtype = d->dtype,
                  .rank = d->rank,
                  .axes = d->axes,
                  .x0 = d->corner[0],
                  .y0 = d->corner[1],
                  .z0 = d->corner[2],
                  .whole_rows = d->whole[0],
                  .whole_cols = d->whole[1],
                  .whole_depth = d->whole[2],
                  .first_damaged_row = d->first_damaged_row},
    };
    memcpy(p->field.shape, d->shape, sizeof d->shape);
}

static uint8_t *pack_picture(const psti_field *from, uint8_t *at)
{
    psti_field to = *from;
    psti_field_pack(&to);
    to.data = at;
    psti_field_copy(from, &to);
    const size_t room = aligned(to.bytes);
    memset(at + to.bytes, 0, room - to.bytes);
    return at + room;
}

static uint32_t head_crc(head h, const uint8_t *descriptions, size_t bytes)
{
    h.head_crc = 0;
    return pst_crc32c(pst_crc32c(0, &h, sizeof h), descriptions, bytes);
}

void psti_envelope_pack(const psti_cache_key *key, const psti_cache_content *content,
                        const uint8_t *bytes, uint8_t *out)
{
    const size_t front = front_bytes((size_t)content->count);
    uint8_t *at = out + front;
    memset(out, 0, front);
    for (int i = 0; i < content->count; i++) {
        const description d = describe(&content->pictures[i]);
        memcpy(out + sizeof(head) + (size_t)i * sizeof d, &d, sizeof d);
        at = pack_picture(&content->pictures[i].field, at);
    }
    if (!content->count && content->bytes) {
        memcpy(at, bytes, content->bytes);
        at += content->bytes;
    }
    head h = {.magic = MAGIC,
              .format = FORMAT,
              .count = (uint32_t)content->count,
              .sample = {key->sample.lo, key->sample.hi},
              .form = {key->form.lo, key->form.hi},
              .size = (uint64_t)(at - out),
              .content_at = front,
              .plain = content->count ? 0 : content->bytes,
              .maker = {content->maker.lo, content->maker.hi},
              .content_crc = pst_crc32c(0, out + front, (size_t)(at - out) - front)};
    h.head_crc = head_crc(h, out + sizeof h, front - sizeof h);
    memcpy(out, &h, sizeof h);
}

psti_id128 psti_envelope_maker(const uint8_t *packed, size_t size, bool *empty)
{
    head h = {0};
    if (size >= sizeof h)
        memcpy(&h, packed, sizeof h);
    *empty = !h.count && !h.plain;
    return (psti_id128){h.maker[0], h.maker[1]};
}

static bool head_fits(const head *h, const psti_cache_key *key, size_t size)
{
    return h->magic == MAGIC && h->format == FORMAT && h->count <= PSTI_ENVELOPE_PICTURES &&
           h->sample[0] == key->sample.lo && h->sample[1] == key->sample.hi &&
           h->form[0] == key->form.lo && h->form[1] == key->form.hi && h->size == size &&
           h->content_at == front_bytes(h->count) && h->content_at <= size;
}

/* The pictures as described; false unless they fill the content exactly. */
static bool lay_out(const head *h, const uint8_t *packed, psti_envelope *out)
{
    size_t at = (size_t)h->content_at;
    for (int i = 0; i < out->count; i++) {
        description d;
        size_t bytes;
        psti_field *f = &out->pictures[i].field;
        memcpy(&d, packed + sizeof *h + (size_t)i * sizeof d, sizeof d);
        undescribe(&d, &out->pictures[i]);
        if (d.header_axes > PSTI_AXES_FRAMES || d.axes > PSTI_AXES_FRAMES ||
            !picture_bytes(f, &bytes) || aligned(bytes) > h->size - at)
            return false;
        psti_field_pack(f);
        f->data = (uint8_t *)packed + at; /* read-only to whoever opens it */
        at += aligned(bytes);
    }
    return at == h->size;
}

int psti_envelope_open(const psti_cache_key *key, const uint8_t *packed, size_t size,
                       psti_envelope *out)
{
    head h;
    if (size < sizeof h)
        return PST_ECORRUPT;
    memcpy(&h, packed, sizeof h);
    if (!head_fits(&h, key, size))
        return PST_ECORRUPT;
    const size_t front = (size_t)h.content_at;
    if (head_crc(h, packed + sizeof h, front - sizeof h) != h.head_crc ||
        pst_crc32c(0, packed + front, size - front) != h.content_crc)
        return PST_ECORRUPT;
    out->count = (int)h.count;
    out->bytes = h.count ? NULL : packed + front;
    out->size = h.count ? 0 : size - front;
    if (h.count ? !lay_out(&h, packed, out) : h.plain != out->size)
        return PST_ECORRUPT;
    return 0;
}
