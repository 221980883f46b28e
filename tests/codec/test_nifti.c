/* SPDX-License-Identifier: Apache-2.0
 * NIfTI volumes: every version, byte order and type, scaling, colours, units; plain and in gzip, of
 * one member and several; windows; what a header can claim, and files that are cut anywhere. */
#include <errno.h>
#include <math.h>

#include "check.h"
#include "codec/make_volumes.h"
#include "core/clock.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { REFUSAL_NS = 100000000 };
#else
enum { REFUSAL_NS = 10000000 };
#endif

static psti_decoder *dec;

static nifti_spec plain_spec(void)
{
    return (nifti_spec){.version = 1,
                        .type = &elements[3],
                        .rank = 3,
                        .dim = {5, 4, 3, 1, 1, 1, 1},
                        .pixdim = {3, 0.78125, 1.5}};
}

/* Where the file has the voxel that the field has at (channel, plane, row, column). */
static int64_t stored_index(const nifti_spec *s, int64_t c, int64_t z, int64_t y, int64_t x)
{
    const int64_t *d = s->dim;
    if (s->colours)
        return ((x * d[1] + y) * d[0] + z) * s->colours + c;
    return ((c * d[2] + x) * d[1] + y) * d[0] + z;
}

static double wanted_value(const nifti_spec *s, int64_t index)
{
    const double value = (double)number_at(s->colours ? &elements[0] : s->type, index);
    return s->slope != 0 ? (double)(float)(value * s->slope + s->inter) : value;
}

static void check_values(const nifti_spec *s, const psti_field *f, const char *what)
{
    const int64_t *n = f->shape;
    int wrong = 0;
    for (int64_t i = 0, c = 0; c < n[0]; c++)
        for (int64_t z = 0; z < n[1]; z++)
            for (int64_t y = 0; y < n[2]; y++)
                for (int64_t x = 0; x < n[3]; x++, i++)
                    wrong += field_value(f, i) !=
                             wanted_value(s, stored_index(s, c, f->z0 + z, f->y0 + y, f->x0 + x));
    CHECKF(wrong == 0, "%s %s version %d%s: %d voxels are wrong", what,
           s->colours ? "colours" : s->type->name, s->version, s->big ? " big" : "", wrong);
}

static void check_decoded(const nifti_spec *s, const made *file, const char *what)
{
    decoded d = decode_volume(dec, file, PST_VOLUME, NULL);
    CHECKF(d.rc == 0, "%s %s: %s", what, s->type->name, d.err.message);
    if (d.rc < 0)
        return;
    const int64_t channels = s->colours ? s->colours : s->rank > 3 ? s->dim[3] : 1;
    CHECK(d.field.axes == PSTI_AXES_VOLUME && d.field.rank == 4 && d.field.kind == PST_VOLUME);
    CHECK(d.field.shape[0] == channels && d.field.shape[1] == s->dim[0] &&
          d.field.shape[2] == s->dim[1] && d.field.shape[3] == s->dim[2]);
    CHECK(d.pic.format == PSTI_FORMAT_NIFTI && d.pic.depth == s->dim[0]);
    CHECK(d.field.first_damaged_row == PSTI_ROWS_SOUND && d.field.whole_depth == s->dim[0]);
    check_values(s, &d.field, what);
    decoded_free(&d);
}

static void every_type_order_and_version_is_read(void)
{
    static const double scalings[][2] = {{0, 0}, {1, 0}, {2, 0}, {0.25, -7}, {1, 3.5}};
    for (int version = 1; version <= 2; version++)
        for (int big = 0; big < 2; big++)
            for (int t = 0; t < NIFTI_ELEMENTS; t++)
                for (size_t k = 0; k < 5; k++) {
                    nifti_spec s = plain_spec();
                    s.version = version;
                    s.big = big;
                    s.type = &elements[t];
                    s.slope = scalings[k][0];
                    s.inter = scalings[k][1];
                    s.extra = k == 2 ? 48 : 0;
                    made file = make_nifti(&s);
                    check_decoded(&s, &file, "plain");
#ifdef PSTI_HAVE_GZIP
                    made small = packed(file.bytes, file.size, true);
                    check_decoded(&s, &small, "gzip");
                    free(small.bytes);
#endif
                    free(file.bytes);
                }
}

