/* SPDX-License-Identifier: Apache-2.0
 * Small test volumes: NIfTI of every version, type and byte order, NPY, zip archives, gzip. Written
 * here byte by byte, so that nothing of the code under test is used. Results are malloc'ed, of
 * exactly their size, and become the caller's. */
#ifndef PSTI_TESTS_CODEC_MAKE_VOLUMES_H
#define PSTI_TESTS_CODEC_MAKE_VOLUMES_H

#ifdef PSTI_HAVE_GZIP
#include <zlib.h>
#endif

#include "codec/make_images.h"

/* ---- numbers ---- */

/* Elements as numpy and NIfTI name them: a letter u, i or f and bytes. */
typedef struct element {
    const char *name;
    char letter;
    int bytes;
    int nifti; /* datatype; 0: has none */
} element;

static const element elements[] = {
    {"u1", 'u', 1, 2},   {"i1", 'i', 1, 256}, {"u2", 'u', 2, 512},  {"i2", 'i', 2, 4},
    {"u4", 'u', 4, 768}, {"i4", 'i', 4, 8},   {"u8", 'u', 8, 1280}, {"i8", 'i', 8, 1024},
    {"f4", 'f', 4, 16},  {"f8", 'f', 8, 64},  {"f2", 'f', 2, 0},
};
enum { ELEMENTS = sizeof elements / sizeof *elements, NIFTI_ELEMENTS = 10 };

static inline void put_bits(uint8_t *at, uint64_t bits, int bytes, bool big)
{
    for (int i = 0; i < bytes; i++)
        at[big ? bytes - 1 - i : i] = (uint8_t)(bits >> 8 * i);
}

/* The half with this value, which must be whole and below 2048. */
static inline uint64_t half_of(int64_t value)
{
    uint64_t sign = value < 0 ? 0x8000 : 0, exponent = 25, fraction;
    fraction = (uint64_t)(value < 0 ? -value : value);
    if (fraction == 0)
        return sign;
    for (; fraction < 1024; fraction <<= 1)
        exponent--;
    return sign | exponent << 10 | (fraction & 1023);
}

/* A whole number as the element. */
static inline void put_number(uint8_t *at, const element *e, bool big, int64_t value)
{
    uint64_t bits = (uint64_t)value;
    const float single = (float)value;
    const double twice = (double)value;
    uint32_t bits_4;
    if (e->letter == 'f' && e->bytes == 4) {
        memcpy(&bits_4, &single, 4);
        bits = bits_4;
    } else if (e->letter == 'f' && e->bytes == 8) {
        memcpy(&bits, &twice, 8);
    } else if (e->letter == 'f') {
        bits = half_of(value);
    }
    put_bits(at, bits, e->bytes, big);
}

/* What stands at an index: small enough for every element, negative where there are such. */
static inline int64_t number_at(const element *e, int64_t index)
{
    const int64_t value = (index * 37 + index / 11) % 120;
    return e->letter != 'u' && index % 3 == 1 ? -value : value;
}

/* ---- NIfTI ---- */

typedef struct nifti_spec {
    int version; /* 1 or 2 */
    bool big;
    const element *type;
    int colours; /* 0: none; 3 or 4 bytes a voxel */
    int64_t rank, dim[7];
    double slope, inter, pixdim[3];
    int units;
    int64_t extra; /* bytes between header and data */
} nifti_spec;

static inline void put_real(uint8_t *at, double value, bool twice, bool big)
{
    const float single = (float)value;
    uint64_t bits = 0;
    uint32_t bits_4;
    memcpy(&bits_4, &single, 4);
    memcpy(&bits, &value, 8);
    put_bits(at, twice ? bits : bits_4, twice ? 8 : 4, big);
}

