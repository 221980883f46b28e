/* SPDX-License-Identifier: Apache-2.0
 * Pulls that the daemon runs, each on a thread of its own, and what is asked of the datasets on its
 * disk. What the threads tell is read by the control thread under pulled.lock. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "depot/depot.h"
#include "serve/pulled_priv.h"

enum { PULLS_MOST = 8 };

struct pulled *pulled_new(const char *dir, sources *from)
{
    struct pulled *p = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *p);
    if (!p)
        return NULL;
    p->dir = dir;
    p->sources = from;
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

/* As its source says, or as the environment does where nothing was said. */
static int run_pull(pull *one, pst_pull_failure *failure, pst_error *err)
{
    char url[1024];
    pst_revision *found = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *found);
    pst_pull_options opts;
    pst_pull_options_init(&opts);
    opts.dir = one->all->dir;
    opts.revision = one->revision[0] ? one->revision : NULL;
    opts.pin = one->pin;
    opts.check = one->check;
    opts.dry = one->dry;
    opts.partial = one->partial;
    opts.failure = failure;
    opts.progress = progress;
    opts.user = one;
    psti_access *access = sources_find(one->all->sources, one->name, url);
    psti_access_use(access);
    const char *from = one->url[0] ? one->url : url[0] ? url : NULL;
    int rc = found ? pst_pull(one->name, from, &opts, found, err) : -ENOMEM;
    if (rc == 0 && one->unpin && found->complete) {
        char spec[PST_DATASET_NAME_BYTES + PST_REVISION_BYTES];
        snprintf(spec, sizeof spec, "%s@%s", found->name, found->revision);
        rc = pst_datasets_pin(one->all->dir, spec, 0, err);
    }
    psti_access_use(NULL);
    psti_access_unref(access);
    psti_free(found);
    return rc;
}

static void *pull_thread(void *user)
{
    pull *one = user;
    pst_error err = {0};
    pst_pull_failure failure = {0};
    const int rc = run_pull(one, &failure, &err);
    if (rc < 0 && !failure.reason[0])
        snprintf(failure.reason, sizeof failure.reason, "other");
    pthread_mutex_lock(&one->all->lock);
    one->rc = rc;
    one->error = err;
    one->failure = failure;
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

/* ---- what is asked of one -----------------------------------------------------------------------
 */

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

static bool copy_flag(const json_t *from, const char *key, bool *to)
{
    const json_t *value = json_object_get(from, key);
    *to = json_is_true(value);
    return !value || json_is_boolean(value);
}

static json_t *load(const pulled_request *r)
{
    return r->body_bytes ? json_loadb(r->body, r->body_bytes, JSON_REJECT_DUPLICATES, NULL)
                         : json_object();
}

/* {"url", "revision", "pin", "check", "dry", "partial"}, each of them optional. */
static const char *read_pull(const pulled_request *r, pull *one)
{
    json_t *asked = load(r);
    const char *wrong = NULL;
    if (!json_is_object(asked))
        wrong = "the body is a JSON object with url, revision, pin, check, dry, partial";
    else if (!copy_text(asked, "url", one->url, sizeof one->url) ||
             !copy_text(asked, "revision", one->revision, sizeof one->revision))
        wrong = "url and revision are texts";
    else if (!copy_flag(asked, "pin", &one->pin) || !copy_flag(asked, "check", &one->check) ||
             !copy_flag(asked, "dry", &one->dry) || !copy_flag(asked, "partial", &one->partial))
        wrong = "pin, check, dry and partial are true or false";
    else if (one->url[0] && !psti_is_bucket_url(one->url))
        wrong = "url is s3://… or http(s)://…"; /* no path of a client is opened */
    one->unpin = json_is_false(json_object_get(asked, "pin"));
    json_decref(asked);
    return wrong;
}

static unsigned begin(struct pulled *p, const pulled_request *r, json_t **out)
{
    pull *before = find(p, r->name);
    int running = 0;
    for (const pull *one = p->pulls; one; one = one->next)
        running += is_running(p, one);
    if (before && is_running(p, before))
        return refuse(CONFLICT, "a pull of it runs", "pulling", out);
    if (running >= PULLS_MOST)
        return refuse(CONFLICT, "eight pulls run already", "busy", out);
    if (strlen(r->name) >= PST_DATASET_NAME_BYTES || !*r->name)
        return refuse(BAD, "a dataset's name has 1 to 64 letters", "invalid", out);
    pull *one = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *one);
    if (!one)
        return refuse(FAILED, "out of memory", "other", out);
    snprintf(one->name, sizeof one->name, "%s", r->name);
    const char *wrong = read_pull(r, one);
    if (wrong) {
        psti_free(one);
        return refuse(BAD, wrong, "invalid", out);
    }
    if (before)
        forget(p, before);
    if (!start(p, one)) {
        psti_free(one);
        return refuse(FAILED, "no thread can be started", "other", out);
    }
    *out = json_pack("{s:o}", "pull", show_pull(p, one));
    return ACCEPTED;
}