static void types_stay_where_ops_read_them(void)
{
    static const int kept[NIFTI_ELEMENTS] = {[0] = PST_U8, [3] = PST_I16};
    for (int t = 0; t < NIFTI_ELEMENTS; t++)
        for (int scaled = 0; scaled < 2; scaled++) {
            nifti_spec s = plain_spec();
            s.type = &elements[t];
            s.slope = scaled ? 2 : (double)NAN;
            s.inter = scaled ? 1 : (double)NAN; /* not looked at where nothing is scaled */
            made file = make_nifti(&s);
            decoded d = decode_volume(dec, &file, PST_VOLUME, NULL);
            CHECKF(d.rc == 0, "%s", d.err.message);
            CHECKF(d.field.dtype == (!scaled && kept[t] ? kept[t] : PST_F32), "%s", s.type->name);
            decoded_free(&d);
            free(file.bytes);
        }
}

static void sizes_and_tiles_of_all_kinds_are_read(void)
{
    static const int64_t dims[][5] = {{1, 70, 1, 1, 1},  {2, 33, 40, 1, 1},  {3, 1, 1, 65, 1},
                                      {3, 33, 2, 97, 1}, {3, 64, 32, 31, 1}, {4, 7, 3, 5, 4},
                                      {5, 7, 3, 5, 2},   {3, 1, 50, 1, 1}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int t = 0; t < 4; t += 3) {
            nifti_spec s = plain_spec();
            s.rank = dims[i][0];
            for (int k = 0; k < 4; k++)
                s.dim[k] = dims[i][k + 1];
            s.type = &elements[t];
            made file = make_nifti(&s);
            check_decoded(&s, &file, "size");
            free(file.bytes);
        }
    for (int colours = 3; colours <= 4; colours++) {
        nifti_spec s = plain_spec();
        s.colours = colours;
        s.dim[0] = 40;
        made file = make_nifti(&s);
        check_decoded(&s, &file, "colours");
        free(file.bytes);
    }
}

static void windows_are_cut_out_of_the_whole(void)
{
    uint64_t seed = 5;
    for (int i = 0; i < 60; i++) {
        nifti_spec s = plain_spec();
        s.type = &elements[i % NIFTI_ELEMENTS];
        s.big = i % 2;
        s.dim[0] = 40;
        s.dim[1] = 9;
        s.dim[2] = 35;
        psti_window w = draw_window(&seed, 9, 35);
        w.planes = 1 + draw_below(&seed, 40);
        w.front = draw_below(&seed, 40 - w.planes + 1);
        made file = make_nifti(&s);
        decoded d = decode_volume(dec, &file, PST_VOLUME, &w);
        CHECKF(d.rc == 0 && d.pic.can_crop, "%s", d.err.message);
        CHECK(d.field.shape[1] == w.planes && d.field.shape[2] == w.rows &&
              d.field.shape[3] == w.cols && d.field.z0 == w.front && d.field.y0 == w.top &&
              d.field.x0 == w.left && d.field.whole_depth == 40);
        check_values(&s, &d.field, "window");
        decoded_free(&d);
        free(file.bytes);
    }
}

static void units_become_millimetres(void)
{
    static const double factors[] = {1, 1000, 1, 0.001};
    for (int version = 1; version <= 2; version++)
        for (int units = 0; units < 4; units++) {
            nifti_spec s = plain_spec();
            s.version = version;
            s.units = units | 8; /* seconds, besides */
            s.pixdim[1] = -0.78125;
            s.pixdim[2] = (double)NAN;
            made file = make_nifti(&s);
            decoded d = decode_volume(dec, &file, PST_VOLUME, NULL);
            CHECKF(d.pic.unit[0] == 3 * factors[units] && d.pic.unit[1] == 0.78125 * factors[units],
                   "%g %g", d.pic.unit[0], d.pic.unit[1]);
            CHECK(d.pic.unit[2] == 0);
            decoded_free(&d);
            free(file.bytes);
        }
}

