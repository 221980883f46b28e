/* SPDX-License-Identifier: Apache-2.0
 * A server on loopback that answers as a test tells it: a function is given each request and writes
 * whatever it likes. One thread per connection; everything ends with server_close. */
#ifndef PSTI_TESTS_NET_SERVER_H
#define PSTI_TESTS_NET_SERVER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SERVER_CONNECTIONS = 600, SERVER_HEAD = 16384 };

struct server;
typedef struct request {
    struct server *server;
    int fd;
    int number; /* of the request, over all connections, from 0 */
    char head[SERVER_HEAD];
    char method[8], target[8192];
} request;

typedef struct server {
    int listener, port;
    bool (*answer)(request *r); /* false: close the connection */
    void *user;
    atomic_int requests, connections;
    pthread_t acceptor;
    /* Of the connections at a time; the acceptor's, but for ended. */
    int places;
    pthread_t thread[SERVER_CONNECTIONS];
    int fd[SERVER_CONNECTIONS];
    atomic_bool ended[SERVER_CONNECTIONS];
    char log[1 << 16]; /* heads, one behind the other, as far as there is room */
    size_t log_len;
    pthread_mutex_t lock;
    pthread_cond_t more; /* a request came */
} server;

/* The value of a header; "" where it is not. Lives until the next call with the same room. */
static inline const char *header_of(const request *r, const char *name, char *room, size_t size)
{
    const size_t len = strlen(name);
    room[0] = 0;
    for (const char *line = strstr(r->head, "\r\n"); line && line[2];
         line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, len) == 0 && line[2 + len] == ':') {
            const char *at = line + 3 + len;
            while (*at == ' ')
                at++;
            snprintf(room, size, "%.*s", (int)strcspn(at, "\r\n"), at);
            break;
        }
    return room;
}

static inline bool send_bytes(const request *r, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size) {
        const ssize_t sent = send(r->fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

__attribute__((format(printf, 2, 3))) static inline bool send_text(const request *r,
                                                                   const char *fmt, ...)
{
    char text[8192];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return n > 0 && send_bytes(r, text, (size_t)n);
}

static inline bool read_head(request *r)
{
    size_t len = 0;
    while (len + 1 < sizeof r->head) {
        const ssize_t got = recv(r->fd, r->head + len, sizeof r->head - 1 - len, 0);
        if (got <= 0)
            return false;
        len += (size_t)got;
        r->head[len] = 0;
        if (strstr(r->head, "\r\n\r\n"))
            return sscanf(r->head, "%7s %8191s", r->method, r->target) == 2;
    }
    return false;
}

static inline void log_head(server *s, const request *r)
{
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->more);
    const size_t len = strlen(r->head);
    if (s->log_len + len + 1 < sizeof s->log) {
        memcpy(s->log + s->log_len, r->head, len + 1);
        s->log_len += len;
    }
    pthread_mutex_unlock(&s->lock);
}

typedef struct server_place {
    server *s;
    int place;
} server_place;

static inline void *connection_main(void *arg)
{
    server_place p = *(server_place *)arg;
    request *r = calloc(1, sizeof *r);
    free(arg);
    r->server = p.s;
    r->fd = p.s->fd[p.place];
    while (read_head(r)) {
        r->number = atomic_fetch_add(&p.s->requests, 1);
        log_head(p.s, r);
        if (!p.s->answer(r))
            break;
    }
    shutdown(r->fd, SHUT_WR);
    free(r);
    atomic_store(&p.s->ended[p.place], true);
    return NULL;
}

/* That of a connection which has ended, else a new one; -1: none is left. */
static inline int place_for(server *s)
{
    for (int i = 0; i < s->places; i++)
        if (atomic_exchange(&s->ended[i], false)) {
            pthread_join(s->thread[i], NULL);
            close(s->fd[i]);
            return i;
        }
    return s->places < SERVER_CONNECTIONS ? s->places++ : -1;
}

static inline void *accept_main(void *arg)
{
    server *s = arg;
    for (;;) {
        const int fd = accept(s->listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        const int place = place_for(s);
        if (place < 0) {
            close(fd);
            continue;
        }
        server_place *p = malloc(sizeof *p);
        *p = (server_place){s, place};
        s->fd[place] = fd;
        pthread_create(&s->thread[place], NULL, connection_main, p);
        atomic_fetch_add(&s->connections, 1);
    }
}

static inline server *server_open(bool (*answers)(request *r), void *user)
{
    server *s = calloc(1, sizeof *s);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    s->answer = answers;
    s->user = user;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(s->listener, (struct sockaddr *)&address, size) < 0 || listen(s->listener, 256) < 0 ||
        getsockname(s->listener, (struct sockaddr *)&address, &size) < 0) {
        perror("server_open");
        exit(1);
    }
    s->port = ntohs(address.sin_port);
    pthread_create(&s->acceptor, NULL, accept_main, s);
    return s;
}

/* Until so many requests came in all. */
static inline void server_wait(server *s, int requests)
{
    pthread_mutex_lock(&s->lock);
    while (atomic_load(&s->requests) < requests)
        pthread_cond_wait(&s->more, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Holds an answer back, unless the other end goes away meanwhile. */
static inline void hold_back(const request *r, int ms)
{
    struct pollfd end = {.fd = r->fd, .events = POLLRDHUP};
    poll(&end, 1, ms);
}

static inline void server_close(server *s)
{
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->acceptor, NULL);
    close(s->listener);
    for (int i = 0; i < s->places; i++) {
        shutdown(s->fd[i], SHUT_RDWR);
        pthread_join(s->thread[i], NULL);
        close(s->fd[i]);
    }
    pthread_cond_destroy(&s->more);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

#endif
