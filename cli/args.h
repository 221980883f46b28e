/* SPDX-License-Identifier: Apache-2.0
 * Commands as described types: one table of options per command drives parsing, bounds, defaults
 * and --help. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum arg_type {
    ARG_FLAG = 1, /* bool */
    ARG_TEXT,     /* const char *, the argument itself */
    ARG_INT,      /* int64_t in min..max */
    ARG_U64,      /* uint64_t, any; 0x… allowed */
    ARG_REAL,     /* double in min..max */
    ARG_BYTES,    /* uint64_t, at least min; words[0] stands for the largest */
    ARG_WORD,     /* int: index into words */
    ARG_HEADING   /* no option: a heading in the help */
} arg_type;

typedef struct arg_option {
    const char *name; /* without dashes; NULL ends the table */
    arg_type type;
    const char *meta; /* what stands for the value in the help */
    size_t offset;    /* in the command's value struct */
    double min, max;
    const char *const *words; /* NULL-terminated */
    const char *def;          /* default as text; NULL = all bytes zero */
    bool required;
    const char *help;
} arg_option;

/* Lines of an option table, by type. at is the offset of the value; def is the default as text. */
#define OPT_HEADING(help_)                                                                         \
    {                                                                                              \
        .name = "", .type = ARG_HEADING, .help = (help_)                                           \
    }
#define OPT_FLAG(name_, at_, help_)                                                                \
    {                                                                                              \
        .name = (name_), .type = ARG_FLAG, .offset = (at_), .help = (help_)                        \
    }
#define OPT_NEEDED(name_, meta_, at_, help_)                                                       \
    {                                                                                              \
        .name = (name_), .type = ARG_TEXT, .meta = (meta_), .offset = (at_), .required = true,     \
        .help = (help_)                                                                            \
    }
#define OPT_PLAIN(type_, name_, meta_, at_, def_, help_)                                           \
    {                                                                                              \
        .name = (name_), .type = (type_), .meta = (meta_), .offset = (at_), .def = (def_),         \
        .help = (help_)                                                                            \
    }
#define OPT_TEXT(name, meta, at, def, help)  OPT_PLAIN(ARG_TEXT, name, meta, at, def, help)
#define OPT_U64(name, meta, at, def, help)   OPT_PLAIN(ARG_U64, name, meta, at, def, help)
#define OPT_BYTES(name, meta, at, def, help) OPT_PLAIN(ARG_BYTES, name, meta, at, def, help)
#define OPT_CACHE(at_, def_, help_)                                                                \
    {                                                                                              \
        .name = "cache", .type = ARG_BYTES, .meta = "BYTES|auto", .offset = (at_),                 \
        .words = (const char *const[]){"auto", NULL}, .def = (def_), .help = (help_)               \
    }
#define OPT_DISK(at_)                                                                              \
    OPT_TEXT("disk", "DIR:BYTES", at_, NULL,                                                       \
             "keep samples in files below DIR, at most so many bytes, for later epochs and runs")
#define OPT_REMOTE(at_)                                                                            \
    OPT_TEXT("remote", "URL", at_, NULL,                                                           \
             "keep samples on a Redis or Valkey server for all jobs that name it, as in "          \
             "redis://cache:6379; the password is in PENSTOCK_REMOTE_PASSWORD")
#define OPT_WATCH(at_)                                                                             \
    OPT_TEXT("watch", "DIR|auto", at_, NULL,                                                       \
             "let penstock top look at it while it runs: through a socket in DIR, or where top "   \
             "finds it by itself")
#define OPT_TRACE(at_)                                                                             \
    OPT_TEXT("trace", "FILE", at_, NULL,                                                           \
             "write what each thread does when, for ui.perfetto.dev and penstock trace")
#define OPT_INDEX_DIR(at_)                                                                         \
    OPT_TEXT("index-dir", "DIR|none", at_, NULL,                                                   \
             "where listings are remembered (default: penstock in the cache folder)")
#define OPT_BOUND(type_, name_, meta_, at_, min_, max_, def_, help_)                               \
    {                                                                                              \
        .name = (name_), .type = (type_), .meta = (meta_), .offset = (at_), .min = (min_),         \
        .max = (max_), .def = (def_), .help = (help_)                                              \
    }
#define OPT_INT(name, meta, at, min, max, def, help)                                               \
    OPT_BOUND(ARG_INT, name, meta, at, min, max, def, help)
#define OPT_REAL(name, meta, at, min, max, def, help)                                              \
    OPT_BOUND(ARG_REAL, name, meta, at, min, max, def, help)
#define OPT_WORD(name_, meta_, at_, words_, def_, help_)                                           \
    {                                                                                              \
        .name = (name_), .type = ARG_WORD, .meta = (meta_), .offset = (at_), .words = (words_),    \
        .def = (def_), .help = (help_)                                                             \
    }
#define OPT_END                                                                                    \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/* What stands without a name, in order; all are required unless optional. */
typedef struct arg_operand {
    const char *name; /* NULL ends the table */
    size_t offset;    /* const char * */
    bool optional;
    const char *help;
    bool many; /* the last one may come again: offset is of an arg_list */
} arg_operand;

enum { ARG_LIST_MOST = 64 };
typedef struct arg_list {
    const char *at[ARG_LIST_MOST];
    int count;
} arg_list;

typedef struct command {
    const char *name;
    const char *summary;  /* one line */
    const char *about;    /* paragraphs, may be NULL */
    const char *examples; /* lines, each without indent */
    const arg_operand *operands;
    const arg_option *options;
    size_t values_bytes;
    int (*run)(const void *values); /* returns an exit code */
} command;

/* All commands, NULL-terminated (main.c). */
extern const command *const commands[];

enum { ARGS_DONE = -1 }; /* help was printed: exit with success */
/* Fills values (zeroed, values_bytes) from the arguments after the command's name. Returns CLI_OK,
 * ARGS_DONE or CLI_USAGE. */
int args_parse(const command *cmd, int argc, char **argv, void *values);
/* help.c */
void help_command(const command *cmd);
void help_all(void);

#endif
