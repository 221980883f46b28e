/* SPDX-License-Identifier: Apache-2.0
 * A job's state in files. */
#ifndef CLI_STATE_H
#define CLI_STATE_H

#include "penstock.h"

/* Both print their own message and return an exit code. */
int state_save(const pst_job *job, const char *path);
/* paths: one file, or one of each rank joined by commas. */
int state_load(pst_job *job, const char *paths);

#endif
