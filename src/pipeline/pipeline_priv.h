/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room share: tokens, the tree, the registry of words, the bound pipeline
 * and the plan. Nothing outside src/pipeline includes it. */
#ifndef PSTI_PIPELINE_PRIV_H
#define PSTI_PIPELINE_PRIV_H

#include "pipeline/pipeline.h"

enum {
    PSTI_TEXT_MAX = 65536,  /* bytes of a pipeline text */
    PSTI_TOKENS_MAX = 8192, /* tokens of a text */
    PSTI_TOKEN_BYTES = 255, /* bytes of one token */
    PSTI_DEPTH_MAX = 16,    /* chains and lists inside each other */
    PSTI_OPS_MAX = 256,     /* ops of a text; the place of an op must fit 16 bits */
    PSTI_INPUTS_MAX = 64,   /* fields of a plan */
    PSTI_SOURCES_MAX = 16,  /* pictures that a plan decodes */
    PSTI_PICTURES_MAX = 32  /* and their views; bits of a mask */
};

/* ---- text.c: a growing string, numbers without the locale ------------------------------------ */

typedef struct psti_text {
    char *data; /* terminated once anything was added */
    size_t len, cap;
    bool failed; /* out of memory: what follows is dropped */
} psti_text;

void psti_text_add(psti_text *text, const char *bytes, size_t len);
void psti_text_puts(psti_text *text, const char *word);
/* False when the value is not finite. text is a number by the grammar. */
bool psti_number_parse(const char *text, size_t len, double *out);
enum { PSTI_NUMBER_BYTES = 32 };
/* The shortest form that reads back as the same value. */
void psti_number_print(double value, char out[PSTI_NUMBER_BYTES]);

/* ---- lex.c ----------------------------------------------------------------------------------- */

typedef enum psti_token_type {
    PSTI_T_END,
    PSTI_T_WORD,
    PSTI_T_NUMBER,
    PSTI_T_STRING,
    PSTI_T_OPEN,
    PSTI_T_CLOSE,
    PSTI_T_COMMA,
    PSTI_T_EQUALS,
    PSTI_T_COLON,
    PSTI_T_SEMICOLON,
    PSTI_T_BAR,
    PSTI_T_BARS
} psti_token_type;

typedef struct psti_token {
    psti_token_type type;
    uint32_t offset, len; /* in the text; strings: without their quotes */
    double number;
} psti_token;

typedef struct psti_lexer {
    const char *text;
    size_t len, at;
    int count;
} psti_lexer;

int psti_lex(psti_lexer *lex, psti_token *out, pst_error *err);

/* ---- parse.c: the tree ----------------------------------------------------------------------- */

typedef enum psti_node_type {
    PSTI_N_ROOT,
    PSTI_N_BLOCK, /* children: FIELD ..., then OP ... */
    PSTI_N_FIELD, /* its name */
    PSTI_N_BATCH, /* what stands after "||"; children: OP ... */
    PSTI_N_OP,    /* its name; children: ARG and CHAIN */
    PSTI_N_ARG,   /* the keyword, len 0 if positional; child: the value */
    PSTI_N_CHAIN, /* number: the integer before the colon; children: OP ... */
    PSTI_N_NUMBER,
    PSTI_N_WORD,
    PSTI_N_STRING,
    PSTI_N_LIST /* children: values */
} psti_node_type;

/* Nodes name each other by index, so that the array may move while it grows; 0, the root, stands
 * for none. */
typedef struct psti_node {
    psti_node_type type;
    uint32_t offset, len;
    double number;
    int child, next;
} psti_node;

typedef struct psti_tree {
    const char *text; /* the caller's */
    psti_node *nodes;
    int count, cap;
} psti_tree;

/* A whole pipeline below the root. The tree is empty on failure. */
int psti_tree_parse(psti_tree *tree, const char *text, pst_error *err);
/* One value, below the root: defaults of parameter tables. */
int psti_tree_parse_value(psti_tree *tree, const char *text, pst_error *err);
void psti_tree_fini(psti_tree *tree);

/* ---- nearest.c ------------------------------------------------------------------------------- */

/* Candidate i, or NULL past the end. */
typedef const char *psti_candidate(int i, const void *user);
/* The candidate that was probably meant, or NULL when none is near. */
const char *psti_nearest(const char *word, size_t len, psti_candidate *at, const void *user);
/* Writes `: did you mean "x"?`, or `; known: a, b, c` when nothing is near. */
void psti_suggest(char *buf, size_t cap, const char *word, size_t len, psti_candidate *at,
                  const void *user);

