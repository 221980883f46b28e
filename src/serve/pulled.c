/* SPDX-License-Identifier: Apache-2.0
 * Pulls that the daemon runs, each on a thread of its own, and the datasets that are on its disk.
 * What the threads tell is read by the control thread under pulled.lock. */
#include "serve/pulled.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "depot/depot.h"
#include "net/net.h"
#include "penstock.h"

enum { PULLS_MOST = 8, OK = 200, ACCEPTED = 202, BAD = 400, NOT_FOUND = 404, CONFLICT = 409 };

typedef struct pull {
    struct pull *next;
    struct pulled *all;
    char name[PST_DATASET_NAME_BYTES], url[1024], revision[PST_REVISION_BYTES];
    bool pin, check;
    pthread_t thread;
    atomic_bool stop; /* partner: progress */
    /* under pulled.lock */
    bool running;
    int rc;
    pst_pull_progress now;
    pst_error error;
} pull;

struct pulled {
    pthread_mutex_t lock; /* guards what the pulls tell; a leaf. The list is the control thread's */
    pull *pulls;
};

struct pulled *pulled_new(void)
{
    struct pulled *p = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *p);
    if (p)
        pthread_mutex_init(&p->lock, NULL);
    return p;
}

void pulled_free(struct pulled *p)
{
    if (!p)
        return;
    for (pull *one = p->pulls; one; one = one->next)
        atomic_store(&one->stop, true);
    for (pull *one = p->pulls, *next; one; one = next) {
        next = one->next;
        pthread_join(one->thread, NULL);
        psti_free(one);
    }
    pthread_mutex_destroy(&p->lock);
    psti_free(p);
}

/* ---- a pull -------------------------------------------------------------------------------------
 */

static int progress(const pst_pull_progress *now, void *user)
{
    pull *one = user;
    pthread_mutex_lock(&one->all->lock);
    one->now = *now;
    pthread_mutex_unlock(&one->all->lock);
    return atomic_load(&one->stop);
}

static void *pull_thread(void *user)
{
    pull *one = user;
    pst_error err = {0};
    pst_pull_options opts;
    pst_pull_options_init(&opts);
    opts.revision = one->revision[0] ? one->revision : NULL;
    opts.pin = one->pin;
    opts.check = one->check;
    opts.progress = progress;
    opts.user = one;
    const int rc = pst_pull(one->name, one->url[0] ? one->url : NULL, &opts, NULL, &err);
    pthread_mutex_lock(&one->all->lock);
    one->rc = rc;
    one->error = err;
    one->running = false;
    pthread_mutex_unlock(&one->all->lock);
    return NULL;
}

static bool is_running(struct pulled *p, const pull *one)
{
    pthread_mutex_lock(&p->lock);
    const bool running = one->running;
    pthread_mutex_unlock(&p->lock);
    return running;
}

static pull *find(struct pulled *p, const char *name)
{
    pull *one = p->pulls;
    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    return one;
}

/* Takes one that has ended out of the list. */
static void forget(struct pulled *p, pull *one)
{
    pull **at = &p->pulls;
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    pthread_join(one->thread, NULL);
    psti_free(one);
}

static bool start(struct pulled *p, pull *one)
{
    sigset_t all, old;
    one->all = p;
    one->running = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool started = pthread_create(&one->thread, NULL, pull_thread, one) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (started) {
        one->next = p->pulls;
        p->pulls = one;
    }
    return started;
}

/* ---- answers ------------------------------------------------------------------------------------
 */

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *show_pull(struct pulled *p, const pull *one)
{
    pthread_mutex_lock(&p->lock);
    const pst_pull_progress now = one->now;
    const pst_error error = one->error;
    const bool running = one->running;
    const int rc = one->rc;
    pthread_mutex_unlock(&p->lock);
    json_t *j = json_object();
    json_object_set_new(j, "name", json_string(one->name));
    json_object_set_new(j, "url", json_string(one->url));
    json_object_set_new(j, "state", json_string(running ? "running" : rc < 0 ? "failed" : "done"));
    json_object_set_new(j, "revision", json_string(now.revision));
    json_object_set_new(j, "objects", number(now.objects));
    json_object_set_new(j, "objects_done", number(now.objects_done));
    json_object_set_new(j, "objects_bad", number(now.objects_bad));
    json_object_set_new(j, "bytes", number(now.bytes));
    json_object_set_new(j, "bytes_done", number(now.bytes_done));
    json_object_set_new(j, "bytes_linked", number(now.bytes_linked));
    json_object_set_new(j, "bytes_fetched", number(now.bytes_fetched));
    json_object_set_new(j, "seconds", json_real(now.seconds));
    if (!running && rc < 0)
        json_object_set_new(j, "error", json_string(error.message));
    return j;
}

static json_t *show_revision(const pst_revision *r)
{
    json_t *j = json_object();
    json_object_set_new(j, "name", json_string(r->name));
    json_object_set_new(j, "revision", json_string(r->revision));
    json_object_set_new(j, "url", json_string(r->url));
    json_object_set_new(j, "path", json_string(r->path));
    json_object_set_new(j, "complete", json_boolean(r->complete));
    json_object_set_new(j, "latest", json_boolean(r->latest));
    json_object_set_new(j, "pinned", json_boolean(r->pinned));
    json_object_set_new(j, "in_use", json_boolean(r->in_use));
    json_object_set_new(j, "pulling", json_boolean(r->pulling));
    json_object_set_new(j, "objects", number(r->objects));
    json_object_set_new(j, "objects_done", number(r->objects_done));
    json_object_set_new(j, "bytes", number(r->bytes));
    json_object_set_new(j, "bytes_own", number(r->bytes_own));
    json_object_set_new(j, "refetch_seconds", json_real(r->refetch_s));
    json_object_set_new(j, "uses", json_real(r->uses));
    json_object_set_new(j, "last_used", json_integer(r->last_used_s));
    return j;
}

