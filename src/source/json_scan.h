/* SPDX-License-Identifier: Apache-2.0
 * Reading JSON of any length a piece at a time, in fixed memory: what a tree of the whole text
 * would take gigabytes for. Private to the source room; one thread a scan. */
#ifndef PSTI_SOURCE_JSON_SCAN_H
#define PSTI_SOURCE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

enum {
    PSTI_JSON_DEPTH = 32,
    PSTI_JSON_TEXT = 1 << 20, /* bytes of the longest text that is kept */
    PSTI_JSON_BLOCK = 256 * 1024
};

typedef enum psti_json_event {
    PSTI_JSON_END, /* of the whole text */
    PSTI_JSON_OBJECT,
    PSTI_JSON_OBJECT_END,
    PSTI_JSON_ARRAY,
    PSTI_JSON_ARRAY_END,
    PSTI_JSON_KEY,    /* its value comes next */
    PSTI_JSON_STRING, /* text and len */
    PSTI_JSON_NUMBER, /* number; whole too where is_whole */
    PSTI_JSON_TRUE,
    PSTI_JSON_FALSE,
    PSTI_JSON_NULL
} psti_json_event;

/* Where a scan stands. text holds a key or a string until the next event. About 1.3 MiB, of which
 * long texts alone use the most. */
typedef struct psti_json {
    int fd;           /* the opener's */
    const char *path; /* the opener's, for messages */
    uint64_t line;    /* counted from 1 */
    uint64_t begin;   /* where the last event began, in bytes */

    double number;  /* may be NaN or infinite: Python writes such words, and 1e999 is a number */
    int64_t whole;  /* the number as written */
    bool is_whole;  /* it has neither fraction nor exponent, and fits */
    size_t len;     /* of text */
    bool keep;      /* texts and numbers are wanted, not only walked over */
    uint8_t expect; /* what may come next */
    int depth;
    bool object[PSTI_JSON_DEPTH]; /* what each level is; false: an array */

    size_t block;  /* bytes to read at a time; less than the array is for tests */
    uint64_t base; /* of bytes[0] in the file */
    size_t at, have;
    bool ended;
    int trouble; /* -errno of a read */
    uint8_t bytes[PSTI_JSON_BLOCK];
    char text[PSTI_JSON_TEXT + 1];
} psti_json;

/* The file is read from where it stands. */
void psti_json_begin(psti_json *j, int fd, const char *path);
/* What comes next: a psti_json_event, or a negative code with line and offset in err. */
int psti_json_next(psti_json *j, pst_error *err);
/* Walks over the value that comes next, whatever it is. Texts in it may be of any length and are
 * not checked to be UTF-8. 0, or a negative code. */
int psti_json_skip(psti_json *j, pst_error *err);
/* Walks over the rest of the object or array that the scan is `depth` levels deep in. */
int psti_json_leave(psti_json *j, int depth, pst_error *err);
/* Where the last event began, as the beginning of a message: "line 3: …". Returns code. */
__attribute__((format(printf, 4, 5))) int psti_json_fail(const psti_json *j, int code,
                                                         pst_error *err, const char *fmt, ...);

#endif