static void masks_are_labels(void)
{
    for (int t = 0; t < NIFTI_ELEMENTS; t++)
        for (int big = 0; big < 2; big++) {
            nifti_spec s = plain_spec();
            s.type = &elements[t];
            s.big = big;
            made file = make_nifti(&s);
            const size_t at = 352 + 17 * (size_t)s.type->bytes;
            for (size_t i = 352; i < file.size; i += (size_t)s.type->bytes)
                put_number(file.bytes + i, s.type, big, (int64_t)(i % 128));
            decoded d = decode_volume(dec, &file, PST_MASK, NULL);
            CHECKF(d.rc == 0 && d.field.dtype == PST_U8 && d.field.kind == PST_MASK, "%s: %s",
                   s.type->name, d.err.message);
            /* Voxel 17 of the file: plane 2, row 3, column 0 of 5 x 4 x 3. */
            CHECK(d.rc < 0 || d.field.data[(2 * 4 + 3) * 3] == (uint8_t)(at % 128));
            CHECK(d.pic.can_crop == (s.type->letter == 'u' && s.type->bytes == 1));
            decoded_free(&d);
            if (s.type->bytes > 1) {
                put_number(file.bytes + at, s.type, big, 256);
                d = decode_volume(dec, &file, PST_MASK, NULL);
                CHECKF(d.rc == PST_EFIELD &&
                           strstr(d.err.message, "label is 256 at plane 2, row 3, column 0"),
                       "%s: %s", s.type->name, d.err.message);
            }
            if (s.type->letter != 'u') {
                put_number(file.bytes + at, s.type, big, -1);
                d = decode_volume(dec, &file, PST_MASK, NULL);
                CHECKF(d.rc == PST_EFIELD && strstr(d.err.message, "label is -1"), "%s: %s",
                       s.type->name, d.err.message);
            }
            free(file.bytes);
        }
}

/* The slope that float32 has for 1/255 is not exact; a half is no label. */
static void scaled_masks_are_rounded_only_where_they_are_whole(void)
{
    nifti_spec s = plain_spec();
    s.type = &elements[0];
    s.slope = 1.0 / 255;
    made file = make_nifti(&s);
    for (size_t i = 352; i < file.size; i++)
        file.bytes[i] = i % 2 ? 255 : 0;
    decoded d = decode_volume(dec, &file, PST_MASK, NULL);
    CHECKF(d.rc == 0 && d.field.data[0] == 0 && d.field.data[12] == 1, "%s", d.err.message);
    decoded_free(&d);
    file.bytes[400] = 127;
    d = decode_volume(dec, &file, PST_MASK, NULL);
    CHECKF(d.rc == PST_EFIELD, "%s", d.err.message);
    free(file.bytes);
    s = plain_spec();
    s.rank = 4;
    s.dim[3] = 2;
    file = make_nifti(&s);
    d = decode_volume(dec, &file, PST_MASK, NULL);
    CHECKF(d.rc == PST_EFORMAT && strstr(d.err.message, "2 channels"), "%s", d.err.message);
    free(file.bytes);
}

/* ---- gzip ---- */

#ifdef PSTI_HAVE_GZIP

static void members_follow_each_other(void)
{
    nifti_spec s = plain_spec();
    s.dim[2] = 40;
    made file = make_nifti(&s);
    for (size_t cut = 0; cut <= file.size; cut += cut < 600 ? 43 : 211) {
        made a = packed(file.bytes, cut, true);
        made b = packed(file.bytes + cut, file.size - cut, true);
        made none = packed(file.bytes, 0, true), ab = joined(&a, &b), abn = joined(&ab, &none);
        made zeros = {calloc(1, 700), 700}, padded = joined(&ab, &zeros);
        check_decoded(&s, &ab, "two members");
        check_decoded(&s, &abn, "an empty member");
        check_decoded(&s, &padded, "zeros behind");
        zeros.bytes[3] = 1;
        made rubbish = joined(&ab, &zeros);
        decoded d = decode_volume(dec, &rubbish, PST_VOLUME, NULL);
        CHECK(d.rc == PST_ECORRUPT);
        free(a.bytes);
        free(b.bytes);
        free(none.bytes);
        free(ab.bytes);
        free(abn.bytes);
        free(zeros.bytes);
        free(padded.bytes);
        free(rubbish.bytes);
    }
    free(file.bytes);
}

