/* SPDX-License-Identifier: Apache-2.0
 * Operations on one sample's fields, as described types: one `static const psti_op` per operation,
 * all in one table. The parameter table drives the parser, the command line, the documentation and
 * the bounds checks.
 *
 * An op works in two steps. `decide` makes every random choice and says what comes out, from the
 * picture's size alone, so it can run before the picture is decoded. `run` carries the decision out
 * on each field that the op fits (image and mask share one decision). Boxes of objects follow what
 * was decided, by `objects`. Ops keep no state of their own: scratch memory is in the worker's
 * psti_op_ctx. */
#ifndef PSTI_OP_OP_H
#define PSTI_OP_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/field.h"
#include "core/memory.h"
#include "core/objects.h"
#include "core/rng.h"

/* ---- parameters ------------------------------------------------------------------------------ */

typedef enum psti_param_type {
    PSTI_P_INT,   /* int64_t */
    PSTI_P_FLOAT, /* double */
    PSTI_P_BOOL,  /* bool */
    PSTI_P_WORD,  /* int: index into words */
    PSTI_P_LIST,  /* psti_list of numbers; one number stands for a list of one; or one of words */
    PSTI_P_NAME   /* char[PST_NAME_BYTES]: a word or string of the caller's, not empty */
} psti_param_type;

enum { PSTI_LIST_MAX = 8 };
typedef struct psti_list {
    int count;
    double v[PSTI_LIST_MAX];
    int word; /* where the table has words: 1 + the index of the one given in place of numbers */
} psti_list;

typedef struct psti_param {
    const char *name; /* NULL ends the table */
    psti_param_type type;
    size_t offset; /* in the op's parameter struct */
    double min, max;
    int min_count, max_count; /* lists */
    bool whole;               /* lists: integers only */
    const char *const *words; /* words, NULL-terminated; of a list: what may stand in its place */
    bool bare;                /* words: one may stand without the name, anywhere */
    const char *def;          /* default as pipeline text; NULL = required */
    const char *help;
} psti_param;

/* ---- ops ------------------------------------------------------------------------------------- */

enum {
    PSTI_OP_RANDOM = 1, /* decide draws from the generator */
    PSTI_OP_CROPS = 2, /* run reads only the window that decide put into psti_draw: the decoder need
                          not make more */
    PSTI_OP_GEOMETRIC = 4, /* acts on image and mask together; otherwise on images only */
    PSTI_OP_INPLACE = 8,   /* out may be the same memory as in */
    PSTI_OP_MOVES = 16,    /* only moves values: may be lowered from after normalize to before it
                              with the same bytes */
    PSTI_OP_VIEWS = 32,    /* volumes: run changes only what the field shows of its memory (data,
                              shape, steps): it takes no memory and makes no pass */
    PSTI_OP_OPEN = 64,     /* the size that comes out is known after run, which sets out's shape;
                              decide's is an upper bound */
    PSTI_OP_RETYPES = 128, /* infer and decide set all of *out; for other ops depth, type, axes and
                              units stay what they were */
    PSTI_OP_PARTIAL = 256, /* run can make just a window of what decide said (out->x0, y0): the one
                              that a crop behind it reads */
    PSTI_OP_OBJECTS = 512, /* chooses by the objects in the picture: there must be some field of
                              them */
    PSTI_OP_CUTS = 1024,   /* the window of the draw as it is, and nothing else, comes out */
};

/* What an op acts on, by the meaning of the dimensions. */
enum {
    PSTI_ON_PICTURES = 1 << PSTI_AXES_PICTURE,
    PSTI_ON_VOLUMES = 1 << PSTI_AXES_VOLUME,
    PSTI_ON_WAVES = 1 << PSTI_AXES_WAVE,
    PSTI_ON_FRAMES = 1 << PSTI_AXES_FRAMES,
    PSTI_ON_ALL = PSTI_ON_PICTURES | PSTI_ON_VOLUMES | PSTI_ON_WAVES | PSTI_ON_FRAMES
};

/* One change of an augmentation policy (op/policy.h). */
typedef struct psti_pick {
    uint16_t change; /* 0: none */
    uint16_t chain;  /* augmix: on the first of a chain, how many follow each other */
    float magnitude;
} psti_pick;
enum { PSTI_PICKS_MAX = 32 };

/* What was decided for one sample. */
typedef struct psti_draw {
    int64_t top, left, rows, cols; /* PSTI_OP_CROPS: the window of the input that is read */
    bool act;    /* ops that may do nothing: whether they act. When false run is not called. */
    double v[8]; /* the op's own */
    int pick_count;
    psti_pick picks[PSTI_PICKS_MAX]; /* policies: what is done, in order */
    int64_t front, planes;           /* PSTI_OP_CROPS on volumes: the window's planes */
} psti_draw;

