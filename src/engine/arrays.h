/* SPDX-License-Identifier: Apache-2.0
 * What stored arrays look like. A listing knows that a member is an array and no more; type,
 * dimensions and shape come from the headers of a few samples spread over the dataset. */
#ifndef PSTI_ENGINE_ARRAYS_H
#define PSTI_ENGINE_ARRAYS_H

#include "source/source.h"

/* Fills dtype, rank and shape of a member field that holds arrays: -1 where the samples looked at
 * differ. Nothing changes when none of them could be read, or when the type is known. */
void arrays_look(const psti_dataset *data, int field, pst_field_info *info);

#endif
