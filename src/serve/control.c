/* SPDX-License-Identifier: Apache-2.0
 * The control socket: HTTP with JSON, for whoever may connect to the feed; pulling and evicting
 * datasets is for the daemon's own user. libmicrohttpd runs it on one thread of its own; what it
 * shows of connections is read under server.lock. */
#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "serve/pulled.h"
#include "serve/server.h"
#include "serve/show.h"

enum { CONNECTIONS_MOST = 32, TIMEOUT_S = 5, MEMORY = 16 << 10, BODY_MOST = 16 << 10 };

struct control {
    pst_server *server;
    struct MHD_Daemon *http;
    struct pulled *pulled;
    show show;
    int sock;
};

/* What came with a request, until all of it is there. */
typedef struct request {
    size_t used;
    bool too_large;
    char body[BODY_MOST];
} request;

/* ---- what is shown --------------------------------------------------------------------------- */

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static const char *state_word(conn_state state)
{
    static const char *const words[] = {"connected", "connected", "opening",
                                        "running",   "closing",   "closed"};
    return words[state];
}

static const char *const form_words[PST_FORMS] = {"encoded", "decoded", "augmented"};

static void add_job_numbers(json_t *job, const conn_stats *s)
{
    json_object_set_new(job, "batches", number(s->batches));
    json_object_set_new(job, "samples", number(s->samples));
    json_object_set_new(job, "skipped", number(s->skipped));
    json_object_set_new(job, "bytes_read", number(s->bytes_read));
    json_object_set_new(job, "cache_hits", number(s->cache_hits));
    json_object_set_new(job, "cache_misses", number(s->cache_misses));
    json_object_set_new(job, "held", number(s->held));
    json_object_set_new(job, "preparations", number(s->preparations));
    json_t *hits = json_object();
    for (int f = 0; f < PST_FORMS; f++)
        json_object_set_new(hits, form_words[f], number(s->hits[f]));
    json_object_set_new(job, "hits", hits);
}

static json_t *show_job(const conn *c, uint64_t now)
{
    const conn_facts *f = &c->facts;
    const double age = seconds(now - f->opened_ns);
    json_t *job = json_object();
    json_object_set_new(job, "id", number(f->id));
    json_object_set_new(job, "state", json_string(state_word(f->state)));
    json_object_set_new(job, "pid", number(f->pid));
    json_object_set_new(job, "uid", number(f->uid));
    json_object_set_new(job, "seconds", json_real(age));
    json_object_set_new(job, "samples_per_second",
                        json_real(age > 0 ? (double)f->stats.samples / age : 0));
    json_object_set_new(job, "waited_seconds", json_real(seconds(f->wait_ns)));
    add_job_numbers(job, &f->stats);
    if (f->text) {
        json_object_set_new(job, "dataset", json_string(f->text->path));
        json_object_set_new(job, "pipeline", json_string(f->text->pipeline));
        json_object_set_new(job, "batch", json_integer(f->text->batch));
        json_object_set_new(job, "rank", json_integer(f->text->rank));
        json_object_set_new(job, "world", json_integer(f->text->world));
        json_object_set_new(job, "order", json_string(f->text->ready ? "ready" : "strict"));
        json_object_set_new(job, "sampling",
                            json_string(f->text->shares ? "opportunistic" : "plain"));
        json_object_set_new(job, "group", json_string(f->text->group));
    }
    return job;
}

static json_t *show_jobs(pst_server *s)
{
    json_t *jobs = json_array();
    const uint64_t now = psti_now_ns();
    pthread_mutex_lock(&s->lock);
    for (const conn *c = s->conns; c; c = c->next)
        json_array_append_new(jobs, show_job(c, now));
    pthread_mutex_unlock(&s->lock);
    return json_pack("{s:o}", "jobs", jobs);
}

static json_t *show_datasets(pst_server *s)
{
    json_t *datasets = json_array();
    pthread_mutex_lock(&s->shelf.lock);
    for (const shelf_entry *e = s->shelf.entries; e; e = e->next) {
        json_t *d = json_object();
        json_object_set_new(d, "path", json_string(e->path));
        json_object_set_new(d, "kind", json_string(pst_dataset_kind(e->data)));
        json_object_set_new(d, "samples", json_integer(pst_dataset_count(e->data)));
        json_object_set_new(d, "jobs", json_integer(e->users));
        json_array_append_new(datasets, d);
    }
    pthread_mutex_unlock(&s->shelf.lock);
    return json_pack("{s:o}", "datasets", datasets);
}

