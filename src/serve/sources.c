/* SPDX-License-Identifier: Apache-2.0
 * What was said of datasets: a URL, and an access with its credentials, each. Put and dropped by
 * the control thread, found by pulls and by those who open jobs. */
#include "serve/sources.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

struct source {
    source *next;
    char name[PST_DATASET_NAME_BYTES], url[1024]; /* url "": nothing was said, it is awaited */
    psti_access *access;
};

static void source_free(source *one)
{
    if (!one)
        return;
    psti_access_unref(one->access);
    psti_free(one);
}

void sources_init(sources *s)
{
    pthread_mutex_init(&s->lock, NULL);
    s->list = NULL;
}

void sources_fini(sources *s)
{
    while (s->list) {
        source *one = s->list;
        s->list = one->next;
        psti_access_revoke(one->access);
        source_free(one);
    }
    pthread_mutex_destroy(&s->lock);
}

static source **find_locked(sources *s, const char *name)
{
    source **at = &s->list;
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static source *source_new(const char *name)
{
    source *one = psti_calloc(PSTI_MEM_SERVE, 1, sizeof *one);
    if (!one)
        return NULL;
    snprintf(one->name, sizeof one->name, "%s", name);
    one->access = psti_access_new();
    if (!one->access) {
        source_free(one);
        return NULL;
    }
    return one;
}

int sources_put(sources *s, const char *name, const char *json, size_t bytes, pst_error *err)
{
    char url[1024];
    pthread_mutex_lock(&s->lock);
    source *one = *find_locked(s, name);
    const bool is_new = !one;
    if (is_new)
        one = source_new(name);
    int rc = one ? psti_access_read(one->access, json, bytes, url, sizeof url, err)
                 : psti_fail(err, -ENOMEM, "serve", name, "no memory, or built without buckets");
    if (rc == 0) {
        memcpy(one->url, url, sizeof one->url);
        if (is_new) {
            one->next = s->list;
            s->list = one;
        }
    } else if (is_new) {
        source_free(one);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

bool sources_drop(sources *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    source **at = find_locked(s, name), *one = *at;
    if (one)
        *at = one->next;
    pthread_mutex_unlock(&s->lock);
    const bool said = one && one->url[0];
    if (one)
        psti_access_revoke(one->access);
    source_free(one);
    return said;
}

psti_access *sources_find(sources *s, const char *name, char url[1024])
{
    pthread_mutex_lock(&s->lock);
    const source *one = *find_locked(s, name);
    const bool said = one && one->url[0];
    psti_access *access = said ? psti_access_ref(one->access) : NULL;
    snprintf(url, 1024, "%s", said ? one->url : "");
    pthread_mutex_unlock(&s->lock);
    return access;
}

psti_access *sources_await(sources *s, const char *name)
{
    pthread_mutex_lock(&s->lock);
    source *one = *find_locked(s, name);
    if (!one && (one = source_new(name))) {
        psti_access_revoke(one->access);
        one->next = s->list;
        s->list = one;
    }
    psti_access *access = one ? psti_access_ref(one->access) : NULL;
    pthread_mutex_unlock(&s->lock);
    return access;
}
