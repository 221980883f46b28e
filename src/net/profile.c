/* SPDX-License-Identifier: Apache-2.0
 * The files in which AWS's tools keep settings and credentials, and the JSON that credential
 * servers answer with. Everything read lies in secret memory; what is asked for is copied into the
 * caller's. No state but the files; any thread. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "net/net_priv.h"

void profile_read(const char *path, profile_file *out)
{
    *out = (profile_file){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size < PROFILE_MAX)
        out->text = secret_alloc((size_t)st.st_size);
    while (out->text && out->size < (size_t)st.st_size) {
        const ssize_t got = read(fd, out->text + out->size, (size_t)st.st_size - out->size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        out->size += (size_t)got;
    }
    close(fd);
    if (out->text && out->size < (size_t)st.st_size) { /* it shrank: another read sees it whole */
        secret_free(out->text, (size_t)st.st_size);
        *out = (profile_file){0};
    }
}

void profile_drop(profile_file *file)
{
    secret_free(file->text, file->size);
    *file = (profile_file){0};
}

/* ---- sections and settings ---------------------------------------------------------------------
 */

typedef struct span {
    const char *at;
    size_t len;
} span;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static span trim(span s)
{
    while (s.len && is_blank(s.at[0]))
        s = (span){s.at + 1, s.len - 1};
    while (s.len && is_blank(s.at[s.len - 1]))
        s.len--;
    return s;
}

static bool span_is(span s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

/* Behind a blank, '#' and ';' begin a comment. */
static span without_comment(span s)
{
    for (size_t i = 1; i < s.len; i++)
        if ((s.at[i] == '#' || s.at[i] == ';') && is_blank(s.at[i - 1]))
            return (span){s.at, i};
    return s;
}

/* [profile  name] has one blank between its words here, whatever the file has. */
static bool section_is(span inside, const char *section)
{
    inside = trim(inside);
    const char *space = strchr(section, ' ');
    const size_t word = space ? (size_t)(space - section) : 0;
    if (!space)
        return span_is(inside, section);
    if (inside.len <= word || memcmp(inside.at, section, word) != 0 || !is_blank(inside.at[word]))
        return false;
    return span_is(trim((span){inside.at + word, inside.len - word}), space + 1);
}

static bool split_setting(span line, span *key, span *value)
{
    const char *equals = memchr(line.at, '=', line.len);
    if (!equals)
        return false;
    const size_t before = (size_t)(equals - line.at);
    *key = trim((span){line.at, before});
    *value = trim(without_comment((span){equals + 1, line.len - before - 1}));
    return true;
}

static span next_line(const profile_file *file, size_t *at)
{
    const char *begin = file->text + *at;
    const char *end = memchr(begin, '\n', file->size - *at);
    const size_t len = end ? (size_t)(end - begin) : file->size - *at;
    *at += len + (end != NULL);
    return (span){begin, len};
}

static bool copy_out(span value, char *out, size_t room)
{
    if (value.len >= room || memchr(value.at, 0, value.len))
        return false;
    memcpy(out, value.at, value.len);
    out[value.len] = 0;
    return true;
}

bool profile_get(const profile_file *file, const char *section, const char *parent, const char *key,
                 char *out, size_t room)
{
    bool inside = false, below = false;
    for (size_t at = 0; at < file->size;) {
        const span line = next_line(file, &at);
        const span bare = trim(line);
        span name, value;
        if (!bare.len || bare.at[0] == '#' || bare.at[0] == ';')
            continue;
        if (bare.at[0] == '[') {
            const char *close = memchr(bare.at, ']', bare.len);
            inside =
                close && section_is((span){bare.at + 1, (size_t)(close - bare.at) - 1}, section);
            below = false;
            continue;
        }
        if (!inside || !split_setting(bare, &name, &value))
            continue;
        const bool indented = is_blank(line.at[0]);
        if (!indented)
            below = parent && value.len == 0 && span_is(name, parent);
        if (indented ? below && span_is(name, key) : !parent && span_is(name, key))
            return copy_out(value, out, room);
    }
    return false;
}

/* ---- JSON of credential servers ----------------------------------------------------------------
 */

/* What stands behind "\\u", if it is a plain letter; encoders write '&' so. 0: it is not. */
static char plain_escape(const char *digits, size_t left)
{
    char four[5] = "", *end;
    if (left < 4)
        return 0;
    memcpy(four, digits, 4);
    const unsigned long code = strtoul(four, &end, 16);
    return *end == 0 && code >= 0x20 && code < 0x7f ? (char)code : 0;
}

/* Behind the opening quote at text[*at]; stops behind the closing one. */
static bool json_string(const char *text, size_t size, size_t *at, char *out, size_t room)
{
    size_t len = 0;
    for (size_t i = *at; i < size; i++) {
        char c = text[i];
        if (c == '"') {
            *at = i + 1;
            if (out)
                out[len] = 0;
            return true;
        }
        if (c == '\\') {
            if (++i >= size)
                return false;
            c = text[i] == 'u'                     ? plain_escape(text + i + 1, size - i - 1)
                : strchr("\"\\/", text[i]) != NULL ? text[i]
                                                   : 0;
            if (!c) /* no credential holds what the other escapes stand for */
                return false;
            i += text[i] == 'u' ? 4 : 0;
        }
        if ((unsigned char)c < 0x20 || (out && len + 1 >= room))
            return false;
        if (out)
            out[len++] = c;
    }
    return false;
}

static size_t skip_space(const char *text, size_t size, size_t at)
{
    while (at < size && (is_blank(text[at]) || text[at] == '\n'))
        at++;
    return at;
}

/* A number or a word, which nobody asks for. */
static size_t skip_word(const char *text, size_t size, size_t at)
{
    while (at < size && !strchr(",} \t\r\n\"[{", text[at]))
        at++;
    return at;
}

bool profile_json(const char *text, size_t size, const char *key, char *out, size_t room)
{
    size_t at = skip_space(text, size, 0);
    if (at >= size || text[at++] != '{')
        return false;
    for (;;) {
        char name[64];
        at = skip_space(text, size, at);
        if (at >= size || text[at++] != '"' || !json_string(text, size, &at, name, sizeof name))
            return false;
        at = skip_space(text, size, at);
        if (at >= size || text[at++] != ':')
            return false;
        at = skip_space(text, size, at);
        const bool mine = strcmp(name, key) == 0;
        if (at < size && text[at] == '"') {
            at++;
            if (!json_string(text, size, &at, mine ? out : NULL, room))
                return false;
            if (mine)
                return true;
        } else {
            const size_t before = at;
            at = skip_word(text, size, at);
            if (mine || at == before)
                return false;
        }
        at = skip_space(text, size, at);
        if (at >= size || text[at++] != ',')
            return false;
    }
}

int64_t profile_time(const char *text)
{
    struct tm t = {0};
    int used = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour,
               &t.tm_min, &t.tm_sec, &used) != 6 ||
        used < 19)
        return -1;
    const char *rest = text + used;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (strcmp(rest, "Z") != 0 && strcmp(rest, "+00:00") != 0)
        return -1;
    if (t.tm_year < 1970 || t.tm_mon < 1 || t.tm_mon > 12 || t.tm_mday < 1 || t.tm_mday > 31)
        return -1;
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    return (int64_t)timegm(&t);
}