/* What was found in a mask: boxes of planes, rows and columns; low is inside, high is not. */
typedef struct psti_box {
    int32_t label, low[3], high[3];
} psti_box;
enum { PSTI_NOTE_ROWS = 510 };
typedef struct psti_note {
    int32_t count;
    psti_box row[PSTI_NOTE_ROWS];
} psti_note;
/* Of the rows that count. */
static inline size_t psti_note_bytes(const psti_note *note)
{
    return offsetof(psti_note, row) + (size_t)note->count * sizeof *note->row;
}

/* What a decision may go by beside the size. */
typedef struct psti_scene {
    const psti_note *note;       /* NULL while nobody has looked */
    const psti_objects *objects; /* in the picture as it stands; NULL: not known */
} psti_scene;
/* decide_in's answer where it must know the note: it is asked again when that is there. */
enum { PSTI_DECIDE_NEEDS_NOTE = 1 };

/* A worker's scratch memory and tables for ops. One thread at a time. */
typedef struct psti_op_ctx {
    psti_buf rows, weights; /* resize: intermediate rows; bounds and weights */
    psti_buf spare[2];      /* policies: another picture; sums */
    int64_t id;             /* of the sample in hand */
} psti_op_ctx;
void psti_op_ctx_fini(psti_op_ctx *ctx); /* zero-initialised storage is a valid context */
/* Bytes that the context holds, and letting go of what is larger than keep. */
size_t psti_op_ctx_bytes(const psti_op_ctx *ctx);
void psti_op_ctx_trim(psti_op_ctx *ctx, size_t keep);

struct psti_finish;
struct psti_pitch;

typedef struct psti_op {
    const char *name;
    const char *summary; /* one line */
    const psti_param *params;
    size_t params_bytes;
    unsigned flags;
    unsigned on; /* PSTI_ON_…; 0: pictures */
    int becomes; /* 1 + the psti_axes of what comes out; 0: as it came */
    /* Checks parameters against each other after parsing; NULL if bounds suffice. Fills
     * err->message. Must not block. */
    int (*check)(const void *params, pst_error *err);
    /* The op, with other flags, that stands for this one with these parameters; NULL: itself.
     * Called while parsing. */
    const struct psti_op *(*variant)(const void *params);
    /* Whether the op may stand where pictures are bytes (finished false) or behind normalize or to,
     * where they are floats, with these parameters; NULL if it may. Called while planning. */
    int (*place)(const void *params, bool finished, pst_error *err);
    /* What comes out for a size that may be partly unknown (-1). Called while planning. */
    void (*infer)(const void *params, const psti_geom *in, psti_geom *out);
    /* Makes every choice for a picture of size `in` (known), from rng in a fixed order; sets *out
     * and draw. rng->id is the sample's. 0, or a negative code with err filled when the picture
     * does not fit (too small for a crop, say). Any thread, no blocking, no allocation. */
    int (*decide)(const void *params, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err);
    /* In place of decide where more than the size matters; NULL: decide. Draws the same whether it
     * is asked once or twice. Parts of the scene may be missing, or all of it (NULL) when it is
     * only asked what usually comes out: then what is usual is decided. */
    int (*decide_in)(const void *params, psti_rng *rng, const psti_scene *scene,
                     const psti_geom *in, psti_draw *draw, psti_geom *out, pst_error *err);
    /* What decide_in wants to know of a mask; a function of the field alone. Worker thread. */
    int (*survey)(const void *params, const psti_field *mask, psti_note *out, pst_error *err);
    /* Moves the boxes of the picture's objects, and leaves out those that are not in it any more.
     * NULL: boxes stay where they are; a geometric op without it cannot act on a picture that has
     * boxes. Called when the op was decided and acts. Any thread, no blocking, no allocation. */
    void (*objects)(const void *params, const psti_draw *draw, const psti_geom *in,
                    const psti_geom *out, psti_objects *objects);
    /* Worker memory beyond in and out that run will use, in bytes; NULL = none. */
    size_t (*scratch)(const void *params, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out);
    /* How many times run is called on a field, each doing a part of the work; a sample can be put
     * aside between two. 1 and up; NULL = once. */
    int (*parts)(const void *params);
    /* Carries the decision out on one field. `in` may be a window of the picture (in->x0, y0 …)
     * that covers what is read. `out` comes with data, stride, shape, dtype and kind set to
     * decide's size (stride >= a row; data has 64 readable bytes past its end); run writes every
     * byte of each row that counts. PSTI_OP_PARTIAL: `out` may be a window too. Of volumes `in` may
     * be a view with any steps, and `out` has no gaps; PSTI_OP_VIEWS: `out` comes as a copy of
     * `in`. kind PST_MASK: nearest neighbour, any channel count 1, u8 or u16. Worker thread. NULL:
     * a function of the caller's does it, see pipeline/call.c. */
    int (*run)(const void *params, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err);
    /* In place of run where the op stands behind normalize or to that make floats: writes what it
     * changes over what finish has written for the picture `in` to dst, with this pitch. NULL: the
     * op cannot stand there unless it only moves values. Worker thread; must not block or allocate.
     */
    void (*overlay)(const void *params, const psti_draw *draw, const struct psti_finish *finish,
                    const psti_field *in, const struct psti_pitch *pitch, uint8_t *dst);
} psti_op;

