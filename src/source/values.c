/* SPDX-License-Identifier: Apache-2.0
 * Finished value columns: reading them, and text to numbers. Columns are immutable, so any thread
 * may read. */
#include "source/values.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

int psti_column_get(const psti_column *col, int64_t id, const void **value, size_t *bytes)
{
    if (col->present && !(col->present[id / 64] >> (id % 64) & 1))
        return -ENOENT;
    switch (col->type) {
    case PSTI_COL_BOOL:
        *value = (const uint8_t *)col->cells + id;
        *bytes = 1;
        return 0;
    case PSTI_COL_I64:
    case PSTI_COL_F64:
        *value = (const uint8_t *)col->cells + 8 * id;
        *bytes = 8;
        return 0;
    default: {
        const uint64_t *at = (const uint64_t *)col->cells + id;
        *value = col->heap + at[0];
        *bytes = at[1] - at[0];
        return 0;
    }
    }
}

size_t psti_column_cell_bytes(const psti_column *col, int64_t count)
{
    const size_t n = (size_t)count;
    return col->type == PSTI_COL_BOOL ? n : col->type >= PSTI_COL_TEXT ? 8 * (n + 1) : 8 * n;
}

size_t psti_column_bytes(const psti_column *col, int64_t count)
{
    const size_t bits = col->present ? ((size_t)count + 63) / 64 * 8 : 0;
    return psti_column_cell_bytes(col, count) + col->heap_bytes + bits;
}

void psti_column_fini(psti_column *col)
{
    psti_free(col->present);
    psti_free(col->cells);
    psti_free(col->heap);
    *col = (psti_column){0};
}

void psti_column_describe(const psti_column *col, pst_field_info *info)
{
    static const struct {
        uint8_t kind, dtype, rank;
    } of[] = {
        [PSTI_COL_I64] = {PST_META, PST_I64, 0},   [PSTI_COL_F64] = {PST_META, PST_F64, 0},
        [PSTI_COL_BOOL] = {PST_META, PST_BOOL, 0}, [PSTI_COL_TEXT] = {PST_TEXT, PST_U8, 1},
        [PSTI_COL_I64S] = {PST_ARRAY, PST_I64, 1}, [PSTI_COL_F64S] = {PST_ARRAY, PST_F64, 1},
        [PSTI_COL_F32S] = {PST_ARRAY, PST_F32, 1}, [PSTI_COL_BYTES] = {PST_BYTES, PST_U8, 1},
    };
    info->kind = of[col->type].kind;
    info->dtype = of[col->type].dtype;
    info->rank = of[col->type].rank;
    if (info->rank)
        info->shape[0] = -1;
}

psti_column psti_column_of_i64(int64_t *values, uint64_t *present)
{
    return (psti_column){.type = PSTI_COL_I64, .cells = values, .present = present};
}

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

bool psti_field_name_ok(const char *name, size_t len)
{
    static const char *const taken[] = {"id", "key", "valid"};
    if (len == 0 || len >= PST_NAME_BYTES)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!name_byte(name[i]))
            return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strlen(taken[i]) == len && memcmp(taken[i], name, len) == 0)
            return false;
    return true;
}

bool psti_text_i64(const char *text, size_t len, int64_t *out)
{
    const bool minus = len && text[0] == '-';
    size_t i = len && (text[0] == '-' || text[0] == '+');
    int64_t value = 0;
    if (i == len)
        return false;
    for (; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        const int digit = text[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, minus ? -digit : digit, &value))
            return false;
    }
    *out = value;
    return true;
}

bool psti_text_f64(const char *text, size_t len, double *out)
{
    char copy[64];
    if (len == 0 || len >= sizeof copy || strchr(" \t\n\v\f\r", text[0]))
        return false;
    memcpy(copy, text, len);
    copy[len] = 0;
    if (strpbrk(copy, "xX")) /* 0x10 is a name here, not a number */
        return false;
    /* The C locale, whatever the program has set: a comma is never a decimal point here. */
    static locale_t plain;
    locale_t now = __atomic_load_n(&plain, __ATOMIC_ACQUIRE);
    if (!now) {
        now = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        if (!now)
            return false;
        locale_t none = (locale_t)0;
        if (!__atomic_compare_exchange_n(&plain, &none, now, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE)) {
            freelocale(now);
            now = none;
        }
    }
    char *end;
    *out = strtod_l(copy, &end, now);
    return end == copy + len;
}
