/* SPDX-License-Identifier: Apache-2.0
 * Which instruction sets kernels may use: what the CPU has, held down by
 * PENSTOCK_CPU=c|avx2|avx512. */
#ifndef PSTI_CORE_CPU_H
#define PSTI_CORE_CPU_H

typedef enum psti_cpu { PSTI_CPU_C = 0, PSTI_CPU_AVX2, PSTI_CPU_AVX512 } psti_cpu;

/* avx512 means F, BW, DQ, VL and VBMI. Looked up once; any thread. */
psti_cpu psti_cpu_level(void);
psti_cpu psti_cpu_best(void); /* what the CPU has, whatever PENSTOCK_CPU says */
const char *psti_cpu_name(psti_cpu level);

#endif
