/* SPDX-License-Identifier: Apache-2.0
 * A page, metrics and the view over TCP. Only looking: nothing here changes anything. Everything is
 * done by one thread of the HTTP library, whose limits hold: connections, bytes of headers, time
 * without a byte. What it does not limit, a request that never ends or an answer that is read byte
 * by byte, is ended from the looker's thread, once a second. */
#include "serve/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/status.h"
#include "serve/page.h"
#include "serve/server.h"
#include "serve/show.h"

enum { CONNECTIONS_MOST = 64, TIMEOUT_S = 10, HEADER_BYTES = 16 << 10, ANSWER_ROOM = 2 << 10 };
static const uint64_t REQUEST_NS = 10000000000, ANSWER_NS = 30000000000;

/* Of a connection. */
typedef struct guest {
    struct guest *next, *prev;
    int sock;
    uint64_t since_ns; /* it began to ask, or we began to answer */
    bool answering, streams;
} guest;

struct http {
    struct MHD_Daemon *mhd;
    show show;
    http_rules rules;
    char cookie[24]; /* its name: one a port, since ports share them */
    looker_listener clock;
    pthread_mutex_t lock; /* guards guests; a leaf */
    guest *guests;
};

/* ---- connections ----------------------------------------------------------------------------- */

static void end_overdue(void *user, looker_event *event)
{
    (void)event;
    struct http *h = user;
    const uint64_t now = psti_now_ns();
    pthread_mutex_lock(&h->lock);
    for (const guest *g = h->guests; g; g = g->next)
        if (!g->streams && now - g->since_ns > (g->answering ? ANSWER_NS : REQUEST_NS))
            shutdown(g->sock, SHUT_RDWR);
    pthread_mutex_unlock(&h->lock);
}

static guest *guest_come(struct http *h, int sock)
{
    guest *g = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *g);
    if (!g)
        return NULL;
    g->sock = sock;
    g->since_ns = psti_now_ns();
    pthread_mutex_lock(&h->lock);
    g->next = h->guests;
    if (g->next)
        g->next->prev = g;
    h->guests = g;
    pthread_mutex_unlock(&h->lock);
    if (atomic_fetch_add(&h->clock.wanted, 1) == 0)
        looker_wake(h->show.looker);
    return g;
}

static void guest_go(struct http *h, guest *g)
{
    pthread_mutex_lock(&h->lock);
    if (g->prev)
        g->prev->next = g->next;
    else
        h->guests = g->next;
    if (g->next)
        g->next->prev = g->prev;
    pthread_mutex_unlock(&h->lock);
    atomic_fetch_sub(&h->clock.wanted, 1);
    psti_free(g);
}

static void on_connection(void *user, struct MHD_Connection *c, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = user;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*state)
            guest_go(h, *state);
        *state = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    const int sock = info ? info->connect_fd : -1;
    *state = guest_come(h, sock);
    if (!*state)
        shutdown(sock, SHUT_RDWR);
}

static void guest_answers(struct http *h, struct MHD_Connection *c, bool answering, bool streams)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    guest *g = info ? info->socket_context : NULL;
    if (!g)
        return;
    pthread_mutex_lock(&h->lock);
    g->answering = answering;
    g->streams = streams;
    g->since_ns = psti_now_ns();
    pthread_mutex_unlock(&h->lock);
}

static void on_completed(void *user, struct MHD_Connection *c, void **per_request,
                         enum MHD_RequestTerminationCode code)
{
    (void)code;
    *per_request = NULL;
    guest_answers(user, c, false, false);
}

/* ---- who asks -------------------------------------------------------------------------------- */

typedef struct heads {
    int hosts, origins;
    const char *host, *origin;
} heads;

static enum MHD_Result count_head(void *user, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    (void)kind;
    heads *all = user;
    if (strcasecmp(name, "Host") == 0 && ++all->hosts)
        all->host = value;
    if (strcasecmp(name, "Origin") == 0 && ++all->origins)
        all->origin = value;
    return MHD_YES;
}

static bool from_here(const struct http *h, struct MHD_Connection *to)
{
    heads all = {0};
    MHD_get_connection_values(to, MHD_HEADER_KIND, count_head, &all);
    return all.hosts == 1 && all.origins <= 1 && http_host_allowed(&h->rules, all.host) &&
           http_origin_allowed(all.origin, all.host);
}

