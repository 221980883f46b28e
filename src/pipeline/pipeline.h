/* SPDX-License-Identifier: Apache-2.0
 * Pipeline text to plan, and carrying a plan out on one sample.
 *
 * A plan is made once per job and then only read. A psti_work is one sample on its way: its fields,
 * its buffers and its cursor (the next stage); it can be put aside between two stages and taken up
 * by another worker. A psti_kit is a worker's decoder and scratch memory. */
#ifndef PSTI_PIPELINE_PIPELINE_H
#define PSTI_PIPELINE_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/codec.h"
#include "core/hash.h"
#include "op/op.h"

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct psti_pipeline psti_pipeline;
/* Errors carry the byte offset in the text, the word, and the nearest known one. */
int psti_pipeline_parse(const char *text, psti_pipeline **out, pst_error *err);
void psti_pipeline_free(psti_pipeline *pipeline);
const char *psti_pipeline_text(const psti_pipeline *pipeline); /* canonical */
/* Of the whole canonical text; of the decoded form; of the augmented form. */
typedef struct psti_fingerprints {
    psti_id128 whole, decoded, augmented;
} psti_fingerprints;
psti_fingerprints psti_pipeline_fingerprints(const psti_pipeline *pipeline);

/* ---- plan: the pipeline on a dataset's fields
 * ------------------------------------------------------ */

/* A field of the dataset that the job delivers. */
typedef struct psti_plan_input {
    char name[PST_NAME_BYTES];
    int kind;     /* pst_kind: IMAGE, MASK, VOLUME and AUDIO run through the ops; others pass
                     through. A mask of rank 4 is a volume's */
    bool encoded; /* bytes to be decoded (a picture, npy); false: raw bytes, text or a value of the
                     manifest */
    int dtype, rank;
    int64_t shape[PST_MAX_RANK]; /* -1 where unknown */
    int64_t classes;             /* labels: how many the dataset has; 0 = not known */
    bool per_object; /* a value for each object in the picture; see objects.c for the names */
    bool hidden;     /* not delivered: objects are judged and chosen by it */
} psti_plan_input;

/* What finish will write of an input: one output, or one per view of it. In the order of inputs. */
enum { PSTI_OUTPUTS_MAX = 64 };
typedef struct psti_plan_output {
    char name[PST_NAME_BYTES];
    int input;   /* what it is made of */
    int picture; /* the plan's own number of it, -1: passes through */
    int kind, dtype, layout, rank;
    int64_t shape[PST_MAX_RANK]; /* of one sample; -1 where it varies */
    psti_finish finish;          /* pictures */
    bool mixed;                  /* a batch op acts on it */
    int64_t classes; /* labels under a batch op: > 0: one float per class, 1 at the label and 0
                        elsewhere before the batch is mixed */
    bool objects;    /* of the objects that are left in the picture when all ops have acted */
} psti_plan_output;

typedef struct psti_plan psti_plan;
int psti_plan_new(const psti_pipeline *pipeline, const psti_plan_input *inputs, int count,
                  psti_plan **out, pst_error *err);
/* Gives every call(...) its function, or says which one is missing. Before the plan is shared. */
int psti_plan_set_calls(psti_plan *plan, const pst_call *calls, int count, pst_error *err);
void psti_plan_free(psti_plan *plan); /* a plan needs the pipeline it was made from no longer */
int psti_plan_outputs(const psti_plan *plan, const psti_plan_output **out);
/* Stages for statistics: "decode", the ops, "finish", the batch op if there is one. */
int psti_plan_stage_count(const psti_plan *plan);
const char *psti_plan_stage_name(const psti_plan *plan, int stage);
bool psti_plan_stage_is_call(const psti_plan *plan, int stage); /* a function of the caller's */
/* How many leading stages make the decoded form: those before the first random op or views. */
int psti_plan_decoded_stages(const psti_plan *plan);
/* Pictures that the plan decodes. 0 too where one is decoded after a random op or after views: then
 * there is no decoded form of the sample as a whole. */
int psti_plan_decoded_pictures(const psti_plan *plan);
/* The same, and what was found in them where the plan looks for something: one more part of the
 * form, which may be missing from it. */
