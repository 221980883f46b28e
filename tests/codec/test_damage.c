/* SPDX-License-Identifier: Apache-2.0
 * Damaged JPEG bytes. The verdict on a window is the same whether the whole picture or only the
 * window is decoded, whatever the bytes; a cut never gives wrong pixels silently; and what a
 * decoder met before never shows in what it decodes next. */
#include "check.h"
#include "codec/make_images.h"

enum { INTACT = 10, WINDOWS = 3, ROWS = 56, COLS = 33 };

static psti_decoder *dec;
static made intact[INTACT];
static decoded wanted[INTACT];
static uint64_t state;

static void open_all(void)
{
    dec = psti_decoder_new();
    state = 11;
    for (size_t i = 0; i < INTACT; i++) {
        psti_decoder *fresh = psti_decoder_new();
        intact[i] = make_jpeg(&jpeg_specs[i * 3], 24 + (int)i, 17, i);
        wanted[i] = decode_all(fresh, intact[i].bytes, intact[i].size);
        psti_decoder_free(fresh);
    }
}

static void close_all(void)
{
    for (size_t i = 0; i < INTACT; i++) {
        decoded_free(&wanted[i]);
        free(intact[i].bytes);
    }
    psti_decoder_free(dec);
}

static void check_next_ten(const char *after)
{
    for (size_t i = 0; i < INTACT; i++) {
        decoded d = decode_all(dec, intact[i].bytes, intact[i].size);
        const psti_window all = {0, 0, wanted[i].field.whole_rows, wanted[i].field.whole_cols};
        CHECKF(d.rc == 0 && d.field.first_damaged_row == PSTI_ROWS_SOUND &&
                   same_window(&d.field, &wanted[i].field, &all),
               "sample %zu after %s: %s", i, after, d.err.message);
        decoded_free(&d);
    }
}

static void check_known(const uint8_t *bytes, size_t size, const decoded *whole,
                        const psti_window *w, const char *what)
{
    const psti_decode_options opts = plain_options();
    const int64_t known = whole->field.first_damaged_row;
    decoded part = decode_with(dec, bytes, size, &opts, w, known);
    CHECKF(part.rc == 0 && part.field.first_damaged_row == known, "%s", what);
    if (part.rc == 0 && !is_bad(&part, w))
        CHECKF(same_window(&part.field, &whole->field, w), "%s", what);
    decoded_free(&part);
}

/* Decodes a window of the bytes and holds it against the whole. */
static void check_window(const uint8_t *bytes, size_t size, const decoded *whole,
                         const psti_window *w, const char *what)
{
    const psti_decode_options opts = plain_options();
    decoded part = decode_with(dec, bytes, size, &opts, w, -1);
    CHECKF((part.rc < 0) == (whole->rc < 0), "%s: %d by window, %d by whole", what, part.rc,
           whole->rc);
    CHECKF(is_bad(&part, w) == is_bad(whole, w),
           "%s: rows %lld+%lld, damage %lld by window, %lld by whole", what, (long long)w->top,
           (long long)w->rows, (long long)part.field.first_damaged_row,
           (long long)whole->field.first_damaged_row);
    if (part.rc == 0 && whole->rc == 0 && !is_bad(whole, w))
        CHECKF(same_window(&part.field, &whole->field, w), "%s: pixels differ", what);
    if (part.rc == 0 && whole->rc == 0 && part.pic.unsure_end)
        CHECKF(part.field.first_damaged_row == whole->field.first_damaged_row,
               "%s: not decoded to the end", what);
    decoded_free(&part);
}

static void check_bytes(const uint8_t *source, size_t size, decoded *whole, int64_t rows,
                        int64_t cols, const char *what)
{
    uint8_t *bytes = malloc(size ? size : 1);
    memcpy(bytes, source, size);
    *whole = decode_all(dec, bytes, size);
    if (whole->rc == 0) {
        rows = whole->field.whole_rows;
        cols = whole->field.whole_cols;
    } else {
        /* A small window of what the header may claim: other than the picture's own is refused in
         * both ways. */
        rows = rows < 20 ? rows : 20;
        cols = cols < 20 ? cols : 20;
    }
    for (int i = 0; i < WINDOWS; i++) {
        const psti_window w = draw_window(&state, rows, cols);
        check_window(bytes, size, whole, &w, what);
        if (i == 0 && whole->rc == 0 && whole->pic.unsure_end)
            check_known(bytes, size, whole, &w, what);
    }
    free(bytes);
}

