/* SPDX-License-Identifier: Apache-2.0
 * NPY headers, read and written: every type, every version, whatever a header may claim. Bytes are
 * exact-size copies, so a sanitizer sees a read past the end. */
#include "check.h"
#include "codec/make_images.h"
#include "core/clock.h"

/* A file with the given header text, padded or not, and data bytes after it. */
static made npy_file(int version, const char *text, size_t data)
{
    const size_t len = strlen(text), field = version == 1 ? 2 : 4;
    made out = {calloc(1, 8 + field + len + data + 1), 8 + field + len + data};
    memcpy(out.bytes, "\x93NUMPY", 6);
    out.bytes[6] = (uint8_t)version;
    for (size_t i = 0; i < field; i++)
        out.bytes[8 + i] = (uint8_t)(len >> 8 * i);
    memcpy(out.bytes + 8 + field, text, len);
    return out;
}

static int parse(const made *file, psti_field *field, pst_error *err)
{
    uint8_t *exact = malloc(file->size ? file->size : 1);
    memcpy(exact, file->bytes, file->size);
    const int rc = psti_npy_parse(exact, file->size, field, err);
    if (rc == 0)
        field->data = file->bytes + (field->data - exact);
    free(exact);
    return rc;
}

static int parse_text(int version, const char *text, size_t data, psti_field *field, pst_error *err)
{
    made file = npy_file(version, text, data);
    const int rc = parse(&file, field, err);
    free(file.bytes);
    return rc;
}

static void what_is_written_is_read(void)
{
    static const int dtypes[] = {PST_U8,  PST_I8,  PST_U16, PST_I16, PST_I32,
                                 PST_I64, PST_F16, PST_F32, PST_F64, PST_BOOL};
    static const int64_t shapes[][PST_MAX_RANK] = {
        {0}, {7}, {3, 4}, {0, 5}, {2, 3, 4, 1, 1, 1, 1, 2}};
    static const int ranks[] = {0, 1, 2, 2, 8};
    for (size_t t = 0; t < 10; t++)
        for (size_t s = 0; s < 5; s++) {
            made file = {calloc(1, 4096), 0};
            const size_t head = psti_npy_header(dtypes[t], ranks[s], shapes[s], file.bytes, 4096);
            CHECK(head > 0 && head % 64 == 0 && file.bytes[head - 1] == '\n');
            size_t count = 1;
            for (int i = 0; i < ranks[s]; i++)
                count *= (size_t)shapes[s][i];
            file.size = head + count * psti_dtype_bytes(dtypes[t]);
            psti_field field;
            pst_error err;
            CHECKF(parse(&file, &field, &err) == 0, "%s", err.message);
            CHECK(field.kind == PST_ARRAY && field.dtype == dtypes[t] && field.rank == ranks[s]);
            CHECK(memcmp(field.shape, shapes[s], sizeof(int64_t) * (size_t)ranks[s]) == 0);
            CHECK(field.data == file.bytes + head && field.bytes == file.size - head);
            CHECK(psti_npy_header(dtypes[t], ranks[s], shapes[s], file.bytes, head - 1) == 0);
            free(file.bytes);
        }
    uint8_t buf[256];
    CHECK(psti_npy_header(PST_BF16, 1, (int64_t[]){3}, buf, sizeof buf) == 128 || buf[0] == 0x93);
    CHECK(psti_npy_header(99, 1, (int64_t[]){3}, buf, sizeof buf) == 0);
    CHECK(psti_npy_header(PST_U8, 9, (int64_t[9]){0}, buf, sizeof buf) == 0);
}

static void other_ways_of_writing_are_read(void)
{
    static const struct {
        int version;
        const char *text;
        size_t data;
        int rank;
    } good[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24, 2},
        {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }        \n", 24, 2},
        {3, "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}", 24, 2},
        {1, "{'descr': '|u1', 'fortran_order': True, 'shape': (5L,), }", 5, 1},
        {1, "{'descr': '=i8', 'fortran_order': False, 'shape': (), }", 8, 0},
        {1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 2,), }", 4, 2},
        {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775807), }", 0, 2},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        psti_field field = {0};
        pst_error err = {0};
        CHECKF(parse_text(good[i].version, good[i].text, good[i].data, &field, &err) == 0, "%s: %s",
               good[i].text, err.message);
        CHECK(field.rank == good[i].rank && field.bytes == good[i].data);
    }
}