int psti_plan_decoded_parts(const psti_plan *plan);
bool psti_plan_surveys(const psti_plan *plan);
/* Whether a crop is taken of the input as soon as it is decoded, a volume that need not be read
 * whole if it is stored as it is. */
bool psti_plan_reads_parts(const psti_plan *plan, int input);
/* Whether a function of the caller's has a part in the decoded form: outside this process its name
 * says nothing of what it does. */
bool psti_plan_decoded_calls(const psti_plan *plan);
/* Names the decoded form: the pipeline's fingerprint of it, and the pictures that it consists of.
 */
psti_id128 psti_plan_decoded_form(const psti_plan *plan, const psti_pipeline *pipeline);
/* Pictures of the augmented form: one per output that is a picture. 0 where the pixels before
 * finish are not all there is to a sample: something is laid over finished values. */
int psti_plan_augmented_pictures(const psti_plan *plan);
/* Whether it means the same outside this process, and can be checked there: made of pictures and
 * masks, without a function of the caller's. */
bool psti_plan_augmented_travels(const psti_plan *plan);
/* Whether pictures that came from elsewhere can be the augmented form of such a plan's sample. They
 * are then whole fields of that size; nothing else that they said of themselves is left. */
bool psti_plan_augmented_fits(const psti_plan *plan, psti_decoded *pictures, int count);
/* Names it: the pipeline's fingerprint up to finish, and the outputs that it consists of. */
psti_id128 psti_plan_augmented_form(const psti_plan *plan, const psti_pipeline *pipeline);
/* Decodes pictures whole even where a window would do: for tests that compare both ways. Before the
 * plan is shared. */
void psti_plan_force_full(psti_plan *plan, bool force);
/* Images come out as they are before finish: u8, nhwc. Masks, and images that an op is laid over
 * behind finish (random_erasing), stay as they are. Before the plan is
 * shared. */
void psti_plan_raw_finish(psti_plan *plan);
/* What the pipeline asks of output i's finish, carried out or not; NULL when it is no picture. */
const psti_finish *psti_plan_finish(const psti_plan *plan, int output);
bool psti_plan_is_picture(const psti_plan *plan, int input); /* decoded: no bytes, no value */
bool psti_plan_is_raw(const psti_plan *plan, int output);    /* left to the receiver */

/* ---- batch ops: what stands after "||" ---------------------------------------------------------
 */

/* The batch op's stage, or -1 when there is none. */
int psti_plan_mix_stage(const psti_plan *plan);
/* The batch op is drawn but not carried out: labels stay numbers. Before the plan is shared. */
void psti_plan_leave_mix(psti_plan *plan);
bool psti_plan_mix_left(const psti_plan *plan);
/* Draws for one batch: the key's id is its step, its occurrence the rank. */
void psti_plan_mix_draw(const psti_plan *plan, const psti_rng_key *key, pst_mix *out);
/* Carries the draw out, in place, on a mixed output of a batch: `slots` slots of its shape, dense.
 */
void psti_plan_mix_run(const psti_plan *plan, const pst_mix *mix, int output, uint8_t *data,
                       const uint8_t *valid, int slots);

/* ---- what a sample's work will be, before it is done -------------------------------------------
 */

/* What is known of a sample before its bytes are read. */
typedef struct psti_known {
    double bytes;       /* of all inputs that must be decoded */
    int64_t rows, cols; /* of its pictures, from a header read before; 0: not known */
    bool decoded;       /* is there in decoded form: nothing is decoded, bytes count as 0 */
    bool augmented;     /* is there in augmented form: only finish is left */
    bool whole;         /* will be decoded whole, whatever is drawn */
} psti_known;

/* The numbers that describe a sample's work. Pixels and branches are summed over its pictures and
 * views; what a form that was found spares is not counted. */
