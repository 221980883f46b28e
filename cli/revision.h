/* SPDX-License-Identifier: Apache-2.0
 * A pulled revision as JSON fields. */
#ifndef CLI_REVISION_H
#define CLI_REVISION_H

#include "json.h"
#include "penstock.h"

/* Into the open object. */
void revision_json(json *j, const pst_revision *r);

#endif