static void wrong_headers_are_refused(void)
{
    static const struct {
        const char *text;
        int code;
        const char *says;
    } bad[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", PST_EFORMAT, "Python objects"},
        {"{'descr': '|O8', 'fortran_order': False, 'shape': (3,), }", PST_EFORMAT,
         "Python objects"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }", PST_EFORMAT, "big-endian"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }", PST_EFORMAT, "element type"},
        {"{'descr': '<U4', 'fortran_order': False, 'shape': (3,), }", PST_EFORMAT, "element type"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", PST_EFORMAT,
         "record"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }", PST_EFORMAT, "Fortran"},
        {"{'descr': '<f4', 'fortran_order': None, 'shape': (3,), }", PST_ECORRUPT, "neither"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3), }", PST_ECORRUPT, "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", PST_ECORRUPT,
         "not negative"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,", PST_ECORRUPT, ""},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } x", PST_ECORRUPT, "follows"},
        {"{'descr': '<f4', 'fortran_order': False}", PST_ECORRUPT, "missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", PST_ECORRUPT,
         "twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'shape': (4,)}", PST_ECORRUPT,
         "twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}", PST_ECORRUPT,
         "unknown"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", PST_ELIMIT,
         "8 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", PST_ELIMIT,
         "too large"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", PST_ELIMIT,
         "2^63"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807,)}", PST_ELIMIT,
         "2^63"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (300000000,)}", PST_ECORRUPT,
         "claims 1200000000 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", PST_ECORRUPT,
         "claims 8 bytes of data, the file has 12"},
        {"__import__('os')", PST_ECORRUPT, "brace"},
        {"", PST_ECORRUPT, "brace"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        psti_field field;
        pst_error err = {0};
        const int rc = parse_text(1, bad[i].text, 12, &field, &err);
        CHECKF(rc == bad[i].code && err.code == rc && strstr(err.message, bad[i].says), "%s: %d %s",
               bad[i].text, rc, err.message);
    }
}

static void header_lengths_are_checked_first(void)
{
    psti_field field;
    pst_error err;
    uint8_t claim[12] = "\x93NUMPY\x02\0\xFF\xFF\xFF\xFF";
    CHECK(psti_npy_parse(claim, 12, &field, &err) == PST_ELIMIT);
    CHECK(strstr(err.message, "4294967295 bytes, the limit is 10000"));
    memcpy(claim + 8, "\x10\x27\0\0", 4);
    CHECK(psti_npy_parse(claim, 12, &field, &err) == PST_ECORRUPT);
    memcpy(claim + 8, "\x11\x27\0\0", 4);
    CHECK(psti_npy_parse(claim, 12, &field, &err) == PST_ELIMIT);
    claim[6] = 4;
    CHECK(psti_npy_parse(claim, 12, &field, &err) == PST_EFORMAT);
    CHECK(psti_npy_parse((const uint8_t *)"\x89PNG\r\n\x1A\n1234", 12, &field, &err) ==
          PST_EFORMAT);
    CHECK(psti_npy_parse((const uint8_t *)"", 0, &field, NULL) == PST_ECORRUPT);
}

static void every_cut_and_flip_is_safe(void)
{
    static const int dtypes[] = {PST_U8, PST_F32, PST_I64, PST_BOOL};
    for (int n = 0; n < 20; n++) {
        const int64_t shape[3] = {n + 1, 2, 3};
        uint8_t buf[4096];
        const int dtype = dtypes[n % 4], rank = 1 + n % 3;
        made file = {buf, psti_npy_header(dtype, rank, shape, buf, sizeof buf)};
        size_t data = psti_dtype_bytes(dtype);
        for (int i = 0; i < rank; i++)
            data *= (size_t)shape[i];
        memset(buf + file.size, 7, data);
        file.size += data;
        psti_field field;
        pst_error err;
        CHECK(parse(&file, &field, &err) == 0);
        const made whole = file;
        for (file.size = 0; file.size < whole.size; file.size++)
            CHECKF(parse(&file, &field, &err) < 0, "cut at %zu of %zu", file.size, whole.size);
        for (size_t at = 0; at < whole.size - data; at++)
            for (int bit = 0; bit < 8; bit++) {
                buf[at] ^= (uint8_t)(1 << bit);
                if (parse(&whole, &field, &err) == 0)
                    CHECK(field.bytes == data &&
                          field.data + field.bytes == whole.bytes + whole.size);
                buf[at] ^= (uint8_t)(1 << bit);
            }
    }
}

int main(void)
{
    RUN(what_is_written_is_read);
    RUN(other_ways_of_writing_are_read);
    RUN(wrong_headers_are_refused);
    RUN(header_lengths_are_checked_first);
    RUN(every_cut_and_flip_is_safe);
    return check_report();
}
