/* SPDX-License-Identifier: Apache-2.0
 * Made-up pictures with the statistics of photographs: structure at every scale, soft shapes,
 * smooth and busy areas, grain. The pixels are a function of the description alone: integer
 * arithmetic, and floats without contraction or libm. */
#ifndef CLI_SCENE_H
#define CLI_SCENE_H

#include <stddef.h>
#include <stdint.h>

/* A counter-based generator: draw n of a stream is a function of (key, n). */
typedef struct draws {
    uint64_t key, next;
} draws;
draws draws_of(uint64_t seed, uint64_t stream);
uint64_t draws_u64(draws *d);
/* Uniform in low..high, both included. */
int draws_int(draws *d, int low, int high);

typedef struct scene {
    int width, height;
    int hue;     /* 0..1535 around the colour wheel */
    int texture; /* strength of fine structure, 256 = usual */
    int grain;   /* strength of the sensor's noise, 256 = usual */
    uint64_t seed;
} scene;

/* A worker's planes. Zeroed storage is valid; one thread at a time. */
typedef struct canvas {
    size_t capacity;             /* pixels */
    int16_t *y, *cb, *cr, *mask; /* in sixteenths of a level */
    int16_t *rows;               /* two interpolated rows of the lattice */
    size_t row_capacity;
    uint8_t *pixels; /* the result: YCbCr, three bytes a pixel, rows without gaps */
} canvas;

void scene_render(const scene *s, canvas *c);
void canvas_fini(canvas *c);

#endif
