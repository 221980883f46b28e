/* SPDX-License-Identifier: Apache-2.0
 * A revision's list of objects in place of a listing of its bucket: whoever opens the bucket with
 * it sees the revision, whatever the bucket holds by now, and asks nobody. One thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "depot/depot_priv.h"
#include "net/net.h"

struct psti_depot_catalog {
    psti_catalog ops;
    listing objects;
    char base[1024]; /* before every key in the bucket: "" or ends in '/' */
};

/* What follows the bucket or host, up to its last slash: keys of the revision go on from there,
 * those of one object as well. */
static void find_base(const char *url, char base[1024])
{
    const char *at = strstr(url, "://");
    at = at ? strchr(at + 3, '/') : NULL;
    snprintf(base, 1024, "%s", at ? at + 1 : "");
    char *slash = strrchr(base, '/');
    *(slash ? slash + 1 : base) = 0;
}

static int list(void *user, const char *prefix, int (*each)(void *user, const psti_object *object),
                void *each_user)
{
    const psti_depot_catalog *c = user;
    char key[2 * PSTI_KEY_MAX];
    const size_t len = strlen(prefix);
    int rc = 0;
    for (size_t i = 0; i < c->objects.count && rc == 0; i++) {
        const object *o = &c->objects.objects[i];
        const int all = snprintf(key, sizeof key, "%s%s", c->base, object_key(&c->objects, o));
        if (strncmp(key, prefix, len) != 0)
            continue;
        const psti_object shown = {.key = key,
                                   .key_len = (size_t)all,
                                   .size = o->size,
                                   .etag = object_etag(&c->objects, o)};
        rc = each(each_user, &shown);
    }
    return rc;
}

static int head(void *user, const char *key, uint64_t *size, char etag[PSTI_ETAG_ROOM])
{
    const psti_depot_catalog *c = user;
    const size_t len = strlen(c->base);
    const object *o = strncmp(key, c->base, len) == 0 ? listing_find(&c->objects, key + len) : NULL;
    if (!o)
        return -ENOENT;
    *size = o->size;
    snprintf(etag, PSTI_ETAG_ROOM, "%s", object_etag(&c->objects, o));
    return 0;
}

int psti_depot_catalog_open(const psti_depot_choice *choice, psti_depot_catalog **out,
                            pst_error *err)
{
    psti_depot_catalog *c = psti_calloc(PSTI_MEM_DEPOT, 1, sizeof *c);
    if (!c)
        return psti_fail(err, -ENOMEM, "dataset", NULL, "out of memory");
    c->ops = (psti_catalog){.list = list, .head = head, .user = c};
    find_base(choice->url, c->base);
    const int rev = open(choice->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int rc = rev < 0 ? psti_fail(err, -errno, "dataset", choice->path, "%s", strerror(errno))
                           : listing_read(&c->objects, rev, "listing", NULL, 0, err);
    if (rev >= 0)
        close(rev);
    if (rc < 0)
        psti_depot_catalog_close(c);
    else
        *out = c;
    return rc;
}

void psti_depot_catalog_close(psti_depot_catalog *c)
{
    if (!c)
        return;
    listing_fini(&c->objects);
    psti_free(c);
}

const psti_catalog *psti_depot_catalog_of(const psti_depot_catalog *c)
{
    return &c->ops;
}
