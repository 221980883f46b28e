/* SPDX-License-Identifier: Apache-2.0
 * Pages about an engine. Called by the thread of the HTTP daemon that it belongs to. */
#include "serve/show.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "watch/metrics.h"

void show_no_signals(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, old);
}

ino_t show_inode(int sock)
{
    struct stat st;
    return fstat(sock, &st) == 0 ? st.st_ino : 0;
}

void show_not_started(int sock, ino_t inode)
{
    if (show_inode(sock) == inode)
        close(sock);
}

void show_init(show *s, looker *l, int streams)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->looker = l;
    s->most = streams;
    s->ear.told = stream_told;
    s->ear.user = s;
    looker_listen(l, &s->ear);
}

void show_end(show *s)
{
    if (s->looker)
        stream_end_all(s);
}

void show_fini(show *s)
{
    if (!s->looker)
        return;
    looker_leave(s->looker, &s->ear);
    pthread_mutex_destroy(&s->lock);
    s->looker = NULL;
}

/* Nothing of it is for others' pages, nor to be kept. */
void show_headers(struct MHD_Response *r)
{
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "X-Frame-Options", "DENY");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Cross-Origin-Resource-Policy", "same-origin");
}

enum MHD_Result show_reply(struct MHD_Connection *to, unsigned status, const char *type,
                           const char *body, size_t bytes)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(bytes, (void *)body, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    show_headers(r);
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Content-Security-Policy",
                            "default-src 'none'; frame-ancestors 'none'");
    if (status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, "Allow", "GET, HEAD");
    const enum MHD_Result ok = MHD_queue_response(to, status, r);
    MHD_destroy_response(r);
    return ok;
}

enum MHD_Result show_text(struct MHD_Connection *to, unsigned status, const char *line)
{
    return show_reply(to, status, "text/plain; charset=utf-8", line, strlen(line));
}

static enum MHD_Result reply_made(struct MHD_Connection *to, int rc, const char *type,
                                  psti_writ *text)
{
    if (rc < 0)
        return show_text(to, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n");
    const enum MHD_Result ok = show_reply(to, MHD_HTTP_OK, type, text->data, text->size);
    psti_writ_fini(text);
    return ok;
}

bool show_answer(show *s, struct MHD_Connection *to, const char *method, const char *url,
                 enum MHD_Result *result)
{
    psti_writ text = {0};
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return false;
    if (strcmp(url, "/metrics") == 0) {
        *result = reply_made(to, looker_metrics(s->looker, &text), PSTI_METRICS_TYPE, &text);
        return true;
    }
    if (strcmp(url, "/v1/watch") == 0) {
        const char *value = MHD_lookup_connection_value(to, MHD_GET_ARGUMENT_KIND, "history");
        const bool history = value && strcmp(value, "1") == 0;
        *result = reply_made(to, looker_json(s->looker, history, &text), "application/json", &text);
        return true;
    }
    if (strcmp(url, "/v1/stream") != 0)
        return false;
    *result = strcmp(method, "HEAD") == 0 ? show_reply(to, MHD_HTTP_OK, "text/event-stream", "", 0)
                                          : stream_answer(s, to);
    return true;
}
