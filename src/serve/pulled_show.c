/* SPDX-License-Identifier: Apache-2.0
 * Pulled datasets and pulls as JSON. On the control thread. */
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "depot/depot.h"
#include "serve/pulled_priv.h"

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)n);
}

json_t *pulled_refusal(const char *why, const char *reason)
{
    return json_pack("{s:s, s:s}", "error", why, "reason", reason);
}

unsigned refuse(unsigned status, const char *why, const char *reason, json_t **out)
{
    *out = pulled_refusal(why, reason);
    return status;
}

unsigned refuse_error(int rc, const pst_error *err, json_t **out)
{
    static const struct {
        int rc;
        unsigned status;
        const char *reason;
    } table[] = {{-EBUSY, CONFLICT, "in_use"},
                 {-ENOENT, NOT_FOUND, "not_found"},
                 {-EINVAL, BAD, "invalid"},
                 {-ENOSPC, FAILED, "no_space"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].rc == rc)
            return refuse(table[i].status, err->message, table[i].reason, out);
    return refuse(FAILED, err->message, "other", out);
}

static json_t *show_error(const pst_error *error, const pst_pull_failure *failure)
{
    json_t *j = json_object();
    json_object_set_new(j, "reason", json_string(failure->reason));
    json_object_set_new(j, "message", json_string(error->message));
    json_object_set_new(j, "needed_bytes", number(failure->needed_bytes));
    json_object_set_new(j, "free_bytes", number(failure->free_bytes));
    return j;
}

json_t *show_pull(struct pulled *p, const pull *one)
{
    pthread_mutex_lock(&p->lock);
    const pst_pull_progress now = one->now;
    const pst_error error = one->error;
    const pst_pull_failure failure = one->failure;
    const bool running = one->running;
    const int rc = one->rc;
    pthread_mutex_unlock(&p->lock);
    json_t *j = json_object();
    json_object_set_new(j, "name", json_string(one->name));
    json_object_set_new(j, "url", json_string(one->url));
    json_object_set_new(j, "state", json_string(running ? "running" : rc < 0 ? "failed" : "done"));
    json_object_set_new(j, "running", json_boolean(running));
    json_object_set_new(j, "dry", json_boolean(one->dry));
    json_object_set_new(j, "revision", json_string(now.revision));
    json_object_set_new(j, "objects", number(now.objects));
    json_object_set_new(j, "objects_done", number(now.objects_done));
    json_object_set_new(j, "objects_bad", number(now.objects_bad));
    json_object_set_new(j, "bytes", number(now.bytes));
    json_object_set_new(j, "bytes_done", number(now.bytes_done));
    json_object_set_new(j, "bytes_linked", number(now.bytes_linked));
    json_object_set_new(j, "bytes_fetched", number(now.bytes_fetched));
    json_object_set_new(j, "seconds", json_real(now.seconds));
    json_object_set_new(j, "error",
                        !running && rc < 0 ? show_error(&error, &failure) : json_null());
    return j;
}

static const char *state_of(const pst_revision *r)
{
    return r->complete  ? "complete"
           : r->pulling ? "pulling"
           : r->partial ? "partial"
                        : "incomplete";
}

static json_t *show_revision(const pst_revision *r)
{
    json_t *j = json_object();
    json_object_set_new(j, "name", json_string(r->name));
    json_object_set_new(j, "revision", json_string(r->revision));
    json_object_set_new(j, "state", json_string(state_of(r)));
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
    json_object_set_new(j, "bytes_here", number(r->bytes_here));
    json_object_set_new(j, "bytes_own", number(r->bytes_own));
    json_object_set_new(j, "refetch_seconds", json_real(r->refetch_s));
    json_object_set_new(j, "uses", json_real(r->uses));
    json_object_set_new(j, "last_used", json_integer(r->last_used_s));
    return j;
}

/* Those of one name, or all (NULL). */
static int list_revisions(struct pulled *p, const char *name, json_t **out, pst_error *err)
{
    pst_revision *list = NULL;
    size_t count = 0;
    const int rc = psti_depot_list(p->dir, &list, &count, err);
    if (rc < 0)
        return rc;
    *out = json_array();
    for (size_t i = 0; i < count; i++)
        if (!name || strcmp(list[i].name, name) == 0)
            json_array_append_new(*out, show_revision(&list[i]));
    pst_free(list);
    return 0;
}

unsigned show_all(struct pulled *p, json_t **out)
{
    pst_error err = {0};
    pst_datasets_limits limits = {0};
    json_t *revisions = NULL;
    int rc = list_revisions(p, NULL, &revisions, &err);
    if (rc == 0) {
        rc = pst_datasets_limit(p->dir, NULL, &limits, &err);
        rc = rc == -ENOENT ? 0 : rc; /* nothing was ever pulled */
    }
    if (rc < 0) {
        json_decref(revisions);
        return refuse_error(rc, &err, out);
    }
    json_t *pulls = json_array();
    for (const pull *one = p->pulls; one; one = one->next)
        json_array_append_new(pulls, show_pull(p, one));
    *out = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "revisions", revisions, "pulls", pulls,
                     "limit_bytes", number(limits.capacity), "capacity_bytes", number(limits.total),
                     "taken_bytes", number(limits.used), "free_bytes", number(limits.free));
    return OK;
}

unsigned show_one(struct pulled *p, const char *name, const pull *one, json_t **out)
{
    pst_error err = {0};
    char url[1024];
    json_t *revisions = NULL;
    const int rc = list_revisions(p, name, &revisions, &err);
    if (rc < 0)
        return refuse_error(rc, &err, out);
    psti_access *access = sources_find(p->sources, name, url);
    const bool has_source = access != NULL;
    psti_access_unref(access);
    if (json_array_size(revisions) == 0 && !one && !has_source) {
        json_decref(revisions);
        return refuse(NOT_FOUND, "no dataset of that name was pulled", "not_found", out);
    }
    *out = json_pack("{s:s, s:o, s:o, s:b}", "name", name, "revisions", revisions, "pull",
                     one ? show_pull(p, one) : json_null(), "source", (int)has_source);
    return OK;
}