static bool has_token(const struct http *h, struct MHD_Connection *to)
{
    static const char bearer[] = "Bearer ";
    const char *given = MHD_lookup_connection_value(to, MHD_HEADER_KIND, "Authorization");
    if (!h->rules.token)
        return true;
    if (given && strncasecmp(given, bearer, sizeof bearer - 1) == 0) {
        given += sizeof bearer - 1;
        return http_token_is(&h->rules, given, strlen(given));
    }
    const char *cookie = MHD_lookup_connection_value(to, MHD_COOKIE_KIND, h->cookie);
    return cookie && http_token_is(&h->rules, cookie, strlen(cookie));
}

/* In an address a plus is a blank, which no token has. */
static bool is_token_of_address(const struct http *h, const char *given)
{
    char text[HTTP_TOKEN_MOST + 1];
    const size_t len = strlen(given);
    if (len > HTTP_TOKEN_MOST)
        return false;
    for (size_t i = 0; i < len; i++)
        text[i] = given[i] == ' ' ? '+' : given[i];
    const bool is = http_token_is(&h->rules, text, len);
    explicit_bzero(text, sizeof text);
    return is;
}

/* A browser that was given the token once keeps it where scripts cannot see it. */
static enum MHD_Result give_cookie(const struct http *h, struct MHD_Connection *to)
{
    char line[HTTP_TOKEN_MOST + 128];
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    snprintf(line, sizeof line, "%s=%s; Path=/; HttpOnly; SameSite=Strict", h->cookie,
             h->rules.token);
    show_headers(r);
    MHD_add_response_header(r, "Set-Cookie", line);
    MHD_add_response_header(r, "Location", "/");
    const enum MHD_Result ok = MHD_queue_response(to, MHD_HTTP_SEE_OTHER, r);
    MHD_destroy_response(r);
    explicit_bzero(line, sizeof line);
    return ok;
}

/* ---- answers --------------------------------------------------------------------------------- */

