/* SPDX-License-Identifier: Apache-2.0
 * Element types: sizes and names. */
#include "core/field.h"

#include <string.h>

static const struct {
    const char *name, *long_name;
    size_t bytes;
} types[] = {
    [PST_U8] = {"u8", "uint8", 1},     [PST_I8] = {"i8", "int8", 1},
    [PST_U16] = {"u16", "uint16", 2},  [PST_I16] = {"i16", "int16", 2},
    [PST_I32] = {"i32", "int32", 4},   [PST_I64] = {"i64", "int64", 8},
    [PST_F16] = {"f16", "float16", 2}, [PST_BF16] = {"bf16", "bfloat16", 2},
    [PST_F32] = {"f32", "float32", 4}, [PST_F64] = {"f64", "float64", 8},
    [PST_BOOL] = {"bool", "bool", 1},
};
enum { TYPES = sizeof types / sizeof *types };

size_t psti_dtype_bytes(int dtype)
{
    return dtype > 0 && dtype < TYPES ? types[dtype].bytes : 0;
}

size_t pst_dtype_bytes(int dtype)
{
    return psti_dtype_bytes(dtype);
}

const char *psti_dtype_name(int dtype)
{
    return dtype > 0 && dtype < TYPES ? types[dtype].name : "?";
}

static int same(const char *word, const char *text, size_t len)
{
    return strlen(word) == len && memcmp(word, text, len) == 0;
}

int psti_dtype_of_name(const char *name, size_t len)
{
    for (int i = 1; i < TYPES; i++)
        if (same(types[i].name, name, len) || same(types[i].long_name, name, len))
            return i;
    return 0;
}
