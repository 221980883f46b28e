/* SPDX-License-Identifier: Apache-2.0
 * Files cut at every byte, through the whole engine: twenty of each format in tar shards, one
 * worker. What the engine says and delivers by crop decode is what a full decode says and gives;
 * the list of bad samples names each cut that is bad and no other; the ten intact samples that the
 * same worker decodes next are what they always are; and nothing is left behind. */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "codec/codec.h"
#include "codec/make_webp.h"
#include "core/hash.h"
#include "core/memory.h"
#include "engine_kit.h"
#include "pipeline/carry.h"

enum { FILES = 20, INTACT = 10, COLS = 24, ROWS = 27, SEED = 5, EPOCHS = 2 };

static const char fixed_crop[] = "decode | center_crop((12, 9)) | normalize(imagenet)";
static const char drawn_crop[] = "decode | random_resized_crop(8) | hflip | normalize(imagenet)";
static const char as_stored[] = "decode"; /* arrays */
static const psti_plan_input image = {.name = "image", .kind = PST_IMAGE, .encoded = true};
static psti_kit kit;
static psti_work *work;

/* ---- a shard with every cut of one file ------------------------------------------------------ */

typedef struct shard {
    char *folder;
    const char *ending;
    made file;           /* cut n is its first n bytes */
    made intact[INTACT]; /* other files of the same format */
    pst_dataset *data;
    int64_t *id_of_cut; /* file.size of them */
    int64_t id_of_intact[INTACT];
} shard;

static void put_member(FILE *f, const char *name, const void *bytes, size_t size)
{
    static const char zeros[512];
    char head[512] = {0};
    unsigned sum = 8 * ' ';
    snprintf(head, 100, "%s", name);
    snprintf(head + 100, 8, "%07o", 0644);
    snprintf(head + 124, 12, "%011zo", size);
    snprintf(head + 136, 12, "%011o", 0);
    memcpy(head + 257, "ustar\00000", 8);
    head[156] = '0';
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)head[i];
    snprintf(head + 148, 8, "%06o", sum);
    head[155] = ' ';
    fwrite(head, 1, sizeof head, f);
    fwrite(bytes, 1, size, f);
    fwrite(zeros, 1, (512 - size % 512) % 512, f);
}

static void write_tar(const shard *s, const char *path)
{
    FILE *f = fopen(path, "wb");
    static const char end[1024];
    char name[64];
    for (size_t n = 0; n < s->file.size; n++) {
        snprintf(name, sizeof name, "cut_%06zu.%s", n, s->ending);
        put_member(f, name, s->file.bytes, n);
    }
    for (int i = 0; i < INTACT; i++) {
        snprintf(name, sizeof name, "whole_%d.%s", i, s->ending);
        put_member(f, name, s->intact[i].bytes, s->intact[i].size);
    }
    fwrite(end, 1, sizeof end, f);
    CHECK(fclose(f) == 0);
}

static bool find_ids(shard *s)
{
    size_t found = 0;
    s->id_of_cut = calloc(s->file.size, sizeof *s->id_of_cut);
    for (int64_t id = 0; id < pst_dataset_count(s->data); id++) {
        pst_sample_info info;
        size_t n;
        int i;
        pst_dataset_sample(s->data, id, &info);
        const char *name = strrchr(info.key, '/') ? strrchr(info.key, '/') + 1 : info.key;
        if (sscanf(name, "cut_%zu", &n) == 1 && n < s->file.size)
            s->id_of_cut[n] = id;
        else if (sscanf(name, "whole_%d", &i) == 1 && i >= 0 && i < INTACT)
            s->id_of_intact[i] = id;
        else
            continue;
        found++;
    }
    CHECKF(found == s->file.size + INTACT, "%zu of %zu samples", found, s->file.size + INTACT);
    return found == s->file.size + INTACT;
}

static bool shard_open(shard *s)
{
    char path[512];
    s->folder = kit_folder();
    snprintf(path, sizeof path, "%s/cuts.tar", s->folder);
    write_tar(s, path);
    s->data = kit_dataset(path);
    return find_ids(s);
}

