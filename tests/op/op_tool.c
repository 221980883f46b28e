/* SPDX-License-Identifier: Apache-2.0
 * One op or finish on a raw picture, for parity.py. Each request on standard input is a line
 *     op NAME KIND DTYPE ROWS COLS CHANNELS SEED [key=value …]
 *     finish PRESET DTYPE LAYOUT ROWS COLS CHANNELS
 *     erase PRESET DTYPE LAYOUT ROWS COLS CHANNELS SEED [key=value …]
 * followed by the picture's bytes; erase is finish with random_erasing behind it. The answer is a
 * line "rows cols channels act top left height width bytes" and what the op drew for itself, then
 * the bytes; or a line starting with "error".
 *
 *     field NAME KIND AXES DTYPE DEPTH ROWS COLS CHANNELS UNITS HOW SEED [key=value …]
 * is an op on a picture, volume, wave or frames (AXES), whose elements follow without gaps. UNITS
 * are three numbers between commas. HOW: plain; inplace, where the op can; view: a volume that lies
 * mirrored and with gaps in memory, and is shown as it is. The answer is a line "axes dtype depth
 * rows cols channels act front top left planes height width bytes", units and what the op drew,
 * then the bytes without gaps. */
#include <stdio.h>

#include "op_args.h"

enum { WORDS = 32 };

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

/* ---- any axes -------------------------------------------------------------------------------- */

static const char *const axes_words[] = {"picture", "volume", "wave", "frames"};

static psti_geom read_size(const request *r)
{
    psti_geom size = {.rows = atoll(r->words[6]),
                      .cols = atoll(r->words[7]),
                      .channels = atoll(r->words[8]),
                      .depth = atoll(r->words[5]),
                      .dtype = psti_dtype_of_name(r->words[4], strlen(r->words[4]))};
    while (size.axes < PSTI_AXES_FRAMES && strcmp(axes_words[size.axes], r->words[3]) != 0)
        size.axes++;
    char *at = r->words[9];
    for (int i = 0; i < 3; i++) {
        size.unit[i] = strtod(at, &at);
        at += *at == ',';
    }
    return size;
}

static psti_field new_of(int kind, const psti_geom *size)
{
    psti_field f = psti_field_of(kind, size);
    f.data = calloc(f.bytes + 64, 1);
    return f;
}

/* The same volume as a view of memory in which it lies mirrored along planes, rows and columns,
 * with something between one row and the next. */
static psti_field as_view(const psti_field *in, uint8_t **memory)
{
    const size_t element = psti_dtype_bytes(in->dtype);
    psti_field view = *in;
    const ptrdiff_t row = (ptrdiff_t)((size_t)in->shape[3] * element + 3 * element);
    const ptrdiff_t steps[4] = {row * in->shape[2] * in->shape[1], row * in->shape[2], row,
                                (ptrdiff_t)element};
    *memory = malloc((size_t)(steps[0] * in->shape[0]) + 64);
    memset(*memory, 0x7A, (size_t)(steps[0] * in->shape[0]) + 64);
    view.data = *memory;
    for (int d = 0; d < 4; d++) {
        view.step[d] = d ? -steps[d] : steps[d];
        view.data += d ? (in->shape[d] - 1) * steps[d] : 0;
    }
    const uint8_t *from = in->data;
    for (int64_t c = 0; c < in->shape[0]; c++)
        for (int64_t z = 0; z < in->shape[1]; z++)
            for (int64_t y = 0; y < in->shape[2]; y++)
                for (int64_t x = 0; x < in->shape[3]; x++, from += element)
                    memcpy(view.data + c * view.step[0] + z * view.step[1] + y * view.step[2] +
                               x * view.step[3],
                           from, element);
    return view;
}

static void answer_field(const psti_draw *draw, const psti_geom *size, const psti_field *f)
{
    psti_field dense = *f;
    psti_field_pack(&dense);
    dense.data = malloc(dense.bytes + 1);
    psti_field_copy(f, &dense);
    printf("%s %s %lld %lld %lld %lld %d", axes_words[size->axes], psti_dtype_name(size->dtype),
           (long long)size->depth, (long long)size->rows, (long long)size->cols,
           (long long)size->channels, draw->act);
    printf(" %lld %lld %lld %lld %lld %lld %zu", (long long)draw->front, (long long)draw->top,
           (long long)draw->left, (long long)draw->planes, (long long)draw->rows,
           (long long)draw->cols, dense.bytes);
    for (int i = 0; i < 3; i++)
        printf(" %.17g", size->unit[i]);
    for (size_t i = 0; i < sizeof draw->v / sizeof *draw->v; i++)
        printf(" %.17g", draw->v[i]);
    printf("\n");
    fwrite(dense.data, 1, dense.bytes, stdout);
    free(dense.data);
}

