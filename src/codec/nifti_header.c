/* SPDX-License-Identifier: Apache-2.0
 * Headers of NIfTI-1 and NIfTI-2 in either byte order: from 348 or 540 bytes made by strangers to
 * a size, a type, a scaling and a place, or a refusal. Pure functions, any thread.
 *
 * The rules are nibabel's, since that is what data was looked at with: a slope of 0, or one that is
 * no number, means that nothing is scaled, whatever the intercept says; the type is told by
 * datatype alone. Where nibabel would go on with a size that cannot be, this does not. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "codec/codec_priv.h"

enum { HEAD_1 = 348, HEAD_2 = 540, CHANNELS_MOST = 65536, OFFSET_MOST = 64 << 20 };

/* Where things stand in the two headers. */
typedef struct layout {
    int dim, datatype, pixdim, vox_offset, scl_slope, scl_inter, xyzt_units;
} layout;
static const layout layouts[2] = {{40, 70, 76, 108, 112, 116, 123},
                                  {16, 12, 104, 168, 176, 184, 500}};

static const struct {
    int code;
    psti_number type;
    int channels;
} types[] = {
    {2, PSTI_N_U8, 1},    {4, PSTI_N_I16, 1},    {8, PSTI_N_I32, 1},    {16, PSTI_N_F32, 1},
    {64, PSTI_N_F64, 1},  {128, PSTI_N_U8, 3},   {256, PSTI_N_I8, 1},   {512, PSTI_N_U16, 1},
    {768, PSTI_N_U32, 1}, {1024, PSTI_N_I64, 1}, {1280, PSTI_N_U64, 1}, {2304, PSTI_N_U8, 4},
};
enum { TYPES = sizeof types / sizeof *types };

static const struct {
    int code;
    const char *name;
} unread[] = {{1, "single bits"},
              {32, "complex numbers"},
              {1792, "complex numbers"},
              {2048, "complex numbers"},
              {1536, "floats of 128 bits"}};

/* ---- numbers ---- */

typedef struct reader {
    const uint8_t *bytes;
    const layout *at;
    bool second; /* NIfTI-2 */
    bool swapped;
} reader;

static uint64_t read_bits(const reader *r, int at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)r->bytes[at + i] << 8 * (r->swapped ? bytes - 1 - i : i);
    return value;
}

/* dim and its like: 16 bits in NIfTI-1, 64 in NIfTI-2. */
static int64_t read_dim(const reader *r, int i)
{
    return r->second ? (int64_t)read_bits(r, r->at->dim + 8 * i, 8)
                     : (int16_t)read_bits(r, r->at->dim + 2 * i, 2);
}

/* 32 bits in NIfTI-1, 64 in NIfTI-2. */
static double read_real(const reader *r, int at)
{
    if (r->second) {
        const uint64_t bits = read_bits(r, at, 8);
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    const uint32_t bits = (uint32_t)read_bits(r, at, 4);
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* ---- parts ---- */

static int find_version(const uint8_t *bytes, size_t size, reader *out, pst_error *err)
{
    *out = (reader){.bytes = bytes};
    if (size < HEAD_1)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)size,
                            "NIfTI: there are %zu bytes, a header has at least %d: the file is cut "
                            "off",
                            size, HEAD_1);
    const bool little_2 = memcmp(bytes, "\x1C\x02\0\0", 4) == 0;
    const bool large_2 = memcmp(bytes, "\0\0\x02\x1C", 4) == 0;
    const bool little_1 = memcmp(bytes, "\x5C\x01\0\0", 4) == 0;
    const bool large_1 = memcmp(bytes, "\0\0\x01\x5C", 4) == 0;
    out->second = little_2 || large_2;
    out->swapped = large_1 || large_2;
    out->at = &layouts[out->second];
    if (!out->second && !little_1 && !large_1)
        return psti_fail_at(err, PST_EFORMAT, "decode", NULL, 0,
                            "NIfTI: the header's size is given as neither 348 nor 540");
    if (out->second && size < HEAD_2)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)size,
                            "NIfTI-2: there are %zu bytes, a header has 540: the file is cut off",
                            size);
    const char *name = (const char *)bytes + (out->second ? 4 : 344);
    if (memcmp(name, "ni", 2) == 0)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "NIfTI: header and data in two files (.hdr, .img) are not read: save the "
                         "volume as one .nii");
    if (memcmp(name, out->second ? "n+2" : "n+1", 4) != 0)
        return psti_fail_at(err, PST_EFORMAT, "decode", NULL, out->second ? 4 : 344,
                            "NIfTI: the header lacks the letters %s: an ANALYZE file, or damaged",
                            out->second ? "n+2" : "n+1");
    return 0;
}

