/* SPDX-License-Identifier: Apache-2.0
 * Settings and credentials as AWS's tools keep them, apart from what is done with them. */
#ifndef PSTI_NET_PROFILE_H
#define PSTI_NET_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file in secret memory; size 0 and text NULL where there is none. */
typedef struct profile_file {
    char *text;
    size_t size;
} profile_file;
enum { PROFILE_MAX = 1 << 20 };

void profile_read(const char *path, profile_file *out);
void profile_drop(profile_file *file);
/* The value of key in [section], or below `parent =` there; false where it is not, or is longer
 * than room - 1 bytes. */
bool profile_get(const profile_file *file, const char *section, const char *parent, const char *key,
                 char *out, size_t room);
/* The value of a string in a flat JSON object, as credential servers give them. */
bool profile_json(const char *text, size_t size, const char *key, char *out, size_t room);
/* Seconds since 1970 of 2026-01-31T12:34:56[.789]Z; -1 where it is none. */
int64_t profile_time(const char *text);

/* The files and the profile that the environment names. */
typedef struct profile_set {
    profile_file config, shared;
    char name[128];    /* of the profile */
    char section[140]; /* of it in the config file */
} profile_set;
void profile_open(profile_set *set);
void profile_close(profile_set *set);
/* Of the profile, in the config file. */
bool profile_setting(const profile_set *set, const char *parent, const char *key, char *out,
                     size_t room);

#endif