/* As the pipeline runs it: views in the field itself, in place where that was asked for and fits,
 * in as many parts as there are. */
static int carry_out(const psti_op *op, const void *params, const psti_draw *draw,
                     const psti_geom *size, const psti_field *in, bool in_place, psti_geom *out,
                     psti_field *result, pst_error *err)
{
    psti_op_ctx ctx = {0};
    psti_geom same = *out;
    memcpy(same.unit, size->unit, sizeof same.unit);
    in_place = in_place && op->flags & PSTI_OP_INPLACE && memcmp(&same, size, sizeof same) == 0;
    uint8_t *memory = NULL;
    if (op->flags & PSTI_OP_VIEWS || in_place) {
        *result = *in;
    } else {
        *result = new_of(in->kind, out);
        memory = result->data;
    }
    int rc = 0;
    for (int part = op->parts ? op->parts(params) : 1; part > 0 && rc == 0; part--)
        rc = op->run(params, draw, &ctx, in, result, err);
    if (op->flags & PSTI_OP_OPEN) {
        out->rows = result->shape[0];
        out->cols = result->shape[1];
    }
    if (rc == 0)
        answer_field(draw, out, result);
    free(memory);
    psti_op_ctx_fini(&ctx);
    return rc;
}

static int run_field(const request *r)
{
    const psti_op *op = psti_op_find(r->words[1], strlen(r->words[1]));
    const int kind = strcmp(r->words[2], "mask") == 0     ? PST_MASK
                     : strcmp(r->words[2], "volume") == 0 ? PST_VOLUME
                     : strcmp(r->words[2], "audio") == 0  ? PST_AUDIO
                                                          : PST_IMAGE;
    const psti_geom size = read_size(r);
    psti_field in = new_of(kind, &size), seen = in, result;
    uint8_t *memory = NULL;
    _Alignas(16) uint8_t params[1024];
    if (!op || !read_field(&in) ||
        !args_parse(op, params, (const char *const *)r->words + 12, r->count - 12))
        return 1;
    if (op->variant && op->variant(params))
        op = op->variant(params);
    if (strcmp(r->words[10], "view") == 0 && size.axes == PSTI_AXES_VOLUME)
        seen = as_view(&in, &memory);
    psti_rng rng;
    psti_rng_init(&rng, &(psti_rng_key){.seed = strtoull(r->words[11], NULL, 10)}, 1);
    psti_draw draw = {.act = true};
    psti_geom out = size;
    pst_error err = {0};
    int rc = op->check ? op->check(params, &err) : 0;
    if (rc == 0)
        rc = op->decide(params, &rng, &size, &draw, &out, &err);
    if (rc == 0 && !draw.act) {
        answer_field(&draw, &size, &seen);
    } else if (rc == 0) {
        psti_geom_keep(op, &size, &out);
        out.dtype = kind == PST_MASK ? size.dtype : out.dtype;
        rc = carry_out(op, params, &draw, &size, &seen, strcmp(r->words[10], "inplace") == 0, &out,
                       &result, &err);
    }
    if (rc < 0)
        printf("error %d %s\n", rc, err.message);
    free(memory);
    free(in.data);
    return 0;
}

/* random_erasing over what finish wrote. */
static bool erase(const request *r, const psti_finish *finish, const psti_field *in,
                  psti_draw *draw, const psti_pitch *pitch, uint8_t *dst)
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
        op->overlay(params, draw, finish, in, pitch, dst);
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
    const psti_pitch pitch = psti_pitch_of(&finish, &in, NULL);
    psti_finish_write(&finish, &in, &pitch, dst);
    if (strcmp(r->words[0], "erase") == 0 && !erase(r, &finish, &in, &draw, &pitch, dst))
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
        const bool op = strcmp(r.words[0], "op") == 0, field = strcmp(r.words[0], "field") == 0;
        const int least = field ? 12 : op ? 8 : 7;
        if (r.count < least || (field ? run_field(&r) : op ? run_op(&r) : run_finish(&r)) != 0) {
            fprintf(stderr, "op_tool: bad request\n");
            return 2;
        }
        fflush(stdout);
    }
    return 0;
}
