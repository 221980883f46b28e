/* SPDX-License-Identifier: Apache-2.0
 * A verdict as JSON. */
#ifndef CLI_VERDICT_H
#define CLI_VERDICT_H

#include "json.h"
#include "penstock.h"

void verdict_json(json *j, const pst_verdict *v);

#endif