enum {
    PSTI_F_ONE,
    PSTI_F_BYTES,    /* to be decoded */
    PSTI_F_PIXELS,   /* of the pictures to be decoded */
    PSTI_F_UP_TO,    /* of the bytes: down to the last row that is used */
    PSTI_F_WINDOW,   /* pixels that are decoded */
    PSTI_F_READ,     /* pixels that ops read which change the size */
    PSTI_F_MADE,     /* pixels that these make */
    PSTI_F_TOUCHED,  /* pixels that other ops and finish go over */
    PSTI_F_BRANCHES, /* from here on, for each op that may do nothing: how often it acts, a policy
                        for each change it picked; the last has all that find no room */
    PSTI_FEATURES_MAX = 16
};
/* How many there are, the same for all samples of a plan. */
int psti_plan_features(const psti_plan *plan);
/* Fills them: the first is 1, all are 0 or more, and time is about a weighted sum of them. Branches
 * are those that psti_work_start takes with this key and id; what hangs on a picture's size is
 * right where the size is known, and about right otherwise. Any thread, no lock, no allocation. */
void psti_plan_foresee(const psti_plan *plan, const psti_rng_key *key, int64_t id,
                       const psti_known *known, double *features);

/* ---- work ------------------------------------------------------------------------------------ */

typedef struct psti_kit {
    psti_decoder *decoder;
    psti_op_ctx ops;
    /* Counted per stage of the plan at hand; the owner collects. */
    uint64_t stage_ns[PST_STAGES_MAX], stage_runs[PST_STAGES_MAX];
    uint64_t stepped_ns; /* when the last step ended */
    /* Told of each piece of a stage's time as it is counted; NULL = nobody is. */
    void (*told)(void *user, int stage, uint64_t since_ns, uint64_t until_ns);
    void *told_user;
    uint64_t warnings;
    /* Whose header the decoder has read: a number of this kit and one of the reading; a work that
     * remembers both may go on. */
    uint64_t id, opened;
    bool open;
} psti_kit;
int psti_kit_init(psti_kit *kit);
void psti_kit_fini(psti_kit *kit);

typedef struct psti_work psti_work;
psti_work *psti_work_new(void);
void psti_work_free(psti_work *work);

/* One input's bytes. The memory stays the caller's and valid until the work is done or cleared. */
typedef struct psti_input {
    const uint8_t *bytes;
    size_t size;
    int64_t known_damage; /* see psti_decoder_run; -1 if nothing is known */
} psti_input;

/* The id that ops and the caller's functions see from now on. Before start. */
void psti_work_set_id(psti_work *work, int64_t id);
/* What was found in the sample before, for the next start alone; it is copied. NULL: not known. */
void psti_work_set_note(psti_work *work, const psti_note *note);
/* What this work has found in the sample; NULL: it knew, or did not look. */
const psti_note *psti_work_note(const psti_work *work);
/* Takes a sample on: reads headers, makes every decision up to where sizes are known, sets the
 * cursor to the first stage. View k of a picture (from 1) draws with k as the key's view. inputs:
 * one per plan input, in order; bytes == NULL where the sample lacks an optional field (then an
 * error if it is a picture). Inputs of objects: their values, which are only read. */
int psti_work_start(psti_work *work, psti_kit *kit, const psti_plan *plan, const psti_rng_key *key,
                    const psti_input *inputs, pst_error *err);
/* The same for a sample whose pictures are there in decoded form, one per picture of the plan, in
 * the order of psti_work_decoded: nothing of them is read, the cursor is behind the decoded stages.
 * Every decision is the one that psti_work_start makes. The pictures' memory is only read, and
 * stays the caller's and valid until the work is done or cleared. */
int psti_work_start_decoded(psti_work *work, psti_kit *kit, const psti_plan *plan,
                            const psti_rng_key *key, const psti_input *inputs,
                            const psti_decoded *pictures, pst_error *err);
/* The same for a sample that is there in augmented form: only finish is left. pictures: as
 * psti_work_augmented gave them. */
int psti_work_start_augmented(psti_work *work, const psti_plan *plan, const psti_input *inputs,
                              const psti_decoded *pictures, pst_error *err);
/* The augmented form, once every stage has run: how many pictures; theirs are the work's own
 * pixels. */
int psti_work_augmented(const psti_work *work, psti_decoded *pictures);
/* Which of an input's bytes the sample uses, where they lie in memory as they lie in the input;
 * after start. LATER: that is not decided yet; ALL: out is left as it is. */
