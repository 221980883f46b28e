/* SPDX-License-Identifier: Apache-2.0
 * Tokens to a tree, by the grammar of docs/pipeline.md, one function per rule. Knows no op and no
 * parameter: bind.c gives words their meaning. Any thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "pipeline/pipeline_priv.h"

typedef struct parser {
    psti_lexer lex;
    psti_token token; /* the next one, not yet taken */
    psti_tree *tree;
    int depth;
    pst_error *err;
} parser;

static int parse_op(parser *p, const psti_token *name);

static int advance(parser *p)
{
    return psti_lex(&p->lex, &p->token, p->err);
}

/* "expected X, found Y", at the token in hand. */
static int fail_expected(const parser *p, const char *expected)
{
    const psti_token *t = &p->token;
    if (t->type == PSTI_T_END)
        return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, t->offset,
                            "expected %s, found the end of the text", expected);
    return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, t->offset,
                        "expected %s, found \"%.*s\"", expected, t->len > 60 ? 60 : (int)t->len,
                        p->lex.text + t->offset);
}

/* The new node's index, or a negative code. */
static int node_new(parser *p, psti_node_type type, const psti_token *at)
{
    psti_tree *tree = p->tree;
    if (tree->count == tree->cap) {
        const int cap = tree->cap ? tree->cap * 2 : 32;
        psti_node *nodes = psti_realloc(PSTI_MEM_PIPELINE, tree->nodes, (size_t)cap, sizeof *nodes);
        if (!nodes)
            return psti_fail(p->err, -ENOMEM, "pipeline", NULL, "out of memory for the pipeline");
        tree->nodes = nodes;
        tree->cap = cap;
    }
    tree->nodes[tree->count] =
        (psti_node){.type = type, .offset = at->offset, .len = at->len, .number = at->number};
    return tree->count++;
}

/* Hangs node behind *last, the youngest child of parent (0: none yet). */
static void node_link(psti_tree *tree, int parent, int *last, int node)
{
    if (*last)
        tree->nodes[*last].next = node;
    else
        tree->nodes[parent].child = node;
    *last = node;
}

static int enter(parser *p)
{
    if (++p->depth > PSTI_DEPTH_MAX)
        return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, p->token.offset,
                            "nested deeper than %d", PSTI_DEPTH_MAX);
    return 0;
}

/* chain = op { "|" op }; the first op's name was taken. Ops become children of parent, behind last.
 */
static int parse_chain(parser *p, int parent, int last, const psti_token *first)
{
    psti_token name = *first;
    for (;;) {
        const int op = parse_op(p, &name);
        if (op < 0)
            return op;
        node_link(p->tree, parent, &last, op);
        if (p->token.type != PSTI_T_BAR)
            return 0;
        int rc = advance(p);
        if (rc == 0 && p->token.type != PSTI_T_WORD)
            rc = fail_expected(p, "the name of an op");
        name = p->token;
        if (rc == 0)
            rc = advance(p);
        if (rc < 0)
            return rc;
    }
}

/* The same where the first name was not taken yet. */
static int parse_chain_here(parser *p, int parent, int last)
{
    if (p->token.type != PSTI_T_WORD)
        return fail_expected(p, "the name of an op");
    const psti_token name = p->token;
    const int rc = advance(p);
    return rc < 0 ? rc : parse_chain(p, parent, last, &name);
}

static int parse_value(parser *p);

/* "(" value { "," value } ")" */
static int parse_list(parser *p)
{
    const int list = node_new(p, PSTI_N_LIST, &p->token);
    int rc = list < 0 ? list : enter(p);
    int last = 0;
    do {
        if (rc == 0)
            rc = advance(p);
        if (rc < 0)
            return rc;
        const int value = parse_value(p);
        if (value < 0)
            return value;
        node_link(p->tree, list, &last, value);
    } while (p->token.type == PSTI_T_COMMA);
    if (p->token.type != PSTI_T_CLOSE)
        return fail_expected(p, "\",\" or \")\"");
    p->depth--;
    rc = advance(p);
    return rc < 0 ? rc : list;
}

static int parse_value(parser *p)
{
    psti_node_type type;
    switch (p->token.type) {
    case PSTI_T_NUMBER:
        type = PSTI_N_NUMBER;
        break;
    case PSTI_T_WORD:
        type = PSTI_N_WORD;
        break;
    case PSTI_T_STRING:
        type = PSTI_N_STRING;
        break;
    case PSTI_T_OPEN:
        return parse_list(p);
    default:
        return fail_expected(p, "a value");
    }
    const int value = node_new(p, type, &p->token);
    const int rc = value < 0 ? value : advance(p);
    return rc < 0 ? rc : value;
}

/* integer ":" chain; the integer is the node given. */
static int parse_counted_chain(parser *p, int chain)
{
    psti_node *node = &p->tree->nodes[chain];
    if (node->number < 1 || node->number > 65535 || node->number != (int)node->number)
        return psti_fail_at(p->err, PST_EPIPELINE, "pipeline", NULL, node->offset,
                            "the number before \":\" is an integer from 1 to 65535");
    node->type = PSTI_N_CHAIN;
    int rc = advance(p);
    if (rc == 0)
        rc = enter(p);
    if (rc == 0)
        rc = parse_chain_here(p, chain, 0);
    p->depth--;
    return rc < 0 ? rc : chain;
}

