/* SPDX-License-Identifier: Apache-2.0
 * Parameters of an op from "key=value" texts, by its table; lists are numbers between commas or
 * spaces, with or without brackets. For tests: the pipeline's parser is tested in its own place. */
#ifndef PSTI_TESTS_OP_ARGS_H
#define PSTI_TESTS_OP_ARGS_H

#include <stdlib.h>
#include <string.h>

#include "op/op.h"

static inline bool args_store(const psti_param *param, const char *text, void *params)
{
    void *slot = (char *)params + param->offset;
    switch (param->type) {
    case PSTI_P_INT:
        *(int64_t *)slot = atoll(text);
        return true;
    case PSTI_P_FLOAT:
        *(double *)slot = atof(text);
        return true;
    case PSTI_P_BOOL:
        *(bool *)slot = strcmp(text, "true") == 0;
        return true;
    case PSTI_P_WORD:
        for (int i = 0; param->words[i]; i++) {
            if (strcmp(param->words[i], text) == 0) {
                *(int *)slot = i;
                return true;
            }
        }
        return false;
    default:
        break;
    }
    psti_list *list = slot;
    *list = (psti_list){0};
    for (int i = 0; param->words && param->words[i]; i++)
        if (strcmp(param->words[i], text) == 0)
            list->word = i + 1;
    for (char *end; list->count < PSTI_LIST_MAX; text = end) {
        text += strspn(text, "(,) ");
        const double value = strtod(text, &end);
        if (end == text)
            break;
        list->v[list->count++] = value;
    }
    return true;
}

/* Defaults, then the given ones. False for an unknown key or word. */
static inline bool args_parse(const psti_op *op, void *params, const char *const *texts, int count)
{
    memset(params, 0, op->params_bytes);
    for (const psti_param *p = op->params; p->name; p++) {
        if (p->def && !args_store(p, p->def, params))
            return false;
    }
    for (int i = 0; i < count; i++) {
        const psti_param *p = op->params;
        const size_t len = strcspn(texts[i], "=");
        while (p->name && (strlen(p->name) != len || memcmp(p->name, texts[i], len) != 0))
            p++;
        if (!p->name || texts[i][len] != '=' || !args_store(p, texts[i] + len + 1, params))
            return false;
    }
    return true;
}

#endif
