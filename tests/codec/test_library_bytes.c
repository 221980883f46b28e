/* SPDX-License-Identifier: Apache-2.0
 * What decoding takes from the heap, libraries included: never more than need said, all given back
 * at end, and every single failed allocation inside a library ends in -ENOMEM. The program's own
 * malloc stands before the C library's, so it sees what shared libraries take; sanitizers want that
 * place for themselves, hence the test does nothing under them. */
#include <errno.h>
#include <malloc.h>

#include "codec/make_audio.h"
#include "codec/make_volumes.h"
#include "codec/make_webp.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    printf("skip: a sanitizer has taken malloc's place\n");
    return 77;
}
#else

#include "check.h"

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t bytes);
void __libc_free(void *memory);

static size_t live, peak, fail_in; /* one thread: no locks */
static bool fail_on, failed;       /* all later allocations fail too; one did */

static bool must_fail(void)
{
    if (fail_in == 0 || --fail_in > 0)
        return false;
    fail_in = fail_on;
    failed = true;
    return true;
}

static void *note(void *memory)
{
    live += memory ? malloc_usable_size(memory) : 0;
    peak = live > peak ? live : peak;
    return memory;
}

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    return must_fail() ? NULL : note(__libc_malloc(bytes));
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : note(__libc_calloc(count, size));
}

__attribute__((visibility("default"))) void *realloc(void *old, size_t bytes)
{
    if (must_fail())
        return NULL;
    live -= old ? malloc_usable_size(old) : 0;
    return note(__libc_realloc(old, bytes));
}

__attribute__((visibility("default"))) void free(void *memory)
{
    live -= memory ? malloc_usable_size(memory) : 0;
    __libc_free(memory);
}

/* An estimate that is far off would waste the budget: so many times, and a quarter of a megabyte.
 * What a palette saves does not stand in a WebP's header. */
enum { WASTE = 4, WEBP_WASTE = 9 };

static const psti_window small = {5, 3, 9, 11};

/* Decodes with a new decoder and holds the heap's peak against what need said. */
static void check_bound(const char *name, const made *file, const psti_decode_options *opts,
                        const psti_window *window, size_t waste)
{
    psti_decoder *dec = psti_decoder_new();
    psti_picture pic;
    psti_decode_need need;
    psti_field field;
    const size_t before = live;
    CHECKF(psti_decoder_begin(dec, file->bytes, file->size, opts, &pic, NULL) == 0, "%s", name);
    CHECK(psti_decoder_need(dec, window, &need, NULL) == 0);
    uint8_t *dst = malloc(need.out_bytes);
    const size_t with_dst = malloc_usable_size(dst);
    peak = live;
    CHECK(psti_decoder_run(dec, &need, -1, dst, &field, NULL) == 0);
    const size_t taken = peak - before - with_dst;
    CHECKF(taken <= need.library_bytes, "%s %lldx%lld: %zu bytes taken, %zu said", name,
           (long long)pic.cols, (long long)pic.rows, taken, need.library_bytes);
    CHECKF(need.library_bytes <= waste * taken + (256u << 10),
           "%s %lldx%lld: %zu bytes taken, %zu said", name, (long long)pic.cols,
           (long long)pic.rows, taken, need.library_bytes);
    free(dst);
    psti_decoder_end(dec);
    psti_decoder_free(dec);
}

static const int sizes[][2] = {{40, 40}, {500, 375}, {3000, 64}, {64, 3000}, {900, 700}};

static void jpeg_takes_no_more_than_it_says(void)
{
    const psti_decode_options opts = plain_options();
    for (size_t s = 0; s < 5; s++)
        for (size_t i = 0; i < JPEG_SPECS; i++) {
            made file = make_jpeg(&jpeg_specs[i], sizes[s][0], sizes[s][1], i);
            check_bound(jpeg_specs[i].name, &file, &opts, NULL, WASTE);
            check_bound(jpeg_specs[i].name, &file, &opts, &small, WASTE);
            free(file.bytes);
        }
}

static void png_takes_no_more_than_it_says(void)
{
#ifdef PSTI_HAVE_PNG
    psti_decode_options opts = plain_options();
    for (size_t s = 0; s < 5; s++)
        for (size_t i = 0; i < PNG_SPECS; i++) {
            made file = make_png(&png_specs[i], sizes[s][0], sizes[s][1], i);
            for (opts.color = PSTI_COLOR_RGB; opts.color <= PSTI_COLOR_KEEP; opts.color++)
                check_bound(png_specs[i].name, &file, &opts, NULL, WASTE);
            free(file.bytes);
        }
#else
    printf("skip: built without PNG\n");
#endif
}