/* ---- registry.c: every word that may stand where an op stands -------------------------------- */

typedef enum psti_role {
    PSTI_ROLE_DECODE,
    PSTI_ROLE_BYTES,
    PSTI_ROLE_OP,
    PSTI_ROLE_SURVEY, /* looks for what a later decision goes by, see survey.c; in plans only */
    PSTI_ROLE_VIEWS,  /* several outputs of one picture, each through a chain of its own */
    PSTI_ROLE_NORMALIZE,
    PSTI_ROLE_TO,
    PSTI_ROLE_MIX,   /* on a batch, after "||" */
    PSTI_ROLE_CHOICE /* one of several chains of batch ops */
} psti_role;

typedef struct psti_op_type {
    const char *name, *summary;
    const psti_param *params;
    size_t params_bytes;
    psti_role role;
    const psti_op *op; /* PSTI_ROLE_OP */
    int mix;           /* PSTI_ROLE_MIX: pst_mix_kind */
} psti_op_type;

typedef struct psti_decode_params {
    int color; /* psti_color */
    bool orient;
    int crowd; /* objects that stand for many: 0 are left out, 1 stay */
} psti_decode_params;

/* The index-th, in the order of the documentation; false past the end. */
bool psti_op_type_at(int index, psti_op_type *out);
bool psti_op_type_find(const char *name, size_t len, psti_op_type *out);
psti_candidate psti_op_type_name;
/* Does nothing else than being written into the batch: normalize, to. */
static inline bool psti_op_type_finishes(const psti_op_type *type)
{
    return type->role == PSTI_ROLE_NORMALIZE || type->role == PSTI_ROLE_TO;
}
/* Acts on batches: stands after "||" and nowhere else. */
static inline bool psti_op_type_batch(const psti_op_type *type)
{
    return type->role == PSTI_ROLE_MIX || type->role == PSTI_ROLE_CHOICE;
}
/* Takes chains of ops, "2: a | b", and no values. */
static inline bool psti_op_type_chains(const psti_op_type *type)
{
    return type->role == PSTI_ROLE_CHOICE || type->role == PSTI_ROLE_VIEWS;
}
static inline bool psti_op_type_random(const psti_op_type *type)
{
    return type->role == PSTI_ROLE_OP && (type->op->flags & PSTI_OP_RANDOM);
}
/* A function of the caller's, see call.c. */
static inline bool psti_op_type_call(const psti_op_type *type)
{
    return type->role == PSTI_ROLE_OP && !type->op->run;
}
/* Whether an op's result has a size that is known only then. */
static inline bool psti_op_type_open(const psti_op_type *type)
{
    return type->role == PSTI_ROLE_OP && (type->op->flags & PSTI_OP_OPEN);
}
/* Ends the decoded form, which has one picture of each field, of sizes that are known ahead. */
static inline bool psti_op_type_ends_decoded(const psti_op_type *type)
{
    return psti_op_type_random(type) || psti_op_type_open(type) || type->role == PSTI_ROLE_VIEWS;
}

/* ---- param.c: one parameter of a table ------------------------------------------------------- */

/* Reads a value node into the parameter struct; errors name op and parameter and stand at the
 * value. */
int psti_param_store(const psti_param *param, const char *op, const psti_tree *tree, int node,
                     void *params, pst_error *err);
int psti_param_default(const psti_param *param, const char *op, void *params, pst_error *err);
bool psti_param_equal(const psti_param *param, const void *a, const void *b);
void psti_param_print(const psti_param *param, const void *params, psti_text *out);
/* For help: "int", "1..65536". */
const char *psti_param_type_name(const psti_param *param);
void psti_param_range(const psti_param *param, char *buf, size_t cap);

/* ---- bind.c: the pipeline -------------------------------------------------------------------- */

typedef struct psti_bound {
    psti_op_type type;
    void *params;    /* owned */
    int place;       /* index in the whole text: the op's part of the random key */
    int block;       /* -1: a batch op */
    int chain;       /* the chain that it stands in, -1: the block's own */
    uint32_t offset; /* in the text it was read from, for errors of the plan */
} psti_bound;

typedef struct psti_block_field {
    char name[PST_NAME_BYTES];
    uint32_t offset;
} psti_block_field;

typedef struct psti_block {
    psti_block_field *fields; /* owned */
    int field_count;          /* 0 = every field the ops fit */
} psti_block;

/* "2: a | b" among the arguments of an op. */
typedef struct psti_chain {
    int owner, count; /* the op's index; the number before the colon */
} psti_chain;