static void shard_close(shard *s)
{
    pst_dataset_close(s->data);
    kit_remove(s->folder);
    free(s->id_of_cut);
    free(s->file.bytes);
    for (int i = 0; i < INTACT; i++)
        free(s->intact[i].bytes);
}

/* ---- what a full decode says ----------------------------------------------------------------- */

typedef struct verdict {
    int code;
    uint32_t crc;
} verdict;

static verdict full_decode(const psti_plan *plan, const uint8_t *bytes, size_t size, uint64_t epoch,
                           int64_t id)
{
    const psti_rng_key key = {.seed = SEED, .epoch = epoch, .id = (uint64_t)id};
    /* Its own allocation, so that a sanitizer sees a read past the end. */
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    const psti_input input = {copy, size, -1};
    verdict v = {0};
    v.code = psti_work_start(work, &kit, plan, &key, &input, NULL);
    while (v.code == 0 && (v.code = psti_work_step(work, &kit, NULL)) > 0)
        v.code = 0;
    if (v.code == 0) {
        int64_t shape[PST_MAX_RANK];
        const size_t out = psti_work_shape(work, 0, shape);
        uint8_t *data = malloc(out);
        psti_work_finish(work, &kit, 0, data);
        v.crc = pst_crc32c(0, data, out);
        free(data);
    }
    psti_work_clear(work, &kit, 0);
    free(copy);
    return v;
}

/* ---- the engine against it ------------------------------------------------------------------- */

static pst_job_options options(const char *pipeline, const int64_t *ids, int64_t count, int epochs)
{
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = pipeline;
    o.fields = strcmp(pipeline, as_stored) == 0 ? "npy=ragged" : NULL;
    o.batch = 32;
    o.seed = SEED;
    o.epochs = (uint64_t)epochs;
    o.sampler = PST_GIVEN;
    o.ids = ids;
    o.ids_count = count;
    o.on_error = PST_SKIP;
    o.skip_limit = count;
    return o;
}

static ledger deliver(shard *s, pst_engine *engine, const pst_job_options *o, const char *what)
{
    ledger l = {0};
    pst_job *job = kit_job(engine, s->data, o);
    const int rc = kit_collect(job, 0, o->epochs, SIZE_MAX, &l);
    pst_error err;
    pst_job_error(job, &err);
    CHECKF(rc == 0, "%s: %s", what, rc < 0 ? err.message : "");
    pst_job_close(job);
    return l;
}

/* The codes of bad samples by cut, 0 where none is listed; each is listed once at most. */
static int *bad_codes(const shard *s, const pst_engine *engine, const char *what)
{
    int *codes = calloc(s->file.size, sizeof *codes);
    for (size_t i = 0; i < pst_engine_bad_count(engine); i++) {
        pst_error err;
        size_t n = s->file.size;
        CHECK(pst_engine_bad_get(engine, i, &err) == 0);
        const char *name = strstr(err.key, "cut_");
        CHECKF(name && sscanf(name, "cut_%zu", &n) == 1 && n < s->file.size, "%s: %s is bad: %s",
               what, err.key, err.message);
        if (n >= s->file.size)
            continue;
        CHECKF(err.id == s->id_of_cut[n] && err.message[0] && strcmp(err.stage, "decode") == 0,
               "%s: cut %zu: %s", what, n, err.message);
        CHECKF(codes[n] == 0, "%s: cut %zu is listed twice", what, n);
        codes[n] = err.code;
    }
    return codes;
}

