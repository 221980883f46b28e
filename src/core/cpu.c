/* SPDX-License-Identifier: Apache-2.0
 * CPU detection, once per process. */
#include "core/cpu.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static psti_cpu level = PSTI_CPU_C;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *const names[] = {"c", "avx2", "avx512"};

#if defined(__x86_64__)
/* Asked of the CPU itself: not every compiler knows this feature by name. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

psti_cpu psti_cpu_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi"))
        return PSTI_CPU_AVX512;
    if (__builtin_cpu_supports("avx2") && has_f16c())
        return PSTI_CPU_AVX2;
#endif
    return PSTI_CPU_C;
}

static void look(void)
{
    level = psti_cpu_best();
    const char *want = getenv("PENSTOCK_CPU");
    if (!want || !*want)
        return;
    for (int i = 0; i < 3; i++) {
        if (strcmp(want, names[i]) != 0)
            continue;
        if (i > (int)level)
            psti_log(PSTI_LOG_WARN, "PENSTOCK_CPU=%s: this CPU has only %s; using that", want,
                     names[level]);
        else
            level = (psti_cpu)i;
        return;
    }
    psti_log(PSTI_LOG_WARN, "PENSTOCK_CPU=%s is not one of c, avx2, avx512; ignored", want);
}

psti_cpu psti_cpu_level(void)
{
    pthread_once(&once, look);
    return level;
}

const char *psti_cpu_name(psti_cpu l)
{
    return names[l];
}
