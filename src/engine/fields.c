/* SPDX-License-Identifier: Apache-2.0
 * Which fields a job delivers, how they are packed, and what the plan needs to know of them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/arrays.h"
#include "engine/engine_priv.h"
#include "engine/fields.h"

static const char *const packings[] = {
    [PST_DENSE] = "dense", [PST_PADDED] = "padded", [PST_RAGGED] = "ragged"};

enum { MULTIPLE_MAX = 65536 };

static int add(field_choice *choice, psti_feed_field field, pst_error *err)
{
    if (choice->count == PSTI_FIELDS_MAX)
        return psti_fail(err, PST_ELIMIT, "fields", NULL, "more than %d fields", PSTI_FIELDS_MAX);
    choice->field[choice->count++] = field;
    return 0;
}

/* Every typed field; raw bytes and pictures that some samples lack only when asked for. */
static int choose_all(const psti_source_field *source, int count, field_choice *choice,
                      pst_error *err)
{
    for (int i = 0; i < count; i++) {
        if (source[i].info.kind == PST_BYTES || (source[i].info.optional && source[i].member))
            continue;
        const int rc = add(choice, (psti_feed_field){.source = i}, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int list_names(const psti_source_field *source, int count, char *buf, size_t cap)
{
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < count && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%s", i ? ", " : "", source[i].info.name);
    return 0;
}

/* "padded(32)": sizes become multiples of the number in parentheses. */
static int read_multiple(const char *word, size_t len, psti_feed_field *out, pst_error *err)
{
    int multiple = 0;
    size_t i = 1;
    for (; i < len && word[i] >= '0' && word[i] <= '9' && multiple <= MULTIPLE_MAX; i++)
        multiple = 10 * multiple + (word[i] - '0');
    if (i + 1 != len || word[i] != ')' || multiple < 1 || multiple > MULTIPLE_MAX)
        return psti_fail(err, PST_EFIELD, "fields", NULL,
                         "\"padded%.*s\": what sizes are to be a multiple of is a whole number "
                         "from 1 to %d, as in padded(32)",
                         (int)len, word, MULTIPLE_MAX);
    out->multiple = multiple;
    return 0;
}

static int read_packing(const char *word, size_t len, psti_feed_field *out, pst_error *err)
{
    const size_t padded = strlen(packings[PST_PADDED]);
    if (len > padded && memcmp(word, packings[PST_PADDED], padded) == 0 && word[padded] == '(') {
        out->packing = PST_PADDED;
        return read_multiple(word + padded, len - padded, out, err);
    }
    for (int p = PST_DENSE; p <= PST_RAGGED; p++)
        if (strlen(packings[p]) == len && memcmp(packings[p], word, len) == 0)
            out->packing = p;
    if (out->packing)
        return 0;
    return psti_fail(err, PST_EFIELD, "fields", NULL,
                     "\"%.*s\" is not one of dense, padded, padded(32), ragged", (int)len, word);
}

static int choose_one(const psti_source_field *source, int count, const char *word, size_t len,
                      field_choice *choice, pst_error *err)
{
    const char *eq = memchr(word, '=', len);
    const size_t name_len = eq ? (size_t)(eq - word) : len;
    psti_feed_field field = {0};
    const int rc = eq ? read_packing(eq + 1, len - name_len - 1, &field, err) : 0;
    if (rc < 0)
        return rc;
    for (int i = 0; i < count; i++)
        if (strlen(source[i].info.name) == name_len &&
            memcmp(source[i].info.name, word, name_len) == 0) {
            field.source = i;
            return add(choice, field, err);
        }
    char names[256];
    list_names(source, count, names, sizeof names);
    return psti_fail(err, PST_EFIELD, "fields", NULL,
                     "the dataset has no field \"%.*s\"; it has %s", (int)name_len, word, names);
}

static bool chosen(const field_choice *choice, int source)
{
    for (int i = 0; i < choice->count; i++)
        if (choice->field[i].source == source)
            return true;
    return false;
}

/* What objects are judged by, where anything of them is delivered. */
static int add_hidden(const psti_source_field *source, int count, field_choice *choice,
                      pst_error *err)
{
    static const char *const names[] = {"boxes", "iscrowd", "annotation_id", "width", "height"};
    bool objects = false;
    for (int i = 0; i < choice->count; i++)
        objects |= source[choice->field[i].source].per_object;
    for (size_t n = 0; objects && n < sizeof names / sizeof *names; n++)
        for (int i = 0; i < count; i++) {
            if (strcmp(source[i].info.name, names[n]) != 0 || chosen(choice, i))
                continue;
            const int rc = add(choice, (psti_feed_field){.source = i, .hidden = true}, err);
            if (rc < 0)
                return rc;
        }
    return 0;
}

int fields_choose(const psti_dataset *data, const char *text, field_choice *choice, pst_error *err)
{
    const psti_source_field *source;
    const int count = psti_dataset_fields(data, &source);
    choice->count = 0;
    int rc = 0;
    if (!text)
        rc = choose_all(source, count, choice, err);
    for (const char *at = text; text && rc == 0;) {
        const size_t len = strcspn(at, ",");
        rc = choose_one(source, count, at, len, choice, err);
        if (!at[len])
            break;
        at += len + 1;
    }
    if (rc == 0)
        rc = add_hidden(source, count, choice, err);
    if (rc == 0 && choice->count == 0)
        rc = psti_fail(err, PST_EFIELD, "fields", NULL,
                       "the dataset has no field that can be delivered");
    return rc;
}

void fields_inputs(const psti_dataset *data, const field_choice *choice, psti_plan_input *inputs)
{
    const psti_source_field *source;
    psti_dataset_fields(data, &source);
    for (int i = 0; i < choice->count; i++) {
        const psti_source_field *field = &source[choice->field[i].source];
        psti_plan_input *input = &inputs[i];
        memset(input, 0, sizeof *input);
        memcpy(input->name, field->info.name, sizeof input->name);
        input->kind = field->info.kind;
        input->per_object = field->per_object;
        input->hidden = choice->field[i].hidden;
        if (field->info.kind == PST_LABEL)
            input->classes = psti_dataset_classes(data);
        input->encoded =
            field->member && (field->info.kind == PST_IMAGE || field->info.kind == PST_MASK ||
                              field->info.kind == PST_VOLUME || field->info.kind == PST_AUDIO ||
                              field->info.kind == PST_ARRAY);
        pst_field_info info = field->info;
        if (field->member)
            arrays_look(data, choice->field[i].source, &info);
        input->dtype = info.dtype;
        input->rank = info.rank;
        memcpy(input->shape, info.shape, sizeof input->shape);
        /* Asked for as padded or ragged, arrays may be of any shape. */
        for (int d = 0; info.kind == PST_ARRAY && choice->field[i].packing > PST_DENSE &&
                        field->member && d < info.rank;
             d++)
            input->shape[d] = -1;
    }
}

int fields_check(const psti_plan *plan, pst_error *err)
{
    const psti_plan_output *out;
    const int count = psti_plan_outputs(plan, &out);
    for (int i = 0; i < count; i++)
        if (!out[i].dtype)
            return psti_fail(err, PST_EFIELD, "fields", NULL,
                             "field %s: none of the arrays looked at could be read, so its type is "
                             "not known; look at the data with penstock inspect",
                             out[i].name);
    return 0;
}
