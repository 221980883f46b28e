/* SPDX-License-Identifier: Apache-2.0
 * Entries as bytes: what comes out is what went in, and whatever is wrong with the bytes is found.
 */
#include <stdlib.h>

#include "cache/envelope.h"
#include "check.h"
#include "penstock.h"

static const psti_cache_key KEY = {{0x1234, 0x5678}, {0x9abc, 0xdef0}};

/* A picture of rows x cols x channels, with gaps between its rows, that holds what seed says. */
static psti_decoded picture(int64_t rows, int64_t cols, int64_t channels, int dtype, unsigned seed)
{
    const psti_geom geom = {rows, cols, channels, 0, dtype, PSTI_AXES_PICTURE, {0}};
    psti_decoded p = {.header = {2 * rows, 2 * cols, channels, 0, dtype, PSTI_AXES_PICTURE, {1.5}},
                      .field = psti_field_of(PST_IMAGE, &geom)};
    p.field.stride += 17;
    p.field.bytes = p.field.stride * (size_t)rows;
    p.field.data = malloc(p.field.bytes);
    for (size_t i = 0; i < p.field.bytes; i++)
        p.field.data[i] = (uint8_t)(seed += 0x9e3779b9u, seed >> 13);
    return p;
}

static psti_decoded volume(void)
{
    const psti_geom geom = {3, 4, 2, 5, PST_I16, PSTI_AXES_VOLUME, {1, 2, 3}};
    psti_decoded p = {.header = geom, .field = psti_field_of(PST_IMAGE, &geom)};
    p.field.data = malloc(p.field.bytes);
    for (size_t i = 0; i < p.field.bytes; i++)
        p.field.data[i] = (uint8_t)i;
    return p;
}

static uint8_t *pack(const psti_cache_content *content, const uint8_t *bytes, size_t *size)
{
    *size = psti_envelope_size(content);
    uint8_t *packed = aligned_alloc(64, (*size + 63) & ~(size_t)63);
    memset(packed, 0xee, *size);
    psti_envelope_pack(&KEY, content, bytes, packed);
    return packed;
}

static bool same_pixels(const psti_field *a, const psti_field *b)
{
    bool same = a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank &&
                a->axes == b->axes && !memcmp(a->shape, b->shape, sizeof a->shape) &&
                a->whole_rows == b->whole_rows && a->whole_cols == b->whole_cols &&
                a->whole_depth == b->whole_depth && a->first_damaged_row == b->first_damaged_row;
    if (a->axes == PSTI_AXES_VOLUME)
        return same && a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes);
    const size_t row = (size_t)(a->shape[1] * a->shape[2]) * psti_dtype_bytes(a->dtype);
    for (int64_t r = 0; same && r < a->shape[0]; r++)
        same = !memcmp(a->data + (size_t)r * a->stride, b->data + (size_t)r * b->stride, row);
    return same;
}

static void pictures_come_back(void)
{
    psti_decoded in[3] = {picture(7, 11, 3, PST_U8, 1), picture(2, 3, 1, PST_F32, 2), volume()};
    const psti_cache_content content = {.pictures = in, .count = 3};
    size_t size;
    uint8_t *packed = pack(&content, NULL, &size);
    psti_envelope out;
    CHECK(psti_envelope_open(&KEY, packed, size, &out) == 0);
    CHECK(out.count == 3 && !out.bytes);
    for (int i = 0; i < 3; i++) {
        CHECK(same_pixels(&in[i].field, &out.pictures[i].field));
        CHECK(!memcmp(&in[i].header, &out.pictures[i].header, sizeof in[i].header));
        CHECK((uintptr_t)out.pictures[i].field.data % 64 == 0);
        CHECK(psti_field_dense(&out.pictures[i].field));
        free(in[i].field.data);
    }
    free(packed);
}

static void bytes_come_back(void)
{
    uint8_t bytes[1000];
    for (size_t n = 0; n <= sizeof bytes; n += 111) {
        memset(bytes, (int)n, sizeof bytes);
        size_t size;
        const psti_cache_content content = {.bytes = n};
        uint8_t *packed = pack(&content, bytes, &size);
        psti_envelope out;
        CHECK(size <= n + PSTI_ENVELOPE_ROOM);
        CHECK(psti_envelope_open(&KEY, packed, size, &out) == 0);
        CHECK(out.count == 0 && out.size == n && !memcmp(out.bytes, bytes, n));
        free(packed);
    }
}