static enum MHD_Result send_page(struct MHD_Connection *to)
{
    const char *codings = MHD_lookup_connection_value(to, MHD_HEADER_KIND, "Accept-Encoding");
    if (!psti_page_gz_size)
        return show_text(to, MHD_HTTP_OK,
                         "This build of penstock has no page. There are /metrics, /v1/watch and "
                         "/v1/stream, and penstock top in a terminal.\n");
    if (!codings || !strstr(codings, "gzip"))
        return show_text(to, MHD_HTTP_NOT_ACCEPTABLE,
                         "The page is kept compressed: ask with Accept-Encoding: gzip.\n");
    struct MHD_Response *r = MHD_create_response_from_buffer(
        psti_page_gz_size, (void *)psti_page_gz, MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    show_headers(r);
    MHD_add_response_header(r, "Content-Type", "text/html; charset=utf-8");
    MHD_add_response_header(r, "Content-Encoding", "gzip");
    MHD_add_response_header(r, "Vary", "Accept-Encoding");
    MHD_add_response_header(r, "Content-Security-Policy", psti_page_csp);
    const enum MHD_Result ok = MHD_queue_response(to, MHD_HTTP_OK, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result answer_allowed(struct http *h, struct MHD_Connection *to, const char *method,
                                      const char *url)
{
    enum MHD_Result shown;
    const char *token = MHD_lookup_connection_value(to, MHD_GET_ARGUMENT_KIND, "token");
    if (h->rules.token && strcmp(url, "/") == 0 && token && is_token_of_address(h, token))
        return give_cookie(h, to);
    if (!has_token(h, to))
        return show_text(to, MHD_HTTP_UNAUTHORIZED,
                         "A token is needed: Authorization: Bearer TOKEN, or /?token=TOKEN once in "
                         "a browser.\n");
    if (strcmp(url, "/") == 0)
        return send_page(to);
    if (show_answer(&h->show, to, method, url, &shown))
        return shown;
    return show_text(to, MHD_HTTP_NOT_FOUND, "There are /, /metrics, /v1/watch and /v1/stream.\n");
}

static enum MHD_Result answer(void *user, struct MHD_Connection *to, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_bytes, void **per_request)
{
    (void)version;
    (void)data;
    struct http *h = user;
    if (*data_bytes > 0) /* nobody has anything to say here */
        return MHD_NO;
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return show_text(to, MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET and HEAD.\n");
    if (!*per_request) {
        *per_request = h;
        return MHD_YES;
    }
    guest_answers(h, to, true, strcmp(url, "/v1/stream") == 0);
    if (!from_here(h, to))
        return show_text(to, MHD_HTTP_FORBIDDEN,
                         "This is not asked for by a page or a name of this daemon; --http-host "
                         "names further ones.\n");
    return answer_allowed(h, to, method, url);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static int listen_at(http_rules *rules, pst_error *err)
{
    const int one = 1;
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    const int sock = socket(rules->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool six = rules->at.ss_family == AF_INET6;
    bool ok = sock >= 0 && setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0;
    ok = ok && (!six || setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) == 0);
    ok = ok && bind(sock, (struct sockaddr *)&rules->at, rules->at_bytes) == 0 &&
         listen(sock, CONNECTIONS_MOST) == 0 &&
         getsockname(sock, (struct sockaddr *)&at, &bytes) == 0;
    if (ok) {
        rules->port = ntohs(six ? ((struct sockaddr_in6 *)&at)->sin6_port
                                : ((struct sockaddr_in *)&at)->sin_port);
        return sock;
    }
    const int rc = -errno;
    if (sock >= 0)
        close(sock);
    return psti_fail(err, rc, "serve", NULL, "%s:%d cannot be listened at: %s%s", rules->literal,
                     rules->port, pst_strerror(rc),
                     rc == -EADDRINUSE ? "; choose another port, or 0 for any that is free" : "");
}

/* A path that has an end of text in it is none. */
static size_t unescape(void *user, struct MHD_Connection *c, char *text)
{
    (void)user;
    (void)c;
    if (!strstr(text, "%00"))
        return MHD_http_unescape(text);
    text[0] = '\0';
    return 0;
}

static struct MHD_Daemon *start(struct http *h, int sock)
{
    sigset_t old;
    show_no_signals(&old);
    struct MHD_Daemon *mhd = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, answer, h,
        MHD_OPTION_LISTEN_SOCKET, sock, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MOST,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)(HEADER_BYTES + ANSWER_ROOM), MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_UNESCAPE_CALLBACK, unescape, h,
        MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return mhd;
}

int http_open(looker *l, http_rules *rules, struct http **out, pst_error *err)
{
    struct http *h = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *h);
    if (!h) {
        http_rules_fini(rules);
        return psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    }
    h->rules = *rules;
    pthread_mutex_init(&h->lock, NULL);
    show_init(&h->show, l, SHOW_STREAMS);
    h->clock.told = end_overdue;
    h->clock.user = h;
    looker_listen(l, &h->clock);
    const int sock = listen_at(&h->rules, err);
    int rc = sock < 0 ? sock : 0;
    snprintf(h->cookie, sizeof h->cookie, "penstock_%u", h->rules.port);
    const ino_t inode = rc == 0 ? show_inode(sock) : 0;
    h->mhd = rc == 0 ? start(h, sock) : NULL;
    if (rc == 0 && !h->mhd) {
        show_not_started(sock, inode);
        rc = psti_fail(err, -EIO, "serve", NULL, "the HTTP side does not start");
    }
    if (rc < 0) {
        http_close(h);
        return rc;
    }
    *out = h;
    return 0;
}

void http_close(struct http *h)
{
    if (!h)
        return;
    show_end(&h->show);
    if (h->mhd)
        MHD_stop_daemon(h->mhd);
    looker_leave(h->show.looker, &h->clock);
    show_fini(&h->show);
    http_rules_fini(&h->rules);
    pthread_mutex_destroy(&h->lock);
    psti_free(h);
}

/* ---- of a daemon ----------------------------------------------------------------------------- */

static int make_rules(const pst_server_options *o, http_rules *rules, pst_error *err)
{
    int rc = http_parse(o->http, rules, err);
    if (rc == 0 && !rules->loopback && !o->http_token)
        rc = psti_fail(err, -EACCES, "serve", NULL,
                       "%s can be reached from other machines: give a token (--http-token FILE), "
                       "or an address of this machine alone, as in 127.0.0.1:%u",
                       rules->literal, rules->port);
    if (rc == 0 && o->http_token)
        rc = http_read_token(o->http_token, rules, err);
    if (rc == 0 && o->http_hosts && *o->http_hosts) {
        rules->hosts = psti_strdup(PSTI_MEM_SERVE, o->http_hosts);
        rc = rules->hosts ? 0 : psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    }
    return rc;
}

int control_http(pst_server *s, const pst_server_options *o, pst_error *err)
{
    http_rules rules = {0};
    const int rc = make_rules(o, &rules, err);
    if (rc == 0)
        return http_open(s->looker, &rules, &s->http, err);
    http_rules_fini(&rules);
    return rc;
}

void control_http_close(pst_server *s)
{
    http_close(s->http);
    s->http = NULL;
}

int pst_server_http_port(const pst_server *server)
{
    return server->http ? server->http->rules.port : 0;
}