/* The header alone; returns where the data begins. */
static inline size_t put_nifti_head(uint8_t *at, const nifti_spec *s)
{
    const bool two = s->version == 2, big = s->big;
    const int head = two ? 540 : 348, wide = two ? 8 : 2, real = two ? 8 : 4;
    const size_t data = (size_t)(head + 4 + s->extra);
    const int code = s->colours == 3 ? 128 : s->colours == 4 ? 2304 : s->type->nifti;
    put_bits(at, (uint64_t)head, 4, big);
    if (two)
        memcpy(at + 4, "n+2\0\r\n\x1A\n", 8);
    else
        memcpy(at + 344, "n+1", 4);
    put_bits(at + (two ? 16 : 40), (uint64_t)s->rank, wide, big);
    for (int i = 0; i < 7; i++)
        put_bits(at + (two ? 16 : 40) + (i + 1) * wide, (uint64_t)s->dim[i], wide, big);
    put_bits(at + (two ? 12 : 70), (uint64_t)code, 2, big);
    put_bits(at + (two ? 14 : 72), (uint64_t)(s->colours ? s->colours : s->type->bytes) * 8, 2,
             big);
    for (int i = 0; i < 3; i++)
        put_real(at + (two ? 104 : 76) + (i + 1) * real, s->pixdim[i], two, big);
    if (two)
        put_bits(at + 168, data, 8, big);
    else
        put_real(at + 108, (double)data, false, big);
    put_real(at + (two ? 176 : 112), s->slope, two, big);
    put_real(at + (two ? 184 : 116), s->inter, two, big);
    put_bits(at + (two ? 500 : 123), (uint64_t)s->units, two ? 4 : 1, big);
    return data;
}

static inline int64_t nifti_voxels(const nifti_spec *s)
{
    int64_t count = 1;
    for (int i = 0; i < s->rank; i++)
        count *= s->dim[i];
    return count;
}

/* Numbers in the order of the file are number_at(type, 0), (1) and so on. */
static inline made make_nifti(const nifti_spec *s)
{
    const element bytes = elements[0], *type = s->colours ? &bytes : s->type;
    const size_t count = (size_t)nifti_voxels(s) * (size_t)(s->colours ? s->colours : 1);
    uint8_t head[1024] = {0};
    const size_t data = put_nifti_head(head, s);
    made out = {calloc(1, data + count * (size_t)type->bytes), data + count * (size_t)type->bytes};
    memcpy(out.bytes, head, data < sizeof head ? data : sizeof head);
    for (size_t i = 0; i < count; i++)
        put_number(out.bytes + data + i * (size_t)type->bytes, type, s->big,
                   number_at(type, (int64_t)i));
    return out;
}

/* ---- NPY ---- */

static inline made make_npy(const char *descr, const element *type, bool fortran, int rank,
                            const int64_t *shape)
{
    char extents[200] = "", text[300];
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        snprintf(extents + strlen(extents), 24, "%lld, ", (long long)shape[i]);
        count *= (size_t)shape[i];
    }
    const int len =
        snprintf(text, sizeof text, "{'descr': '%s%s', 'fortran_order': %s, 'shape': (%s), }%*s\n",
                 descr, type->name, fortran ? "True" : "False", extents, 40, "");
    made out = {NULL, 10 + (size_t)len + count * (size_t)type->bytes};
    out.bytes = calloc(1, out.size);
    memcpy(out.bytes, "\x93NUMPY\1\0", 8);
    put_bits(out.bytes + 8, (uint64_t)len, 2, false);
    memcpy(out.bytes + 10, text, (size_t)len);
    for (size_t i = 0; i < count; i++)
        put_number(out.bytes + 10 + (size_t)len + i * (size_t)type->bytes, type, descr[0] == '>',
                   number_at(type, (int64_t)i));
    return out;
}

/* ---- packing ---- */

static inline made joined(const made *a, const made *b)
{
    made out = {malloc(a->size + b->size), a->size + b->size};
    memcpy(out.bytes, a->bytes, a->size);
    memcpy(out.bytes + a->size, b->bytes, b->size);
    return out;
}

