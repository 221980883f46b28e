/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as pipeline text. What is accepted must have a canonical text that reads
 * back as itself and must plan or be refused cleanly; what is refused must point into the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline.h"

static const psti_plan_input fields[] = {
    {.name = "image", .kind = PST_IMAGE, .encoded = true},
    {.name = "mask", .kind = PST_MASK, .encoded = true},
    {.name = "label", .kind = PST_LABEL, .dtype = PST_I64},
};

static void require(int holds)
{
    if (!holds)
        abort();
}

static void check_canonical(const psti_pipeline *pipeline)
{
    psti_pipeline *again = NULL;
    require(psti_pipeline_parse(psti_pipeline_text(pipeline), &again, NULL) == 0);
    require(strcmp(psti_pipeline_text(pipeline), psti_pipeline_text(again)) == 0);
    const psti_fingerprints a = psti_pipeline_fingerprints(pipeline),
                            b = psti_pipeline_fingerprints(again);
    require(memcmp(&a, &b, sizeof a) == 0);
    psti_pipeline_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    psti_pipeline *pipeline = NULL;
    psti_plan *plan = NULL;
    pst_error err = {0};
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    if (psti_pipeline_parse(text, &pipeline, &err) < 0) {
        require(err.code < 0 && err.message[0] && err.offset <= (int64_t)strlen(text));
    } else {
        check_canonical(pipeline);
        if (psti_plan_new(pipeline, fields, 3, &plan, &err) < 0)
            require(err.code < 0 && err.message[0] && err.offset <= (int64_t)strlen(text));
    }
    psti_plan_free(plan);
    psti_pipeline_free(pipeline);
    free(text);
    return 0;
}
