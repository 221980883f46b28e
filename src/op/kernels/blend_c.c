/* SPDX-License-Identifier: Apache-2.0
 * Blending the values of a batch in plain C: the specification of the other levels. Two products
 * and their sum, each rounded, then rounded to the type. */
#include <string.h>

#include "op/kernels/kernels.h"

static float blended(float x, float y, float keep, float take)
{
    const float own = keep * x, other = take * y;
    return own + other;
}

float psti_c_half_value(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
    uint32_t bits = sign | (exponent + 112) << 23 | mantissa << 13;
    if (exponent == 31)
        bits = sign | 0x7f800000 | mantissa << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    if (exponent == 0) { /* steps of 2^-24 */
        const float size = (float)mantissa * 0x1p-24f;
        value = sign ? -size : size;
    }
    return value;
}

float psti_c_bfloat_value(uint16_t bfloat)
{
    const uint32_t bits = (uint32_t)bfloat << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void psti_c_blend_f32(void *x, const void *y, float keep, float take, size_t n)
{
    float *to = x;
    const float *from = y;
    for (size_t i = 0; i < n; i++)
        to[i] = blended(to[i], from[i], keep, take);
}

void psti_c_blend_f16(void *x, const void *y, float keep, float take, size_t n)
{
    uint16_t *to = x;
    const uint16_t *from = y;
    for (size_t i = 0; i < n; i++)
        to[i] =
            psti_c_half(blended(psti_c_half_value(to[i]), psti_c_half_value(from[i]), keep, take));
}

void psti_c_blend_bf16(void *x, const void *y, float keep, float take, size_t n)
{
    uint16_t *to = x;
    const uint16_t *from = y;
    for (size_t i = 0; i < n; i++)
        to[i] = psti_c_bfloat(
            blended(psti_c_bfloat_value(to[i]), psti_c_bfloat_value(from[i]), keep, take));
}