struct psti_pipeline {
    psti_block *blocks;
    int block_count;
    /* In the order of the text, what stands inside an op right after it: op_count ops on samples,
     * then batch_count ops on batches. */
    psti_bound *ops;
    int op_count, batch_count;
    psti_chain *chains; /* in the order of the text */
    int chain_count;
    char *text; /* canonical */
    psti_fingerprints prints;
};

/* Fills text and prints of a bound pipeline (canon.c). */
int psti_pipeline_canon(psti_pipeline *pipeline, pst_error *err);

/* ---- call.c: the caller's own stage ---------------------------------------------------------- */

typedef struct psti_call_params {
    char name[PST_NAME_BYTES];
    psti_list size;
    bool any, fixed;
} psti_call_params;

extern const psti_op psti_call_op;

/* ---- plan.c ---------------------------------------------------------------------------------- */

/* A stage: one decode or op, on some of the pictures. */
typedef struct psti_stage {
    psti_op_type type;
    char name[PST_NAME_BYTES]; /* for statistics: the op, and which views it is for */
    void *params; /* owned copy: a plan needs its pipeline no longer than psti_plan_new */
    int place;
    uint32_t pictures;                 /* bit p: acts on picture p */
    uint8_t leader[PSTI_PICTURES_MAX]; /* the picture whose decisions each follows; may be itself */
    bool lowered;                      /* stands behind normalize or to of a picture */
    pst_call call;                     /* of call(...): what it runs */
    uint32_t offset;                   /* in the text, for errors */
} psti_stage;

/* A picture that is decoded, or a view: a picture that begins as what its source has become. */
typedef struct psti_plan_picture {
    int input;
    int source;   /* of a view; -1: decoded */
    int view;     /* its part of the random key: 0, or the view's number from 1 */
    int chain;    /* of the pipeline, that made the view */
    int fork;     /* the stage at which views of this picture begin; -1: it has none */
    int channels; /* that normalize wants; 0: any */
    psti_decode_options decode;
    bool raw; /* finish is left to the receiver; `asked` is what it has to do */
    psti_finish asked;
    int overlay; /* the stage that is carried out on what finish has written; -1: none */
} psti_plan_picture;

/* What the text says about a picture's finish while the plan is made. */
typedef struct psti_track {
    bool decoded;
    const psti_bound *normalize, *to; /* NULL: not given */
    const psti_bound *overlay;        /* laid over what finish writes; NULL: nothing is */
    psti_geom geom;                   /* as far as known, but always its axes */
} psti_track;

/* A batch op, or one of several to choose from. */
typedef struct psti_plan_mix {
    psti_op_type type;
    psti_mix_params params;
    int place, weight;
} psti_plan_mix;
enum { PSTI_MIXES_MAX = 8 };

/* The inputs that tell of the objects in a picture (objects.c); -1: there is none. */
typedef struct psti_plan_objects {
    int picture; /* that they are in; -1: values pass as they are */
    int boxes, crowd, names, shapes, width, height;
    bool keep_crowds;
} psti_plan_objects;

struct psti_plan {
    psti_plan_input *inputs;
    int count;                       /* of inputs */
    int picture_of[PSTI_INPUTS_MAX]; /* index into pictures, -1: passes through */
    psti_plan_output *outputs;
    int output_count;
    psti_plan_picture pictures[PSTI_PICTURES_MAX]; /* decoded ones, then views */
    int source_count, picture_count;
    psti_stage stages[PST_STAGES_MAX];
    int stage_count;    /* without finish */
    int decoded_stages; /* leading ones without randomness */
    int survey;         /* the stage that looks at a mask, the last of them; -1: there is none */
    int counted_output; /* the output whose finish counts as a run of that stage */
    psti_plan_objects objects;
    bool force_full;
    psti_plan_mix mixes[PSTI_MIXES_MAX];
    int mix_count, mix_weight; /* of all */
    const char *mix_name;      /* NULL: no batch op */
    int mix_place;             /* of choice */
    int64_t mix_rows, mix_cols, mix_classes;
    bool mix_left;
};

/* Adds an output: a picture as its track says or, where track is NULL, the input as it is
 * (outputs.c). */
int psti_plan_output_of(psti_plan *plan, int input, bool raw, int picture, const psti_track *track,
                        pst_error *err);
/* Checks normalize and to against what came before on that picture; then they belong to the track
 * (outputs.c). */
int psti_track_normalize(psti_track *track, const psti_bound *op, const psti_plan_input *field,
                         pst_error *err);
