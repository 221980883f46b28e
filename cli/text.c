/* SPDX-License-Identifier: Apache-2.0
 * Words and numbers: nearest known word, figures for people, texts to numbers. No state, any
 * thread. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { WORD_MAX = 40 };

static int smallest(int a, int b, int c)
{
    const int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Edits from a to b, a swap of neighbours counting as one; words longer than WORD_MAX are taken as
 * far apart. */
static int distance(const char *a, const char *b)
{
    int cost[WORD_MAX + 1][WORD_MAX + 1];
    const int rows = (int)strnlen(a, WORD_MAX + 1), cols = (int)strnlen(b, WORD_MAX + 1);
    if (rows > WORD_MAX || cols > WORD_MAX)
        return 2 * WORD_MAX;
    for (int i = 0; i <= rows; i++)
        cost[i][0] = i;
    for (int j = 0; j <= cols; j++)
        cost[0][j] = j;
    for (int i = 1; i <= rows; i++) {
        for (int j = 1; j <= cols; j++) {
            const int change = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            cost[i][j] = smallest(change, cost[i - 1][j] + 1, cost[i][j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost[i][j] = smallest(cost[i][j], cost[i - 2][j - 2] + 1, 2 * WORD_MAX);
        }
    }
    return cost[rows][cols];
}

const char *text_nearest(const char *word, const char *const *words)
{
    const char *best = NULL;
    int least = 1 + (int)strlen(word) / 2; /* further than that is another word, not a slip */
    for (; *words != NULL; words++) {
        const int apart = distance(word, *words);
        if (apart < least || (apart == least && best == NULL && apart <= 3)) {
            least = apart;
            best = *words;
        }
    }
    return best;
}

char *text_count(char buf[TEXT_SHORT], uint64_t value)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

char *text_bytes(char buf[TEXT_SHORT], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    snprintf(buf, TEXT_SHORT, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
    return buf;
}

char *text_seconds(char buf[TEXT_SHORT], double seconds)
{
    if (seconds < 1e-3)
        snprintf(buf, TEXT_SHORT, "%.1f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(buf, TEXT_SHORT, "%.*f ms", seconds < 0.1 ? 2 : 1, seconds * 1e3);
    else
        snprintf(buf, TEXT_SHORT, "%.2f s", seconds);
    return buf;
}

char *text_duration(char buf[TEXT_SHORT], double seconds)
{
    const double most = 1e9; /* whatever is longer never ends */
    const long s = seconds > 0 ? (long)((seconds < most ? seconds : most) + 0.5) : 0;
    if (s < 60)
        snprintf(buf, TEXT_SHORT, "%ld s", s);
    else if (s < 3600)
        snprintf(buf, TEXT_SHORT, "%ld min %ld s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, TEXT_SHORT, "%ld h %ld min", s / 3600, s % 3600 / 60);
    else
        snprintf(buf, TEXT_SHORT, "%ld d %ld h", s / 86400, s % 86400 / 3600);
    return buf;
}

int text_utf8(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    const int length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 0;
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    }
    /* Too long a form, a surrogate, past the last plane. */
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
        (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return length;
}

/* Whether a character of so many bytes does something to a terminal other than show itself. */
static bool acts(const unsigned char *s, int length)
{
    if (length == 1)
        return s[0] < 0x20 || s[0] == 0x7F;
    if (length == 2) /* U+0080..9F; U+061C */
        return (s[0] == 0xC2 && s[1] < 0xA0) || (s[0] == 0xD8 && s[1] == 0x9C);
    if (length == 4) /* U+E0000..: tags, which nobody sees */
        return s[0] == 0xF3 && s[1] == 0xA0;
    const unsigned code = (s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u);
    return (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
           (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF ||
           (code >= 0xFFF9 && code <= 0xFFFB);
}

char *text_plain(char *out, size_t cap, const char *text)
{
    size_t at = 0;
    while (*text) {
        const int length = text_utf8(text);
        const bool shows = length > 0 && !acts((const unsigned char *)text, length);
        const size_t take = length > 0 ? (size_t)length : 1, room = shows ? take : 4 * take;
        if (at + room >= cap)
            break;
        for (size_t i = 0; i < take; i++) {
            if (shows)
                out[at++] = text[i];
            else
                at += (size_t)snprintf(out + at, cap - at, "\\x%02x", (unsigned char)text[i]);
        }
        text += take;
    }
    out[at] = '\0';
    return out;
}

size_t text_cut(const char *text, size_t characters)
{
    size_t at = 0;
    while (text[at] && characters > 0) {
        at++;
        while (((unsigned char)text[at] & 0xC0) == 0x80)
            at++;
        characters--;
    }
    return at;
}

bool text_to_u64(const char *text, uint64_t *out)
{
    char *end = NULL;
    const int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    *out = strtoull(text, &end, base);
    return errno == 0 && *end == '\0';
}

bool text_to_i64(const char *text, int64_t *out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)text[text[0] == '-']))
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0';
}

bool text_to_real(const char *text, double *out)
{
    char *end = NULL;
    if (text[0] == '\0' || isspace((unsigned char)text[0]))
        return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out);
}

/* The factor of a unit, 0 if it is none. */
static double unit_factor(const char *unit)
{
    static const char letters[] = "KMGT";
    if (unit[0] == '\0' || strcmp(unit, "B") == 0)
        return 1;
    const char *at = strchr(letters, toupper((unsigned char)unit[0]));
    if (at == NULL)
        return 0;
    const bool thousand = strcasecmp(unit + 1, "B") == 0;
    if (!thousand && unit[1] != '\0' && strcasecmp(unit + 1, "iB") != 0)
        return 0;
    double factor = 1;
    for (const char *l = letters; l <= at; l++)
        factor *= thousand ? 1000 : 1024;
    return factor;
}

bool text_to_bytes(const char *text, uint64_t *out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)text[0]))
        return false;
    const double number = strtod(text, &end);
    while (*end == ' ')
        end++;
    const double bytes = number * unit_factor(end);
    if (unit_factor(end) == 0 || !isfinite(bytes) || bytes >= 9e18)
        return false;
    *out = (uint64_t)bytes;
    return true;
}

void text_hex(const uint8_t *bytes, size_t count, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * count] = '\0';
}
