/* SPDX-License-Identifier: Apache-2.0
 * Volumes from NPY arrays and NPZ archives: every type and order, in place or converted, windows;
 * which array of an archive is meant; archives that lie about sizes, are cut or damaged. */
#include <errno.h>

#include "check.h"
#include "codec/make_volumes.h"
#include "core/clock.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { REFUSAL_NS = 100000000 };
#else
enum { REFUSAL_NS = 10000000 };
#endif

static psti_decoder *dec;
static const int64_t dims[] = {2, 5, 4, 37};

/* ---- NPY ---- */

static int64_t stored_index(const int64_t *n, bool fortran, int64_t c, int64_t z, int64_t y,
                            int64_t x)
{
    return fortran ? ((x * n[2] + y) * n[1] + z) * n[0] + c
                   : ((c * n[1] + z) * n[2] + y) * n[3] + x;
}

static void check_values(const psti_field *f, const element *type, const int64_t *whole,
                         bool fortran, const char *what)
{
    const int64_t *n = f->shape;
    int wrong = 0;
    for (int64_t i = 0, c = 0; c < n[0]; c++)
        for (int64_t z = 0; z < n[1]; z++)
            for (int64_t y = 0; y < n[2]; y++)
                for (int64_t x = 0; x < n[3]; x++, i++)
                    wrong += field_value(f, i) !=
                             (double)number_at(type, stored_index(whole, fortran, c, f->z0 + z,
                                                                  f->y0 + y, f->x0 + x));
    CHECKF(wrong == 0, "%s %s: %d voxels are wrong", what, type->name, wrong);
}

static void every_type_and_order_is_read(void)
{
    uint64_t seed = 3;
    for (int t = 0; t < ELEMENTS; t++)
        for (int big = 0; big < 2; big++)
            for (int fortran = 0; fortran < 2; fortran++)
                for (int rank = 3; rank <= 4; rank++) {
                    const element *e = &elements[t];
                    const int64_t whole[] = {rank == 3 ? 1 : dims[0], dims[1], dims[2], dims[3]};
                    made file = make_npy(big ? ">" : "<", e, fortran, rank, whole + 4 - rank);
                    psti_window w = draw_window(&seed, dims[2], dims[3]);
                    w.planes = 1 + draw_below(&seed, dims[1]);
                    w.front = draw_below(&seed, dims[1] - w.planes + 1);
                    decoded all = decode_volume(dec, &file, PST_VOLUME, NULL);
                    decoded part = decode_volume(dec, &file, PST_VOLUME, &w);
                    CHECKF(all.rc == 0 && part.rc == 0, "%s: %s", e->name, all.err.message);
                    CHECK(all.field.dtype == (t == 0 ? PST_U8 : t == 3 ? PST_I16 : PST_F32));
                    CHECK(memcmp(all.field.shape, whole, sizeof whole) == 0);
                    CHECK(part.field.shape[1] == w.planes && part.field.z0 == w.front);
                    check_values(&all.field, e, whole, fortran, "whole");
                    check_values(&part.field, e, whole, fortran, "window");
                    decoded_free(&all);
                    decoded_free(&part);
                    free(file.bytes);
                }
}

/* A file whose data stands at a multiple of eight, as numpy's does. */
static made aligned(const made *file, size_t head)
{
    made out = {NULL, file->size + (8 - head % 8) % 8};
    const size_t more = out.size - file->size;
    out.bytes = aligned_alloc(64, (out.size + 63) / 64 * 64);
    memcpy(out.bytes, file->bytes, head - 1);
    memset(out.bytes + head - 1, ' ', more);
    memcpy(out.bytes + head - 1 + more, file->bytes + head - 1, file->size - head + 1);
    put_bits(out.bytes + 8, head + more - 10, 2, false);
    return out;
}

static psti_decode_need need_of(const made *file, int kind, const psti_window *w, psti_field *field)
{
    const psti_decode_options opts = volume_options(kind);
    psti_picture pic;
    psti_decode_need need = {0};
    CHECK(psti_decoder_begin(dec, file->bytes, file->size, &opts, &pic, NULL) == 0);
    CHECK(psti_decoder_need(dec, w, &need, NULL) == 0);
    uint8_t *dst = malloc(need.out_bytes + 1);
    CHECK(psti_decoder_run(dec, &need, -1, dst, field, NULL) == 0);
    free(dst);
    psti_decoder_end(dec);
    return need;
}

