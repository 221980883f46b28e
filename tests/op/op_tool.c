/* SPDX-License-Identifier: Apache-2.0
 * One op or finish on a raw picture, for parity.py. Each request on standard input is a line
 *     op NAME KIND DTYPE ROWS COLS CHANNELS SEED [key=value …]
 *     finish PRESET DTYPE LAYOUT ROWS COLS CHANNELS
 *     erase PRESET DTYPE LAYOUT ROWS COLS CHANNELS SEED [key=value …]
 * followed by the picture's bytes; erase is finish with random_erasing behind it. The answer is a
 * line "rows cols channels act top left height width bytes" and what the op drew for itself, then
 * the bytes; or a line starting with "error". */
#include <stdio.h>

#include "op_args.h"

enum { WORDS = 16 };

typedef struct request {
    char line[1024];
    char *words[WORDS];
    int count;
} request;

static bool read_request(request *r)
{
    r->count = 0;
    if (!fgets(r->line, sizeof r->line, stdin))
        return false;
    char *state = NULL;
    for (char *word = strtok_r(r->line, " \n", &state); word && r->count < WORDS;
         word = strtok_r(NULL, " \n", &state))
        r->words[r->count++] = word;
    return r->count > 0;
}

static psti_field field_new(int kind, int dtype, int64_t rows, int64_t cols, int64_t channels)
{
    psti_field f = {
        .kind = (uint8_t)kind, .dtype = (uint8_t)dtype, .rank = 3, .shape = {rows, cols, channels}};
    f.stride = (size_t)(cols * channels) * psti_dtype_bytes(dtype);
    f.bytes = f.stride * (size_t)rows;
    f.data = calloc(f.bytes + 64, 1);
    f.whole_rows = rows;
    f.whole_cols = cols;
    f.first_damaged_row = PSTI_ROWS_SOUND;
    return f;
}

static bool read_field(psti_field *f)
{
    return fread(f->data, 1, f->bytes, stdin) == f->bytes;
}

static void answer(const psti_draw *draw, const psti_geom *size, const void *bytes, size_t count)
{
    printf("%lld %lld %lld %d %lld %lld %lld %lld %zu", (long long)size->rows,
           (long long)size->cols, (long long)size->channels, draw->act, (long long)draw->top,
           (long long)draw->left, (long long)draw->rows, (long long)draw->cols, count);
    for (size_t i = 0; i < sizeof draw->v / sizeof *draw->v; i++)
        printf(" %.17g", draw->v[i]);
    for (int i = 0; i < draw->pick_count; i++)
        printf(" %d:%d:%.17g", draw->picks[i].change, draw->picks[i].chain,
               (double)draw->picks[i].magnitude);
    printf("\n");
    fwrite(bytes, 1, count, stdout);
}

static int run_op(const request *r)
{
    const psti_op *op = psti_op_find(r->words[1], strlen(r->words[1]));
    const int kind = strcmp(r->words[2], "mask") == 0 ? PST_MASK : PST_IMAGE;
    const int dtype = psti_dtype_of_name(r->words[3], strlen(r->words[3]));
    psti_field in =
        field_new(kind, dtype, atoll(r->words[4]), atoll(r->words[5]), atoll(r->words[6]));
    _Alignas(16) uint8_t params[1024];
    if (!op || !read_field(&in) ||
        !args_parse(op, params, (const char *const *)r->words + 8, r->count - 8))
        return 1;
    psti_rng rng;
    psti_rng_init(&rng, &(psti_rng_key){.seed = strtoull(r->words[7], NULL, 10)}, 1);
    psti_draw draw;
    psti_geom out;
    pst_error err;
    psti_op_ctx ctx = {0};
    const psti_geom size = {in.shape[0], in.shape[1], in.shape[2]};
    int rc = op->check ? op->check(params, &err) : 0;
    if (rc == 0)
        rc = op->decide(params, &rng, &size, &draw, &out, &err);
    psti_field result = {0};
    if (rc == 0) {
        result = field_new(kind, dtype, out.rows, out.cols, out.channels);
        rc = draw.act ? op->run(params, &draw, &ctx, &in, &result, &err) : 0;
    }
    if (rc < 0)
        printf("error %d %s\n", rc, err.message);
    else
        answer(&draw, &out, draw.act ? result.data : in.data, draw.act ? result.bytes : in.bytes);
    psti_op_ctx_fini(&ctx);
    free(in.data);
    free(result.data);
    return 0;
}

/* random_erasing over what finish wrote. */
static bool erase(const request *r, const psti_finish *finish, const psti_field *in,
                  psti_draw *draw, uint8_t *dst)
{
    const psti_op *op = psti_op_find("random_erasing", 14);
    const psti_geom size = {in->shape[0], in->shape[1], in->shape[2]};
    _Alignas(16) uint8_t params[1024];
    psti_geom out;
    psti_rng rng;
    pst_error err;
    if (r->count < 8 || !args_parse(op, params, (const char *const *)r->words + 8, r->count - 8))
        return false;
    psti_rng_init(&rng, &(psti_rng_key){.seed = strtoull(r->words[7], NULL, 10)}, 1);
    if (op->decide(params, &rng, &size, draw, &out, &err) < 0)
        return false;
    if (draw->act)
        op->overlay(params, draw, finish, in, dst);
    return true;
}

static int run_finish(const request *r)
{
    psti_finish finish = {.dtype = psti_dtype_of_name(r->words[2], strlen(r->words[2])),
                          .layout = strcmp(r->words[3], "nchw") == 0 ? PST_NCHW : PST_NHWC,
                          .channels = atoi(r->words[6])};
    psti_field in =
        field_new(PST_IMAGE, PST_U8, atoll(r->words[4]), atoll(r->words[5]), atoll(r->words[6]));
    psti_normalize_params params = {0};
    while (psti_normalize_table[0].words[params.preset] &&
           strcmp(psti_normalize_table[0].words[params.preset], r->words[1]) != 0)
        params.preset++;
    psti_list mean = {0}, std = {0};
    pst_error err;
    finish.normalize = params.preset > 0;
    if (!read_field(&in) ||
        (finish.normalize && psti_normalize_values(&params, &mean, &std, &err) < 0))
        return 1;
    for (int c = 0; c < 4; c++) {
        finish.mean[c] = mean.v[c < mean.count ? c : 0];
        finish.std[c] = std.v[c < std.count ? c : 0];
    }
    psti_finish_init(&finish);
    const psti_geom size = {in.shape[0], in.shape[1], in.shape[2]};
    const size_t bytes = in.bytes * psti_dtype_bytes(finish.dtype);
    uint8_t *dst = malloc(bytes);
    psti_draw draw = {.act = true};
    psti_finish_write(&finish, &in, dst);
    if (strcmp(r->words[0], "erase") == 0 && !erase(r, &finish, &in, &draw, dst))
        return 1;
    answer(&draw, &size, dst, bytes);
    free(dst);
    free(in.data);
    return 0;
}

int main(void)
{
    request r;
    while (read_request(&r)) {
        const bool op = strcmp(r.words[0], "op") == 0;
        if (r.count < (op ? 8 : 7) || (op ? run_op(&r) : run_finish(&r)) != 0) {
            fprintf(stderr, "op_tool: bad request\n");
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}
