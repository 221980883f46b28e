/* SPDX-License-Identifier: Apache-2.0
 * What the tests of the source room share: a temporary directory, files with known bytes and old
 * times, tar shards made block by block, and a log that counts. Each test program includes it once.
 */
#ifndef PSTI_TESTS_SOURCE_FIXTURE_H
#define PSTI_TESTS_SOURCE_FIXTURE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef PSTI_NO_CHECKS /* the bench only wants the files */
#include "check.h"
#endif
#include "source/source_priv.h"

/* Files are given times long past, so that remembered listings trust them; see PSTI_INDEX_DOUBT_NS.
 */
enum { OLD_TIME = 1500000000 };

static char scratch[256];

/* A path below the scratch directory. A ring of buffers: good until eight more were asked for. */
__attribute__((format(printf, 1, 2), unused)) static const char *at(const char *fmt, ...)
{
    static char ring[8][6000];
    static int turn;
    char *out = ring[turn++ % 8];
    va_list args;
    va_start(args, fmt);
    const int n = snprintf(out, sizeof ring[0], "%s/", scratch);
    vsnprintf(out + n, sizeof ring[0] - (size_t)n, fmt, args);
    va_end(args);
    return out;
}

__attribute__((unused)) static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char below[8192];
        struct stat st;
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, d->d_name);
        if (lstat(below, &st) == 0 && S_ISDIR(st.st_mode))
            remove_tree(below);
        else
            unlink(below);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

__attribute__((unused)) static void scratch_open(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/penstock-test-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(scratch)) {
        perror(scratch);
        exit(1);
    }
}

__attribute__((unused)) static void scratch_clear(void)
{
    remove_tree(scratch);
    mkdir(scratch, 0700);
}

__attribute__((unused)) static void set_time(const char *path, int64_t seconds, long ns)
{
    const struct timespec t[2] = {{seconds, ns}, {seconds, ns}};
    utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW);
}

/* Writes a file with its directories; its time is old, theirs are set by age_dirs. */
__attribute__((unused)) static void put_bytes(const char *path, const void *bytes, size_t len)
{
    char copy[8192];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(copy, 0755);
        *slash = '/';
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len) {
        perror(path);
        exit(1);
    }
    close(fd);
    set_time(path, OLD_TIME, 0);
}

