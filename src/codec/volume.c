/* SPDX-License-Identifier: Apache-2.0
 * NPY arrays as volumes: {planes, rows, columns}, or {channels, planes, rows, columns}, in every
 * byte order and order of dimensions. Called by decoder.c on a worker's thread. Arrays that are
 * stored as their field will be stay in place: then a crop of one costs nothing here. */
#include "codec/codec_priv.h"

typedef struct npy_state {
    psti_npy npy;
    psti_grid grid;
} npy_state;

static npy_state *state_of(const psti_decoder *dec)
{
    return dec->state[PSTI_FORMAT_NPY];
}

int psti_npy_grid(const psti_npy *npy, psti_grid *out, pst_error *err)
{
    if (npy->rank != 3 && npy->rank != 4)
        return psti_fail(err, PST_EFIELD, "decode", NULL,
                         "NPY: an array of %d dimensions where a volume is wanted: store {planes, "
                         "rows, columns} or {channels, planes, rows, columns}",
                         npy->rank);
    *out = (psti_grid){.type = npy->type, .swapped = npy->swapped, .slope = 1};
    const int missing = 4 - npy->rank;
    ptrdiff_t step = (ptrdiff_t)psti_number_bytes(npy->type);
    for (int d = 0; d < 4; d++) {
        out->shape[d] = d < missing ? 1 : npy->shape[d - missing];
        if (out->shape[d] == 0)
            return psti_fail(err, PST_EFIELD, "decode", NULL, "NPY: the volume is empty");
    }
    /* The product of all is known to fit. */
    for (int i = 0; i < 4; i++) {
        const int d = npy->fortran ? i : 3 - i;
        out->step[d] = step;
        step *= out->shape[d];
    }
    return 0;
}

static int npy_begin(psti_decoder *dec, pst_error *err)
{
    npy_state *n = state_of(dec);
    int rc = psti_npy_describe(dec->bytes, dec->size, &n->npy, err);
    if (rc == 0)
        rc = psti_npy_grid(&n->npy, &n->grid, err);
    if (rc == 0)
        rc = psti_grid_begin(dec, &n->grid, err);
    return rc < 0 ? rc : psti_npy_check_size(&n->npy, dec->size, err);
}

static void npy_measure(const psti_decoder *dec, psti_decode_need *need)
{
    const npy_state *n = state_of(dec);
    need->in_place = psti_grid_in_place(dec, &n->grid, dec->bytes + n->npy.data);
}

static int npy_run(psti_decoder *dec, const psti_decode_need *need, int64_t known_damage,
                   uint8_t *dst, pst_error *err)
{
    (void)known_damage;
    const npy_state *n = state_of(dec);
    if (need->in_place)
        return 0;
    return psti_grid_write(dec, &n->grid, dec->bytes + n->npy.data, &need->made, dst, err);
}

static void npy_end(psti_decoder *dec)
{
    (void)dec;
}

const psti_codec psti_codec_npy = {
    .format = PSTI_FORMAT_NPY,
    .axes = PSTI_AXES_VOLUME,
    .name = "npy",
    .state_bytes = sizeof(npy_state),
    .begin = npy_begin,
    .measure = npy_measure,
    .run = npy_run,
    .end = npy_end,
};
