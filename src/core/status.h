/* SPDX-License-Identifier: Apache-2.0
 * Errors as values: how a pst_error is filled. Every room uses it; no state, any thread. */
#ifndef PSTI_CORE_STATUS_H
#define PSTI_CORE_STATUS_H

#include "penstock.h"

/* Fills err (NULL is fine) and returns code, so that `return psti_fail(err, …)` reads well. stage,
 * key may be NULL. */
__attribute__((format(printf, 5, 6))) int psti_fail(pst_error *err, int code, const char *stage,
                                                    const char *key, const char *fmt, ...);
/* The same with a byte offset. */
__attribute__((format(printf, 6, 7))) int psti_fail_at(pst_error *err, int code, const char *stage,
                                                       const char *key, int64_t offset,
                                                       const char *fmt, ...);
/* Copies a key into an error, shortened in the middle when it is too long; control bytes become
 * '?'. */
void psti_error_key(pst_error *err, const char *key);
void psti_error_clear(pst_error *err);

#endif
