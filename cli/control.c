/* SPDX-License-Identifier: Apache-2.0
 * Asking a daemon over its control socket: HTTP with JSON. Main thread. */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli.h"

enum { ANSWER_MOST = 16 << 20, PATIENCE_S = 10 };

/* Through the open directory: a socket's own path may only be short. */
static int connect_to(const char *dir)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const struct timeval patience = {PATIENCE_S, 0};
    const int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/control.sock", fd);
    const int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int rc =
        sock < 0 || connect(sock, (struct sockaddr *)&to, sizeof to) != 0 ? -errno : sock;
    close(fd);
    if (rc < 0 && sock >= 0)
        close(sock);
    if (rc >= 0)
        setsockopt(rc, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return rc;
}

/* Everything until the other side closes; NULL when it fails. */
static char *read_all(int sock)
{
    size_t used = 0, cap = 64 << 10;
    char *text = cli_alloc(cap);
    for (;;) {
        const ssize_t n = recv(sock, text + used, cap - used - 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || used + (size_t)n > ANSWER_MOST) {
            free(text);
            return NULL;
        }
        if (n == 0)
            break;
        used += (size_t)n;
        if (cap - used < 4096) {
            char *larger = cli_alloc(2 * cap);
            memcpy(larger, text, used);
            free(text);
            text = larger;
            cap *= 2;
        }
    }
    text[used] = '\0';
    return text;
}

int control_ask(const char *socket_dir, const char *url, json_t **out)
{
    char request[128], dir[PATH_MAX];
    if (pst_server_find(socket_dir, dir, sizeof dir) < 0)
        return fail_usage("the directory's name is too long");
    const int sock = connect_to(dir);
    if (sock < 0)
        return fail("nobody serves %s (%s); start it with: penstock serve", dir, strerror(-sock));
    const int len =
        snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: penstock\r\n\r\n", url);
    char *text = send(sock, request, (size_t)len, MSG_NOSIGNAL) == len ? read_all(sock) : NULL;
    close(sock);
    const char *body = text ? strstr(text, "\r\n\r\n") : NULL;
    const bool fine =
        body && (strncmp(text, "HTTP/1.0 200", 12) == 0 || strncmp(text, "HTTP/1.1 200", 12) == 0);
    *out = fine ? json_loads(body + 4, 0, NULL) : NULL;
    free(text);
    return *out ? CLI_OK : fail("%s does not answer; is it a penstock serve of this user?", dir);
}

void control_print(const json_t *answer)
{
    char *text = json_dumps(answer, JSON_COMPACT | JSON_SORT_KEYS);
    printf("%s\n", text ? text : "{}");
    free(text);
}