/* Each cut, then ten intact samples: in strict order the ledger shows what came after what. */
static void cuts_and_the_ten_after(shard *s, const char *pipeline, const psti_plan *full,
                                   const char *what)
{
    const size_t count = s->file.size * (INTACT + 1);
    int64_t *ids = malloc(count * sizeof *ids);
    for (size_t n = 0, at = 0; n < s->file.size; n++) {
        ids[at++] = s->id_of_cut[n];
        for (int i = 0; i < INTACT; i++)
            ids[at++] = s->id_of_intact[i];
    }
    pst_engine *engine = kit_engine(1, 64 << 20);
    const pst_job_options o = options(pipeline, ids, (int64_t)count, 1);
    ledger l = deliver(s, engine, &o, what);
    int *codes = bad_codes(s, engine, what);
    uint32_t crc[INTACT];
    for (int i = 0; full && i < INTACT; i++)
        crc[i] = full_decode(full, s->intact[i].bytes, s->intact[i].size, 0, 0).crc;
    for (int i = 0; !full && i < INTACT; i++)
        crc[i] = l.at[l.count - INTACT + (size_t)i].crc;
    size_t at = 0;
    for (size_t n = 0; n < s->file.size; n++) {
        const bool good = codes[n] == 0;
        if (full) {
            const verdict v = full_decode(full, s->file.bytes, n, 0, s->id_of_cut[n]);
            CHECKF(v.code == codes[n], "%s cut at %zu: %d by full decode, %d by the engine", what,
                   n, v.code, codes[n]);
            CHECKF(!good || (at < l.count && l.at[at].crc == v.crc), "%s cut at %zu: pixels", what,
                   n);
        }
        if (good && at < l.count)
            CHECKF(l.at[at++].id == s->id_of_cut[n], "%s cut at %zu is missing", what, n);
        for (int i = 0; i < INTACT && at < l.count; i++, at++)
            CHECKF(l.at[at].id == s->id_of_intact[i] && l.at[at].crc == crc[i],
                   "%s: intact %d after the cut at %zu", what, i, n);
    }
    CHECKF(at == l.count, "%s: %zu of %zu delivered samples", what, at, l.count);
    ledger_free(&l);
    free(codes);
    free(ids);
    pst_engine_free(engine);
}

/* Random crops over several epochs: from the second on, files without an end marker are judged by
 * what is remembered of them. */
static void cuts_by_drawn_crops(shard *s, const psti_plan *full, const char *what)
{
    pst_engine *engine = kit_engine(1, 64 << 20);
    pst_job_options o = options(drawn_crop, s->id_of_cut, (int64_t)s->file.size, EPOCHS);
    o.skip_limit *= EPOCHS;
    ledger l = deliver(s, engine, &o, what);
    int *codes = bad_codes(s, engine, what);
    size_t at = 0;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (size_t n = 0; n < s->file.size; n++) {
            const int64_t id = s->id_of_cut[n];
            const verdict v = full_decode(full, s->file.bytes, n, epoch, id);
            const bool came = at < l.count && l.at[at].id == id && l.at[at].epoch == epoch;
            CHECKF(came == (v.code == 0), "%s cut at %zu, epoch %d: %d by full decode, %s", what, n,
                   (int)epoch, v.code, came ? "delivered" : "skipped");
            CHECKF(came || codes[n] == v.code, "%s cut at %zu: listed as %d", what, n, codes[n]);
            CHECKF(!came || v.code || l.at[at].crc == v.crc, "%s cut at %zu: pixels", what, n);
            at += came;
        }
    CHECKF(at == l.count, "%s: %zu of %zu delivered samples", what, at, l.count);
    ledger_free(&l);
    free(codes);
    pst_engine_free(engine);
}

static void check_picture(shard *s, const char *what)
{
    psti_plan *fixed = plan_make(fixed_crop, &image, 1, true);
    psti_plan *drawn = plan_make(drawn_crop, &image, 1, true);
    CHECK(fixed && drawn);
    if (fixed && drawn && shard_open(s)) {
        cuts_and_the_ten_after(s, fixed_crop, fixed, what);
        cuts_by_drawn_crops(s, drawn, what);
    }
    shard_close(s);
    psti_plan_free(fixed);
    psti_plan_free(drawn);
}

/* ---- formats --------------------------------------------------------------------------------- */

static void jpegs_cut_at_every_byte(void)
{
    for (size_t f = 0; f < FILES; f++) {
        const jpeg_spec *spec = &jpeg_specs[f * JPEG_SPECS / FILES];
        shard s = {.ending = "jpg", .file = make_jpeg(spec, COLS, ROWS, f)};
        for (size_t i = 0; i < INTACT; i++)
            s.intact[i] = make_jpeg(&jpeg_specs[(f + i * 3) % JPEG_SPECS], COLS - 7, ROWS - 9, i);
        check_picture(&s, spec->name);
    }
}

