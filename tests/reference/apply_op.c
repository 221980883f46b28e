/* SPDX-License-Identifier: Apache-2.0
 * Applies one op to one picture with everything decided beforehand, for comparing with other
 * libraries.
 *
 *   apply_op OP ROWS COLS CHANNELS image|mask [NAME=V[,V...]] [window=TOP,LEFT,ROWS,COLS] <pixels
 * >pixels
 *
 * Pixels are packed u8. Parameters that are not given have their defaults. With a window a random
 * op takes that one; otherwise its own generator decides (seed 0). The result's "rows cols" goes to
 * standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"

static const psti_op *op;
static _Alignas(16) uint8_t params[4096];

static void die(const char *what, const char *detail)
{
    fprintf(stderr, "apply_op: %s: %s\n", what, detail);
    exit(1);
}

static psti_list numbers(const char *text)
{
    psti_list list = {0};
    text += strspn(text, "( ");
    while (*text && *text != ')' && list.count < PSTI_LIST_MAX) {
        char *end = NULL;
        list.v[list.count++] = strtod(text, &end);
        if (end == text)
            die("not a number", text);
        text = end + strspn(end, ", ");
    }
    return list;
}

static int word(const psti_param *param, const char *text)
{
    for (int i = 0; param->words[i]; i++) {
        if (strcmp(param->words[i], text) == 0)
            return i;
    }
    die("no such word", text);
    return 0;
}

static void set(const psti_param *param, const char *text)
{
    uint8_t *at = params + param->offset;
    const psti_list list =
        param->type == PSTI_P_WORD || param->type == PSTI_P_BOOL ? (psti_list){0} : numbers(text);
    const int64_t whole = (int64_t)list.v[0];
    const bool yes = strcmp(text, "true") == 0;
    const int index = param->type == PSTI_P_WORD ? word(param, text) : 0;
    switch (param->type) {
    case PSTI_P_INT:
        memcpy(at, &whole, sizeof whole);
        break;
    case PSTI_P_FLOAT:
        memcpy(at, &list.v[0], sizeof list.v[0]);
        break;
    case PSTI_P_BOOL:
        memcpy(at, &yes, sizeof yes);
        break;
    case PSTI_P_WORD:
        memcpy(at, &index, sizeof index);
        break;
    case PSTI_P_LIST:
        memcpy(at, &list, sizeof list);
        break;
    case PSTI_P_NAME: /* only the caller's functions have names, and they are no ops of the table */
        break;
    }
}

static const psti_param *find(const char *name, size_t length)
{
    for (const psti_param *param = op->params; param && param->name; param++) {
        if (strlen(param->name) == length && memcmp(param->name, name, length) == 0)
            return param;
    }
    die("no such parameter", name);
    return NULL;
}

/* Defaults, then what the command line says. The window, if any, comes back as four numbers. */
static psti_list read_params(int count, char **texts)
{
    psti_list window = {0};
    if (op->params_bytes > sizeof params)
        die("too many parameters", op->name);
    for (const psti_param *param = op->params; param && param->name; param++) {
        if (param->def)
            set(param, param->def);
    }
    for (int i = 0; i < count; i++) {
        const char *value = strchr(texts[i], '=');
        if (!value)
            die("NAME=VALUE is wanted", texts[i]);
        if (strncmp(texts[i], "window=", 7) == 0)
            window = numbers(value + 1);
        else
            set(find(texts[i], (size_t)(value - texts[i])), value + 1);
    }
    return window;
}

static psti_field picture(const psti_geom *size, int kind)
{
    psti_field field = {.kind = (uint8_t)kind,
                        .dtype = PST_U8,
                        .rank = 3,
                        .shape = {size->rows, size->cols, size->channels},
                        .whole_rows = size->rows,
                        .whole_cols = size->cols,
                        .first_damaged_row = PSTI_ROWS_SOUND};
    field.stride = (size_t)(size->cols * size->channels);
    field.bytes = field.stride * (size_t)size->rows;
    field.data = calloc(1, field.bytes + 64);
    if (!field.data)
        die("out of memory", op->name);
    return field;
}

static void run(const psti_geom *size, int kind, const psti_list *window)
{
    pst_error err = {0};
    psti_rng rng;
    psti_rng_init(&rng, &(psti_rng_key){0}, 1);
    psti_draw draw;
    psti_geom result;
    if (op->decide(params, &rng, size, &draw, &result, &err) < 0)
        die("decide", err.message);
    if (window->count == 4) {
        draw.top = (int64_t)window->v[0];
        draw.left = (int64_t)window->v[1];
        draw.rows = (int64_t)window->v[2];
        draw.cols = (int64_t)window->v[3];
    }
    psti_op_ctx ctx = {0};
    psti_field in = picture(size, kind), out = picture(&result, kind);
    if (fread(in.data, 1, in.bytes, stdin) != in.bytes)
        die("too few pixels", "standard input");
    if (!draw.act)
        memcpy(out.data, in.data, in.bytes);
    else if (op->run(params, &draw, &ctx, &in, &out, &err) < 0)
        die("run", err.message);
    fwrite(out.data, 1, out.bytes, stdout);
    fprintf(stderr, "%lld %lld\n", (long long)result.rows, (long long)result.cols);
    psti_op_ctx_fini(&ctx);
    free(in.data);
    free(out.data);
}

int main(int argc, char **argv)
{
    if (argc < 6)
        die("usage", "OP ROWS COLS CHANNELS image|mask [NAME=VALUE] <pixels >pixels");
    op = psti_op_find(argv[1], strlen(argv[1]));
    if (!op)
        die("no such op", argv[1]);
    const psti_geom size = {strtol(argv[2], NULL, 10), strtol(argv[3], NULL, 10),
                            strtol(argv[4], NULL, 10)};
    const psti_list window = read_params(argc - 6, argv + 6);
    pst_error err = {0};
    if (op->check && op->check(params, &err) < 0)
        die("parameters", err.message);
    run(&size, strcmp(argv[5], "mask") == 0 ? PST_MASK : PST_IMAGE, &window);
    return 0;
}