/* More comes out than the header says, or less; and a checksum that is wrong. */
static void streams_of_another_length_are_refused(void)
{
    nifti_spec s = plain_spec();
    made file = make_nifti(&s), zeros = {calloc(1, 50 << 20), 50 << 20};
    made bomb = joined(&file, &zeros);
    made packed_bomb = packed(bomb.bytes, bomb.size, true);
    decoded d = decode_volume(dec, &packed_bomb, PST_VOLUME, NULL);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "holds more than the 472 bytes"), "%s",
           d.err.message);
    made small = packed(file.bytes, file.size - 1, true);
    d = decode_volume(dec, &small, PST_VOLUME, NULL);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "ends after 471 of the 472 bytes"), "%s",
           d.err.message);
    made good = packed(file.bytes, file.size, true);
    good.bytes[good.size - 6] ^= 1;
    d = decode_volume(dec, &good, PST_VOLUME, NULL);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "damaged"), "%s", d.err.message);
    good.bytes[good.size - 6] ^= 1;
    check_decoded(&s, &good, "after damage");
    free(file.bytes);
    free(zeros.bytes);
    free(bomb.bytes);
    free(packed_bomb.bytes);
    free(small.bytes);
    free(good.bytes);
}

static void every_cut_of_a_packed_file_is_an_error(void)
{
    nifti_spec s = plain_spec();
    made file = make_nifti(&s), all = packed(file.bytes, file.size, true);
    for (size_t size = 2; size < all.size; size++) {
        made cut = {malloc(size), size};
        memcpy(cut.bytes, all.bytes, size);
        decoded d = decode_volume(dec, &cut, PST_VOLUME, NULL);
        CHECKF(d.rc == PST_ECORRUPT, "cut at %zu: %d %s", size, d.rc, d.err.message);
        if (d.rc == 0)
            decoded_free(&d);
        free(cut.bytes);
    }
    free(all.bytes);
    free(file.bytes);
}

#endif

/* ---- what a header can claim ---- */

/* The fastest of three: the machine may be busy. */
static void check_refused(const char *name, const made *file, int code, const char *says)
{
    const psti_decode_options opts = volume_options(PST_VOLUME);
    uint64_t best = UINT64_MAX;
    pst_error err = {0};
    for (int i = 0; i < 3; i++) {
        psti_picture pic;
        const uint64_t start = psti_now_ns();
        const int rc = psti_decoder_begin(dec, file->bytes, file->size, &opts, &pic, &err);
        const uint64_t took = psti_now_ns() - start;
        best = took < best ? took : best;
        CHECKF(rc == code && err.code == code, "%s: %d %s", name, rc, err.message);
    }
    CHECKF(strstr(err.message, says), "%s: \"%s\" does not say \"%s\"", name, err.message, says);
    CHECKF(best < REFUSAL_NS, "%s took %llu us", name, (unsigned long long)best / 1000);
}

/* The same plain and in gzip. */
static void check_both(const char *name, const made *file, int code, const char *says)
{
    check_refused(name, file, code, says);
#ifdef PSTI_HAVE_GZIP
    made small = packed(file->bytes, file->size, true);
    check_refused(name, &small, code, says);
    free(small.bytes);
#endif
}

