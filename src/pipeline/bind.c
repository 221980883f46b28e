/* SPDX-License-Identifier: Apache-2.0
 * The tree to a pipeline: names become ops, arguments become parameter structs through the
 * parameter tables, with bounds, defaults and the nearest known word for every unknown one. Called
 * once per text; any thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "pipeline/pipeline_priv.h"

/* Where an op stands, as in psti_bound. */
typedef struct position {
    int block, chain;
} position;

typedef struct binder {
    const psti_tree *tree;
    psti_pipeline *pipeline;
    pst_error *err;
} binder;

static const char *word_of(const binder *b, const psti_node *node)
{
    return b->tree->text + node->offset;
}

/* Names are at most 255 bytes; messages show the first 60. */
static int shown(const psti_node *node)
{
    return node->len > 60 ? 60 : (int)node->len;
}

static int fail_memory(const binder *b)
{
    return psti_fail(b->err, -ENOMEM, "pipeline", NULL, "out of memory for the pipeline");
}

/* ---- arguments ------------------------------------------------------------------------------- */

static const char *param_at(int i, const void *user)
{
    const psti_param *params = user;
    return params[i].name;
}

static int param_count(const psti_param *params)
{
    int count = 0;
    while (params[count].name)
        count++;
    return count;
}

/* Index of the parameter that a keyword names, or a negative code. */
static int find_keyword(const binder *b, const psti_op_type *type, const psti_node *arg)
{
    for (int i = 0; type->params[i].name; i++)
        if (strlen(type->params[i].name) == arg->len &&
            memcmp(type->params[i].name, word_of(b, arg), arg->len) == 0)
            return i;
    char hint[300];
    psti_suggest(hint, sizeof hint, word_of(b, arg), arg->len, param_at, type->params);
    return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, arg->offset,
                        "%s has no parameter \"%.*s\"%s", type->name, shown(arg), word_of(b, arg),
                        type->params[0].name ? hint : ": it takes none");
}

/* Index of the parameter that an argument fills, or a negative code. *next: the next positional
 * one. */
static int which_param(const binder *b, const psti_op_type *type, const psti_node *arg, int *next)
{
    const int count = param_count(type->params);
    if (arg->type == PSTI_N_CHAIN)
        return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, arg->offset,
                            "%s takes values, no chain of ops", type->name);
    if (arg->len) {
        *next = -1;
        return find_keyword(b, type, arg);
    }
    if (*next < 0)
        return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, arg->offset,
                            "%s: a value without a name follows one with a name", type->name);
    if (*next >= count)
        return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, arg->offset,
                            "%s takes at most %d value%s", type->name, count,
                            count == 1 ? "" : "s");
    return (*next)++;
}

/* Index of the parameter one of whose words may stand without its name and does, or -1. */
static int bare_param(const binder *b, const psti_op_type *type, const psti_node *arg)
{
    const psti_node *value = &b->tree->nodes[arg->child];
    if (arg->type != PSTI_N_ARG || arg->len || value->type != PSTI_N_WORD)
        return -1;
    for (int i = 0; type->params[i].name; i++)
        for (int w = 0; type->params[i].bare && type->params[i].words[w]; w++)
            if (strlen(type->params[i].words[w]) == value->len &&
                memcmp(type->params[i].words[w], word_of(b, value), value->len) == 0)
                return i;
    return -1;
}