int psti_track_to(psti_track *track, const psti_bound *op, const psti_plan_input *field,
                  pst_error *err);

/* Adds the views that an op makes of the pictures in `sources`, with tracks of their own. The next
 * stage to be added is the one at which they begin (views.c). */
int psti_plan_fork(psti_plan *plan, const psti_pipeline *pipeline, const psti_bound *op,
                   uint32_t sources, psti_track *tracks, pst_error *err);
/* The field as which a picture is delivered or spoken of (views.c). */
void psti_plan_picture_name(const psti_plan *plan, int picture, char out[PST_NAME_BYTES]);
/* Fills what a stage is called in statistics (views.c). */
void psti_stage_name(const psti_pipeline *pipeline, const psti_bound *op, psti_stage *stage);
/* The names of outputs are different (views.c). */
int psti_plan_check_names(const psti_plan *plan, pst_error *err);

/* Adds the stage that finds what the op's decisions go by, if the next one is the op's (survey.c).
 */
int psti_plan_add_survey(psti_plan *plan, const psti_bound *op, uint32_t pictures, pst_error *err);

/* Takes the pipeline's batch op over and checks it against what is delivered; outputs are known
 * (batch.c). */
int psti_plan_batch(psti_plan *plan, const psti_pipeline *pipeline, pst_error *err);

/* ---- work ------------------------------------------------------------------------------------ */

/* One stage on one picture, as decided. */
typedef struct psti_step {
    psti_draw draw;
    psti_geom in, out;
} psti_step;

/* A picture in hand. */
typedef struct psti_shot {
    psti_picture facts;
    psti_window window; /* to be decoded; rows == 0: all */
    int64_t used_rows;  /* damage at or after this row does no harm */
    psti_decode_need need;
    int64_t damage; /* psti_work_damage */
    psti_field now; /* lies in buf[at] once decoded, or elsewhere if borrowed: in the cache, in the
                       encoded bytes, or in the picture that this is a view of */
    psti_buf buf[2];
    int at;
    bool borrowed; /* now is somebody else's memory and must not be written to */
    bool sound;    /* the decoder found no damaged row */
} psti_shot;

/* The objects of the sample in hand. */
typedef struct psti_cast {
    psti_objects now;     /* as they stand after the last stage that is decided */
    psti_buf rows, boxes; /* its arrays */
    psti_buf shapes;      /* psti_outline[stored], where masks are delivered */
    psti_buf scratch;     /* for masks */
    psti_geom canvas;     /* the picture's final size */
} psti_cast;

struct psti_work {
    const psti_plan *plan; /* NULL: no sample in hand */
    int cursor;
    int part;    /* of the stage at the cursor that comes next */
    int decided; /* leading stages that are decided; behind one of open size it takes its result */
    bool grew;   /* see psti_work_grew */
    int64_t id;  /* that ops and the caller's functions see */
    psti_rng_key key;
    bool whole; /* pictures are decoded whole, whatever the draw */
    /* See survey.c. given: for the sample that starts next; known: it may be read; found: by this
     * work; wanted: a decision waits for it. The memory is kept. */
    psti_note *note;
    bool note_given, note_known, note_found, note_wanted;
    psti_input *inputs;
    int inputs_cap;
    psti_field *fields; /* of what passes through */
    int fields_cap;
    psti_shot *shots; /* those past the plan's pictures keep their buffers */
    int shots_cap;
    psti_step *steps; /* [stage][picture] */
    int steps_cap;
    psti_cast *cast; /* NULL until a plan has objects */
    /* Which kit's decoder has which picture's header read, see psti_kit. */
    uint64_t kit_id, kit_opened;
    int open_picture;
};

/* work.c: room for a sample of the plan, and its inputs; of pictures nothing is read. */
int psti_work_take(psti_work *work, const psti_plan *plan, const psti_input *inputs,
                   pst_error *err);

static inline psti_step *psti_work_at(const psti_work *work, int stage, int picture)
{
    return &work->steps[stage * work->plan->picture_count + picture];
}

/* Grows a window to cover what the draw reads; one without rows is empty (decide.c). */
void psti_window_grow(psti_window *window, const psti_draw *draw);
/* The dimensions in which a field of this size is delivered; returns how many (outputs.c). */
/* The finish of an output for the field at hand. */
psti_finish psti_output_finish(const psti_plan_output *out, const psti_field *field);
int psti_shape_of(int layout, const psti_geom *geom, int64_t shape[PST_MAX_RANK]);
/* Makes every decision that sizes allow and says what to decode (decide.c). Headers have been read.
 */
