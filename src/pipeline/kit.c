/* SPDX-License-Identifier: Apache-2.0
 * A worker's kit: one decoder and the ops' scratch memory, and which picture's header the decoder
 * has read.
 *
 * A work may be put aside with a header read and be taken up with another kit, and its first kit
 * may meanwhile have read other headers. So nobody asks "is it open?" but "is what I opened still
 * open here?": every kit has a number of its own and counts its openings; a work remembers both.
 * One thread at a time per kit. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "pipeline/pipeline_priv.h"

static atomic_uint_fast64_t kits; /* counter */

int psti_kit_init(psti_kit *kit)
{
    memset(kit, 0, sizeof *kit);
    kit->id = atomic_fetch_add(&kits, 1) + 1;
    kit->decoder = psti_decoder_new();
    return kit->decoder ? 0 : -ENOMEM;
}

void psti_kit_fini(psti_kit *kit)
{
    psti_kit_close(kit);
    psti_decoder_free(kit->decoder);
    kit->decoder = NULL;
    psti_op_ctx_fini(&kit->ops);
}

void psti_kit_close(psti_kit *kit)
{
    if (kit->open)
        psti_decoder_end(kit->decoder);
    kit->open = false;
}

static bool still_open(const psti_work *work, const psti_kit *kit, int picture)
{
    return kit->open && work->kit_id == kit->id && work->kit_opened == kit->opened &&
           work->open_picture == picture;
}

int psti_work_open(psti_work *work, psti_kit *kit, int picture, pst_error *err)
{
    if (still_open(work, kit, picture))
        return 0;
    psti_kit_close(kit);
    const psti_plan_picture *plan = &work->plan->pictures[picture];
    const psti_input *input = &work->inputs[plan->input];
    const int rc = psti_decoder_begin(kit->decoder, input->bytes, input->size, &plan->decode,
                                      &work->shots[picture].facts, err);
    if (rc < 0)
        return rc;
    kit->open = true;
    work->kit_id = kit->id;
    work->kit_opened = ++kit->opened;
    work->open_picture = picture;
    return 0;
}

int psti_work_fail(const psti_work *work, const char *stage, int picture, int code, pst_error *err)
{
    if (!err)
        return code;
    char message[sizeof err->message];
    err->code = code;
    err->id = -1;
    snprintf(err->stage, sizeof err->stage, "%s", stage);
    if (work->plan->source_count > 1 || work->plan->pictures[picture].source >= 0) {
        char name[PST_NAME_BYTES];
        snprintf(message, sizeof message, "%s", err->message);
        psti_plan_picture_name(work->plan, picture, name);
        snprintf(err->message, sizeof err->message, "field %s: %.*s", name,
                 (int)(sizeof message - PST_NAME_BYTES - 10), message);
    }
    return code;
}