static int bind_args(const binder *b, const psti_op_type *type, const psti_node *op,
                     uint64_t *given, void *params)
{
    int next = 0;
    for (int at = op->child; at; at = b->tree->nodes[at].next) {
        const psti_node *arg = &b->tree->nodes[at];
        const int bare = bare_param(b, type, arg);
        const int i = bare >= 0 ? bare : which_param(b, type, arg, &next);
        if (i < 0)
            return i;
        if (*given & (uint64_t)1 << i)
            return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, arg->offset,
                                "%s: %s is given twice", type->name, type->params[i].name);
        *given |= (uint64_t)1 << i;
        const int rc =
            psti_param_store(&type->params[i], type->name, b->tree, arg->child, params, b->err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Gives every parameter that was not given its default. */
static int bind_defaults(const binder *b, const psti_op_type *type, const psti_node *op,
                         uint64_t given, void *params)
{
    for (int i = 0; type->params[i].name; i++) {
        const psti_param *param = &type->params[i];
        if (given & (uint64_t)1 << i)
            continue;
        if (!param->def)
            return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                                "%s wants a value for %s", type->name, param->name);
        const int rc = psti_param_default(param, type->name, params, b->err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Parameters that do not go together, as the op sees it. */
static int check_together(const binder *b, const psti_op_type *type, const psti_node *op,
                          const void *params)
{
    pst_error why = {0};
    int rc = 0;
    if (type->role == PSTI_ROLE_NORMALIZE) {
        psti_list mean, std;
        rc = psti_normalize_values(params, &mean, &std, &why);
    } else if (type->role == PSTI_ROLE_OP && type->op->check) {
        rc = type->op->check(params, &why);
    }
    if (rc >= 0)
        return 0;
    return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, op->offset, "%s: %s", type->name,
                        why.message);
}

/* ---- ops and blocks -------------------------------------------------------------------------- */

static int fail_unknown_op(const binder *b, const psti_node *op)
{
    char hint[300];
    psti_suggest(hint, sizeof hint, word_of(b, op), op->len, psti_op_type_name, NULL);
    return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                        "unknown op \"%.*s\"%s", shown(op), word_of(b, op), hint);
}

static int ops_so_far(const binder *b)
{
    return b->pipeline->op_count + b->pipeline->batch_count;
}

/* Whether an op of this type may stand here. */
static int check_position(const binder *b, const psti_op_type *type, const psti_node *op,
                          const position *at)
{
    if (ops_so_far(b) == 0 && type->role != PSTI_ROLE_DECODE && type->role != PSTI_ROLE_BYTES)
        return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "a pipeline starts with decode, not with %s", type->name);
    const bool batch = at->block < 0;
    if (batch && !psti_op_type_batch(type))
        return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "%s acts on samples, and after \"||\" stand ops on batches (mixup, "
                            "cutmix, choice): put it before \"||\"",
                            type->name);
    if (!batch && psti_op_type_batch(type))
        return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "%s acts on batches: it stands at the end, after \"||\"", type->name);
    if (at->chain >= 0 && (psti_op_type_chains(type) || type->role == PSTI_ROLE_DECODE ||
                           type->role == PSTI_ROLE_BYTES))
        return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                            "%s cannot stand inside %s", type->name,
                            b->pipeline->ops[b->pipeline->chains[at->chain].owner].type.name);
    return 0;
}

/* One op is done to a batch, so that it can be told in one pst_mix. */
static int check_single(const binder *b, int op)
{
    const int second = b->tree->nodes[op].next;
    if (!second)
        return 0;
    return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, b->tree->nodes[second].offset,
                        "one op is done to a batch; to draw one of several write "
                        "choice(1: mixup, 1: cutmix)");
}

static int bind_op(const binder *b, const psti_node *op, const position *at);

/* The arguments of an op that takes chains. */
static int bind_chains(const binder *b, const psti_op_type *type, const psti_node *op, int owner,
                       int block)
{
    psti_pipeline *pipeline = b->pipeline;
    int rc = op->child ? 0
                       : psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, op->offset,
                                      "%s wants chains of ops, each with a number: %s", type->name,
                                      type->role == PSTI_ROLE_VIEWS
                                          ? "views(2: random_resized_crop(224) | hflip)"
                                          : "choice(1: mixup, 1: cutmix)");
    for (int at = op->child; rc == 0 && at; at = b->tree->nodes[at].next) {
        const psti_node *arg = &b->tree->nodes[at];
        if (arg->type != PSTI_N_CHAIN)
            return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, arg->offset,
                                "%s takes chains of ops with a number before each, no values",
                                type->name);
        const position inside = {.block = block, .chain = pipeline->chain_count};
        pipeline->chains[pipeline->chain_count++] =
            (psti_chain){.owner = owner, .count = (int)arg->number};
        for (int i = arg->child; rc == 0 && i; i = b->tree->nodes[i].next)
            rc = bind_op(b, &b->tree->nodes[i], &inside);
        if (rc == 0 && block < 0)
            rc = check_single(b, arg->child);
    }
    return rc;
}

static int bind_op(const binder *b, const psti_node *op, const position *at)
{
    psti_pipeline *pipeline = b->pipeline;
    psti_op_type type;
    if (!psti_op_type_find(word_of(b, op), op->len, &type))
        return fail_unknown_op(b, op);
    int rc = check_position(b, &type, op, at);
    if (rc < 0)
        return rc;
    void *params = psti_calloc(PSTI_MEM_PIPELINE, 1, type.params_bytes ? type.params_bytes : 1);
    if (!params)
        return fail_memory(b);
    const int place = ops_so_far(b);
    pipeline->ops[place] = (psti_bound){.type = type,
                                        .params = params,
                                        .place = place,
                                        .block = at->block,
                                        .chain = at->chain,
                                        .offset = op->offset};
    *(at->block < 0 ? &pipeline->batch_count : &pipeline->op_count) += 1;
    if (psti_op_type_chains(&type))
        return bind_chains(b, &type, op, place, at->block);
    uint64_t given = 0;
    rc = bind_args(b, &type, op, &given, params);
    if (rc == 0)
        rc = bind_defaults(b, &type, op, given, params);
    if (rc == 0)
        rc = check_together(b, &type, op, params);
    if (rc == 0 && type.role == PSTI_ROLE_OP && type.op->variant)
        pipeline->ops[place].type.op = type.op->variant(params);
    return rc;
}

