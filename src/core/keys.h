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

/* Bytes of the character there, of left; 0 = none (overlong, surrogate, cut, beyond U+10FFFF). */
size_t psti_utf8_length(const char *text, size_t left);
bool psti_utf8_ok(const char *text, size_t len);

/* Bytes of the character there if all it does is show itself; 0 of a stray byte, and of one that
 * steers a terminal or turns the text around (C0, C1, marks of direction, invisible ones). */
size_t psti_shown_length(const char *text, size_t left);

/* Writes text with everything else as \xNN, cut at cap, terminated. Returns out. */
char *psti_escape(char *out, size_t cap, const char *text, size_t len);

#endif
