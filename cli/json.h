/* SPDX-License-Identifier: Apache-2.0
 * A small JSON writer: one line, keys in the order given, texts made valid UTF-8. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *out;
    bool comma; /* something stands before in the open bracket */
} json;

/* key is NULL inside an array and at the top. */
void json_object(json *j, const char *key);
void json_object_end(json *j);
void json_array(json *j, const char *key);
void json_array_end(json *j);
void json_text(json *j, const char *key, const char *value); /* NULL gives null */
void json_int(json *j, const char *key, int64_t value);
void json_uint(json *j, const char *key, uint64_t value);
void json_real(json *j, const char *key, double value); /* what is not finite gives null */
void json_bool(json *j, const char *key, bool value);

#endif
