/* SPDX-License-Identifier: Apache-2.0
 * Pictures to JPEG, for `penstock synth`. One press a thread. */
#ifndef CLI_PRESS_H
#define CLI_PRESS_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>

#include <jpeglib.h>

#include "scene.h"

/* How a picture is stored. */
typedef struct press_like {
    int quality;
    bool grey, progressive, halved; /* halved: colour at half the resolution */
} press_like;

/* A thread's encoder. libjpeg's jumps stay in press.c. */
typedef struct press {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    unsigned char *buf; /* kept from picture to picture */
    unsigned long capacity, size;
    canvas canvas;
} press;

void *press_new(void);
void press_free(void *press_arg);
/* Encodes the canvas, a rendered scene, into p->buf, p->size bytes. Returns 0 or an errno. */
int press_picture(press *p, const scene *s, const press_like *like);

#endif