/* What the cache holds: by form, how many of all are in use at this moment, and what made way. */
static json_t *show_cache(pst_server *s)
{
    psti_cache *cache = psti_engine_cache(s->engine);
    psti_cache_stats stats = {0};
    if (cache)
        psti_cache_stats_get(cache, &stats);
    json_t *forms = json_object();
    for (int f = 0; f < PST_FORMS; f++)
        json_object_set_new(forms, form_words[f],
                            json_pack("{s:I, s:I}", "entries", (json_int_t)stats.form_entries[f],
                                      "bytes", (json_int_t)stats.form_bytes[f]));
    return json_pack("{s:o, s:I, s:I, s:I}", "forms", forms, "taken_bytes", (json_int_t)stats.bytes,
                     "evictions", (json_int_t)stats.evictions, "pinned",
                     (json_int_t)(cache ? psti_cache_pinned(cache) : 0));
}

static json_t *show_disk(pst_server *s)
{
    psti_disk *disk = psti_engine_disk(s->engine);
    psti_disk_stats d;
    if (!disk)
        return json_null();
    psti_disk_stats_get(disk, &d);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "entries",
                     (json_int_t)d.entries, "bytes", (json_int_t)d.bytes, "limit_bytes",
                     (json_int_t)d.limit, "written", (json_int_t)d.written, "evicted",
                     (json_int_t)d.evicted, "dropped", (json_int_t)d.dropped, "damaged",
                     (json_int_t)d.damaged, "errors", (json_int_t)d.errors, "off", (int)d.off);
}