/* Rows well above the damage are those of the intact file; the row or two next to it look across.
 */
static void check_sound_rows(const decoded *cut, const decoded *whole, const char *what)
{
    int64_t sound = cut->field.first_damaged_row;
    if (sound > whole->field.whole_rows)
        sound = whole->field.whole_rows;
    else
        sound -= 2;
    const psti_window w = {0, 0, sound, whole->field.whole_cols};
    if (sound > 0)
        CHECKF(same_window(&cut->field, &whole->field, &w), "%s: rows above %lld changed silently",
               what, (long long)sound);
}

static void cut_everywhere(const jpeg_spec *spec)
{
    made file = make_jpeg(spec, COLS, ROWS, 3);
    decoded whole = decode_all(dec, file.bytes, file.size);
    size_t bad = 0;
    for (size_t size = 0; size < file.size; size++) {
        char what[96];
        snprintf(what, sizeof what, "%s cut at %zu of %zu", spec->name, size, file.size);
        decoded cut;
        check_bytes(file.bytes, size, &cut, ROWS, COLS, what);
        if (cut.rc == 0)
            check_sound_rows(&cut, &whole, what);
        bad += cut.rc < 0 || cut.field.first_damaged_row < ROWS;
        check_next_ten(what);
        decoded_free(&cut);
    }
    /* The end marker and a few padding bits are all that may be missing. */
    CHECKF(bad + 8 >= file.size, "%s: %zu of %zu cuts were noticed", spec->name, bad, file.size);
    decoded_free(&whole);
    free(file.bytes);
}

static void every_cut_has_one_verdict(void)
{
    open_all();
    for (size_t i = 0; i < JPEG_SPECS; i++)
        cut_everywhere(&jpeg_specs[i]);
    close_all();
}

static void damaged(const jpeg_spec *spec, uint8_t *bytes, size_t size, const char *how, size_t at)
{
    char what[96];
    snprintf(what, sizeof what, "%s, %s %zu", spec->name, how, at);
    decoded d;
    check_bytes(bytes, size, &d, ROWS, COLS, what);
    decoded_free(&d);
    if (at % 16 == 0)
        check_next_ten(what);
}

static void every_flipped_byte_has_one_verdict(void)
{
    open_all();
    for (size_t i = 0; i < JPEG_SPECS; i++) {
        made file = make_jpeg(&jpeg_specs[i], COLS, ROWS, 4);
        for (size_t at = 0; at < file.size; at++) {
            file.bytes[at] ^= 0xFF;
            damaged(&jpeg_specs[i], file.bytes, file.size, "flipped at", at);
            file.bytes[at] ^= 0xFF;
        }
        free(file.bytes);
    }
    close_all();
}

/* Some bytes changed, some runs zeroed, markers planted, the end cut off or not. */
static void spoil(uint8_t *bytes, size_t *size)
{
    const int64_t changes = 1 + draw_below(&state, 6);
    for (int64_t i = 0; i < changes; i++) {
        const size_t at = (size_t)draw_below(&state, (int64_t)*size - 1);
        switch (draw_below(&state, 4)) {
        case 0:
            bytes[at] = (uint8_t)draw(&state);
            break;
        case 1:
            memset(bytes + at, 0, (*size - at) / 8);
            break;
        case 2:
            bytes[at] = 0xFF;
            bytes[at + 1] = (uint8_t)(0xC0 + draw_below(&state, 0x30));
            break;
        default:
            memmove(bytes + at, bytes + at + 1, *size - at - 1);
            *size -= 1;
        }
    }
    if (draw_below(&state, 3) == 0)
        *size -= (size_t)draw_below(&state, (int64_t)*size / 2);
}