/* ---- the files of this user --------------------------------------------------------------------
 */

static void home_path(const char *variable, const char *below, char *out, size_t room)
{
    const char *given = getenv(variable);
    const char *home = getenv("HOME");
    out[0] = 0;
    if (given && *given) {
        snprintf(out, room, "%s", given);
        return;
    }
    struct passwd entry, *found = NULL;
    char names[1024];
    if ((!home || !*home) && getpwuid_r(getuid(), &entry, names, sizeof names, &found) == 0 &&
        found)
        home = found->pw_dir;
    if (home && *home)
        snprintf(out, room, "%s/%s", home, below);
}

void profile_open(profile_set *set)
{
    char path[4096];
    memset(set, 0, sizeof *set);
    const char *name = getenv("AWS_PROFILE");
    if (!name || !*name)
        name = getenv("AWS_DEFAULT_PROFILE");
    snprintf(set->name, sizeof set->name, "%s", name && *name ? name : "default");
    const bool usual = strcmp(set->name, "default") == 0;
    snprintf(set->section, sizeof set->section, "%s%s", usual ? "" : "profile ", set->name);
    home_path("AWS_CONFIG_FILE", ".aws/config", path, sizeof path);
    profile_read(path, &set->config);
    home_path("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", path, sizeof path);
    profile_read(path, &set->shared);
}

void profile_close(profile_set *set)
{
    profile_drop(&set->config);
    profile_drop(&set->shared);
}

bool profile_setting(const profile_set *set, const char *parent, const char *key, char *out,
                     size_t room)
{
    return profile_get(&set->config, set->section, parent, key, out, room) ||
           (strcmp(set->section, "default") == 0 &&
            profile_get(&set->config, "profile default", parent, key, out, room));
}