static void pngs_cut_at_every_byte(void)
{
#ifdef PSTI_HAVE_PNG
    for (size_t f = 0; f < FILES; f++) {
        const png_spec *spec = &png_specs[f % PNG_SPECS];
        shard s = {.ending = "png", .file = make_png(spec, COLS, ROWS, f)};
        for (size_t i = 0; i < INTACT; i++)
            s.intact[i] = make_png(&png_specs[(f + i * 3) % PNG_SPECS], COLS - 7, ROWS - 9, i);
        check_picture(&s, spec->name);
    }
#else
    printf("built without PNG: left out\n");
#endif
}

static void webps_cut_at_every_byte(void)
{
#ifdef PSTI_HAVE_WEBP
    for (size_t f = 0; f < FILES; f++) {
        const webp_spec *spec = &webp_specs[f % WEBP_SPECS];
        shard s = {.ending = "webp", .file = make_webp(spec, COLS, ROWS, f)};
        for (size_t i = 0; i < INTACT; i++)
            s.intact[i] = make_webp(&webp_specs[(f + i * 3) % WEBP_SPECS], COLS - 7, ROWS - 9, i);
        check_picture(&s, spec->name);
    }
#else
    printf("built without WebP: left out\n");
#endif
}

static made make_npy(int dtype, int64_t rows, int64_t cols, uint64_t seed)
{
    const int64_t shape[] = {rows, cols};
    uint8_t head[256];
    const size_t at = psti_npy_header(dtype, 2, shape, head, sizeof head);
    const size_t data = (size_t)(rows * cols) * pst_dtype_bytes(dtype);
    made out = {malloc(at + data), at + data};
    memcpy(out.bytes, head, at);
    fill_pixels(out.bytes + at, data, (int)cols, 1, seed);
    return out;
}

/* An array is bad as long as one byte is missing. */
static void arrays_cut_at_every_byte(void)
{
    static const int dtypes[] = {PST_U8,  PST_I8,  PST_U16, PST_I16, PST_I32,
                                 PST_I64, PST_F16, PST_F32, PST_F64, PST_BOOL};
    for (size_t f = 0; f < FILES; f++) {
        const int dtype = dtypes[f % 10];
        shard s = {.ending = "npy", .file = make_npy(dtype, 3 + (int)f, 5, f)};
        char what[32];
        for (size_t i = 0; i < INTACT; i++)
            s.intact[i] = make_npy(dtype, 2 + (int)i, 5, i);
        snprintf(what, sizeof what, "npy of type %d", dtype);
        if (shard_open(&s)) {
            cuts_and_the_ten_after(&s, as_stored, NULL, what);
            pst_engine *engine = kit_engine(1, 64 << 20);
            const pst_job_options o = options(as_stored, s.id_of_cut, (int64_t)s.file.size, 1);
            ledger l = deliver(&s, engine, &o, what);
            CHECKF(l.count == 0 && pst_engine_bad_count(engine) == s.file.size, "%s: %zu of %zu",
                   what, pst_engine_bad_count(engine), s.file.size);
            ledger_free(&l);
            pst_engine_free(engine);
        }
        shard_close(&s);
    }
}

static void nothing_is_left_behind(void)
{
    psti_mem_stats stats;
    psti_mem_stats_total(&stats);
    CHECKF(stats.live == 0, "%llu blocks", (unsigned long long)stats.live);
}

int main(void)
{
    work = psti_work_new();
    if (!work || psti_kit_init(&kit) < 0)
        return 99;
    RUN(jpegs_cut_at_every_byte);
    RUN(pngs_cut_at_every_byte);
    RUN(webps_cut_at_every_byte);
    RUN(arrays_cut_at_every_byte);
    psti_work_free(work);
    psti_kit_fini(&kit);
    RUN(nothing_is_left_behind);
    return check_report();
}