static int read_type(const reader *r, psti_nifti *out, pst_error *err)
{
    const int code = (int)read_bits(r, r->at->datatype, 2);
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].code == code) {
            out->type = types[i].type;
            out->colours = types[i].channels;
            return 0;
        }
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (unread[i].code == code)
            return psti_fail_at(err, PST_EFORMAT, "decode", NULL, r->at->datatype,
                                "NIfTI: %s are not read (datatype %d): save the volume as "
                                "float32 or whole numbers",
                                unread[i].name, code);
    return psti_fail_at(err, PST_EFORMAT, "decode", NULL, r->at->datatype,
                        "NIfTI: datatype %d is not known", code);
}

static int read_size(const reader *r, psti_nifti *out, pst_error *err)
{
    const int64_t rank = read_dim(r, 0);
    if (rank < 1 || rank > 7)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, r->at->dim,
                            "NIfTI: the header claims %lld dimensions, there are 1 to 7",
                            (long long)rank);
    for (int i = 1; i <= 4; i++)
        out->dim[i - 1] = i <= rank ? read_dim(r, i) : 1;
    for (int i = 1; i <= rank; i++) {
        const int64_t dim = read_dim(r, i);
        if (dim < 1)
            return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, r->at->dim,
                                "NIfTI: dimension %d is %lld: impossible", i, (long long)dim);
        if (i > 4 && dim > 1)
            return psti_fail_at(err, PST_EFORMAT, "decode", NULL, r->at->dim,
                                "NIfTI: dimension %d is %lld: no more than four dimensions are "
                                "read",
                                i, (long long)dim);
    }
    if (out->dim[3] > CHANNELS_MOST)
        return psti_fail_at(err, PST_ELIMIT, "decode", NULL, r->at->dim,
                            "NIfTI: dimension 4 is %lld, the limit is %d channels",
                            (long long)out->dim[3], CHANNELS_MOST);
    if (out->colours > 1 && out->dim[3] > 1)
        return psti_fail_at(err, PST_EFORMAT, "decode", NULL, r->at->dim,
                            "NIfTI: colours and a fourth dimension of %lld are not read together",
                            (long long)out->dim[3]);
    return 0;
}

static int read_scaling(const reader *r, psti_nifti *out, pst_error *err)
{
    const double slope = read_real(r, r->at->scl_slope), inter = read_real(r, r->at->scl_inter);
    out->slope = 1;
    if (slope == 0 || !isfinite(slope))
        return 0;
    if (!isfinite(inter))
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, r->at->scl_inter,
                            "NIfTI: the slope is %g, but the intercept is no number", slope);
    out->slope = slope;
    out->inter = inter;
    return 0;
}

/* Millimetres, unless the header says metres or micrometres; 0 where it says nothing usable. */
static void read_units(const reader *r, psti_nifti *out)
{
    const int units = (int)read_bits(r, r->at->xyzt_units, r->second ? 4 : 1) & 7;
    const double scale = units == 1 ? 1000 : units == 3 ? 0.001 : 1;
    for (int i = 0; i < 3; i++) {
        const double step =
            fabs(read_real(r, r->at->pixdim + (i + 1) * (r->second ? 8 : 4))) * scale;
        out->unit[i] = isfinite(step) ? step : 0;
    }
}

static int read_place(const reader *r, psti_nifti *out, pst_error *err)
{
    const int least = r->second ? HEAD_2 + 4 : HEAD_1 + 4;
    const double offset = r->second ? (double)(int64_t)read_bits(r, r->at->vox_offset, 8)
                                    : read_real(r, r->at->vox_offset);
    if (!(offset >= least) || offset != floor(offset))
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, r->at->vox_offset,
                            "NIfTI: the data is said to begin at byte %g, it cannot before %d",
                            offset, least);
    if (offset > OFFSET_MOST)
        return psti_fail_at(err, PST_ELIMIT, "decode", NULL, r->at->vox_offset,
                            "NIfTI: the data is said to begin at byte %.0f, the limit is %d",
                            offset, OFFSET_MOST);
    out->offset = (size_t)offset;
    size_t bytes = psti_number_bytes(out->type) * (size_t)out->colours;
    bool fits = true;
    for (int i = 0; i < 4; i++)
        fits = fits && psti_mul(bytes, (size_t)out->dim[i], &bytes);
    if (!fits || !psti_add(bytes, out->offset, &out->whole) || out->whole > INT64_MAX)
        return psti_fail_at(err, PST_ELIMIT, "decode", NULL, r->at->dim,
                            "NIfTI: the dimensions multiply to more than 2^63 bytes");
    return 0;
}

int psti_nifti_header(const uint8_t *bytes, size_t size, psti_nifti *out, pst_error *err)
{
    reader r;
    *out = (psti_nifti){0};
    int rc = find_version(bytes, size, &r, err);
    if (rc == 0)
        rc = read_type(&r, out, err);
    if (rc == 0)
        rc = read_size(&r, out, err);
    if (rc == 0)
        rc = read_scaling(&r, out, err);
    if (rc == 0)
        rc = read_place(&r, out, err);
    if (rc < 0)
        return rc;
    read_units(&r, out);
    out->version = r.second ? 2 : 1;
    out->swapped = r.swapped;
    return 0;
}
