/* SPDX-License-Identifier: Apache-2.0
 * The public functions that look at pipelines without a dataset. Any thread. */
#include <errno.h>
#include <stdio.h>

#include "pipeline/pipeline_priv.h"

int pst_pipeline_check(const char *text, char *canonical, size_t cap, uint8_t fingerprint[16],
                       pst_error *err)
{
    psti_pipeline *pipeline;
    const int rc = psti_pipeline_parse(text, &pipeline, err);
    if (rc < 0)
        return rc;
    if (canonical && cap)
        snprintf(canonical, cap, "%s", psti_pipeline_text(pipeline));
    if (fingerprint)
        psti_id128_store(psti_pipeline_fingerprints(pipeline).whole, fingerprint);
    psti_pipeline_free(pipeline);
    return 0;
}

static const char *default_text(const psti_param *param)
{
    if (!param->def)
        return "required";
    return param->def[0] ? param->def : "none";
}

int pst_op_help(int index, const char **name, const char **summary, char *params, size_t cap)
{
    psti_op_type type;
    if (index < 0 || !psti_op_type_at(index, &type))
        return -ENOENT;
    if (name)
        *name = type.name;
    if (summary)
        *summary = type.summary;
    if (!params || !cap)
        return 0;
    params[0] = 0;
    size_t used = 0;
    for (const psti_param *param = type.params; param->name && used < cap; param++) {
        char range[200];
        psti_param_range(param, range, sizeof range);
        used +=
            (size_t)snprintf(params + used, cap - used, "%s\t%s\t%s\t%s\t%s\n", param->name,
                             psti_param_type_name(param), range, default_text(param), param->help);
    }
    return 0;
}