#ifdef PSTI_HAVE_GZIP
/* gzip: one member; else bare DEFLATE. */
static inline made packed(const uint8_t *bytes, size_t size, bool gzip)
{
    z_stream z = {0};
    deflateInit2(&z, 6, Z_DEFLATED, gzip ? MAX_WBITS + 16 : -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    uint8_t *room = malloc(size + size / 100 + 1000);
    z.next_in = (uint8_t *)bytes;
    z.avail_in = (unsigned)size;
    z.next_out = room;
    z.avail_out = (unsigned)(size + size / 100 + 1000);
    deflate(&z, Z_FINISH);
    made out = {malloc(z.total_out), z.total_out};
    memcpy(out.bytes, room, out.size);
    deflateEnd(&z);
    free(room);
    return out;
}
#endif

/* ---- zip ---- */

typedef struct zip_file {
    const char *name;
    made content;
    bool deflated, large; /* large: sizes in the extra field, as for more than 4 GiB */
} zip_file;

static inline uint32_t zip_crc(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

static inline void zip_add(made *to, const void *bytes, size_t size)
{
    if (size == 0)
        return;
    to->bytes = realloc(to->bytes, to->size + size);
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

/* The 26 bytes that a file's own header and its entry in the directory share. */
static inline void put_zip_facts(uint8_t *at, const zip_file *f, size_t packed_bytes, size_t extra)
{
    put_bits(at, 45, 2, false);
    put_bits(at + 4, f->deflated ? 8 : 0, 2, false);
    put_bits(at + 10, zip_crc(f->content.bytes, f->content.size), 4, false);
    put_bits(at + 14, f->large ? UINT32_MAX : packed_bytes, 4, false);
    put_bits(at + 18, f->large ? UINT32_MAX : f->content.size, 4, false);
    put_bits(at + 22, strlen(f->name), 2, false);
    put_bits(at + 24, extra, 2, false);
}

static inline made make_zip(const zip_file *files, int count, bool large_end, const char *comment)
{
    made out = {NULL, 0}, dir = {NULL, 0};
    for (int i = 0; i < count; i++) {
        const zip_file *f = &files[i];
        uint8_t local[30] = "PK\3\4", entry[46] = "PK\1\2", extra[28] = {1, 0, 24, 0};
        made content = {f->content.bytes, f->content.size};
#ifdef PSTI_HAVE_GZIP
        if (f->deflated)
            content = packed(f->content.bytes, f->content.size, false);
#endif
        const size_t more = f->large ? sizeof extra : 0;
        put_bits(extra + 4, f->content.size, 8, false);
        put_bits(extra + 12, content.size, 8, false);
        put_bits(extra + 20, out.size, 8, false);
        put_zip_facts(local + 4, f, content.size, more);
        put_zip_facts(entry + 6, f, content.size, more);
        put_bits(entry + 42, f->large ? UINT32_MAX : out.size, 4, false);
        zip_add(&dir, entry, sizeof entry);
        zip_add(&dir, f->name, strlen(f->name));
        zip_add(&dir, extra, more);
        zip_add(&out, local, sizeof local);
        zip_add(&out, f->name, strlen(f->name));
        zip_add(&out, extra, more);
        zip_add(&out, content.bytes, content.size);
        if (content.bytes != f->content.bytes)
            free(content.bytes);
    }
    uint8_t end[22] = "PK\5\6", end_64[76] = "PK\6\6";
    const size_t at = out.size;
    zip_add(&out, dir.bytes, dir.size);
    put_bits(end_64 + 4, 44, 8, false);
    put_bits(end_64 + 32, (uint64_t)count, 8, false);
    put_bits(end_64 + 40, dir.size, 8, false);
    put_bits(end_64 + 48, at, 8, false);
    memcpy(end_64 + 56, "PK\6\7", 4);
    put_bits(end_64 + 64, out.size, 8, false);
    if (large_end)
        zip_add(&out, end_64, sizeof end_64);
    put_bits(end + 10, large_end ? UINT16_MAX : (uint64_t)count, 2, false);
    put_bits(end + 12, large_end ? UINT32_MAX : dir.size, 4, false);
    put_bits(end + 16, large_end ? UINT32_MAX : at, 4, false);
    put_bits(end + 20, strlen(comment), 2, false);
    zip_add(&out, end, sizeof end);
    zip_add(&out, comment, strlen(comment));
    free(dir.bytes);
    return out;
}

/* ---- decoding in one call ---- */

static inline psti_decode_options volume_options(int kind)
{
    return (psti_decode_options){
        .kind = kind, .limits = psti_limits_default, .axes = PSTI_AXES_VOLUME};
}

/* As decode_with, but the field has memory of its own, without gaps, also where it stayed in place.
 */
static inline decoded decode_volume(psti_decoder *dec, const made *file, int kind,
                                    const psti_window *window)
{
    const psti_decode_options opts = volume_options(kind);
    decoded d = decode_with(dec, file->bytes, file->size, &opts, window, -1);
    const bool stays =
        d.rc == 0 && d.field.data >= file->bytes && d.field.data < file->bytes + file->size;
    if (stays) {
        psti_field own = d.field;
        psti_field_pack(&own);
        own.data = malloc(own.bytes);
        psti_field_copy(&d.field, &own);
        d.field = own;
    }
    return d;
}

/* An element of a field without gaps, as a double. */
static inline double field_value(const psti_field *f, int64_t index)
{
    const uint8_t *at = f->data + (size_t)index * psti_dtype_bytes(f->dtype);
    int16_t narrow;
    float single;
    memcpy(&narrow, at, f->dtype == PST_I16 ? 2 : 0);
    if (f->dtype == PST_I16)
        return narrow;
    if (f->dtype == PST_U8)
        return *at;
    memcpy(&single, at, sizeof single);
    return (double)single;
}

#endif
