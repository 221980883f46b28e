/* SPDX-License-Identifier: Apache-2.0
 * Pictures to JPEG. */
#include "press.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void on_jpeg_error(j_common_ptr jpeg)
{
    press *p = jpeg->client_data;
    longjmp(p->out, 1);
}

void *press_new(void)
{
    press *p = cli_alloc(sizeof *p);
    memset(p, 0, sizeof *p);
    p->jpeg.err = jpeg_std_error(&p->errors);
    p->errors.error_exit = on_jpeg_error;
    p->jpeg.client_data = p;
    p->capacity = 4 << 20;
    p->buf = cli_alloc(p->capacity);
    return p;
}

void press_free(void *press_arg)
{
    press *p = press_arg;
    canvas_fini(&p->canvas);
    free(p->buf);
    free(p);
}

static void set_parameters(struct jpeg_compress_struct *jpeg, const scene *s,
                           const press_like *like)
{
    jpeg->image_width = (JDIMENSION)s->width;
    jpeg->image_height = (JDIMENSION)s->height;
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_YCbCr;
    jpeg_set_defaults(jpeg);
    jpeg_set_colorspace(jpeg, like->grey ? JCS_GRAYSCALE : JCS_YCbCr);
    jpeg_set_quality(jpeg, like->quality, TRUE);
    jpeg->dct_method = JDCT_ISLOW;
    if (!like->grey && !like->halved)
        jpeg->comp_info[0].h_samp_factor = jpeg->comp_info[0].v_samp_factor = 1;
    if (like->progressive)
        jpeg_simple_progression(jpeg);
}

int press_picture(press *p, const scene *s, const press_like *like)
{
    unsigned char *const before = p->buf;
    p->size = p->capacity;
    if (setjmp(p->out) != 0) {
        jpeg_destroy_compress(&p->jpeg);
        return ENOMEM; /* all that can go wrong with parameters of our own */
    }
    /* A new one each time: a progressive picture leaves its own Huffman tables behind in the old
     * one. */
    jpeg_create_compress(&p->jpeg);
    jpeg_mem_dest(&p->jpeg, &p->buf, &p->size);
    set_parameters(&p->jpeg, s, like);
    jpeg_start_compress(&p->jpeg, TRUE);
    while (p->jpeg.next_scanline < p->jpeg.image_height) {
        JSAMPROW row = p->canvas.pixels + (size_t)p->jpeg.next_scanline * (size_t)s->width * 3;
        jpeg_write_scanlines(&p->jpeg, &row, 1);
    }
    jpeg_finish_compress(&p->jpeg);
    jpeg_destroy_compress(&p->jpeg);
    if (p->buf != before) { /* it was too small: the library made a larger one, which is ours now */
        free(before);
        p->capacity = p->size;
    }
    return 0;
}
