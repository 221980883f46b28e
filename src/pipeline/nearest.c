/* SPDX-License-Identifier: Apache-2.0
 * Which known word was probably meant: edit distance (insertions, deletions, changes, neighbours
 * swapped), without regard to case. Pure functions, no allocation, any thread. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/pipeline_priv.h"

enum { WORD_MAX = 63, FAR = 1000 };

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Optimal string alignment; FAR for words that are too long to be names. */
static int distance(const char *a, size_t n, const char *b, size_t m)
{
    int rows[3][WORD_MAX + 1];
    if (n > WORD_MAX || m > WORD_MAX)
        return FAR;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *row = rows[i % 3];
        const int *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = min_of(up[j], row[j - 1]) + 1;
            row[j] = min_of(row[j], up[j - 1] + !same_letter(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = min_of(row[j], up2[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

/* One of the two words stands inside the other. */
static bool contains(const char *word, size_t len, const char *known)
{
    const size_t n = strlen(known);
    if (len < 3 || n < 3)
        return false;
    return memmem(known, n, word, len) != NULL || memmem(word, len, known, n) != NULL;
}

const char *psti_nearest(const char *word, size_t len, psti_candidate *at, const void *user)
{
    const char *best = NULL, *known;
    int best_distance = FAR;
    for (int i = 0; (known = at(i, user)) != NULL; i++) {
        const int d = distance(word, len, known, strlen(known));
        if (d < best_distance) {
            best_distance = d;
            best = known;
        }
    }
    if (best_distance <= 1 + (int)len / 4)
        return best;
    for (int i = 0; (known = at(i, user)) != NULL; i++)
        if (contains(word, len, known))
            return known;
    return best_distance <= 1 + (int)len / 3 ? best : NULL;
}

void psti_suggest(char *buf, size_t cap, const char *word, size_t len, psti_candidate *at,
                  const void *user)
{
    const char *known = psti_nearest(word, len, at, user);
    if (known) {
        snprintf(buf, cap, ": did you mean \"%s\"?", known);
        return;
    }
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; (known = at(i, user)) != NULL && used < cap; i++)
        used += (size_t)snprintf(buf + used, cap - used, "%s%s", i ? ", " : "; known: ", known);
}
