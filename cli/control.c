/* SPDX-License-Identifier: Apache-2.0
 * Asking a daemon over its control socket: HTTP with JSON. Main thread. What comes back is checked
 * as if anybody had sent it. */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli.h"

enum { ANSWER_MOST = 16 << 20, PATIENCE_MS = 10000 };

/* ---- connecting ------------------------------------------------------------------------------ */

/* Through the open directory: a socket's own path may only be short. */
static int connect_to(const char *dir, bool owned)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat st;
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (owned && (fstat(fd, &st) != 0 || st.st_uid != geteuid())) {
        close(fd);
        return -EPERM;
    }
    snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/control.sock", fd);
    const int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int rc =
        sock < 0 || connect(sock, (struct sockaddr *)&to, sizeof to) != 0 ? -errno : sock;
    close(fd);
    if (rc < 0 && sock >= 0)
        close(sock);
    return rc;
}

bool control_listens(const char *dir, bool owned)
{
    const int sock = connect_to(dir, owned);
    if (sock >= 0)
        close(sock);
    return sock >= 0;
}

/* ---- a question ------------------------------------------------------------------------------ */

int control_begin(const char *dir, const char *url, control_question *q)
{
    char request[128];
    *q = (control_question){.fd = connect_to(dir, false)};
    if (q->fd < 0) {
        const int rc = q->fd;
        q->fd = -1;
        return rc;
    }
    const int len =
        snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: penstock\r\n\r\n", url);
    if (send(q->fd, request, (size_t)len, MSG_NOSIGNAL) != len) {
        control_drop(q);
        return -EIO;
    }
    q->cap = 64 << 10;
    q->text = cli_alloc(q->cap);
    return 0;
}

void control_drop(control_question *q)
{
    if (q->fd >= 0)
        close(q->fd);
    free(q->text);
    *q = (control_question){.fd = -1};
}

/* The number of a header that the server sends with every answer; -1: it is not there. */
static long long length_told(const char *head, size_t bytes)
{
    static const char name[] = "\r\ncontent-length:";
    for (size_t i = 0; i + sizeof name <= bytes; i++)
        if (strncasecmp(head + i, name, sizeof name - 1) == 0)
            return strtoll(head + i + sizeof name - 1, NULL, 10);
    return -1;
}

/* Of the whole answer. An answer that was cut off is none. */
static int read_answer(const control_question *q, json_t **out)
{
    const char *body = strstr(q->text, "\r\n\r\n");
    if (!body || strncmp(q->text, "HTTP/1.", 7) != 0 || strlen(q->text) != q->used)
        return -EPROTO;
    const long status = strtol(q->text + 8, NULL, 10);
    if (status != 200)
        return status == 404 ? -ENOENT : -EPROTO;
    const size_t head = (size_t)(body - q->text) + 4;
    const long long told = length_told(q->text, head);
    if (told >= 0 && (unsigned long long)told != q->used - head)
        return -EPROTO;
    *out = json_loads(body + 4, JSON_REJECT_DUPLICATES, NULL);
    return *out ? 0 : -EPROTO;
}

/* Reads what is there; 1: more is to come, 0: that was all. */
static int read_some(control_question *q)
{
    for (;;) {
        if (q->cap - q->used < 4096)
            q->text = cli_realloc(q->text, q->cap *= 2, 1);
        const ssize_t n = recv(q->fd, q->text + q->used, q->cap - q->used - 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 1 : -errno;
        q->used += (size_t)n;
        q->text[q->used] = '\0';
        if (n == 0)
            return 0;
        if (q->used > ANSWER_MOST)
            return -EMSGSIZE;
    }
}

int control_take(control_question *q, json_t **out)
{
    int rc = read_some(q);
    if (rc == 1)
        return rc;
    if (rc == 0)
        rc = read_answer(q, out);
    control_drop(q);
    return rc;
}

/* ---- asking and waiting ---------------------------------------------------------------------- */

static int wait_for(control_question *q, json_t **out)
{
    int rc;
    while ((rc = control_take(q, out)) == 1) {
        struct pollfd wait = {.fd = q->fd, .events = POLLIN};
        const int ready = poll(&wait, 1, PATIENCE_MS);
        if (ready == 0 || (ready < 0 && errno != EINTR)) {
            control_drop(q);
            return -ETIMEDOUT;
        }
    }
    return rc;
}

int control_ask(const char *socket_dir, const char *url, json_t **out)
{
    char dir[PATH_MAX];
    control_question q;
    if (pst_server_find(socket_dir, dir, sizeof dir) < 0)
        return fail_usage("the directory's name is too long");
    const int rc = control_begin(dir, url, &q);
    if (rc < 0)
        return fail("nobody serves %s (%s); start it with: penstock serve", dir, strerror(-rc));
    return wait_for(&q, out) == 0
               ? CLI_OK
               : fail("%s does not answer; is it a penstock serve of this user?", dir);
}

void control_print(const json_t *answer)
{
    char *text = json_dumps(answer, JSON_COMPACT | JSON_SORT_KEYS);
    printf("%s\n", text ? text : "{}");
    free(text);
}
