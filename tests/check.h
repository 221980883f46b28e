/* SPDX-License-Identifier: Apache-2.0
 * The whole test framework: CHECK says what failed and goes on, so that one run shows every
 * failure; RUN names a behaviour. A test program's main runs its behaviours and returns
 * check_report(). */
#ifndef PSTI_TESTS_CHECK_H
#define PSTI_TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

static int check_failed, check_passed, check_in_behaviour;

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #cond);               \
            check_in_behaviour++;                                                                  \
        }                                                                                          \
    } while (0)

/* The same with a printf text that tells the values. */
#define CHECKF(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: CHECK(%s) failed: ", __FILE__, __LINE__, #cond);               \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            check_in_behaviour++;                                                                  \
        }                                                                                          \
    } while (0)

#define RUN(behaviour)                                                                             \
    do {                                                                                           \
        check_in_behaviour = 0;                                                                    \
        behaviour();                                                                               \
        printf("%s %s\n", check_in_behaviour ? "FAIL" : "ok  ", #behaviour);                       \
        check_in_behaviour ? check_failed++ : check_passed++;                                      \
    } while (0)

static inline int check_report(void)
{
    printf("%d passed, %d failed\n", check_passed, check_failed);
    return check_failed ? 1 : 0;
}

#endif