/* Completes what the op's infer or decide said of a size: without PSTI_OP_RETYPES all but rows,
 * columns and channels stays; then what it becomes. */
void psti_geom_keep(const psti_op *op, const psti_geom *in, psti_geom *out);

/* The tables, one a family, NULL-terminated, in the order of the documentation. detect: on pictures
 * that have boxes. */
extern const psti_op *const psti_picture_ops[],
    *const psti_detect_ops[], *const psti_volume_ops[], *const psti_audio_ops[];
/* All of them in a row, from 0; NULL past the end. */
const psti_op *psti_op_at(int index);
const psti_op *psti_op_find(const char *name, size_t len);

/* ---- finish: the trailing normalize and to, done while writing the batch -----------------------
 */

typedef struct psti_finish {
    bool normalize;
    int channels; /* of the pictures it will see: 1, 3 or 4 */
    double mean[4], std[4];
    int dtype;  /* PST_U8, PST_F16, PST_BF16, PST_F32; masks also PST_I64, PST_I32, PST_U16 */
    int layout; /* PST_NHWC or PST_NCHW; PST_LAYOUT_NONE for masks */
    /* Filled by psti_finish_init: value = x * scale[c] - bias[c], in float, in this order. */
    float scale[4], bias[4];
} psti_finish;

/* Parameter tables of normalize and to, for the pipeline's parser. */
typedef struct psti_normalize_params {
    int preset; /* 0 none, 1 imagenet, 2 half (mean 0.5, std 0.5), 3 clip, 4 caffe */
    psti_list mean, std;
} psti_normalize_params;
typedef struct psti_to_params {
    int dtype;  /* index into words: u8 f16 bf16 f32 i64 … → psti_to_dtype */
    int layout; /* 0 = as it is, 1 = nhwc, 2 = nchw */
} psti_to_params;
extern const psti_param psti_normalize_table[], psti_to_table[];
int psti_to_dtype(const psti_to_params *params); /* pst_dtype, or 0 = as it is */
/* Mean and std of a preset or the lists; fills err->message when lists are missing or of unequal
 * length. */
int psti_normalize_values(const psti_normalize_params *params, psti_list *mean, psti_list *std,
                          pst_error *err);

void psti_finish_init(psti_finish *finish);

/* How the memory that a field is written into is laid out, in elements: what lies between the first
 * ones of two rows, of two planes (channels of a picture that come one after the other) and of two
 * channels of a volume. */
typedef struct psti_pitch {
    size_t row, plane, channel;
} psti_pitch;
/* Of a box, which has the dimensions of what comes out in their order; NULL: of the field itself,
 * densely packed. An image's channels, where they come last, must be the box's. */
psti_pitch psti_pitch_of(const psti_finish *finish, const psti_field *in, const int64_t *box);
/* Writes one field to dst (64-byte aligned not required), which must hold what the pitch says. */
void psti_finish_write(const psti_finish *finish, const psti_field *in, const psti_pitch *pitch,
                       uint8_t *dst);

/* ---- batch ops: mixup and cutmix, done on a full batch -----------------------------------------
 */

typedef struct psti_mix_params {
    double alpha, p;
    int64_t classes; /* 0 = as many as the dataset has */
} psti_mix_params;
extern const psti_param psti_mixup_table[], psti_cutmix_table[];

/* One field of a batch. rows, cols and layout count where a box is pasted. */
typedef struct psti_mix_field {
    uint8_t *data;
    size_t slot_bytes;
    int dtype, layout;
    int64_t rows, cols;
} psti_mix_field;

/* Draws for a batch of pictures of this size, in a fixed order; PST_MIX_NONE when it does not act.
 */
void psti_mix_draw(int kind, const psti_mix_params *params, psti_rng *rng, int64_t rows,
                   int64_t cols, pst_mix *out);
/* A box with the share 1 - lam of the picture about a centre, cut off at the edges; lam becomes the
 * share that is left. */
void psti_mix_box(pst_mix *mix, int64_t y, int64_t x, int64_t rows, int64_t cols);
/* Each slot with valid[i] != 0 is mixed in place with the one before it. blend: PST_F32, PST_F16,
 * PST_BF16, all values by lam; paste: any type, the box alone. Takes no memory. */
void psti_mix_blend(const pst_mix *mix, const psti_mix_field *field, const uint8_t *valid,
                    int slots);
void psti_mix_paste(const pst_mix *mix, const psti_mix_field *field, const uint8_t *valid,
                    int slots);

#endif
