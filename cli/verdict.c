/* SPDX-License-Identifier: Apache-2.0
 * What is slow and what would help, for programs: the same object as everywhere. */
#include "verdict.h"

void verdict_json(json *j, const pst_verdict *v)
{
    json_object(j, "verdict");
    json_text(j, "kind", pst_verdict_name(v->kind));
    json_text(j, "text", v->text);
    json_real(j, "stall", v->stall);
    json_object(j, "numbers");
    for (int i = 0; i < v->number_count; i++)
        json_real(j, v->numbers[i].name, v->numbers[i].value);
    json_object_end(j);
    json_array(j, "help");
    for (int i = 0; i < v->help_count; i++) {
        json_object(j, NULL);
        json_text(j, "what", v->help[i].what);
        json_real(j, "amount", v->help[i].amount);
        json_text(j, "unit", v->help[i].unit);
        json_real(j, "rate", v->help[i].rate);
        json_real(j, "stall", v->help[i].stall);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
}