static void impossible_sizes_are_refused(void)
{
    static const struct {
        int version;
        int64_t rank, dim[5];
        int code;
        const char *says;
    } bad[] = {
        {1, 0, {5, 4, 3, 1, 1}, PST_ECORRUPT, "0 dimensions"},
        {1, 8, {5, 4, 3, 1, 1}, PST_ECORRUPT, "8 dimensions"},
        {1, -3, {5, 4, 3, 1, 1}, PST_ECORRUPT, "-3 dimensions"},
        {1, 3, {0, 4, 3, 1, 1}, PST_ECORRUPT, "dimension 1 is 0"},
        {1, 3, {5, -4, 3, 1, 1}, PST_ECORRUPT, "dimension 2 is -4"},
        {1, 5, {5, 4, 3, 1, 2}, PST_EFORMAT, "dimension 5 is 2"},
        {1, 3, {32767, 32767, 32767, 1, 1}, PST_ELIMIT, "32767 x 32767 x 32767 voxels"},
        {1, 4, {1000, 1000, 1000, 32767, 1}, PST_ELIMIT, "limit of 4294967296 bytes"},
        {2, 3, {INT64_MAX, INT64_MAX, INT64_MAX, 1, 1}, PST_ELIMIT, "2^63"},
        {2, 3, {INT64_MAX, 1, 1, 1, 1}, PST_ELIMIT, "2^63"},
        {2, 3, {(int64_t)1 << 61, 1, 1, 1, 1}, PST_ELIMIT, "the limit is 2147483648"},
        {2, 3, {INT64_MIN, 1, 1, 1, 1}, PST_ECORRUPT, "impossible"},
        {2, 4, {1, 1, 1, (int64_t)1 << 40, 1}, PST_ELIMIT, "channels"},
        {2, (int64_t)1 << 32, {1, 1, 1, 1, 1}, PST_ECORRUPT, "4294967296 dimensions"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nifti_spec s = plain_spec();
        made file = {calloc(1, 1000), 1000};
        s.version = bad[i].version;
        s.rank = bad[i].rank;
        memcpy(s.dim, bad[i].dim, sizeof bad[i].dim);
        put_nifti_head(file.bytes, &s);
        check_both(bad[i].says, &file, bad[i].code, bad[i].says);
        free(file.bytes);
    }
}

static void put_field(made *file, size_t at, const char *bytes, size_t size)
{
    memcpy(file->bytes + at, bytes, size);
}

static void other_claims_are_refused(void)
{
    static const struct {
        size_t at;
        const char *bytes;
        size_t size;
        int code;
        const char *says;
    } bad[] = {
        {70, "\x20\0", 2, PST_EFORMAT, "complex numbers are not read"},
        {70, "\0\x06", 2, PST_EFORMAT, "128 bits"},
        {70, "\x01\0", 2, PST_EFORMAT, "single bits"},
        {70, "\x03\0", 2, PST_EFORMAT, "datatype 3 is not known"},
        {108, "\0\0\0\0", 4, PST_ECORRUPT, "cannot before 352"},
        {108, "\0\0\xC0\x7F", 4, PST_ECORRUPT, "cannot before 352"},
        {108, "\0\0\x80\xFF", 4, PST_ECORRUPT, "cannot before 352"},
        {108, "\0\0\x80\x7F", 4, PST_ELIMIT, "the limit is 67108864"},
        {108, "\0\x10\xB0\x43", 4, PST_ECORRUPT, "begin at byte 352.125"},
        {112, "\0\0\0\x40\0\0\xC0\x7F", 8, PST_ECORRUPT, "intercept is no number"},
        {344, "ni1", 4, PST_EFORMAT, "two files"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nifti_spec s = plain_spec();
        made file = make_nifti(&s);
        put_field(&file, bad[i].at, bad[i].bytes, bad[i].size);
        check_both(bad[i].says, &file, bad[i].code, bad[i].says);
        free(file.bytes);
    }
}

static void files_of_another_length_are_refused(void)
{
    nifti_spec s = plain_spec();
    made file = make_nifti(&s);
    for (size_t size = 348; size < file.size; size++) {
        made cut = {malloc(size), size};
        memcpy(cut.bytes, file.bytes, size);
        check_refused("cut", &cut, PST_ECORRUPT, "cut off");
        free(cut.bytes);
    }
    made more = {calloc(1, file.size + 1), file.size + 1};
    memcpy(more.bytes, file.bytes, file.size);
    check_refused("longer", &more, PST_ECORRUPT, "tells of 472 bytes, the file has 473");
    free(more.bytes);
    free(file.bytes);
}

/* A header that fits the limits, but not the few bytes that follow. */
static void small_files_that_claim_much_are_refused(void)
{
    nifti_spec s = plain_spec();
    made file = {calloc(1, 2000), 2000};
    s.dim[0] = s.dim[1] = s.dim[2] = 1000;
    put_nifti_head(file.bytes, &s);
    check_refused("plain", &file, PST_ECORRUPT, "cut off");
#ifdef PSTI_HAVE_GZIP
    made small = packed(file.bytes, file.size, true);
    check_refused("gzip", &small, PST_ECORRUPT, "cannot hold");
    free(small.bytes);
    s.type = &elements[9];
    put_nifti_head(file.bytes, &s);
    small = packed(file.bytes, file.size, true);
    check_refused("gzip", &small, PST_ELIMIT, "8000000352 bytes, the limit is 4294967296");
    free(small.bytes);
    /* Members that hold nothing, for ever. */
    made none = packed(file.bytes, 0, true), many = {malloc(none.size * 400000), 0};
    for (int i = 0; i < 400000; i++, many.size += none.size)
        memcpy(many.bytes + many.size, none.bytes, none.size);
    check_refused("empty members", &many, PST_ECORRUPT, "there are 0 bytes");
    free(none.bytes);
    free(many.bytes);
#endif
    free(file.bytes);
}

static void volumes_are_not_pictures(void)
{
    nifti_spec s = plain_spec();
    made file = make_nifti(&s);
    decoded d = decode_all(dec, file.bytes, file.size);
    CHECKF(d.rc == PST_EFORMAT && strstr(d.err.message, "a NIfTI volume where a picture is wanted"),
           "%s", d.err.message);
    made jpeg = make_jpeg(&jpeg_specs[0], 8, 8, 1);
    d = decode_volume(dec, &jpeg, PST_VOLUME, NULL);
    CHECKF(d.rc == PST_EFORMAT && strstr(d.err.message, "a JPEG picture where a volume is wanted"),
           "%s", d.err.message);
    free(jpeg.bytes);
    free(file.bytes);
}

static void every_flip_of_a_header_is_safe(void)
{
    for (int version = 1; version <= 2; version++) {
        nifti_spec s = plain_spec();
        s.version = version;
        made file = make_nifti(&s);
        for (size_t bit = 0; bit < 552 * 8 && bit < file.size * 8; bit++) {
            file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            decoded d = decode_volume(dec, &file, bit % 2 ? PST_VOLUME : PST_MASK, NULL);
            if (d.rc == 0)
                decoded_free(&d);
            else
                CHECK(d.err.code == d.rc && d.err.message[0]);
            file.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        free(file.bytes);
    }
}

int main(void)
{
    dec = psti_decoder_new();
    RUN(every_type_order_and_version_is_read);
    RUN(types_stay_where_ops_read_them);
    RUN(sizes_and_tiles_of_all_kinds_are_read);
    RUN(windows_are_cut_out_of_the_whole);
    RUN(units_become_millimetres);
    RUN(masks_are_labels);
    RUN(scaled_masks_are_rounded_only_where_they_are_whole);
#ifdef PSTI_HAVE_GZIP
    RUN(members_follow_each_other);
    RUN(streams_of_another_length_are_refused);
    RUN(every_cut_of_a_packed_file_is_an_error);
#endif
    RUN(impossible_sizes_are_refused);
    RUN(other_claims_are_refused);
    RUN(files_of_another_length_are_refused);
    RUN(small_files_that_claim_much_are_refused);
    RUN(volumes_are_not_pictures);
    RUN(every_flip_of_a_header_is_safe);
    psti_decoder_free(dec);
    return check_report();
}
