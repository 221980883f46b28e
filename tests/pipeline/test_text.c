/* SPDX-License-Identifier: Apache-2.0
 * Pipeline text: what the grammar takes and refuses, where errors point, the canonical text,
 * fingerprints, help and the table in the documentation, which `test_text --table` prints. */
#include <errno.h>
#include <locale.h>
#include <stdlib.h>

#include "check.h"
#include "core/memory.h"
#include "pipeline/pipeline.h"

/* Copies text without its '@'; returns where that stood, or -1. */
static int64_t unmark(const char *text, char *out)
{
    const char *mark = strchr(text, '@');
    const size_t at = mark ? (size_t)(mark - text) : strlen(text);
    memcpy(out, text, at);
    snprintf(out + at, 512 - at, "%s", mark ? mark + 1 : "");
    return mark ? (int64_t)at : -1;
}

static void good_texts_become_canonical(void)
{
    static const char *const pairs[][2] = {
        {"decode", "decode"},
        {"  decode ( )  ", "decode"},
        {"bytes", "bytes"},
        {"decode(rgb)", "decode"},
        {"decode(color = gray)", "decode(gray)"},
        {"decode(color=\"keep\",orient=true)", "decode(keep, true)"},
        {"decode(orient=true)", "decode(orient=true)"},
        {"decode|random_resized_crop(224)|hflip|normalize(imagenet)",
         "decode | random_resized_crop(224) | hflip | normalize(imagenet)"},
        {"decode | resize((256))", "decode | resize(256)"},
        {"decode | resize(size=(256,  2.56e2), interpolation=bilinear)",
         "decode | resize((256, 256))"},
        {"decode | resize(max_size=+512.0, size=256)", "decode | resize(256, max_size=512)"},
        {"decode | resize(256, nearest, 512)", "decode | resize(256, nearest, 512)"},
        {"decode | hflip(p=.25)", "decode | hflip(0.25)"},
        {"decode | hflip(2.5E-1) | vflip(0.50)", "decode | hflip(0.25) | vflip"},
        {"decode | random_resized_crop(224, ratio=(0.1, 0.30000000000000004))",
         "decode | random_resized_crop(224, ratio=(0.1, 0.30000000000000004))"},
        {"decode | normalize(mean=(0.5,0.5,0.5),std=(.25,.25,1e-3))",
         "decode | normalize(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.001))"},
        {"image , mask:decode;image:normalize(half)|to(f16,nhwc);mask :to(i64)",
         "image,mask: decode ; image: normalize(half) | to(f16, nhwc) ; mask: to(i64)"},
        {"decode\n\t| hflip\r\n", "decode | hflip"},
        {"decode | to(layout=nchw)", "decode | to(layout=nchw)"},
        {"decode||mixup( alpha=0.2 )", "decode || mixup"},
        {"decode | delay(3000, share=.2, runs=16, stages=10, hidden)",
         "decode | delay(3000, 0.2, 16, 10, hidden)"},
        {"decode | delay(burn, 5, hidden, stages=1)", "decode | delay(5, hits=hidden, by=burn)"},
        {"decode | delay(5, 1, 0, 1, drawn, sleep)", "decode | delay(5)"},
        {"decode || mixup(0.8, classes=1000)", "decode || mixup(0.8, classes=1000)"},
        {"image: decode ; cutmix: decode || cutmix(1.0, 0.5)",
         "image: decode ; cutmix: decode || cutmix(p=0.5)"},
        {"decode|views(2:hflip( .5 )|vflip(1),8 : resize(size=8) )|normalize(imagenet)",
         "decode | views(2: hflip | vflip(1), 8: resize(8)) | normalize(imagenet)"},
        {"decode ||choice( 1 :mixup(.2),3:cutmix(0.5,1) )",
         "decode || choice(1: mixup, 3: cutmix(0.5))"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        pst_error err = {0};
        char once[512] = "", twice[512] = "";
        CHECKF(pst_pipeline_check(pairs[i][0], once, sizeof once, NULL, &err) == 0, "%s: %s",
               pairs[i][0], err.message);
        CHECKF(strcmp(once, pairs[i][1]) == 0, "%s became %s", pairs[i][0], once);
        CHECK(pst_pipeline_check(once, twice, sizeof twice, NULL, &err) == 0 &&
              strcmp(once, twice) == 0);
    }
}

/* '@' stands where the error must point. */
static const char *const bad_texts[][2] = {
    {"@", "empty"},
    {"@  ", "empty"},
    {"decode | @random_resize_crop(224)", "did you mean \"random_resized_crop\""},
    {"@decod", "did you mean \"decode\""},
    {"decode | @rsize(3)", "did you mean \"resize\""},
    {"decode | @flip", "did you mean \"hflip\""},
    {"decode | @xyzzy", "known: decode, bytes, resize"},
    {"@resize(3)", "starts with decode, not with resize"},
    {"decode | @resize", "resize wants a value for size"},
    {"decode | resize(@0)", "1 to 2 of 1..65536; \"0\" is out of range"},
    {"decode | resize(@70000)", "1..65536"},
    {"decode | resize((224, @-1))", "1..65536"},
    {"decode | resize(@2.5)", "is no integer"},
    {"decode | resize(@wide)", "is no number"},
    {"decode | resize(@(1,2,3))", "1 to 2 of 1..65536; 3 given"},
    {"decode | resize(@(1,2,3,4,5,6,7,8,9))", "more than 8 given"},
    {"decode | resize(224, @bilinar)", "did you mean \"bilinear\""},
    {"decode | resize(224, @7)", "is no word"},
    {"decode | resize(224, @interpolaton=nearest)", "did you mean \"interpolation\""},
    {"decode | resize(224, @zz=nearest)", "known: size, interpolation, max_size"},
    {"bytes(@a=1)", "bytes has no parameter \"a\""},
    {"bytes(@1)", "at most 0 values"},
    {"decode | resize(224, @size=3)", "size is given twice"},
    {"decode | resize(224, nearest, 300, mlperf, @4)", "at most 4 values"},
    {"decode | resize(size=224, @nearest)", "without a name"},
    {"decode | resize(max_size=@2.5, size=2)", "takes int, 0..65536"},
    {"decode | @resize(256, max_size=100)", "resize: max_size (100) must be larger"},
    {"decode | hflip(@1.5)", "0..1; \"1.5\" is out of range"},
    {"decode | hflip(@(1))", "is no number"},
    {"decode(@cmyk)", "rgb|gray|keep"},
    {"decode(orient=@yes)", "true|false"},
    {"decode(orient=@1)", "true|false"},
    {"decode | @delay", "delay wants a value for ms"},
    {"decode | delay(@-1)", "0..600000"},
    {"decode | delay(5, share=@1.5)", "out of range"},
    {"decode | delay(5, runs=@2.5)", "is no integer"},
    {"decode | delay(5, stages=@0)", "1..1000"},
    {"decode | delay(5, hidden, @drawn)", "hits is given twice"},
    {"decode | delay(5, runs=2, @hiden)", "without a name"},
    {"decode | delay(5, by=@hidden)", "sleep|burn"},
    {"decode | @normalize", "normalize: "},
    {"decode | @normalize(imagenet, mean=0.5)", "not both"},
    {"decode | normalize(std=@0)", "out of range"},
    {"@views(2: hflip)", "a pipeline starts with decode"},
    {"decode | @views", "wants chains of ops, each with a number: views(2: "},
    {"decode | views(@hflip)", "takes chains of ops with a number"},
    {"decode | views(2: @decode)", "decode cannot stand inside views"},
    {"decode | views(2: hflip | @bytes)", "bytes cannot stand inside views"},
    {"decode | views(2: @views(2: hflip))", "views cannot stand inside views"},
    {"decode | views(2: @mixup)", "mixup acts on batches"},
    {"decode || @views(2: mixup)", "views acts on samples"},
    {"decode | views(@0: hflip)", "integer from 1 to 65535"},
    {"decode | hflip(@2: vflip)", "no chain of ops"},
    {"decode | hflip(@0: vflip)", "integer from 1 to 65535"},
    {"decode | hflip(2: @3)", "expected the name of an op, found \"3\""},
    {"decode || @hflip", "hflip acts on samples"},
    {"decode || mixup | @cutmix", "one op is done to a batch"},
    {"decode || choice(1: mixup | @cutmix)", "one op is done to a batch"},
    {"decode || @choice", "wants chains of ops"},
    {"decode || choice(@mixup)", "takes chains of ops with a number"},
    {"decode || choice(1: mixup, @2)", "takes chains of ops with a number"},
    {"decode || choice(1: @hflip)", "hflip acts on samples"},
    {"decode || choice(1: @choice(1: mixup))", "choice cannot stand inside choice"},
    {"decode || mixup(@0)", "takes float, 0.001..1000"},
    {"decode || mixup(classes=@1.5)", "takes int, 0..16777216"},
    {"decode || @mixupp", "did you mean \"mixup\""},
    {"decode | @mixup", "mixup acts on batches"},
    {"decode | @choice(1: hflip)", "choice acts on batches"},
    {"decode ||@", "expected the name of an op, found the end"},
    {"decode |@", "found the end of the text"},
    {"decode ;@", "found the end of the text"},
    {"@| decode", "found \"|\""},
    {"decode @hflip", "expected \"|\", \";\" or the end, found \"hflip\""},
    {"decode @)", "found \")\""},
    {"decode(@", "expected a value, found the end"},
    {"decode(rgb@", "expected \",\" or \")\""},
    {"decode(rgb,@)", "expected a value"},
    {"decode(rgb @gray)", "expected \",\" or \")\""},
    {"decode, hflip@", "after a field's name"},
    {"decode | resize(@3x)", "runs into letters"},
    {"decode @# x", "'#' has no place"},
    {"decode @\x01", "byte 0x01"},
    {"decode @\xc3\xa9", "byte 0xc3"},
    {"decode | resize(@1e999)", "too large"},
    {"decode | resize(@())", "found \")\""},
    {"decode(color=@\"rgb", "no closing quote"},
    {"decode(color=\"r@\\gb\")", "no backslash"},
    {"image, @image: decode", "named twice"},
    {"@a23456789012345678901234567890123: decode", "at most 31 bytes"},
};

static void bad_texts_say_where_and_what(void)
{
    for (size_t i = 0; i < sizeof bad_texts / sizeof *bad_texts; i++) {
        char text[512], canonical[8] = "kept";
        pst_error err = {0};
        int64_t at = unmark(bad_texts[i][0], text);
        /* A list of none fails inside its parentheses. */
        at += strcmp(text, "decode | resize(())") == 0;
        const int rc = pst_pipeline_check(text, canonical, sizeof canonical, NULL, &err);
        CHECKF(rc == PST_EPIPELINE && err.code == rc, "%s: %d", text, rc);
        CHECKF(err.offset == at, "%s: offset %lld, %s", text, (long long)err.offset, err.message);
        CHECKF(strstr(err.message, bad_texts[i][1]) != NULL, "%s: %s", text, err.message);
        CHECK(strcmp(err.stage, "pipeline") == 0 && strcmp(canonical, "kept") == 0);
        CHECK(pst_pipeline_check(text, NULL, 0, NULL, NULL) == rc);
    }
}

/* head, then `count` times one, then tail. */
static char *repeated(const char *head, const char *one, int count, const char *tail)
{
    const size_t cap = strlen(head) + strlen(one) * (size_t)count + strlen(tail) + 1;
    char *text = malloc(cap);
    size_t at = (size_t)snprintf(text, cap, "%s", head);
    for (int i = 0; i < count; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s", one);
    snprintf(text + at, cap - at, "%s", tail);
    return text;
}

static void check_limit(char *text, const char *word, int64_t offset)
{
    pst_error err = {0};
    const int rc = pst_pipeline_check(text, NULL, 0, NULL, &err);
    if (!word)
        CHECKF(rc == 0, "%s", err.message);
    else
        CHECKF(rc == PST_EPIPELINE && strstr(err.message, word) && err.offset == offset,
               "%s: %lld %s", word, (long long)err.offset, err.message);
    free(text);
}

static void limits_hold(void)
{
    check_limit(repeated("decode", " ", 65530, ""), NULL, 0);
    check_limit(repeated("decode", " ", 65531, ""), "longer than 65536", 65536);
    check_limit(repeated("decode(", "(", 40, ""), "nested deeper than 16", 7 + 16);
    check_limit(repeated("decode | hflip(", "2: hflip(", 5000, ""), "nested deeper than 16",
                15 + 9 * 16 + 3);
    check_limit(repeated("decode | resize((", "1,", 20000, "1))"), "more than 8192", 17 + 8192 - 5);
    check_limit(repeated("", "a", 256, ""), "longer than 255", 0);
    check_limit(repeated("decode(\"", "a", 256, "\")"), "longer than 255", 7);
    check_limit(repeated("decode | resize(", "1", 256, ")"), "too large", 16);
    check_limit(repeated("decode", " | hflip", 255, ""), NULL, 0);
    check_limit(repeated("decode", " | hflip", 256, ""), "257 ops are more than", -1);
}

static psti_fingerprints prints_of(const char *text)
{
    psti_pipeline *pipeline = NULL;
    pst_error err = {0};
    CHECKF(psti_pipeline_parse(text, &pipeline, &err) == 0, "%s: %s", text, err.message);
    psti_fingerprints prints = {0};
    if (pipeline)
        prints = psti_pipeline_fingerprints(pipeline);
    psti_pipeline_free(pipeline);
    return prints;
}

static bool same(psti_id128 a, psti_id128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

static void fingerprints_follow_the_meaning(void)
{
    const psti_fingerprints a =
        prints_of("decode | random_resized_crop(224) | hflip | normalize(imagenet)");
    const psti_fingerprints spelt = prints_of("decode(rgb)|random_resized_crop(size=(224),scale=(0."
                                              "08,1.0))|hflip(p=0.5)|normalize(imagenet)");
    CHECK(same(a.whole, spelt.whole) && same(a.decoded, spelt.decoded) &&
          same(a.augmented, spelt.augmented));
    const psti_fingerprints size =
        prints_of("decode | random_resized_crop(192) | hflip | normalize(imagenet)");
    CHECK(!same(a.whole, size.whole) && same(a.decoded, size.decoded) &&
          !same(a.augmented, size.augmented));
    const psti_fingerprints gray =
        prints_of("decode(gray) | random_resized_crop(224) | hflip | normalize(half)");
    CHECK(!same(a.decoded, gray.decoded) && !same(a.augmented, gray.augmented));
    const psti_fingerprints finish =
        prints_of("decode | random_resized_crop(224) | hflip | to(f16)");
    CHECK(!same(a.whole, finish.whole) && same(a.augmented, finish.augmented));
    const psti_fingerprints offline = prints_of("decode | resize(256) | random_crop(224)");
    CHECK(same(offline.decoded, prints_of("decode | resize(256)").decoded));
    CHECK(!same(offline.decoded, a.decoded));
    CHECK(!same(a.whole, a.decoded) && !same(a.decoded, prints_of("decode").augmented));
}

static void a_form_knows_where_its_draws_come_from(void)
{
    /* hflip draws at place 1 in one text and at place 2 in the other: the pictures differ, so must
     * the forms. */
    const psti_fingerprints before = prints_of("decode | hflip | normalize(half)");
    const psti_fingerprints after = prints_of("decode | normalize(half) | hflip");
    CHECK(!same(before.augmented, after.augmented) && same(before.decoded, after.decoded));
    /* Addressing is part of the form. */
    CHECK(
        !same(prints_of("image: decode ; mask: decode").augmented, prints_of("decode").augmented));
    CHECK(same(prints_of("decode ; mask: to(i64)").augmented, prints_of("decode").augmented));
}

static void the_fingerprint_is_frozen(void)
{
    uint8_t print[16];
    char hex[33] = "";
    CHECK(pst_pipeline_check("decode | random_resized_crop(224) | hflip | normalize(imagenet)",
                             NULL, 0, print, NULL) == 0);
    psti_id128_hex(psti_id128_load(print), hex);
    CHECKF(strcmp(hex, "dcd390b81c8676721e22c02a96ad0b92") == 0, "%s", hex);
    const psti_fingerprints prints =
        prints_of("decode | random_resized_crop(224) | hflip | normalize(imagenet)");
    psti_id128_hex(prints.decoded, hex);
    CHECKF(strcmp(hex, "012c3ee012e45105bb5e36ce9d111ce4") == 0, "%s", hex);
    psti_id128_hex(prints.augmented, hex);
    CHECKF(strcmp(hex, "f88778f4460ef4811629560db0739f1a") == 0, "%s", hex);
}

static void canonical_text_is_cut_at_cap(void)
{
    char small[8];
    CHECK(pst_pipeline_check("decode | hflip", small, sizeof small, NULL, NULL) == 0);
    CHECK(strcmp(small, "decode ") == 0);
}

static void numbers_do_not_follow_the_locale(void)
{
    char canonical[64];
    const bool have = setlocale(LC_NUMERIC, "de_DE.UTF-8") || setlocale(LC_NUMERIC, "de_DE.utf8");
    if (!have)
        printf("     (no German locale here: checked in the C locale only)\n");
    CHECK(pst_pipeline_check("decode | hflip(0.25)", canonical, sizeof canonical, NULL, NULL) == 0);
    CHECK(strcmp(canonical, "decode | hflip(0.25)") == 0);
    setlocale(LC_NUMERIC, "C");
}

/* ---- help and documentation ------------------------------------------------------------------ */

/* One row of the documentation's table from one line of help; words are listed with commas, since
 * bars divide cells. */
static void table_row(const char *op, char *line, char *out, size_t cap)
{
    char *cell[5];
    for (int i = 0; i < 5; i++) {
        cell[i] = line;
        line += strcspn(line, "\t");
        if (*line)
            *line++ = 0;
    }
    size_t at = (size_t)snprintf(out, cap, "| `%s` | `%s` | %s | ", op, cell[0], cell[1]);
    for (const char *c = cell[2]; *c && at + 3 < cap; c++)
        at += (size_t)snprintf(out + at, cap - at, *c == '|' ? ", " : "%c", *c);
    snprintf(out + at, cap - at, " | %s | %s |", cell[3], cell[4]);
}

/* Calls fn with every row of the table. */
static void each_row(void (*fn)(const char *row, void *user), void *user)
{
    const char *name, *summary;
    char params[4096], row[600];
    for (int i = 0; pst_op_help(i, &name, &summary, params, sizeof params) == 0; i++) {
        snprintf(row, sizeof row, "| **`%s`** | | | | | %s |", name, summary);
        fn(row, user);
        for (char *line = params; *line;) {
            char *end = line + strcspn(line, "\n");
            char *next = *end ? end + 1 : end;
            *end = 0;
            table_row(name, line, row, sizeof row);
            fn(row, user);
            line = next;
        }
    }
}

static void print_row(const char *row, void *user)
{
    (void)user;
    puts(row);
}

/* In the order that help tells them. */
static const char *const wanted[] = {"decode",
                                     "bytes",
                                     "resize",
                                     "center_crop",
                                     "random_resized_crop",
                                     "random_crop",
                                     "pad",
                                     "hflip",
                                     "vflip",
                                     "affine",
                                     "random_affine",
                                     "rotate",
                                     "random_rotation",
                                     "shear_x",
                                     "shear_y",
                                     "translate_x",
                                     "translate_y",
                                     "color_jitter",
                                     "grayscale",
                                     "random_grayscale",
                                     "gaussian_blur",
                                     "adjust_brightness",
                                     "adjust_contrast",
                                     "adjust_saturation",
                                     "adjust_hue",
                                     "adjust_sharpness",
                                     "random_adjust_sharpness",
                                     "posterize",
                                     "random_posterize",
                                     "solarize",
                                     "random_solarize",
                                     "autocontrast",
                                     "random_autocontrast",
                                     "equalize",
                                     "random_equalize",
                                     "invert",
                                     "random_invert",
                                     "auto_augment",
                                     "rand_augment",
                                     "trivial_augment_wide",
                                     "augmix",
                                     "random_erasing",
                                     "delay",
                                     "photometric_distort",
                                     "zoom_out",
                                     "iou_crop",
                                     "bgr",
                                     "spacing",
                                     "clip",
                                     "intensity",
                                     "pad_min",
                                     "balanced_crop",
                                     "center_crop3",
                                     "random_flip",
                                     "cast",
                                     "random_brightness",
                                     "gaussian_noise",
                                     "resample",
                                     "trim",
                                     "speed",
                                     "dither",
                                     "preemphasis",
                                     "log_mel",
                                     "feature_norm",
                                     "spec_augment",
                                     "stack",
                                     "call",
                                     "views",
                                     "normalize",
                                     "to",
                                     "mixup",
                                     "cutmix",
                                     "choice"};

static void help_covers_every_op(void)
{
    const char *name = NULL, *summary = NULL;
    char params[4096];
    int count = 0;
    for (; pst_op_help(count, &name, &summary, params, sizeof params) == 0; count++) {
        CHECK(count < (int)(sizeof wanted / sizeof *wanted) && strcmp(name, wanted[count]) == 0);
        CHECK(summary && summary[0]);
        int tabs = 0, lines = 0;
        for (const char *c = params; *c; c++) {
            tabs += *c == '\t';
            lines += *c == '\n';
        }
        CHECKF(tabs == 4 * lines, "%s", params);
    }
    CHECK(count == (int)(sizeof wanted / sizeof *wanted));
    CHECK(pst_op_help(-1, NULL, NULL, NULL, 0) == -ENOENT &&
          pst_op_help(count, NULL, NULL, NULL, 0) == -ENOENT);
    CHECK(pst_op_help(0, NULL, NULL, params, sizeof params) == 0);
    CHECK(strncmp(params, "color\tword\trgb|gray|keep\trgb\t", 29) == 0);
    CHECK(pst_op_help(2, NULL, NULL, params, 6) == 0 && strcmp(params, "size\t") == 0);
}

static void find_row(const char *row, void *user)
{
    CHECKF(strstr(user, row) != NULL, "docs/pipeline.md lacks: %s", row);
}

static void the_documentation_has_the_table(void)
{
    FILE *file = fopen(PIPELINE_DOC, "rb");
    CHECK(file != NULL);
    if (!file)
        return;
    char *text = calloc(1, 200000);
    CHECK(fread(text, 1, 199999, file) > 0);
    fclose(file);
    each_row(find_row, text);
    free(text);
}

static void nothing_is_left_behind(void)
{
    psti_mem_stats stats;
    psti_mem_stats_total(&stats);
    CHECKF(stats.live == 0, "%llu blocks", (unsigned long long)stats.live);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--table") == 0) {
        each_row(print_row, NULL);
        return 0;
    }
    RUN(good_texts_become_canonical);
    RUN(bad_texts_say_where_and_what);
    RUN(limits_hold);
    RUN(fingerprints_follow_the_meaning);
    RUN(a_form_knows_where_its_draws_come_from);
    RUN(the_fingerprint_is_frozen);
    RUN(canonical_text_is_cut_at_cap);
    RUN(numbers_do_not_follow_the_locale);
    RUN(help_covers_every_op);
    RUN(the_documentation_has_the_table);
    RUN(nothing_is_left_behind);
    return check_report();
}