static void random_damage_has_one_verdict(void)
{
    open_all();
    for (size_t i = 0; i < JPEG_SPECS; i++) {
        made file = make_jpeg(&jpeg_specs[i], COLS, ROWS, 5);
        uint8_t *copy = malloc(file.size);
        for (size_t n = 0; n < 400; n++) {
            size_t size = file.size;
            memcpy(copy, file.bytes, size);
            spoil(copy, &size);
            damaged(&jpeg_specs[i], copy, size, "spoiled", n);
        }
        free(copy);
        free(file.bytes);
    }
    close_all();
}

/* Where the damage is said to be: cutting a restart-free baseline file in the data of iMCU row n
 * says row n. */
static void damage_names_the_first_lost_row(void)
{
    open_all();
    made file = make_jpeg(&jpeg_specs[5], 160, 320, 6);
    int64_t before = 0;
    for (size_t size = file.size / 4; size < file.size - 8; size += 64) {
        decoded cut = decode_all(dec, file.bytes, size);
        CHECK(cut.rc == 0 && cut.pic.unsure_end);
        const int64_t row = cut.field.first_damaged_row;
        CHECKF(row % 16 == 0 && row >= before && row < 320, "row %lld", (long long)row);
        before = row;
        decoded_free(&cut);
    }
    CHECK(before >= 288);
    free(file.bytes);
    close_all();
}

static void harmless_oddities_load(void)
{
    open_all();
    made file = make_jpeg(&jpeg_specs[5], 64, 64, 6);
    decoded whole = decode_all(dec, file.bytes, file.size);
    const psti_window all = {0, 0, 64, 64};
    decoded no_end = decode_all(dec, file.bytes, file.size - 2);
    CHECK(no_end.rc == 0 && no_end.pic.unsure_end &&
          no_end.field.first_damaged_row == PSTI_ROWS_SOUND);
    CHECK(!whole.pic.unsure_end && whole.warnings == 0);
    CHECK(same_window(&no_end.field, &whole.field, &all));
    decoded_free(&no_end);

    /* Rubbish after the end, and a byte between two segments. */
    uint8_t *longer = calloc(1, file.size + 300);
    memcpy(longer, file.bytes, file.size);
    decoded tail = decode_all(dec, longer, file.size + 300);
    CHECK(tail.rc == 0 && !tail.pic.unsure_end && same_window(&tail.field, &whole.field, &all));
    decoded_free(&tail);
    memmove(longer + 21, longer + 20, file.size - 20);
    longer[20] = 0x55;
    decoded between = decode_all(dec, longer, file.size + 1);
    CHECKF(between.rc == 0 && same_window(&between.field, &whole.field, &all), "%s",
           between.err.message);
    CHECK(between.warnings == 1 && between.field.first_damaged_row == PSTI_ROWS_SOUND);
    decoded_free(&between);
    free(longer);
    decoded_free(&whole);
    free(file.bytes);
    close_all();
}

/* A file without tables of its own must not borrow those of the sample before. */
static void tables_do_not_pass_to_the_next_sample(void)
{
    open_all();
    made file = make_jpeg(&jpeg_specs[5], 64, 64, 6);
    size_t at = 2, size = file.size;
    while (file.bytes[at + 1] != 0xDA) {
        const size_t length = 2 + ((size_t)file.bytes[at + 2] << 8 | file.bytes[at + 3]);
        if (file.bytes[at + 1] == 0xDB) {
            memmove(file.bytes + at, file.bytes + at + length, size - at - length);
            size -= length;
        } else {
            at += length;
        }
    }
    for (int i = 0; i < 2; i++) {
        decoded d = decode_all(dec, file.bytes, size);
        CHECK(d.rc == PST_ECORRUPT);
        decoded_free(&d);
        check_next_ten("a file without tables");
    }
    free(file.bytes);
    close_all();
}

int main(void)
{
    printf("seed 11\n");
    RUN(damage_names_the_first_lost_row);
    RUN(harmless_oddities_load);
    RUN(tables_do_not_pass_to_the_next_sample);
    RUN(every_cut_has_one_verdict);
    RUN(every_flipped_byte_has_one_verdict);
    RUN(random_damage_has_one_verdict);
    return check_report();
}