static void arrays_that_fit_stay_in_place(void)
{
    const psti_window w = {.top = 1, .left = 2, .rows = 3, .cols = 30, .front = 2, .planes = 2};
    for (int t = 0; t < ELEMENTS; t++) {
        const element *e = &elements[t];
        made file = make_npy("<", e, false, 4, dims);
        const size_t head =
            file.size - (size_t)(dims[0] * dims[1] * dims[2] * dims[3]) * (size_t)e->bytes;
        made even = aligned(&file, head);
        const uint8_t *data = even.bytes + head + (even.size - file.size);
        psti_field field;
        const bool fits = t == 0 || t == 3 || t == 8;
        psti_decode_need need = need_of(&even, PST_VOLUME, &w, &field);
        CHECKF((need.in_place != NULL) == fits && (need.out_bytes == 0) == fits, "%s", e->name);
        CHECK(!fits || field.data == data + (size_t)((2 * 4 + 1) * 37 + 2) * (size_t)e->bytes);
        CHECK(!fits ||
              (field.step[0] == 5 * 4 * 37 * e->bytes && field.step[1] == 4 * 37 * e->bytes &&
               field.step[2] == 37 * e->bytes && field.step[3] == e->bytes));
        CHECK(!fits || (field.shape[1] == 2 && field.shape[2] == 3 && field.shape[3] == 30));
        /* One byte further on nothing larger than a byte can stay. */
        made odd = {malloc(even.size + 1), even.size};
        memcpy(odd.bytes + 1, even.bytes, even.size);
        const made moved = {odd.bytes + 1, odd.size};
        need = need_of(&moved, PST_VOLUME, &w, &field);
        CHECKF((need.in_place != NULL) == (t == 0), "%s", e->name);
        free(odd.bytes);
        free(even.bytes);
        free(file.bytes);
    }
}

static void masks_and_booleans_are_labels(void)
{
    static const element truth = {"b1", 'u', 1, 0};
    made file = make_npy("|", &truth, false, 3, dims + 1);
    decoded d = decode_volume(dec, &file, PST_MASK, NULL);
    CHECKF(d.rc == 0 && d.field.dtype == PST_U8 && d.pic.can_crop, "%s", d.err.message);
    decoded_free(&d);
    free(file.bytes);
    file = make_npy("<", &elements[7], false, 3, dims + 1);
    d = decode_volume(dec, &file, PST_MASK, NULL);
    CHECKF(d.rc == PST_EFIELD && !d.pic.can_crop && strstr(d.err.message, "label is -37"), "%s",
           d.err.message);
    free(file.bytes);
}

/* ---- refusals ---- */

/* The fastest of three: the machine may be busy. */
static void check_refused(const char *name, const made *file, int kind, int code, const char *says)
{
    const psti_decode_options opts = volume_options(kind);
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

/* A file of this header text, with some bytes after it. */
static made npy_of(const char *text)
{
    const size_t len = strlen(text);
    made out = {calloc(1, 10 + len + 64), 10 + len + 64};
    memcpy(out.bytes, "\x93NUMPY\1\0", 8);
    put_bits(out.bytes + 8, len, 2, false);
    memcpy(out.bytes + 10, text, len);
    return out;
}

static made zip_of(const char *name, const made *content, bool deflated)
{
    const zip_file one = {name, *content, deflated, false};
    return make_zip(&one, 1, false, "");
}

/* What is wrong with an array is wrong wherever it lies. */
static void check_everywhere(const made *file, int code, const char *says)
{
    check_refused(says, file, PST_VOLUME, code, says);
    made zip = zip_of("image.npy", file, false);
    check_refused(says, &zip, PST_VOLUME, code, says);
    free(zip.bytes);
#ifdef PSTI_HAVE_GZIP
    zip = zip_of("image.npy", file, true);
    check_refused(says, &zip, PST_VOLUME, code, says);
    free(zip.bytes);
#endif
}

static void bad_arrays_are_refused_from_their_header(void)
{
    static const struct {
        const char *text;
        int code;
        const char *says;
    } bad[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3, 4), }", PST_EFORMAT,
         "Python objects"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3, 4), }", PST_EFORMAT,
         "element type"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", PST_EFIELD,
         "2 dimensions where a volume is wanted"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 2, 3), }", PST_EFIELD,
         "5 dimensions"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (0, 9223372036854775807, 4), }",
         PST_EFIELD, "empty"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (100000, 100000, 100000), }",
         PST_ELIMIT, "100000 x 100000 x 100000 voxels, the limit is 2147483648"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (60000, 100, 100, 100), }", PST_ELIMIT,
         "limit of 4294967296 bytes"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 1), }",
         PST_ELIMIT, "2^63"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        made file = npy_of(bad[i].text);
        check_everywhere(&file, bad[i].code, bad[i].says);
        free(file.bytes);
    }
    made claim = {calloc(1, 12), 12};
    memcpy(claim.bytes, "\x93NUMPY\x02\0\xFF\xFF\xFF\xFF", 12);
    check_everywhere(&claim, PST_ELIMIT, "4294967295 bytes, the limit is 10000");
    free(claim.bytes);
    made file = npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (9, 9, 9), }");
    check_refused("cut", &file, PST_VOLUME, PST_ECORRUPT, "claims 2916 bytes of data");
    free(file.bytes);
}