__attribute__((unused)) static void put_text(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

/* Makes every directory below path old. */
__attribute__((unused)) static void age_dirs(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char below[8192];
        struct stat st;
        if (d->d_name[0] == '.')
            continue;
        snprintf(below, sizeof below, "%s/%s", path, d->d_name);
        if (lstat(below, &st) == 0 && S_ISDIR(st.st_mode))
            age_dirs(below);
    }
    if (dir)
        closedir(dir);
    set_time(path, OLD_TIME, 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

static pst_error last_error;

/* Remembers nothing. */
__attribute__((unused)) static psti_dataset *open_plain(const char *path)
{
    const pst_dataset_options opts = {.size = sizeof opts, .index_dir = "", .threads = 2};
    psti_dataset *data = NULL;
    memset(&last_error, 0, sizeof last_error);
    return psti_dataset_open(path, &opts, &data, &last_error) ? NULL : data;
}

/* Remembers in SCRATCH/index. */
__attribute__((unused)) static psti_dataset *open_remembered(const char *path)
{
    char dir[300];
    snprintf(dir, sizeof dir, "%s/index", scratch);
    const pst_dataset_options opts = {.size = sizeof opts, .index_dir = dir, .threads = 2};
    psti_dataset *data = NULL;
    memset(&last_error, 0, sizeof last_error);
    return psti_dataset_open(path, &opts, &data, &last_error) ? NULL : data;
}

/* Opening must fail with this code and a message that holds the word. */
#define CHECK_REFUSED(path, want, word)                                                            \
    do {                                                                                           \
        psti_dataset *refused_ = open_plain(path);                                                 \
        CHECKF(!refused_, "opened");                                                               \
        CHECKF(last_error.code == (want), "code %d: %s", last_error.code, last_error.message);     \
        CHECKF(strstr(last_error.message, word), "message: %s", last_error.message);               \
        psti_dataset_unref(refused_);                                                              \
    } while (0)

__attribute__((unused)) static int field_number(const psti_dataset *data, const char *name)
{
    return data ? psti_dataset_find_field(data, name, strlen(name)) : -1;
}

__attribute__((unused)) static const pst_field_info *field_info(const psti_dataset *data,
                                                                const char *name)
{
    static const pst_field_info none;
    const int field = field_number(data, name);
    return field < 0 ? &none : &data->field[field].info;
}

__attribute__((unused)) static int64_t int_of(const psti_dataset *data, int64_t id,
                                              const char *name)
{
    const void *value;
    size_t bytes;
    if (psti_dataset_value(data, id, field_number(data, name), &value, &bytes) || bytes != 8)
        return INT64_MIN;
    return *(const int64_t *)value;
}

__attribute__((unused)) static double real_of(const psti_dataset *data, int64_t id,
                                              const char *name)
{
    const int64_t bits = int_of(data, id, name);
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

__attribute__((unused)) static bool text_is(const psti_dataset *data, int64_t id, const char *name,
                                            const char *want)
{
    const void *value;
    size_t bytes;
    if (psti_dataset_value(data, id, field_number(data, name), &value, &bytes))
        return false;
    return bytes == strlen(want) && memcmp(value, want, bytes) == 0;
}

__attribute__((unused)) static bool key_is(const psti_dataset *data, int64_t id, const char *want)
{
    const char *key = psti_dataset_key(data, id);
    if (key && strcmp(key, want) == 0)
        return true;
    fprintf(stderr, "key %lld is %s, not %s\n", (long long)id, key ? key : "(none)", want);
    return false;
}

/* Whether the member's bytes are these. */
__attribute__((unused)) static bool member_is(const psti_dataset *data, int64_t id,
                                              const char *field, const char *want)
{
    psti_extent extent;
    uint8_t buf[65536];
    if (psti_dataset_extent(data, id, field_number(data, field), &extent) ||
        extent.length > sizeof buf)
        return false;
    return psti_read_now(&extent, buf) == 0 && extent.length == strlen(want) &&
           memcmp(buf, want, extent.length) == 0;
}

/* ---- the log --------------------------------------------------------------------------------- */

static int log_lines;
static char log_last[1024];

__attribute__((unused)) static void count_log(int level, const char *text, void *user)
{
    (void)level;
    (void)user;
    __atomic_fetch_add(&log_lines, 1, __ATOMIC_SEQ_CST);
    snprintf(log_last, sizeof log_last, "%s", text);
}

/* ---- tar shards ------------------------------------------------------------------------------ */

typedef struct tarball {
    uint8_t bytes[1 << 17];
    size_t len;
} tarball;

__attribute__((unused)) static void tar_seal(uint8_t *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

/* A ustar header; returns it for changes, after which tar_seal makes the checksum right again. */
__attribute__((unused)) static uint8_t *tar_header(tarball *t, const char *name, char type,
                                                   uint64_t size)
{
    uint8_t *h = t->bytes + t->len;
    memset(h, 0, 512);
    const size_t len = strlen(name);
    memcpy(h, name, len < 100 ? len : 100);
    memcpy(h + 100, "0000644", 8);
    for (int i = 0; i < 11; i++)
        h[124 + i] = (uint8_t)('0' + (size >> (3 * (10 - i)) & 7));
    memcpy(h + 136, "00000000000", 12);
    h[156] = (uint8_t)type;
    memcpy(h + 257, "ustar\00000", 8);
    tar_seal(h);
    t->len += 512;
    return h;
}

__attribute__((unused)) static void tar_data(tarball *t, const void *bytes, size_t len)
{
    memcpy(t->bytes + t->len, bytes, len);
    memset(t->bytes + t->len + len, 0, (512 - len % 512) % 512);
    t->len += (len + 511) / 512 * 512;
}

__attribute__((unused)) static void tar_file(tarball *t, const char *name, const char *text)
{
    tar_header(t, name, '0', strlen(text));
    tar_data(t, text, strlen(text));
}

/* One pax record with its own length in front. */
__attribute__((unused)) static size_t pax_record(char *out, size_t cap, const char *key,
                                                 const char *value)
{
    size_t len = strlen(key) + strlen(value) + 3;
    for (;;) {
        const size_t n = (size_t)snprintf(out, cap, "%zu %s=%s\n", len, key, value);
        if (n == len)
            return n;
        len = n;
    }
}

__attribute__((unused)) static void tar_end(tarball *t)
{
    memset(t->bytes + t->len, 0, 1024);
    t->len += 1024;
}

__attribute__((unused)) static void tar_save(const tarball *t, const char *path)
{
    put_bytes(path, t->bytes, t->len);
}

#endif