static void webp_takes_no_more_than_it_says(void)
{
#ifdef PSTI_HAVE_WEBP
    psti_decode_options opts = plain_options();
    for (size_t s = 0; s < 4; s++) /* the largest takes its encoder half a minute */
        for (size_t i = 0; i < WEBP_SPECS; i++) {
            made file = make_webp(&webp_specs[i], sizes[s][0], sizes[s][1], i);
            for (opts.color = PSTI_COLOR_RGB; opts.color <= PSTI_COLOR_KEEP; opts.color++)
                check_bound(webp_specs[i].name, &file, &opts, NULL, WEBP_WASTE);
            free(file.bytes);
        }
#else
    printf("skip: built without WebP\n");
#endif
}

static void flac_takes_no_more_than_it_says(void)
{
#ifdef PSTI_HAVE_FLAC
    static const int blocks[] = {64, 4096, 40000};
    psti_decode_options opts = wave_options(PSTI_COLOR_KEEP);
    for (size_t b = 0; b < 3; b++)
        for (size_t i = 0; i < FLAC_SPECS; i++) {
            flac_spec spec = flac_specs[i];
            spec.block = blocks[b];
            made file = make_flac(&spec, 90000, i);
            if (file.bytes)
                check_bound(spec.name, &file, &opts, NULL, WASTE);
            free(file.bytes);
        }
#else
    printf("skip: built without FLAC\n");
#endif
}

typedef struct torture {
    const char *name;
    psti_decode_options opts;
    const made *file;
    const psti_window *window;
    psti_decoder *dec;
    decoded wanted;
    uint8_t *dst;
} torture;

static int decode_failing(const torture *t, size_t n)
{
    psti_picture pic;
    psti_decode_need need;
    psti_field field;
    failed = false;
    fail_in = n;
    int rc = psti_decoder_begin(t->dec, t->file->bytes, t->file->size, &t->opts, &pic, NULL);
    if (rc == 0)
        rc = psti_decoder_need(t->dec, t->window, &need, NULL);
    if (rc == 0)
        rc = psti_decoder_run(t->dec, &need, -1, t->dst, &field, NULL);
    psti_decoder_end(t->dec);
    fail_in = 0;
    return rc;
}

/* True as long as there was an n-th allocation to fail. libjpeg tries again with less when one
 * fails, so a single failure need not be an error; the pixels are right then. */
static bool fail_at(const torture *t, size_t n)
{
    const size_t before = live;
    const int rc = decode_failing(t, n);
    const char *name = t->name;
    CHECKF(rc == 0 || (failed && rc == -ENOMEM), "%s: allocation %zu gives %d", name, n, rc);
    CHECKF(rc < 0 || !failed || !fail_on, "%s: allocation %zu was not missed", name, n);
    CHECKF(live == before, "%s: allocation %zu leaves %zd bytes", name, n,
           (ssize_t)(live - before));
    CHECKF(rc < 0 || memcmp(t->dst, t->wanted.field.data, t->wanted.field.bytes) == 0, "%s", name);
    const bool was = failed;
    decoded next = decode_with(t->dec, t->file->bytes, t->file->size, &t->opts, t->window, -1);
    CHECKF(next.rc == 0 &&
               memcmp(next.field.data, t->wanted.field.data, t->wanted.field.bytes) == 0,
           "%s", name);
    decoded_free(&next);
    return was;
}

/* Makes the n-th allocation of a decode fail, for every n, with the same decoder; then all from the
 * n-th on. */
static void fail_each_with(const char *name, const made *file, psti_decode_options opts,
                           const psti_window *window)
{
    torture t = {name, opts, file, window, .dec = psti_decoder_new()};
    t.wanted = decode_with(t.dec, file->bytes, file->size, &opts, window, -1);
    CHECKF(t.wanted.rc == 0, "%s", name);
    t.dst = malloc(t.wanted.field.bytes);
    for (int persistent = 0; persistent < 2; persistent++) {
        fail_on = persistent;
        size_t n = 1;
        while (n < 1000 && fail_at(&t, n))
            n++;
        CHECKF(n > 2 && n < 1000, "%s: %zu allocations", name, n);
    }
    free(t.dst);
    decoded_free(&t.wanted);
    psti_decoder_free(t.dec);
}

static void fail_each(const char *name, const made *file, const psti_window *window)
{
    fail_each_with(name, file, plain_options(), window);
}

