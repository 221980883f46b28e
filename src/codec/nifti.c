/* SPDX-License-Identifier: Apache-2.0
 * NIfTI volumes, plain or in gzip. Called by decoder.c on a worker's thread; the header's own rules
 * are in nifti_header.c, numbers in grid.c.
 *
 * The field has the dimensions in the order in which nibabel gives them, so the file's first and
 * fastest one is the planes; a fourth one, or colours, are channels. Everything is decided by the
 * header: of a packed file its first bytes alone are inflated for that. The whole is inflated only
 * once its size has been told, held against the limits and counted in need, and never to more than
 * that. A file must be as long as its header says, neither shorter nor longer. */
#include <errno.h>
#include <string.h>

#include "codec/codec_priv.h"

enum { HEAD_MOST = 540 };

typedef struct nifti_state {
    psti_grid grid;
    psti_nifti head;
    bool packed;
    uint8_t *unpacked; /* while run goes on */
} nifti_state;

static nifti_state *state_of(const psti_decoder *dec)
{
    return dec->state[PSTI_FORMAT_NIFTI];
}

static psti_packed packed_of(const psti_decoder *dec, const nifti_state *n)
{
    return (psti_packed){.name = "NIfTI in gzip",
                         .bytes = dec->bytes,
                         .size = dec->size,
                         .gzip = true,
                         .whole = n->head.whole};
}

/* ---- begin ---- */

static int read_header(psti_decoder *dec, nifti_state *n, pst_error *err)
{
    if (!n->packed)
        return psti_nifti_header(dec->bytes, dec->size, &n->head, err);
    const psti_packed in = packed_of(dec, n);
    uint8_t head[HEAD_MOST];
    size_t got;
    const int rc = psti_packed_head(&in, head, sizeof head, &got, err);
    return rc < 0 ? rc : psti_nifti_header(head, got, &n->head, err);
}

/* A plain file has its length for all to see; of a packed one it is clear when it cannot be. */
static int check_length(const psti_decoder *dec, const nifti_state *n, pst_error *err)
{
    const size_t whole = n->head.whole;
    if (!n->packed && dec->size != whole)
        return psti_fail_at(err, PST_ECORRUPT, "decode", NULL, (int64_t)dec->size,
                            "NIfTI: the header tells of %zu bytes, the file has %zu: it is %s",
                            whole, dec->size,
                            dec->size < whole ? "cut off" : "damaged, or longer than it should be");
    if (!n->packed)
        return 0;
    if (whole > dec->opts.limits.volume_bytes)
        return psti_fail(err, PST_ELIMIT, "decode", NULL,
                         "NIfTI in gzip: the header tells of %zu bytes, the limit is %llu", whole,
                         (unsigned long long)dec->opts.limits.volume_bytes);
    if (psti_packed_may_hold(dec->size, whole))
        return 0;
    return psti_fail(err, PST_ECORRUPT, "decode", NULL,
                     "NIfTI in gzip: the header tells of %zu bytes, which %zu packed ones cannot "
                     "hold: the file is cut off or damaged",
                     whole, dec->size);
}

static void lay_out(nifti_state *n)
{
    const psti_nifti *head = &n->head;
    psti_grid *grid = &n->grid;
    const ptrdiff_t number = (ptrdiff_t)psti_number_bytes(head->type);
    const ptrdiff_t voxel = number * head->colours;
    *grid = (psti_grid){.type = head->type,
                        .swapped = head->swapped && number > 1,
                        .shape = {head->dim[3], head->dim[0], head->dim[1], head->dim[2]},
                        .slope = head->slope,
                        .inter = head->inter};
    grid->step[1] = voxel;
    grid->step[2] = grid->step[1] * head->dim[0];
    grid->step[3] = grid->step[2] * head->dim[1];
    grid->step[0] = grid->step[3] * head->dim[2];
    if (head->colours > 1) {
        grid->shape[0] = head->colours;
        grid->step[0] = number;
    }
}

static int nifti_begin(psti_decoder *dec, pst_error *err)
{
    nifti_state *n = state_of(dec);
    *n = (nifti_state){.packed = dec->size >= 2 && dec->bytes[0] == 0x1F && dec->bytes[1] == 0x8B};
    int rc = read_header(dec, n, err);
    if (rc < 0)
        return rc;
    lay_out(n);
    rc = psti_grid_begin(dec, &n->grid, err);
    memcpy(dec->pic.unit, n->head.unit, sizeof dec->pic.unit);
    return rc < 0 ? rc : check_length(dec, n, err);
}

/* ---- need, run, end ---- */

static void nifti_measure(const psti_decoder *dec, psti_decode_need *need)
{
    const nifti_state *n = state_of(dec);
    need->library_bytes = n->packed ? n->head.whole + PSTI_PACKED_MEMORY : 0;
}

static void nifti_end(psti_decoder *dec)
{
    nifti_state *n = state_of(dec);
    psti_free(n->unpacked);
    n->unpacked = NULL;
}

static int unpack(const psti_decoder *dec, nifti_state *n, pst_error *err)
{
    const psti_packed in = packed_of(dec, n);
    n->unpacked = psti_malloc(PSTI_MEM_CODEC, in.whole);
    if (!n->unpacked)
        return psti_fail(err, -ENOMEM, "decode", NULL, "out of memory for a volume of %zu bytes",
                         in.whole);
    return psti_packed_all(&in, n->unpacked, err);
}

static int nifti_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                     uint8_t *dst, pst_error *err)
{
    (void)known_damage;
    nifti_state *n = state_of(dec);
    int rc = n->packed ? unpack(dec, n, err) : 0;
    if (rc == 0)
        rc = psti_grid_write(dec, &n->grid, (n->packed ? n->unpacked : dec->bytes) + n->head.offset,
                             &need->made, dst, err);
    nifti_end(dec);
    return rc;
}

const psti_codec psti_codec_nifti = {
    .format = PSTI_FORMAT_NIFTI,
    .axes = PSTI_AXES_VOLUME,
    .name = "nifti",
    .state_bytes = sizeof(nifti_state),
    .begin = nifti_begin,
    .measure = nifti_measure,
    .run = nifti_run,
    .end = nifti_end,
};
