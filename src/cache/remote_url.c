/* SPDX-License-Identifier: Apache-2.0
 * Where the servers are, and how one gets in: URLs, addresses, the password. A URL is shown to
 * people, so none may have a password in it, and what is wrong with one is said without quoting
 * it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/remote_priv.h"
#include "core/memory.h"
#include "core/status.h"

enum { PORT = 6379, SECRET_ROOM = 4096, PASSWORD_MAX = 1024 };

static int wrong(pst_error *err, const char *what)
{
    return psti_fail(err, -EINVAL, "remote", NULL,
                     "%s; expected redis://[user@]host[:port][,host[:port]...][/db]", what);
}

/* ---- URLs ------------------------------------------------------------------------------------ */

static bool number(const char *text, size_t size, int most, int *out)
{
    int value = 0;
    if (size == 0 || size > 6)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (text[i] - '0');
    }
    *out = value;
    return value <= most;
}

static bool put(char *out, size_t room, const char *text, size_t size)
{
    if (size == 0 || size >= room)
        return false;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == 127)
            return false;
    memcpy(out, text, size);
    out[size] = 0;
    return true;
}

/* host, host:port, [address]:port */
static bool seed(const char *text, size_t size, place *out)
{
    const char *end = text + size, *host_end = end, *colon = memchr(text, ':', size);
    if (size && text[0] == '[') {
        host_end = memchr(text, ']', size);
        if (!host_end)
            return false;
        colon = host_end + 1 < end ? host_end + 1 : NULL;
        if (colon && *colon != ':')
            return false;
        text++;
    } else if (colon) {
        host_end = colon;
    }
    out->port = PORT;
    if (colon && (!number(colon + 1, (size_t)(end - colon - 1), 65535, &out->port) || !out->port))
        return false;
    return put(out->host, sizeof out->host, text, (size_t)(host_end - text));
}

static int seeds(const char *text, const char *end, remote_url *out, pst_error *err)
{
    while (text <= end) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma ? comma : end;
        if (out->seed_count == SEEDS_MAX)
            return wrong(err, "the address of the remote tier names more than 16 servers");
        if (!seed(text, (size_t)(stop - text), &out->seeds[out->seed_count++]))
            return wrong(err, "the address of the remote tier has a host or port that is none");
        text = stop + 1;
    }
    return 0;
}

int remote_url_parse(const char *text, remote_url *out, pst_error *err)
{
    *out = (remote_url){0};
    out->tls = strncmp(text, "rediss://", 9) == 0;
    if (!out->tls && strncmp(text, "redis://", 8) != 0)
        return wrong(err, "the address of the remote tier begins with no redis:// or rediss://");
    text += out->tls ? 9 : 8;
    const char *end = text + strcspn(text, "/?#");
    if (*end == '/' && end[1] && !number(end + 1, strlen(end + 1), 65535, &out->db))
        return wrong(err, "the database of the remote tier is no number");
    if (*end == '?' || *end == '#')
        return wrong(err, "the address of the remote tier has parameters");
    const char *at = memrchr(text, '@', (size_t)(end - text));
    if (at) {
        if (memchr(text, ':', (size_t)(at - text)))
            return psti_fail(err, -EINVAL, "remote", NULL,
                             "the address of the remote tier has a password in it, where others "
                             "can see it; put it into PENSTOCK_REMOTE_PASSWORD, or into a file "
                             "that PENSTOCK_REMOTE_PASSWORD_FILE names");
        if (!put(out->user, sizeof out->user, text, (size_t)(at - text)))
            return wrong(err, "the address of the remote tier has no proper name of a user");
        text = at + 1;
    }
    return seeds(text, end, out, err);
}

/* ---- addresses ------------------------------------------------------------------------------- */

int host_address(const place *at, bool names, char address[HOST_ROOM])
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = names ? 0 : AI_NUMERICHOST};
    struct addrinfo *found;
    if (getaddrinfo(at->host, NULL, &hints, &found) != 0)
        return -ENOENT;
    const int rc =
        getnameinfo(found->ai_addr, found->ai_addrlen, address, HOST_ROOM, NULL, 0, NI_NUMERICHOST);
    freeaddrinfo(found);
    return rc == 0 ? 0 : -ENOENT;
}

bool host_near(const char *address, const char *other)
{
    uint8_t a[16], b[16];
    if (inet_pton(AF_INET, address, a) == 1)
        return inet_pton(AF_INET, other, b) == 1 && memcmp(a, b, 2) == 0;
    return inet_pton(AF_INET6, address, a) == 1 && inet_pton(AF_INET6, other, b) == 1 &&
           memcmp(a, b, 6) == 0;
}

/* ---- the password ---------------------------------------------------------------------------- */

struct password {
    size_t size;
    char command[SECRET_ROOM - sizeof(size_t)];
};

static password *secret_page(void)
{
    password *s =
        mmap(NULL, SECRET_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return NULL;
    madvise(s, SECRET_ROOM, MADV_DONTDUMP);
    mlock(s, SECRET_ROOM); /* a wish: not into swap */
    return s;
}

void password_free(password *s)
{
    if (!s)
        return;
    explicit_bzero(s, SECRET_ROOM);
    munmap(s, SECRET_ROOM);
}

const char *password_command(const password *s, size_t *size)
{
    *size = s->size;
    return s->command;
}

/* The first line of a file, into the page itself so that no copy is left behind. */
static ssize_t read_file(const char *path, char *out, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const ssize_t got = read(fd, out, room);
    const int why = errno;
    close(fd);
    if (got < 0)
        return -why;
    const char *end = memchr(out, '\n', (size_t)got);
    return end ? end - out : got;
}

/* What comes before the password's bytes. */
static int head_of(char *out, size_t room, const char *user, size_t size)
{
    if (user[0])
        return snprintf(out, room, "*3\r\n$4\r\nAUTH\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(user), user,
                        size);
    return snprintf(out, room, "*2\r\n$4\r\nAUTH\r\n$%zu\r\n", size);
}

password *password_load(const char *user, int *rc, pst_error *err)
{
    const char *value = getenv("PENSTOCK_REMOTE_PASSWORD");
    const char *path = getenv("PENSTOCK_REMOTE_PASSWORD_FILE");
    *rc = 0;
    if ((!value || !*value) && (!path || !*path))
        return NULL;
    password *s = secret_page();
    if (!s) {
        *rc = psti_fail(err, -ENOMEM, "remote", NULL, "no memory for the remote tier's password");
        return NULL;
    }
    char *raw = s->command + sizeof s->command - PASSWORD_MAX - 2; /* moved down afterwards */
    ssize_t size = value && *value ? (ssize_t)strlen(value) : read_file(path, raw, PASSWORD_MAX);
    if (size < 0)
        *rc = psti_fail(err, (int)size, "remote", NULL,
                        "the file that PENSTOCK_REMOTE_PASSWORD_FILE names cannot be read: %s",
                        strerror((int)-size));
    else if (size == 0 || size >= PASSWORD_MAX)
        *rc = psti_fail(err, -EINVAL, "remote", NULL,
                        "the remote tier's password is empty or longer than %d bytes",
                        PASSWORD_MAX - 1);
    if (*rc < 0) {
        password_free(s);
        return NULL;
    }
    if (value && *value)
        memcpy(raw, value, (size_t)size);
    const int head = head_of(s->command, 256, user, (size_t)size);
    memmove(s->command + head, raw, (size_t)size);
    memcpy(s->command + head + size, "\r\n", 2);
    s->size = (size_t)head + (size_t)size + 2;
    return s;
}
