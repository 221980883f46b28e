/* SPDX-License-Identifier: Apache-2.0
 * Writing: text that grows, and JSON in it. Running out of memory is remembered and told at the
 * end. */
#ifndef PSTI_WATCH_TEXT_H
#define PSTI_WATCH_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct psti_writ {
    char *data; /* psti_free; not terminated */
    size_t size, cap;
    bool failed;
} psti_writ;

void psti_writ_put(psti_writ *t, const char *bytes, size_t count);
void psti_writ_add(psti_writ *t, const char *text);
void psti_writ_u64(psti_writ *t, uint64_t value);
void psti_writ_real(psti_writ *t, double value); /* what is not finite is 0 */
void psti_writ_fini(psti_writ *t);

/* ---- JSON: one object or array after the other ----------------------------------------------- */

typedef struct psti_json {
    psti_writ text;
    bool comma; /* before the next key or value */
} psti_json;

void psti_json_open(psti_json *j, char bracket);
void psti_json_close(psti_json *j, char bracket);
void psti_json_key(psti_json *j, const char *name); /* plain letters */
void psti_json_u64(psti_json *j, uint64_t value);
void psti_json_real(psti_json *j, double value);
void psti_json_bool(psti_json *j, bool value);
void psti_json_null(psti_json *j);
/* Any bytes; what is not UTF-8 becomes U+FFFD. */
void psti_json_string(psti_json *j, const char *text);
/* Key and value. */
void psti_json_ku(psti_json *j, const char *name, uint64_t value);
void psti_json_kr(psti_json *j, const char *name, double value);
void psti_json_ks(psti_json *j, const char *name, const char *text);

/* The number of the character of len bytes there if it steers what shows it (psti_shown_length), or
 * one that stands for it; 0 = it shows itself. */
uint32_t psti_utf8_hidden(const char *at, size_t len);

#endif