int psti_work_decide(psti_work *work, const psti_rng_key *key, pst_error *err);
/* An op's choices for a picture of size step->in of the sample `id`, from the op's own place of the
 * random key; a view's (from 1) also from its number. scene NULL: a guess will do. The step comes
 * with out = in and act set (decide.c). */
int psti_stage_decide(const psti_stage *stage, int view, const psti_rng_key *key, int64_t id,
                      const psti_scene *scene, psti_step *step, pst_error *err);
/* The window that a stage behind `stage` reads of what it makes, where it need make no more; NULL:
 * all of it (decide.c). */
const psti_draw *psti_work_partial(const psti_work *work, int stage, int picture);

/* ---- objects.c: boxes, labels and masks of what is in a picture ------------------------------ */

/* Finds the inputs that tell of objects, and refuses ops that boxes cannot follow. Stages are
 * known, outputs are not. */
int psti_plan_find_objects(psti_plan *plan, pst_error *err);
/* Describes the output of an input that has a value for each object. */
void psti_plan_object_output(const psti_plan *plan, int input, psti_plan_output *out);
/* The objects as stored, judged by the picture's header: those that are to stay, clamped to it. */
int psti_work_take_objects(psti_work *work, pst_error *err);
/* What was decided of stage s, done to the boxes. */
void psti_work_follow_objects(psti_work *work, int s);
/* Everything is decided: makes room for what finish needs. */
int psti_work_settle_objects(psti_work *work, pst_error *err);
size_t psti_work_object_shape(const psti_work *work, const psti_plan_output *out,
                              int64_t shape[PST_MAX_RANK]);
/* box: as in psti_work_finish_in. */
void psti_work_write_objects(const psti_work *work, const psti_plan_output *out, const int64_t *box,
                             uint8_t *dst);
bool psti_output_is_masks(const psti_plan *plan, const psti_plan_output *out);
/* Masks as they wait for their batch: what they are drawn from. Returns how many bytes; writes them
 * unless dst is NULL. */
size_t psti_work_pack_masks(const psti_work *work, uint8_t *dst);
/* Draws them; box: as in psti_work_finish_in. */
void psti_unpack_masks(const uint8_t *src, size_t bytes, psti_kit *kit, const int64_t *box,
                       uint8_t *dst);
size_t psti_cast_bytes(const psti_cast *cast); /* NULL is fine */
void psti_cast_free(psti_cast *cast);

/* The decisions that had to wait for the result of the stage before them (decide.c). */
int psti_work_decide_on(psti_work *work, pst_error *err);
/* The same, and what start checks once all is decided (work.c). */
int psti_work_decide_late(psti_work *work, pst_error *err);
/* Which part of each picture to decode; part of psti_work_decide. */
void psti_work_aim(psti_work *work);
/* What decisions may go by; whether the sample must be looked at; the stage at the cursor, which
 * does so, on picture p; what was found as a part of the decoded form (survey.c). */
psti_scene psti_work_scene(const psti_work *work, int picture);
bool psti_work_wants_survey(const psti_work *work);
int psti_work_survey(psti_work *work, int p, pst_error *err);
psti_decoded psti_work_decoded_note(const psti_work *work);
/* The stage at the cursor, a call, on picture p (call.c). */
int psti_work_call(psti_work *work, int p, pst_error *err);
/* Refuses a call that gives an image another size while there are masks, which it leaves as they
 * are (call.c). */
int psti_call_check_size(const psti_work *work, int s, int p, pst_error *err);
/* Whether the size that comes out of a stage is known only then. */
static inline bool psti_stage_open(const psti_stage *stage)
{
    return psti_op_type_call(&stage->type) ? ((const psti_call_params *)stage->params)->any
                                           : psti_op_type_open(&stage->type);
}
/* Opens picture p in the kit's decoder unless it is open there; fills the shot's facts (kit.c). */
int psti_work_open(psti_work *work, psti_kit *kit, int picture, pst_error *err);
void psti_kit_close(psti_kit *kit);
/* Counts time of a stage. */
static inline void psti_kit_spent(psti_kit *kit, int stage, uint64_t since_ns, uint64_t until_ns)
{
    kit->stage_ns[stage] += until_ns - since_ns;
    if (__builtin_expect(kit->told != NULL, 0))
        kit->told(kit->told_user, stage, since_ns, until_ns);
}
/* Completes an error with the stage and, where there are several pictures, the field. Returns code.
 */
int psti_work_fail(const psti_work *work, const char *stage, int picture, int code, pst_error *err);

#endif