static void a_failed_allocation_in_a_library_is_an_error(void)
{
    for (size_t i = 0; i < JPEG_SPECS; i++) {
        made file = make_jpeg(&jpeg_specs[i], 60, 40, i);
        fail_each(jpeg_specs[i].name, &file, NULL);
        fail_each(jpeg_specs[i].name, &file, &small);
        free(file.bytes);
    }
#ifdef PSTI_HAVE_PNG
    for (size_t i = 0; i < PNG_SPECS; i++) {
        made file = make_png(&png_specs[i], 60, 40, i);
        fail_each(png_specs[i].name, &file, NULL);
        free(file.bytes);
    }
#endif
#ifdef PSTI_HAVE_WEBP
    for (size_t i = 0; i < WEBP_SPECS; i++) {
        /* libwebp 1.2.4 follows a bad pointer when a table of its lossless decoder is refused, and
         * alpha is such a picture. */
        if (webp_specs[i].lossless || (webp_specs[i].alpha && !webp_specs[i].raw_alpha))
            continue;
        made file = make_webp(&webp_specs[i], 60, 40, i);
        fail_each(webp_specs[i].name, &file, NULL);
        free(file.bytes);
    }
#endif
#ifdef PSTI_HAVE_FLAC
    for (size_t i = 0; i < FLAC_SPECS; i++) {
        made file = make_flac(&flac_specs[i], 700, i);
        if (file.bytes)
            fail_each_with(flac_specs[i].name, &file, wave_options(PSTI_COLOR_KEEP), NULL);
        free(file.bytes);
    }
#endif
}

#ifdef PSTI_HAVE_GZIP
static made packed_nifti(int64_t side)
{
    const nifti_spec s = {
        .version = 1, .type = &elements[3], .rank = 3, .dim = {side, side, side, 1, 1, 1, 1}};
    made file = make_nifti(&s), out = packed(file.bytes, file.size, true);
    free(file.bytes);
    return out;
}

static made packed_npz(int64_t side)
{
    const int64_t shape[] = {side, side, side};
    zip_file one = {"image.npy", make_npy(">", &elements[3], false, 3, shape), true, false};
    made file = make_zip(&one, 1, false, "");
    free(one.content.bytes);
    return file;
}

/* Every allocation of a decode made to fail in turn. */
static void fail_volume(const char *name, const made *file)
{
    const psti_decode_options opts = volume_options(PST_VOLUME);
    psti_decoder *dec = psti_decoder_new();
    size_t n = 1;
    for (failed = true; n < 100 && failed; n++) {
        psti_picture pic;
        psti_decode_need need = {0};
        psti_field field;
        uint8_t *dst = malloc(1 << 20);
        const size_t before = live;
        failed = false;
        fail_in = n;
        int rc = psti_decoder_begin(dec, file->bytes, file->size, &opts, &pic, NULL);
        if (rc == 0)
            rc = psti_decoder_need(dec, NULL, &need, NULL);
        if (rc == 0)
            rc = psti_decoder_run(dec, &need, -1, dst, &field, NULL);
        psti_decoder_end(dec);
        fail_in = 0;
        CHECKF(rc == 0 || (failed && rc == -ENOMEM), "%s: allocation %zu gives %d", name, n, rc);
        CHECKF(live == before, "%s: allocation %zu leaves memory behind", name, n);
        free(dst);
    }
    CHECKF(n > 3 && n < 100, "%s: %zu allocations", name, n);
    psti_decoder_free(dec);
}
#endif

static void packed_volumes_take_no_more_than_they_say(void)
{
#ifdef PSTI_HAVE_GZIP
    const psti_decode_options opts = volume_options(PST_VOLUME);
    static const int64_t sides[] = {5, 40, 100};
    fail_on = false;
    for (int i = 0; i < 3; i++) {
        made nifti = packed_nifti(sides[i]), npz = packed_npz(sides[i]);
        check_bound("nifti", &nifti, &opts, NULL, WASTE);
        check_bound("npz", &npz, &opts, NULL, WASTE);
        if (i == 1) {
            fail_volume("nifti", &nifti);
            fail_volume("npz", &npz);
        }
        free(nifti.bytes);
        free(npz.bytes);
    }
#else
    printf("skip: built without zlib\n");
#endif
}

/* Our own allocations in the steady state: none. */
static void decoding_takes_nothing_of_our_own(void)
{
    made file = make_jpeg(&jpeg_specs[5], 300, 200, 1);
    psti_decoder *dec = psti_decoder_new();
    decoded first = decode_all(dec, file.bytes, file.size);
    decoded_free(&first);
    psti_mem_stats before, after;
    psti_mem_stats_get(PSTI_MEM_CODEC, &before);
    for (int i = 0; i < 20; i++) {
        decoded d = decode_all(dec, file.bytes, file.size);
        decoded_free(&d);
    }
    psti_mem_stats_get(PSTI_MEM_CODEC, &after);
    CHECK(before.allocs == after.allocs);
    psti_decoder_free(dec);
    psti_mem_stats_get(PSTI_MEM_CODEC, &after);
    CHECK(after.live == 0 && after.live_bytes == 0);
    free(file.bytes);
}

int main(void)
{
    RUN(jpeg_takes_no_more_than_it_says);
    RUN(png_takes_no_more_than_it_says);
    RUN(webp_takes_no_more_than_it_says);
    RUN(flac_takes_no_more_than_it_says);
    RUN(a_failed_allocation_in_a_library_is_an_error);
    RUN(packed_volumes_take_no_more_than_they_say);
    RUN(decoding_takes_nothing_of_our_own);
    return check_report();
}
#endif
