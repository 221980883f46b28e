/* SPDX-License-Identifier: Apache-2.0
 * The canonical text of a pipeline and the fingerprints made from it. Frozen: checkpoints and
 * caches hold them.
 *
 * Canonical: blocks joined by " ; ", ops by " | ", a block's fields as "a,b: ", chains inside an op
 * as "2: a | b", a batch op behind " || ", every parameter
 * that differs from its default (required ones always); positional as long as no parameter before
 * it was left out, by name after that. Reading it gives the same pipeline and the same text. */
#include <errno.h>

#include "core/memory.h"
#include "core/status.h"
#include "pipeline/pipeline_priv.h"

/* Prints "(...)" behind an op's name. defaults: a parameter struct with the default of every
 * optional one. */
static void print_args(const psti_bound *op, const void *defaults, psti_text *out)
{
    const psti_param *params = op->type.params;
    bool any = false, gap = false;
    for (int i = 0; params[i].name; i++) {
        if (params[i].def && psti_param_equal(&params[i], op->params, defaults)) {
            gap = true;
            continue;
        }
        psti_text_puts(out, any ? ", " : "(");
        if (gap) {
            psti_text_puts(out, params[i].name);
            psti_text_puts(out, "=");
        }
        psti_param_print(&params[i], op->params, out);
        any = true;
    }
    if (any)
        psti_text_puts(out, ")");
}

static int print_values(const psti_bound *op, psti_text *out)
{
    const psti_param *params = op->type.params;
    if (!params[0].name)
        return 0;
    void *defaults = psti_calloc(PSTI_MEM_PIPELINE, 1, op->type.params_bytes);
    int rc = defaults ? 0 : -ENOMEM;
    for (int i = 0; rc == 0 && params[i].name; i++)
        if (params[i].def)
            rc = psti_param_default(&params[i], op->type.name, defaults, NULL);
    if (rc == 0)
        print_args(op, defaults, out);
    psti_free(defaults);
    return rc;
}

static int print_op(const psti_pipeline *pipeline, int i, bool without_finish, psti_text *out);

/* "2: a | b" */
static int print_chain(const psti_pipeline *pipeline, int chain, bool without_finish,
                       psti_text *out)
{
    char number[PSTI_NUMBER_BYTES];
    psti_number_print(pipeline->chains[chain].count, number);
    psti_text_puts(out, number);
    psti_text_puts(out, ": ");
    int rc = 0, printed = 0;
    for (int i = 0; rc == 0 && i < pipeline->op_count + pipeline->batch_count; i++) {
        const psti_bound *op = &pipeline->ops[i];
        if (op->chain != chain || (without_finish && psti_op_type_finishes(&op->type)))
            continue;
        psti_text_puts(out, printed++ ? " | " : "");
        rc = print_op(pipeline, i, without_finish, out);
    }
    return rc;
}

static int print_op(const psti_pipeline *pipeline, int i, bool without_finish, psti_text *out)
{
    const psti_bound *op = &pipeline->ops[i];
    psti_text_puts(out, op->type.name);
    if (!psti_op_type_chains(&op->type))
        return print_values(op, out);
    int rc = 0, printed = 0;
    for (int c = 0; rc == 0 && c < pipeline->chain_count; c++)
        if (pipeline->chains[c].owner == i) {
            psti_text_puts(out, printed++ ? ", " : "(");
            rc = print_chain(pipeline, c, without_finish, out);
        }
    psti_text_puts(out, ")");
    return rc;
}

static void print_fields(const psti_block *block, psti_text *out)
{
    for (int i = 0; i < block->field_count; i++) {
        psti_text_puts(out, i ? "," : "");
        psti_text_puts(out, block->fields[i].name);
    }
    if (block->field_count)
        psti_text_puts(out, ": ");
}

/* Prints the first `count` ops on samples; blocks that have none among them are left out.
 * without_finish leaves normalize and to out. */
static int print_ops(const psti_pipeline *pipeline, int count, bool without_finish, psti_text *out)
{
    int block = -1, rc = 0;
    for (int i = 0; rc == 0 && i < count; i++) {
        const psti_bound *op = &pipeline->ops[i];
        if (op->chain >= 0 || (without_finish && psti_op_type_finishes(&op->type)))
            continue;
        if (op->block == block) {
            psti_text_puts(out, " | ");
        } else {
            psti_text_puts(out, block >= 0 ? " ; " : "");
            print_fields(&pipeline->blocks[op->block], out);
        }
        block = op->block;
        rc = print_op(pipeline, i, without_finish, out);
    }
    return out->failed ? -ENOMEM : rc;
}

static int print_all(const psti_pipeline *pipeline, psti_text *out)
{
    int rc = print_ops(pipeline, pipeline->op_count, false, out);
    if (rc == 0 && pipeline->batch_count) {
        psti_text_puts(out, " || ");
        rc = print_op(pipeline, pipeline->op_count, false, out);
    }
    return out->failed ? -ENOMEM : rc;
}

/* Random ops that do not stand where the printed text puts them (finish ops before them are not
 * printed) draw from another place: that is part of what the form is. */
static void hash_places(const psti_pipeline *pipeline, int count, psti_hash *hash)
{
    int printed = 0;
    for (int i = 0; i < count; i++) {
        const psti_bound *op = &pipeline->ops[i];
        if (psti_op_type_finishes(&op->type))
            continue;
        if (psti_op_type_random(&op->type) && op->place != printed)
            psti_hash_u64(hash, (uint64_t)op->place);
        printed++;
    }
}

/* The fingerprint of a form: the first `count` ops without finish. */
static int form_print(const psti_pipeline *pipeline, const char *what, size_t what_len, int count,
                      psti_id128 *out)
{
    psti_text text = {0};
    const int rc = print_ops(pipeline, count, true, &text);
    if (rc == 0) {
        psti_hash hash;
        psti_hash_init(&hash);
        psti_hash_text(&hash, what, what_len);
        psti_hash_text(&hash, text.data ? text.data : "", text.len);
        hash_places(pipeline, count, &hash);
        *out = psti_hash_final(&hash);
    }
    psti_free(text.data);
    return rc;
}

#define TAG(text) text, sizeof text - 1

static int fingerprints(psti_pipeline *pipeline, size_t text_len)
{
    int sure = 0;
    while (sure < pipeline->op_count && !psti_op_type_ends_decoded(&pipeline->ops[sure].type))
        sure++;
    psti_hash hash;
    psti_hash_init(&hash);
    psti_hash_text(&hash, TAG("penstock-pipeline-1"));
    psti_hash_text(&hash, pipeline->text, text_len);
    pipeline->prints.whole = psti_hash_final(&hash);
    const int rc = form_print(pipeline, TAG("decoded-1"), sure, &pipeline->prints.decoded);
    return rc < 0 ? rc
                  : form_print(pipeline, TAG("augmented-1"), pipeline->op_count,
                               &pipeline->prints.augmented);
}

int psti_pipeline_canon(psti_pipeline *pipeline, pst_error *err)
{
    psti_text text = {0};
    int rc = print_all(pipeline, &text);
    pipeline->text = text.data;
    if (rc == 0)
        rc = fingerprints(pipeline, text.len);
    return rc < 0 ? psti_fail(err, rc, "pipeline", NULL, "out of memory for the pipeline") : 0;
}