/* A folder in which nothing is, and of which nothing was said, is nobody's. */
static void drop_empty(struct pulled *p, const char *name)
{
    char url[1024];
    psti_access *access = sources_find(p->sources, name, url);
    if (!access)
        psti_depot_drop_set(p->dir, name);
    psti_access_unref(access);
}

/* A pull that runs is stopped; else the dataset goes. */
static unsigned end(struct pulled *p, const char *spec, json_t **out)
{
    pst_error err = {0};
    uint64_t freed = 0;
    char name[PST_DATASET_NAME_BYTES + 1];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(spec, "@"), spec);
    pull *one = find(p, name);
    if (one && is_running(p, one)) {
        atomic_store(&one->stop, true);
        *out = json_pack("{s:o}", "pull", show_pull(p, one));
        return ACCEPTED;
    }
    const int rc = psti_depot_evict(p->dir, spec, &freed, &err);
    if (one && (rc == 0 || rc == -ENOENT) && !strchr(spec, '@'))
        forget(p, one);
    if (rc == 0 || rc == -ENOENT)
        drop_empty(p, name);
    if (rc < 0)
        return refuse_error(rc, &err, out);
    *out = json_pack("{s:I}", "freed", (json_int_t)freed);
    return OK;
}

/* ---- limits and sources -------------------------------------------------------------------------
 */

/* {"limit_bytes", "high", "low"}, the marks in percent; what is not said stays. */
static const char *read_limits(const json_t *asked, pst_datasets_limits *l)
{
    const json_t *bytes = json_object_get(asked, "limit_bytes");
    const json_t *high = json_object_get(asked, "high"), *low = json_object_get(asked, "low");
    if (!json_is_object(asked))
        return "the body is a JSON object with limit_bytes, high, low";
    if ((bytes && (!json_is_integer(bytes) || json_integer_value(bytes) < 0)) ||
        (high && !json_is_number(high)) || (low && !json_is_number(low)))
        return "limit_bytes is a whole number, high and low are percentages";
    if (bytes)
        l->capacity = (uint64_t)json_integer_value(bytes);
    if (high)
        l->high = json_number_value(high) / 100;
    if (low)
        l->low = json_number_value(low) / 100;
    return NULL;
}

static unsigned set_limits(struct pulled *p, const pulled_request *r, json_t **out)
{
    pst_error err = {0};
    pst_datasets_limits l = {.high = 0.95, .low = 0.85};
    int rc = pst_datasets_limit(p->dir, NULL, &l, &err);
    if (rc < 0 && rc != -ENOENT && rc != PST_ECORRUPT)
        return refuse_error(rc, &err, out);
    json_t *asked = load(r);
    const char *wrong = read_limits(asked, &l);
    json_decref(asked);
    if (wrong)
        return refuse(BAD, wrong, "invalid", out);
    rc = pst_datasets_limit(p->dir, &l, NULL, &err);
    return rc < 0 ? refuse_error(rc, &err, out) : NOTHING;
}

static unsigned set_source(struct pulled *p, const char *name, const pulled_request *r,
                           json_t **out)
{
    pst_error err = {0};
    int rc = psti_depot_make_set(p->dir, name, &err);
    if (rc == 0)
        rc = sources_put(p->sources, name, r->body, r->body_bytes, &err);
    if (rc < 0)
        drop_empty(p, name);
    if (rc == 0 && (rc = psti_depot_mark_given(p->dir, name, true)) < 0)
        psti_fail(&err, rc, "depot", name, "its folder cannot be written: %s", pst_strerror(rc));
    return rc < 0 ? refuse_error(rc, &err, out) : NOTHING;
}

static unsigned answer_source(struct pulled *p, const char *name, const pulled_request *r,
                              json_t **out)
{
    if (strcmp(r->method, "PUT") == 0)
        return set_source(p, name, r, out);
    if (strcmp(r->method, "DELETE") != 0)
        return refuse(NOT_ALLOWED, "PUT or DELETE", "invalid", out);
    const bool was = sources_drop(p->sources, name);
    psti_depot_mark_given(p->dir, name, false);
    drop_empty(p, name);
    return was ? NOTHING : refuse(NOT_FOUND, "nothing was said of it", "not_found", out);
}

unsigned pulled_answer(struct pulled *p, const pulled_request *r, json_t **out)
{
    static const char tail[] = "/source";
    const size_t len = strlen(r->name), end_len = sizeof tail - 1;
    if (len > end_len && strcmp(r->name + len - end_len, tail) == 0) {
        char name[PST_DATASET_NAME_BYTES + 1];
        snprintf(name, sizeof name, "%.*s", (int)(len - end_len), r->name);
        return answer_source(p, name, r, out);
    }
    if (strcmp(r->method, "GET") == 0)
        return *r->name ? show_one(p, r->name, find(p, r->name), out) : show_all(p, out);
    if (strcmp(r->method, "PUT") == 0 && !*r->name)
        return set_limits(p, r, out);
    if (strcmp(r->method, "POST") == 0)
        return begin(p, r, out);
    if (strcmp(r->method, "DELETE") == 0 && *r->name)
        return end(p, r->name, out);
    return refuse(NOT_ALLOWED, "GET, PUT, POST or DELETE", "invalid", out);
}