enum { PSTI_REACH_SPAN, PSTI_REACH_ALL, PSTI_REACH_LATER };
int psti_work_reach(const psti_work *work, int input, psti_span *out);
/* What psti_plan_foresee gives, for all of the sample's work, from its headers and decisions. After
 * start or start_decoded, before the first step. */
void psti_work_foresee(const psti_work *work, double *features);
/* Bytes that the remaining stages will take beyond the inputs: the work's buffers, libraries,
 * scratch. Upper bound. After start. */
size_t psti_work_need(const psti_work *work);
/* Whether it may be more since the last question: sizes came out of an op of open size. */
bool psti_work_grew(psti_work *work);
/* Runs the stage at the cursor, or the next part of it where an op has several. 1: more to run; 0:
 * ready for finish; negative: the sample is bad, err says where. */
int psti_work_step(psti_work *work, psti_kit *kit, pst_error *err);
/* The stage that the next step runs. */
int psti_work_cursor(const psti_work *work);
/* Making the decoded form of a sample, between start and the first step: from now on pictures are
 * decoded whole (true), or as little of them as the draw needs (false). Verdicts stay the same. */
int psti_work_whole(psti_work *work, psti_kit *kit, bool whole, pst_error *err);
/* Part p of the decoded form: a picture's size, from start on; its pixels, once the cursor is
 * behind the decoded stages. Behind the pictures, where the plan looks for something: a psti_note.
 */
psti_decoded psti_work_decoded(const psti_work *work, int p);
/* Whether the pictures that a work was started from are what the decoded stages would have made of
 * files with such headers. For forms that come from elsewhere. */
bool psti_work_decoded_fits(const psti_work *work);
/* Whether the decoded stages are done, and whether all rows of every picture were sound. */
bool psti_work_at_decoded(const psti_work *work);
bool psti_work_sound(const psti_work *work);
/* The finished field for output i: picture before finish, or raw bytes. Valid until the work starts
 * another sample or is cleared. */
const psti_field *psti_work_field(const psti_work *work, int output);
/* True shape (finish layout applied) and packed bytes of output i. */
size_t psti_work_shape(const psti_work *work, int output, int64_t shape[PST_MAX_RANK]);
/* Writes output i packed to dst (psti_work_shape's size). */
void psti_work_finish(const psti_work *work, psti_kit *kit, int output, uint8_t *dst);
/* The same into the first corner of a box of its rank that is as large or larger; NULL: packed.
 * Where an image's channels come last they are the box's. */
void psti_work_finish_in(const psti_work *work, psti_kit *kit, int output, const int64_t *box,
                         uint8_t *dst);

/* An output as it waits for its batch: what comes out, packed, or what finish makes it of. */
typedef struct psti_parcel {
    bool finished;
    size_t bytes;                /* that waiting takes */
    int64_t shape[PST_MAX_RANK]; /* of what comes out */
    psti_field field;            /* not finished: what finish reads, without gaps */
} psti_parcel;
/* Describes it; writes it to dst; writes what comes out of it, which lies in src, as
 * psti_work_finish_in does. Finished parcels may also be made by hand. */
void psti_work_parcel(const psti_work *work, int output, psti_parcel *out);
void psti_work_pack(const psti_work *work, psti_kit *kit, int output, psti_parcel *parcel,
                    uint8_t *dst);
void psti_plan_unpack(const psti_plan *plan, psti_kit *kit, int output, const psti_parcel *parcel,
                      const uint8_t *src, const int64_t *box, uint8_t *dst);
/* First damaged row that decoding found for input i (remember it), PSTI_ROWS_SOUND, or -1 when it
 * need not be remembered. */
int64_t psti_work_damage(const psti_work *work, int input);
/* Lets go of buffers larger than keep bytes in all, and of the inputs. */
void psti_work_clear(psti_work *work, psti_kit *kit, size_t keep);
/* The same for buffers alone, of a work that was started and has run nothing yet. */
void psti_work_trim(psti_work *work, psti_kit *kit, size_t keep);
/* Bytes that work and kit hold now. */
size_t psti_work_bytes(const psti_work *work, const psti_kit *kit);

#endif
