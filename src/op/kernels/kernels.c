/* SPDX-License-Identifier: Apache-2.0
 * Which kernels this process uses. The tables are filled once and then only read. */
#include "op/kernels/kernels.h"

#include <pthread.h>

static psti_kernels tables[PSTI_CPU_AVX512 + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What fills a level's table is compiled for that level itself: on a lesser CPU it must not run,
 * and the tables above are those of the best level there is. */
static void fill(void)
{
    const int best = (int)psti_cpu_best();
    for (int level = PSTI_CPU_C; level <= PSTI_CPU_AVX512; level++) {
        psti_kernels_init_c(&tables[level]);
        psti_kernels_init_color_c(&tables[level]);
        psti_kernels_init_values_c(&tables[level]);
        psti_kernels_init_audio_c(&tables[level]);
#if defined(__x86_64__)
        if (level >= PSTI_CPU_AVX2 && best >= PSTI_CPU_AVX2) {
            psti_kernels_init_avx2(&tables[level]);
            psti_kernels_init_color_avx2(&tables[level]);
            psti_kernels_init_values_avx2(&tables[level]);
            psti_kernels_init_audio_avx2(&tables[level]);
        }
        if (level >= PSTI_CPU_AVX512 && best >= PSTI_CPU_AVX512) {
            psti_kernels_init_avx512(&tables[level]);
            psti_kernels_init_color_avx512(&tables[level]);
            psti_kernels_init_values_avx512(&tables[level]);
            psti_kernels_init_audio_avx512(&tables[level]);
        }
#endif
    }
}

const psti_kernels *psti_kernels_level(psti_cpu level)
{
    pthread_once(&once, fill);
    return &tables[level];
}

const psti_kernels *psti_kernels_get(void)
{
    return psti_kernels_level(psti_cpu_level());
}