/* ---- NPZ ---- */

static void check_archive(const made *zip, int kind, const element *type, const char *what)
{
    static const int64_t whole[] = {1, 5, 4, 37};
    decoded d = decode_volume(dec, zip, kind, NULL);
    CHECKF(d.rc == 0, "%s: %s", what, d.err.message);
    if (d.rc == 0)
        check_values(&d.field, type, whole, false, what);
    decoded_free(&d);
}

static void arrays_are_found_by_name_and_kind(void)
{
    const element *image = &elements[8], *mask = &elements[0];
    made x = make_npy("<", image, false, 3, dims + 1), y = make_npy("|", mask, false, 3, dims + 1);
    made text = {(uint8_t *)"hello", 5};
    static const char *const names[][2] = {{"image.npy", "mask.npy"},
                                           {"data.npy", "seg.npy"},
                                           {"x.npy", "y.npy"},
                                           {"arr_0.npy", "arr_1.npy"},
                                           {"image.npy", "label.npy"}};
    for (int packing = 0; packing < 8; packing++)
        for (size_t i = 0; i < 5; i++) {
            bool deflated = packing & 1;
#ifndef PSTI_HAVE_GZIP
            deflated = false;
#endif
            const bool large = packing & 2, end = packing & 4;
            const zip_file files[] = {{"readme.txt", text, false, large},
                                      {names[i][1], y, deflated, large},
                                      {names[i][0], x, deflated, large},
                                      {"affine.npy", text, false, large}};
            made zip = make_zip(files, 4, end, packing ? "a comment PK\5\6 within" : "");
            check_archive(&zip, PST_VOLUME, image, names[i][0]);
            check_archive(&zip, PST_MASK, mask, names[i][1]);
            free(zip.bytes);
        }
    free(x.bytes);
    free(y.bytes);
}

static void an_array_alone_may_have_any_name(void)
{
    made y = make_npy("|", &elements[0], false, 3, dims + 1);
    static const struct {
        const char *name;
        bool as_image, as_mask;
    } cases[] = {{"ct.npy", true, true},     {"arr_0.npy", true, true}, {"image.npy", true, false},
                 {"label.npy", false, true}, {"x.npy", true, false},    {"ct.txt", false, false},
                 {"", false, false},         {".npy", true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int mask = 0; mask < 2; mask++) {
            made zip = zip_of(cases[i].name, &y, false);
            decoded d = decode_volume(dec, &zip, mask ? PST_MASK : PST_VOLUME, NULL);
            const bool fits = mask ? cases[i].as_mask : cases[i].as_image;
            CHECKF(d.rc == (fits ? 0 : PST_EFIELD), "%s %d: %s", cases[i].name, mask,
                   d.err.message);
            decoded_free(&d);
            free(zip.bytes);
        }
    const zip_file two[] = {{"ct.npy", y, false, false}, {"pet\n.npy", y, false, false}};
    made zip = make_zip(two, 2, false, "");
    check_refused("two", &zip, PST_VOLUME, PST_EFIELD, "it has: ct, pet?");
    free(zip.bytes);
    zip = make_zip(two, 0, false, "");
    check_refused("none", &zip, PST_VOLUME, PST_EFIELD, "no arrays at all");
    free(zip.bytes);
    free(y.bytes);
}

/* Finds the entry of the only file in the directory. */
static uint8_t *entry_of(const made *zip)
{
    for (size_t at = 0; at + 4 <= zip->size; at++)
        if (memcmp(zip->bytes + at, "PK\1\2", 4) == 0)
            return zip->bytes + at;
    return NULL;
}

static void lies_of_the_directory_are_refused(void)
{
    made y = make_npy("|", &elements[0], false, 3, dims + 1);
    static const struct {
        int at; /* in the entry */
        uint64_t value;
        int bytes, code;
        const char *says;
    } lies[] = {
        {24, 1000, 4, PST_ECORRUPT, "longer than the file"},
        {20, 0x7FFFFFFF, 4, PST_ECORRUPT, "longer than the file"},
        {42, 0x7FFFFFFF, 4, PST_ECORRUPT, "header is missing"},
        {42, 1, 4, PST_ECORRUPT, "header is missing"},
        {8, 1, 2, PST_EFORMAT, "encrypted"},
        {10, 12, 2, PST_EFORMAT, "packed otherwise"},
        {28, 60000, 2, PST_ECORRUPT, "entry of the archive's directory"},
        {0, 0, 4, PST_ECORRUPT, "directory"},
        {24, UINT32_MAX, 4, PST_ECORRUPT, "entry of the archive's directory"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        made zip = zip_of("image.npy", &y, false);
        put_bits(entry_of(&zip) + lies[i].at, lies[i].value, lies[i].bytes, false);
        check_refused(lies[i].says, &zip, PST_VOLUME, lies[i].code, lies[i].says);
        free(zip.bytes);
    }
    made zip = zip_of("image.npy", &y, false);
    put_bits(entry_of(&zip) + 20, y.size - 1, 4, false);
    put_bits(entry_of(&zip) + 24, y.size - 1, 4, false);
    check_refused("sizes", &zip, PST_VOLUME, PST_ECORRUPT, "by its own header");
    put_bits(zip.bytes + zip.size - 12, 2000, 2, false);
    check_refused("many", &zip, PST_VOLUME, PST_ELIMIT, "2000 files, the limit is 1000");
    free(zip.bytes);
    free(y.bytes);
}

static void damage_is_found_by_the_checksum(void)
{
    made y = make_npy("|", &elements[0], false, 3, dims + 1);
    for (int deflated = 0; deflated < 2; deflated++) {
#ifndef PSTI_HAVE_GZIP
        if (deflated)
            continue;
#endif
        made zip = zip_of("image.npy", &y, deflated);
        entry_of(&zip)[16] ^= 1;
        decoded d = decode_volume(dec, &zip, PST_VOLUME, NULL);
        CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "checksum"), "%s", d.err.message);
        entry_of(&zip)[16] ^= 1;
        check_archive(&zip, PST_VOLUME, &elements[0], "mended");
        free(zip.bytes);
    }
    free(y.bytes);
}

