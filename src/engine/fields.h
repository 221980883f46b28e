/* SPDX-License-Identifier: Apache-2.0
 * The choice of fields of a job. */
#ifndef PSTI_ENGINE_FIELDS_H
#define PSTI_ENGINE_FIELDS_H

#include "sched/sched.h"

typedef struct field_choice {
    psti_feed_field field[PSTI_FIELDS_MAX];
    int count;
} field_choice;

/* text as in pst_job_options.fields; NULL = every typed field. */
int fields_choose(const psti_dataset *data, const char *text, field_choice *choice, pst_error *err);
/* The plan's inputs for a choice; inputs has room for choice->count. */
void fields_inputs(const psti_dataset *data, const field_choice *choice, psti_plan_input *inputs);
/* Whether the type of everything the plan delivers is known. */
int fields_check(const psti_plan *plan, pst_error *err);

#endif