static json_t *show_check(pst_server *s)
{
    char *text = NULL;
    json_t *lines = json_array();
    const int wrong = pst_engine_check(s->engine, &text);
    for (const char *at = text; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
        json_array_append_new(lines, json_stringn(at, strcspn(at, "\n")));
    pst_free(text);
    return json_pack("{s:i, s:o}", "wrong", wrong, "lines", lines);
}

static json_t *show_engine(pst_server *s)
{
    psti_budget *budget = psti_engine_budget(s->engine);
    pthread_mutex_lock(&s->lock);
    const int clients = s->conn_count;
    pthread_mutex_unlock(&s->lock);
    return json_pack(
        "{s:s, s:i, s:i, s:f, s:i, s:i, s:I, s:I, s:I, s:I, s:s, s:i, s:o, s:o, s:s}", "version",
        PST_VERSION, "protocol", (int)s->speaks.newest, "protocol_oldest", (int)s->speaks.oldest,
        "seconds", seconds(psti_now_ns() - s->started_ns), "workers", s->settings.workers, "cpus",
        s->settings.cpus, "memory_bytes", (json_int_t)s->settings.memory_bytes, "used_bytes",
        (json_int_t)psti_budget_used(budget), "peak_bytes", (json_int_t)psti_budget_peak(budget),
        "cache_bytes", (json_int_t)s->settings.cache_bytes, "cpu", s->settings.cpu, "connections",
        clients, "cache", show_cache(s), "disk", show_disk(s), "instance", s->instance);
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static enum MHD_Result reply_nothing(struct MHD_Connection *to)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    const enum MHD_Result ok = r ? MHD_queue_response(to, MHD_HTTP_NO_CONTENT, r) : MHD_NO;
    if (r)
        MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result reply(struct MHD_Connection *to, unsigned status, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(body);
    if (!text)
        return MHD_NO;
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(text); /* lint: library memory */
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", "application/json");
    const enum MHD_Result ok = MHD_queue_response(to, status, r);
    MHD_destroy_response(r);
    return ok;
}

static uid_t uid_of(struct MHD_Connection *to)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(to, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred who;
    socklen_t size = sizeof who;
    return info && getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0
               ? who.uid
               : (uid_t)-1;
}

static enum MHD_Result answer_pulled(const struct control *control, struct MHD_Connection *to,
                                     const char *method, const char *name, const request *r)
{
    json_t *body = NULL;
    if (strcmp(method, "GET") != 0 && uid_of(to) != geteuid())
        return reply(to, MHD_HTTP_FORBIDDEN,
                     pulled_refusal("only the daemon's own user may", "forbidden"));
    if (r->too_large)
        return reply(to, MHD_HTTP_BAD_REQUEST, pulled_refusal("the body is too long", "invalid"));
    const pulled_request asked = {
        .method = method, .name = name, .body = r->body, .body_bytes = r->used};
    const unsigned status = pulled_answer(control->pulled, &asked, &body);
    return status == MHD_HTTP_NO_CONTENT ? reply_nothing(to) : reply(to, status, body);
}

/* There may be credentials in it: what the library has of it is left out of core files and wiped,
 * which it does not mind once the bytes are taken. */
static void keep_body(request *r, const char *data, size_t bytes)
{
    psti_secret_hide(data, bytes);
    r->too_large = r->too_large || bytes > sizeof r->body - r->used;
    if (!r->too_large) {
        memcpy(r->body + r->used, data, bytes);
        r->used += bytes;
    }
    explicit_bzero((char *)data, bytes);
}

static enum MHD_Result answer(void *user, struct MHD_Connection *to, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_bytes, void **per_request)
{
    static const char below[] = "/v1/datasets/";
    static const struct {
        const char *url;
        json_t *(*show)(pst_server *s);
    } pages[] = {{"/v1/jobs", show_jobs},
                 {"/v1/datasets", show_datasets},
                 {"/v1/engine", show_engine},
                 {"/v1/check", show_check}};
    (void)version;
    struct control *control = user;
    enum MHD_Result shown;
    request *r = *per_request;
    if (!r) { /* the head alone: the answer waits until the request is whole */
        *per_request = r = psti_secret_alloc(sizeof *r);
        return r ? MHD_YES : MHD_NO;
    }
    if (*data_bytes > 0) {
        keep_body(r, data, *data_bytes);
        *data_bytes = 0;
        return MHD_YES;
    }
    if (strncmp(url, below, sizeof below - 1) == 0)
        return answer_pulled(control, to, method, url + sizeof below - 1, r);
    if (show_answer(&control->show, to, method, url, &shown))
        return shown;
    if (strcmp(method, "GET") != 0)
        return reply(to, MHD_HTTP_METHOD_NOT_ALLOWED, pulled_refusal("only GET", "invalid"));
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (strcmp(url, pages[i].url) == 0)
            return reply(to, MHD_HTTP_OK, pages[i].show(control->server));
    return reply(to, MHD_HTTP_NOT_FOUND,
                 pulled_refusal("there are /v1/jobs, /v1/datasets, /v1/datasets/NAME, /v1/engine, "
                                "/v1/check, /v1/watch, /v1/stream and /metrics",
                                "not_found"));
}

static void request_ended(void *user, struct MHD_Connection *c, void **per_request,
                          enum MHD_RequestTerminationCode code)
{
    (void)user;
    (void)c;
    (void)code;
    psti_secret_free(*per_request, sizeof(request));
    *per_request = NULL;
}

/* Called with the new connection, before anything is read from it. */
static void greet(void *user, struct MHD_Connection *c, void **state,
                  enum MHD_ConnectionNotificationCode code)
{
    (void)state;
    const struct control *control = user;
    if (code != MHD_CONNECTION_NOTIFY_STARTED)
        return;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred who;
    socklen_t size = sizeof who;
    if (!info || getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &who, &size) ||
        !(control->server->allow_any ? server_is_owner(who.uid)
                                     : server_allows(control->server, who.uid)))
        shutdown(info ? info->connect_fd : -1, SHUT_RDWR);
}

int control_open(pst_server *s, struct control **out, pst_error *err)
{
    struct control *control = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *control);
    if (!control)
        return psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    control->server = s;
    *out = control;
    control->sock = -1;
    show_init(&control->show, s->looker, SHOW_STREAMS_BESIDE);
    control->pulled = pulled_new(s->depot, &s->sources);
    if (!control->pulled)
        return psti_fail(err, -ENOMEM, "serve", NULL, "out of memory");
    control->sock = where_listen(s->own.ours ? &s->own : &s->at, WHERE_CONTROL, SOCK_STREAM,
                                 !s->allow_any && s->allow_count > 0, err);
    if (control->sock < 0)
        return control->sock;
    sigset_t old;
    const ino_t inode = show_inode(control->sock);
    show_no_signals(&old);
    control->http = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, answer, control,
        MHD_OPTION_LISTEN_SOCKET, control->sock, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MOST, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY, MHD_OPTION_NOTIFY_CONNECTION, greet,
        control, MHD_OPTION_NOTIFY_COMPLETED, request_ended, control, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (control->http)
        return 0;
    show_not_started(control->sock, inode);
    control->sock = -1;
    return psti_fail(err, -EIO, "serve", WHERE_CONTROL, "the control socket does not start");
}

void control_close(struct control *control)
{
    if (!control)
        return;
    show_end(&control->show);
    if (control->http)
        MHD_stop_daemon(control->http); /* closes the socket */
    else if (control->sock >= 0)
        close(control->sock);
    show_fini(&control->show);
    pulled_free(control->pulled);
    psti_free(control);
}
