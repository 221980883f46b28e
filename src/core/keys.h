/* SPDX-License-Identifier: Apache-2.0
 * Names from outside: which are allowed, how they are shown. Any thread. */
#ifndef PSTI_CORE_KEYS_H
#define PSTI_CORE_KEYS_H

#include <stdbool.h>
#include <stddef.h>

enum { PSTI_KEY_MAX = 4096 };

/* NULL when the key is fine: relative, UTF-8, at most PSTI_KEY_MAX bytes, no empty, `.` or `..`
 * part, no control byte. Otherwise what is wrong with it, as the end of a sentence. */
const char *psti_key_fault(const char *key, size_t len);

bool psti_utf8_ok(const char *text, size_t len);

/* Writes text with control bytes and stray bytes as \xNN, cut at cap, terminated. Returns out. */
char *psti_escape(char *out, size_t cap, const char *text, size_t len);

#endif