static unsigned refuse(unsigned status, const char *why, json_t **out)
{
    *out = json_pack("{s:s}", "error", why);
    return status;
}

static unsigned refuse_error(int rc, const pst_error *err, json_t **out)
{
    const unsigned status = rc == -EBUSY    ? CONFLICT
                            : rc == -ENOENT ? NOT_FOUND
                            : rc == -EINVAL ? BAD
                                            : 500;
    return refuse(status, err->message, out);
}

/* All, or those of one name. */
static unsigned show(struct pulled *p, const char *name, json_t **out)
{
    pst_revision *list = NULL;
    size_t count = 0;
    pst_error err = {0};
    const int rc = psti_depot_list(NULL, &list, &count, &err);
    if (rc < 0)
        return refuse_error(rc, &err, out);
    json_t *revisions = json_array(), *pulls = json_array();
    for (size_t i = 0; i < count; i++)
        if (!*name || strcmp(list[i].name, name) == 0)
            json_array_append_new(revisions, show_revision(&list[i]));
    for (const pull *one = p->pulls; one; one = one->next)
        if (!*name || strcmp(one->name, name) == 0)
            json_array_append_new(pulls, show_pull(p, one));
    pst_free(list);
    if (*name && json_array_size(revisions) == 0 && json_array_size(pulls) == 0) {
        json_decref(revisions);
        json_decref(pulls);
        return refuse(NOT_FOUND, "no dataset of that name was pulled", out);
    }
    *out = json_pack("{s:o, s:o}", "revisions", revisions, "pulls", pulls);
    return OK;
}

static bool copy_text(const json_t *from, const char *key, char *to, size_t cap)
{
    const json_t *value = json_object_get(from, key);
    const char *text = json_string_value(value);
    if (!value)
        return true;
    if (!text || strlen(text) >= cap)
        return false;
    snprintf(to, cap, "%s", text);
    return true;
}

/* {"url": …, "revision": …, "pin": …, "check": …}, each of them optional. */
static const char *read_body(const char *body, size_t bytes, pull *one)
{
    json_t *asked = bytes ? json_loadb(body, bytes, JSON_REJECT_DUPLICATES, NULL) : json_object();
    const char *wrong = NULL;
    const json_t *pin = json_object_get(asked, "pin"), *check = json_object_get(asked, "check");
    if (!json_is_object(asked))
        wrong = "the body is a JSON object with url, revision, pin, check";
    else if (!copy_text(asked, "url", one->url, sizeof one->url) ||
             !copy_text(asked, "revision", one->revision, sizeof one->revision))
        wrong = "url and revision are texts";
    else if ((pin && !json_is_boolean(pin)) || (check && !json_is_boolean(check)))
        wrong = "pin and check are true or false";
    else if (one->url[0] && !psti_is_bucket_url(one->url))
        wrong = "url is s3://… or http(s)://…"; /* no path of a client is opened */
    one->pin = json_is_true(pin);
    one->check = json_is_true(check);
    json_decref(asked);
    return wrong;
}

static unsigned begin(struct pulled *p, const char *name, const char *body, size_t bytes,
                      json_t **out)
{
    pull *before = find(p, name);
    int running = 0;
    for (const pull *one = p->pulls; one; one = one->next)
        running += is_running(p, one);
    if (before && is_running(p, before))
        return refuse(CONFLICT, "a pull of it runs", out);
    if (running >= PULLS_MOST)
        return refuse(CONFLICT, "eight pulls run already", out);
    if (strlen(name) >= PST_DATASET_NAME_BYTES || !*name)
        return refuse(BAD, "a dataset's name has 1 to 64 letters", out);
    pull *one = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *one);
    if (!one)
        return refuse(500, "out of memory", out);
    snprintf(one->name, sizeof one->name, "%s", name);
    const char *wrong = read_body(body, bytes, one);
    if (!wrong && before)
        forget(p, before);
    if (!wrong && !start(p, one))
        wrong = "no thread can be started";
    if (wrong) {
        psti_free(one);
        return refuse(BAD, wrong, out);
    }
    *out = json_pack("{s:o}", "pull", show_pull(p, one));
    return ACCEPTED;
}

/* A pull that runs is stopped; else the dataset goes. */
static unsigned end(struct pulled *p, const char *name, json_t **out)
{
    pst_error err = {0};
    uint64_t freed = 0;
    pull *one = find(p, name);
    if (one && is_running(p, one)) {
        atomic_store(&one->stop, true);
        *out = json_pack("{s:o}", "pull", show_pull(p, one));
        return ACCEPTED;
    }
    const int rc = pst_datasets_evict(NULL, name, &freed, &err);
    if (rc < 0)
        return refuse_error(rc, &err, out);
    if (one)
        forget(p, one);
    *out = json_pack("{s:I}", "freed", (json_int_t)freed);
    return OK;
}

unsigned pulled_answer(struct pulled *p, const char *method, const char *name, const char *body,
                       size_t body_bytes, json_t **out)
{
    if (strcmp(method, "GET") == 0)
        return show(p, name, out);
    if (strcmp(method, "POST") == 0)
        return begin(p, name, body, body_bytes, out);
    if (strcmp(method, "DELETE") == 0 && *name)
        return end(p, name, out);
    return refuse(405, "GET, POST or DELETE", out);
}
