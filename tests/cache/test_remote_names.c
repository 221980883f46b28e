/* SPDX-License-Identifier: Apache-2.0
 * A name server that does not answer holds nobody up: getaddrinfo is replaced by one that waits
 * until it is let go on, and a server that knows three answers stands beside it. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cache/remote.h"
#include "check.h"
#include "core/clock.h"
#include "core/memory.h"

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static bool held;
static int asked, ended; /* lookups of names */

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (hints->ai_flags & AI_NUMERICHOST)
        return __real_getaddrinfo(host, service, hints, out);
    pthread_mutex_lock(&lock);
    asked++;
    pthread_cond_broadcast(&change);
    while (held)
        pthread_cond_wait(&change, &lock);
    ended++;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    return __real_getaddrinfo("127.0.0.1", service, hints, out);
}

static void hold(bool on)
{
    pthread_mutex_lock(&lock);
    held = on;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

/* ---- a server -------------------------------------------------------------------------------- */

/* What comes is taken for whole commands, as the tier sends them when it says hello and asks. */
static void *talk(void *arg)
{
    const int fd = *(int *)arg;
    char text[4096];
    ssize_t got;
    psti_free(arg);
    while ((got = read(fd, text, sizeof text - 1)) > 0) {
        text[got] = 0;
        for (char *at = text; (at = strchr(at, '*')); at++) {
            const char *answer = strstr(at, "CLUSTER") == at + 8 ? "-ERR single\r\n"
                                 : strstr(at, "PING") == at + 8  ? "+PONG\r\n"
                                                                 : "$-1\r\n";
            if (write(fd, answer, strlen(answer)) < 0)
                break;
        }
    }
    close(fd);
    return NULL;
}

static void *serve(void *arg)
{
    const int door = *(const int *)arg;
    int fd;
    while ((fd = accept(door, NULL, NULL)) >= 0) {
        pthread_t thread;
        int *mine = psti_malloc(PSTI_MEM_CACHE, sizeof *mine);
        *mine = fd;
        pthread_create(&thread, NULL, talk, mine);
        pthread_detach(thread);
    }
    return NULL;
}

static int door, port;

static void server_start(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    pthread_t thread;
    door = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(door, (struct sockaddr *)&at, sizeof at) == 0 && listen(door, 16) == 0);
    getsockname(door, (struct sockaddr *)&at, &size);
    port = ntohs(at.sin_port);
    pthread_create(&thread, NULL, serve, &door);
    pthread_detach(thread);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int status, answers;

static uint8_t *room(psti_remote_op *op, size_t size)
{
    (void)op;
    (void)size;
    return NULL;
}

static void done(psti_remote_op *op, int rc)
{
    (void)op;
    pthread_mutex_lock(&lock);
    status = rc;
    answers++;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

/* What the tier says of a key that nobody stored: -ENOENT once it has asked. */
static int ask(psti_remote *r)
{
    psti_remote_op op = {.key = {{1, 2}, {3, 4}}, .room = room, .done = done};
    pthread_mutex_lock(&lock);
    const int before = answers;
    pthread_mutex_unlock(&lock);
    psti_remote_get(r, &op);
    pthread_mutex_lock(&lock);
    while (answers == before)
        pthread_cond_wait(&change, &lock);
    const int rc = status;
    pthread_mutex_unlock(&lock);
    return rc;
}

static int count_of(const int *counter)
{
    pthread_mutex_lock(&lock);
    const int count = *counter;
    pthread_mutex_unlock(&lock);
    return count;
}

static void wait_for(const int *counter, int least)
{
    pthread_mutex_lock(&lock);
    while (*counter < least)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

/* Asks until it is answered; the test's own limit ends it if that never comes. */
static void ask_until_answered(psti_remote *r)
{
    while (ask(r) != -ENOENT) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += until.tv_nsec < 998000000 ? 1000000 : 0;
        pthread_mutex_lock(&lock);
        pthread_cond_timedwait(&change, &lock, &until);
        pthread_mutex_unlock(&lock);
    }
}

/* ---- behaviours ------------------------------------------------------------------------------ */

static psti_remote *open_at(const char *hosts)
{
    char url[128];
    psti_remote *r = NULL;
    pst_error err;
    snprintf(url, sizeof url, hosts, port);
    const psti_remote_spec spec = {.url = url};
    CHECK(psti_remote_open(&spec, &r, &err) == 0);
    return r;
}

static void a_name_that_nobody_knows_holds_no_other_server_up(void)
{
    hold(true);
    psti_remote *r = open_at("redis://nowhere.example,127.0.0.1:%d");
    wait_for(&asked, 1);
    ask_until_answered(r);
    CHECK(count_of(&ended) == 0);
    psti_remote_close(r); /* nor whoever closes it */
    CHECK(count_of(&ended) == 0);
    hold(false);
    wait_for(&ended, 1);
}

static void a_name_that_is_known_late_is_used(void)
{
    const int before = count_of(&asked);
    hold(true);
    psti_remote *r = open_at("redis://late.example:%d");
    wait_for(&asked, before + 1);
    CHECK(ask(r) == -EAGAIN);
    hold(false);
    ask_until_answered(r);
    psti_remote_close(r);
}

int main(void)
{
    server_start();
    RUN(a_name_that_nobody_knows_holds_no_other_server_up);
    RUN(a_name_that_is_known_late_is_used);
    return check_report();
}