/* Every byte matters, padding too. */
static void one_bit_is_found(void)
{
    psti_decoded in[2] = {picture(5, 3, 3, PST_U8, 3), picture(4, 4, 1, PST_U8, 4)};
    const psti_cache_content content = {.pictures = in, .count = 2};
    size_t size;
    uint8_t *packed = pack(&content, NULL, &size);
    psti_envelope out;
    for (size_t i = 0; i < size; i++) {
        packed[i] ^= (uint8_t)(1 << i % 8);
        CHECKF(psti_envelope_open(&KEY, packed, size, &out) == PST_ECORRUPT, "byte %zu", i);
        packed[i] ^= (uint8_t)(1 << i % 8);
    }
    CHECK(psti_envelope_open(&KEY, packed, size, &out) == 0);
    for (size_t n = 0; n < size; n++)
        CHECKF(psti_envelope_open(&KEY, packed, n, &out) == PST_ECORRUPT, "of %zu bytes", n);
    free(in[0].field.data);
    free(in[1].field.data);
    free(packed);
}

static void another_key_is_refused(void)
{
    uint8_t bytes[10] = {0};
    const psti_cache_content content = {.bytes = sizeof bytes};
    size_t size;
    uint8_t *packed = pack(&content, bytes, &size);
    psti_envelope out;
    psti_cache_key other = KEY;
    other.form.hi ^= 1;
    CHECK(psti_envelope_open(&other, packed, size, &out) == PST_ECORRUPT);
    other = KEY;
    other.sample.lo ^= 1;
    CHECK(psti_envelope_open(&other, packed, size, &out) == PST_ECORRUPT);
    free(packed);
}

/* Sums that are right over sizes that are not: as somebody who can write there might send them. */
static void lies_with_good_sums_are_refused(void)
{
    psti_decoded in = picture(5, 3, 3, PST_U8, 3);
    const psti_cache_content content = {.pictures = &in, .count = 1};
    size_t size;
    uint8_t *packed = pack(&content, NULL, &size);
    psti_envelope out;
    unsigned seed = 7;
    for (int round = 0; round < 20000; round++) {
        uint8_t *copy = aligned_alloc(64, (size + 63) & ~(size_t)63);
        memcpy(copy, packed, size);
        for (int i = 0; i < 1 + round % 3; i++) { /* somewhere in count, sizes and description */
            seed = seed * 1664525u + 1013904223u;
            const size_t at = 8 + (seed >> 8) % (128 + 152 - 8);
            copy[at] = round % 2 ? (uint8_t)(seed >> 3) : 0xff;
        }
        /* crc of the head is at 76, of what lies before the content */
        uint64_t front;
        memcpy(&front, copy + 56, 8);
        if (front <= size && front >= 128) {
            const uint32_t content_crc = pst_crc32c(0, copy + front, size - front);
            memcpy(copy + 72, &content_crc, 4);
            memset(copy + 76, 0, 4);
            const uint32_t crc = pst_crc32c(0, copy, front);
            memcpy(copy + 76, &crc, 4);
        }
        if (psti_envelope_open(&KEY, copy, size, &out) == 0)
            for (int p = 0; p < out.count; p++) {
                const psti_field *f = &out.pictures[p].field;
                CHECK(f->data >= copy && f->bytes <= size && f->data + f->bytes <= copy + size);
            }
        free(copy);
    }
    free(in.field.data);
    free(packed);
}

static void it_says_who_made_it(void)
{
    psti_decoded p = picture(3, 4, 3, PST_U8, 1);
    const psti_id128 me = {5, 7};
    size_t size;
    bool empty;
    for (int count = 0; count < 2; count++) {
        const psti_cache_content content = {.pictures = &p, .count = count, .maker = me};
        uint8_t *packed = pack(&content, NULL, &size);
        const psti_id128 maker = psti_envelope_maker(packed, size, &empty);
        CHECK(maker.lo == me.lo && maker.hi == me.hi && empty == (count == 0));
        const psti_id128 nobody = psti_envelope_maker(packed, PSTI_ENVELOPE_ROOM - 1, &empty);
        CHECK(nobody.lo == 0 && nobody.hi == 0 && empty);
        free(packed);
    }
    const psti_cache_content plain = {.bytes = 4};
    uint8_t *packed = pack(&plain, (const uint8_t *)"1234", &size);
    const psti_id128 nobody = psti_envelope_maker(packed, size, &empty);
    CHECK(nobody.lo == 0 && nobody.hi == 0 && !empty);
    free(packed);
    free(p.field.data);
}

static void what_cannot_be_packed_has_no_size(void)
{
    psti_decoded in = {.field = {.rank = 3, .dtype = PST_U8, .shape = {INT64_MAX, INT64_MAX, 3}}};
    CHECK(psti_envelope_size(&(psti_cache_content){.pictures = &in, .count = 1}) == 0);
    CHECK(psti_envelope_size(&(psti_cache_content){.count = PSTI_ENVELOPE_PICTURES + 1}) == 0);
    CHECK(psti_envelope_size(&(psti_cache_content){.bytes = SIZE_MAX - 3}) == 0);
}

int main(void)
{
    RUN(pictures_come_back);
    RUN(bytes_come_back);
    RUN(one_bit_is_found);
    RUN(another_key_is_refused);
    RUN(lies_with_good_sums_are_refused);
    RUN(it_says_who_made_it);
    RUN(what_cannot_be_packed_has_no_size);
    return check_report();
}
