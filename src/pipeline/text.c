/* SPDX-License-Identifier: Apache-2.0
 * A growing string, and numbers read and written in the C locale whatever the process has set: a
 * canonical text must not depend on who prints it. Pure functions on the caller's storage; any
 * thread. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "pipeline/pipeline_priv.h"

void psti_text_add(psti_text *text, const char *bytes, size_t len)
{
    if (text->failed)
        return;
    if (text->cap - text->len <= len) {
        const size_t cap = (text->len + len + 64) * 2;
        char *data = psti_realloc(PSTI_MEM_PIPELINE, text->data, cap, 1);
        if (!data) {
            text->failed = true;
            return;
        }
        text->data = data;
        text->cap = cap;
    }
    memcpy(text->data + text->len, bytes, len);
    text->len += len;
    text->data[text->len] = 0;
}

void psti_text_puts(psti_text *text, const char *word)
{
    psti_text_add(text, word, strlen(word));
}

/* glibc answers the full "C" locale with a static object: nothing is allocated and nothing need be
 * freed. */
static locale_t enter_c_locale(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

bool psti_number_parse(const char *text, size_t len, double *out)
{
    char copy[PSTI_TOKEN_BYTES + 1];
    if (len > PSTI_TOKEN_BYTES)
        return false;
    memcpy(copy, text, len);
    copy[len] = 0;
    const locale_t before = enter_c_locale();
    *out = strtod(copy, NULL);
    uselocale(before);
    if (*out == 0)
        *out = 0; /* minus zero has no second spelling */
    return isfinite(*out);
}

void psti_number_print(double value, char out[PSTI_NUMBER_BYTES])
{
    const locale_t before = enter_c_locale();
    if (fabs(value) < 1e15 && value == (double)(int64_t)value) {
        snprintf(out, PSTI_NUMBER_BYTES, "%lld", (long long)value);
    } else {
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(out, PSTI_NUMBER_BYTES, "%.*g", digits, value);
            if (strtod(out, NULL) == value)
                break;
        }
    }
    uselocale(before);
}