#ifdef PSTI_HAVE_GZIP
/* The directory and the array agree on a size that the stream does not have. */
static void bombs_end_at_the_size_that_was_told(void)
{
    made y = make_npy("|", &elements[0], false, 3, dims + 1);
    made more = {calloc(1, y.size + (20 << 20)), y.size + (20 << 20)};
    memcpy(more.bytes, y.bytes, y.size);
    made zip = zip_of("image.npy", &more, true);
    put_bits(entry_of(&zip) + 24, y.size, 4, false);
    decoded d = decode_volume(dec, &zip, PST_VOLUME, NULL);
    CHECKF(d.rc == PST_ECORRUPT && strstr(d.err.message, "holds more than"), "%s", d.err.message);
    free(zip.bytes);
    free(more.bytes);
    free(y.bytes);
    made head = npy_of("{'descr': '|u1', 'fortran_order': False, 'shape': (1000, 1000, 1000), }");
    zip = zip_of("image.npy", &head, true);
    put_bits(entry_of(&zip) + 24, 1000000000 + head.size - 64, 4, false);
    check_refused("claim", &zip, PST_VOLUME, PST_ECORRUPT, "cannot hold");
    free(zip.bytes);
    free(head.bytes);
}
#endif

static void every_cut_and_flip_is_safe(void)
{
    static const int64_t shape[] = {3, 2, 4};
    made x = make_npy("<", &elements[8], false, 3, shape);
    for (int deflated = 0; deflated < 2; deflated++) {
#ifndef PSTI_HAVE_GZIP
        if (deflated)
            continue;
#endif
        const zip_file one = {"image.npy", x, deflated, true};
        made zip = make_zip(&one, 1, true, "");
        for (size_t size = 4; size < zip.size; size++) {
            made cut = {malloc(size), size};
            memcpy(cut.bytes, zip.bytes, size);
            decoded d = decode_volume(dec, &cut, PST_VOLUME, NULL);
            CHECKF(d.rc < 0, "cut at %zu", size);
            free(cut.bytes);
        }
        for (size_t bit = 0; bit < zip.size * 8; bit++) {
            made copy = {malloc(zip.size), zip.size};
            memcpy(copy.bytes, zip.bytes, zip.size);
            copy.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            decoded d = decode_volume(dec, &copy, PST_VOLUME, NULL);
            if (d.rc == 0)
                check_values(&d.field, &elements[8], (int64_t[]){1, 3, 2, 4}, false, "flip");
            decoded_free(&d);
            free(copy.bytes);
        }
        free(zip.bytes);
    }
    free(x.bytes);
}

int main(void)
{
    dec = psti_decoder_new();
    RUN(every_type_and_order_is_read);
    RUN(arrays_that_fit_stay_in_place);
    RUN(masks_and_booleans_are_labels);
    RUN(bad_arrays_are_refused_from_their_header);
    RUN(arrays_are_found_by_name_and_kind);
    RUN(an_array_alone_may_have_any_name);
    RUN(lies_of_the_directory_are_refused);
    RUN(damage_is_found_by_the_checksum);
#ifdef PSTI_HAVE_GZIP
    RUN(bombs_end_at_the_size_that_was_told);
#endif
    RUN(every_cut_and_flip_is_safe);
    psti_decoder_free(dec);
    return check_report();
}