/* arg = [ name "=" ] value | integer ":" chain */
static int parse_arg(parser *p)
{
    const psti_token first = p->token;
    const int value = parse_value(p);
    if (value < 0)
        return value;
    if (first.type == PSTI_T_NUMBER && p->token.type == PSTI_T_COLON)
        return parse_counted_chain(p, value);
    const psti_token none = {.offset = first.offset};
    const bool keyword = first.type == PSTI_T_WORD && p->token.type == PSTI_T_EQUALS;
    const int arg = node_new(p, PSTI_N_ARG, keyword ? &first : &none);
    if (arg < 0)
        return arg;
    int child = value;
    if (keyword) {
        const int rc = advance(p);
        child = rc < 0 ? rc : parse_value(p);
    }
    if (child < 0)
        return child;
    p->tree->nodes[arg].child = child;
    return arg;
}

/* op = name [ "(" [ arg { "," arg } ] ")" ]; the name was taken. Returns the node. */
static int parse_op(parser *p, const psti_token *name)
{
    const int op = node_new(p, PSTI_N_OP, name);
    if (op < 0 || p->token.type != PSTI_T_OPEN)
        return op;
    int rc = advance(p);
    int last = 0;
    while (rc == 0 && (last || p->token.type != PSTI_T_CLOSE)) {
        const int arg = parse_arg(p);
        if (arg < 0)
            return arg;
        node_link(p->tree, op, &last, arg);
        if (p->token.type != PSTI_T_COMMA)
            break;
        rc = advance(p);
    }
    if (rc == 0 && p->token.type != PSTI_T_CLOSE)
        rc = fail_expected(p, "\",\" or \")\"");
    if (rc == 0)
        rc = advance(p);
    return rc < 0 ? rc : op;
}

/* name { "," name } ":"; the first name was taken and "," or ":" follows. */
static int parse_fields(parser *p, int block, int *last, const psti_token *first)
{
    psti_token name = *first;
    for (;;) {
        const int field = node_new(p, PSTI_N_FIELD, &name);
        if (field < 0)
            return field;
        node_link(p->tree, block, last, field);
        if (p->token.type == PSTI_T_COLON)
            return advance(p);
        if (p->token.type != PSTI_T_COMMA)
            return fail_expected(p,
                                 "\",\" or \":\" after a field's name (ops are joined by \"|\")");
        int rc = advance(p);
        if (rc == 0 && p->token.type != PSTI_T_WORD)
            rc = fail_expected(p, "the name of a field");
        name = p->token;
        if (rc == 0)
            rc = advance(p);
        if (rc < 0)
            return rc;
    }
}

/* block = [ name { "," name } ":" ] chain */
static int parse_block(parser *p)
{
    if (p->token.type != PSTI_T_WORD)
        return fail_expected(p, "the name of an op or field");
    const psti_token first = p->token;
    const int block = node_new(p, PSTI_N_BLOCK, &first);
    int rc = block < 0 ? block : advance(p);
    if (rc < 0)
        return rc;
    int last = 0;
    if (p->token.type == PSTI_T_COLON || p->token.type == PSTI_T_COMMA) {
        rc = parse_fields(p, block, &last, &first);
        if (rc == 0)
            rc = parse_chain_here(p, block, last);
    } else {
        rc = parse_chain(p, block, 0, &first);
    }
    return rc < 0 ? rc : block;
}

/* "||" chain */
static int parse_batch(parser *p, int *last)
{
    const int batch = node_new(p, PSTI_N_BATCH, &p->token);
    int rc = batch < 0 ? batch : advance(p);
    if (rc < 0)
        return rc;
    node_link(p->tree, 0, last, batch);
    return parse_chain_here(p, batch, 0);
}

/* pipeline = block { ";" block } [ "||" chain ] */
static int parse_pipeline(parser *p)
{
    int last = 0;
    for (;;) {
        const int block = parse_block(p);
        if (block < 0)
            return block;
        node_link(p->tree, 0, &last, block);
        if (p->token.type != PSTI_T_SEMICOLON)
            break;
        const int rc = advance(p);
        if (rc < 0)
            return rc;
    }
    const int rc = p->token.type == PSTI_T_BARS ? parse_batch(p, &last) : 0;
    if (rc < 0 || p->token.type == PSTI_T_END)
        return rc;
    return fail_expected(p, "\"|\", \";\" or the end");
}

/* Sets the parser up before the first token, with the root made. */
static int begin(parser *p, psti_tree *tree, const char *text, pst_error *err)
{
    *tree = (psti_tree){.text = text};
    const size_t len = strnlen(text, PSTI_TEXT_MAX + 1);
    *p = (parser){.lex = {.text = text, .len = len}, .tree = tree, .err = err};
    if (len > PSTI_TEXT_MAX)
        return psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, PSTI_TEXT_MAX,
                            "the pipeline is longer than %d bytes", PSTI_TEXT_MAX);
    const int root = node_new(p, PSTI_N_ROOT, &p->token);
    return root < 0 ? root : advance(p);
}

int psti_tree_parse(psti_tree *tree, const char *text, pst_error *err)
{
    parser p;
    int rc = begin(&p, tree, text, err);
    if (rc == 0 && p.token.type == PSTI_T_END)
        rc = psti_fail_at(err, PST_EPIPELINE, "pipeline", NULL, 0,
                          "the pipeline is empty: the shortest are \"decode\" and \"bytes\"");
    if (rc == 0)
        rc = parse_pipeline(&p);
    if (rc < 0)
        psti_tree_fini(tree);
    return rc;
}

int psti_tree_parse_value(psti_tree *tree, const char *text, pst_error *err)
{
    parser p;
    int rc = begin(&p, tree, text, err);
    if (rc == 0)
        rc = parse_value(&p);
    if (rc > 0) {
        tree->nodes[0].child = rc;
        rc = p.token.type == PSTI_T_END ? 0 : fail_expected(&p, "the end");
    }
    if (rc < 0)
        psti_tree_fini(tree);
    return rc;
}

void psti_tree_fini(psti_tree *tree)
{
    psti_free(tree->nodes);
    *tree = (psti_tree){0};
}