static int bind_field(const binder *b, const psti_node *node, psti_block *block)
{
    if (node->len >= PST_NAME_BYTES)
        return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, node->offset,
                            "a field's name has at most %d bytes", PST_NAME_BYTES - 1);
    psti_block_field field = {.offset = node->offset};
    memcpy(field.name, word_of(b, node), node->len);
    for (int i = 0; i < block->field_count; i++)
        if (strcmp(block->fields[i].name, field.name) == 0)
            return psti_fail_at(b->err, PST_EPIPELINE, "pipeline", NULL, node->offset,
                                "the field %s is named twice", field.name);
    block->fields[block->field_count++] = field;
    return 0;
}

static int count_children(const psti_tree *tree, int parent, psti_node_type type)
{
    int count = 0;
    for (int at = tree->nodes[parent].child; at; at = tree->nodes[at].next)
        count += tree->nodes[at].type == type;
    return count;
}

static int bind_block(const binder *b, int node)
{
    const int index = b->pipeline->block_count++;
    psti_block *block = &b->pipeline->blocks[index];
    const int fields = count_children(b->tree, node, PSTI_N_FIELD);
    if (fields) {
        block->fields = psti_calloc(PSTI_MEM_PIPELINE, (size_t)fields, sizeof *block->fields);
        if (!block->fields)
            return fail_memory(b);
    }
    const position here = {.block = index, .chain = -1};
    int rc = 0;
    for (int at = b->tree->nodes[node].child; rc == 0 && at; at = b->tree->nodes[at].next) {
        const psti_node *child = &b->tree->nodes[at];
        rc = child->type == PSTI_N_FIELD ? bind_field(b, child, block) : bind_op(b, child, &here);
    }
    return rc;
}

/* What stands after "||". */
static int bind_batch(const binder *b, int node)
{
    const int op = b->tree->nodes[node].child;
    const position here = {.block = -1, .chain = -1};
    const int rc = bind_op(b, &b->tree->nodes[op], &here);
    return rc < 0 ? rc : check_single(b, op);
}

/* Makes room for every block, op and chain, and refuses what is more than a job can carry. */
static int reserve(const binder *b)
{
    const psti_tree *tree = b->tree;
    const int blocks = count_children(tree, 0, PSTI_N_BLOCK);
    int ops = 0, chains = 0;
    for (int i = 0; i < tree->count; i++) {
        ops += tree->nodes[i].type == PSTI_N_OP;
        chains += tree->nodes[i].type == PSTI_N_CHAIN;
    }
    if (ops > PSTI_OPS_MAX)
        return psti_fail(b->err, PST_EPIPELINE, "pipeline", NULL,
                         "%d ops are more than the %d allowed", ops, PSTI_OPS_MAX);
    psti_pipeline *pipeline = b->pipeline;
    pipeline->blocks = psti_calloc(PSTI_MEM_PIPELINE, (size_t)blocks, sizeof *pipeline->blocks);
    pipeline->ops = psti_calloc(PSTI_MEM_PIPELINE, (size_t)ops, sizeof *pipeline->ops);
    pipeline->chains = psti_calloc(PSTI_MEM_PIPELINE, (size_t)chains + 1, sizeof *pipeline->chains);
    return pipeline->blocks && pipeline->ops && pipeline->chains ? 0 : fail_memory(b);
}

static int bind_tree(const binder *b)
{
    int rc = reserve(b);
    for (int at = b->tree->nodes[0].child; rc == 0 && at; at = b->tree->nodes[at].next)
        rc = b->tree->nodes[at].type == PSTI_N_BLOCK ? bind_block(b, at) : bind_batch(b, at);
    return rc;
}

int psti_pipeline_parse(const char *text, psti_pipeline **out, pst_error *err)
{
    psti_tree tree;
    *out = NULL;
    int rc = psti_tree_parse(&tree, text, err);
    if (rc < 0)
        return rc;
    const binder b = {&tree, psti_calloc(PSTI_MEM_PIPELINE, 1, sizeof(psti_pipeline)), err};
    rc = b.pipeline ? bind_tree(&b) : fail_memory(&b);
    psti_tree_fini(&tree);
    if (rc == 0)
        rc = psti_pipeline_canon(b.pipeline, err);
    if (rc == 0)
        *out = b.pipeline;
    else
        psti_pipeline_free(b.pipeline);
    return rc;
}

void psti_pipeline_free(psti_pipeline *pipeline)
{
    if (!pipeline)
        return;
    for (int i = 0; i < pipeline->op_count + pipeline->batch_count; i++)
        psti_free(pipeline->ops[i].params);
    for (int i = 0; i < pipeline->block_count; i++)
        psti_free(pipeline->blocks[i].fields);
    psti_free(pipeline->ops);
    psti_free(pipeline->chains);
    psti_free(pipeline->blocks);
    psti_free(pipeline->text);
    psti_free(pipeline);
}

const char *psti_pipeline_text(const psti_pipeline *pipeline)
{
    return pipeline->text;
}

psti_fingerprints psti_pipeline_fingerprints(const psti_pipeline *pipeline)
{
    return pipeline->prints;
}
