/* SPDX-License-Identifier: Apache-2.0
 * Opening a dataset that lies in a bucket or on a web server: what the URL is, what is listed, and
 * which builder makes it. Nothing is believed of an earlier start but the contents of tar shards
 * whose etags are still the same. Runs in the calling thread; shards are scanned by a crew. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "source/far.h"
#include "source/index.h"

/* A URL in its parts. */
typedef struct place {
    psti_bucket *bucket;
    char *rest;       /* key or prefix, without slashes at its end; psti_free */
    char *url;        /* the same with the bucket's name before it */
    char *root;       /* the URL of the folder that keys are relative to */
    const char *name; /* of a file, in rest; NULL: a folder */
} place;

static bool is_file_name(const char *name)
{
    const size_t len = strlen(name);
    return psti_format_of_name(name, len) || psti_has_ext(name, len, "tar") ||
           psti_is_manifest_name(name) || psti_has_ext(name, len, "json");
}

static void place_fini(place *p)
{
    psti_bucket_unref(p->bucket);
    psti_free(p->rest);
    psti_free(p->url);
    psti_free(p->root);
}

static int no_memory(const psti_opening *o, pst_error *err)
{
    return psti_fail(err, -ENOMEM, "list", o->path, "out of memory");
}

static char *join(const char *bucket, const char *rest, size_t len)
{
    const size_t size = strlen(bucket) + len + 2;
    char *url = psti_malloc(PSTI_MEM_SOURCE, size);
    if (url)
        snprintf(url, size, "%s%s%.*s", bucket, len ? "/" : "", (int)len, rest);
    return url;
}

static int find_place(psti_opening *o, place *p, pst_error *err)
{
    char shown[300];
    const int rc = psti_bucket_open(o->path, &p->bucket, &p->rest, err);
    if (rc < 0)
        return rc;
    size_t len = strlen(p->rest);
    while (len && p->rest[len - 1] == '/')
        p->rest[--len] = 0;
    const char *fault = len ? psti_key_fault(p->rest, len) : NULL;
    if (fault)
        return psti_fail(err, -EINVAL, "list", o->path, "the key '%s' %s",
                         psti_escape(shown, sizeof shown, p->rest, len), fault);
    p->url = join(psti_bucket_name(p->bucket), p->rest, len);
    if (!p->url)
        return no_memory(o, err);
    const char *slash = strrchr(p->rest, '/'), *name = slash ? slash + 1 : p->rest;
    if (is_file_name(name)) {
        p->name = name;
        return 0;
    }
    if (psti_bucket_lists(p->bucket))
        return 0;
    return psti_fail(err, PST_EDATASET, "list", o->path,
                     "a web server cannot be asked what it has; give the URL of a .tsv or .jsonl "
                     "manifest, of a .tar, or of one picture, recording or array");
}

/* ---- files ----------------------------------------------------------------------------------- */

static int build_file(psti_opening *o, const char *name, psti_dataset **out, pst_error *err)
{
    const size_t len = strlen(name);
    if (psti_format_of_name(name, len))
        return psti_single_build(o, name, out, err);
    if (psti_has_ext(name, len, "tar"))
        return psti_tar_build(o, &name, 1, out, err);
    if (psti_is_manifest_name(name))
        return psti_manifest_build(o, name, out, err);
    return psti_fail(err, PST_EDATASET, "list", o->path,
                     "COCO annotations are read from disk only; write a .jsonl manifest, or pull "
                     "the dataset");
}

/* ---- tar shards ------------------------------------------------------------------------------ */

/* What was remembered of shards, if each is still the one that it was. */
static psti_dataset *recall_shards(psti_opening *o)
{
    psti_index index = {0};
    if (o->opts->refresh || !psti_index_load(o->index_path, o->real, &index))
        return NULL;
    psti_dataset *data =
        index.header.kind == PSTI_KIND_TAR ? psti_index_load_data(&index, o) : NULL;
    psti_index_fini(&index);
    size_t listed = 0;
    for (uint32_t i = 0; i < o->tree->top->count; i++)
        listed += o->tree->top->entries[i].type == PSTI_ENTRY_TAR;
    bool same = data && data->shards == listed;
    for (size_t i = 0; same && i < data->shards; i++) {
        char mine[PSTI_ETAG_ROOM], theirs[PSTI_ETAG_ROOM];
        const psti_stamp *then = &data->shard[i].stamp;
        const psti_entry *now = psti_far_find(o->tree, psti_text_at(data, data->shard[i].path));
        if (!now) {
            same = false;
            break;
        }
        const psti_etag a = {(uint64_t)then->mtime_ns, then->inode},
                        b = {(uint64_t)now->mtime_ns, now->inode};
        const char *one = psti_etag_show(&data->names, a, mine);
        same = *one && then->size == now->size &&
               strcmp(one, psti_etag_show(o->etags, b, theirs)) == 0;
    }
    if (!same) {
        psti_dataset_unref(data);
        return NULL;
    }
    data->remembered = true;
    return data;
}

static int build(psti_opening *o, const place *p, psti_dataset **out, pst_error *err)
{
    const bool tars =
        p->name ? psti_has_ext(p->name, strlen(p->name), "tar") : psti_is_tar_folder(o->tree->top);
    if (tars && (*out = recall_shards(o)))
        return 0;
    if (!p->name && !tars)
        return psti_folder_build(o, o->tree, out, err);
    if (!p->name)
        return psti_build_tar_folder(o, o->tree->top, out, err);
    const int rc = build_file(o, p->name, out, err);
    if (rc == 0 && tars)
        psti_index_save_data(o, *out);
    return rc;
}

/* ---- the entrance ---------------------------------------------------------------------------- */

static int list_folder(psti_opening *o, place *p, pst_error *err)
{
    const size_t len = strlen(p->rest);
    char *prefix = psti_malloc(PSTI_MEM_SOURCE, len + 2);
    p->name = NULL;
    p->root = psti_strdup(PSTI_MEM_SOURCE, p->url);
    if (!prefix || !p->root) {
        psti_free(prefix);
        return no_memory(o, err);
    }
    snprintf(prefix, len + 2, "%s%s", p->rest, len ? "/" : "");
    o->far = psti_far_new(p->bucket, prefix, strlen(prefix), true);
    psti_free(prefix);
    if (!o->far)
        return no_memory(o, err);
    o->tree = psti_far_tree(o->far, o->opts, p->url, err);
    return o->tree ? 0 : err ? err->code : PST_EDATASET;
}

static int look_at_file(psti_opening *o, place *p, pst_error *err)
{
    char etag[PSTI_ETAG_ROOM] = "";
    psti_object file = {.key = p->name, .key_len = strlen(p->name), .etag = etag};
    const bool lists = psti_bucket_lists(p->bucket);
    const int rc = psti_net_head(p->bucket, p->rest, &file.size, etag, err);
    if (rc == -ENOENT && lists)
        return list_folder(o, p, err);
    if (rc < 0)
        return rc;
    if (file.size > INT64_MAX)
        return psti_fail(err, PST_EDATASET, "list", o->path,
                         "the server does not say how large the file is");
    const size_t above = (size_t)(p->name - p->rest);
    p->root = join(psti_bucket_name(p->bucket), p->rest, above ? above - 1 : 0);
    o->far = psti_far_new(p->bucket, p->rest, above, lists);
    if (!p->root || !o->far)
        return no_memory(o, err);
    o->tree = psti_far_tree_of_one(o->far, o->opts, p->url, &file, err);
    return o->tree ? 0 : err ? err->code : PST_EDATASET;
}

static int open_place(psti_opening *o, place *p, psti_dataset **out, pst_error *err)
{
    int rc = p->name ? look_at_file(o, p, err) : list_folder(o, p, err);
    if (rc < 0)
        return rc;
    o->real = p->url;
    o->root_path = p->root;
    o->etags = &o->tree->etags;
    o->index_path = psti_index_path(o->opts, p->url, &rc);
    if (rc < 0)
        return no_memory(o, err);
    psti_dataset *data = NULL;
    rc = build(o, p, &data, err);
    if (rc == 0)
        rc = psti_open_complete(o, -1, data, err);
    if (rc < 0) {
        psti_dataset_unref(data);
        return rc;
    }
    data->far = o->far;
    o->far = NULL;
    *out = data;
    return 0;
}

int psti_far_open(psti_opening *o, psti_dataset **out, pst_error *err)
{
    pst_error own;
    psti_error_clear(&own);
    pst_error *why = err ? err : &own; /* what the listing says decides what is answered */
    place p = {0};
    o->root = -1;
    psti_far_watch watch = {.opts = o->opts};
    const psti_net_watch before = psti_far_watch_set(&watch);
    int rc = find_place(o, &p, why);
    if (rc == 0)
        rc = open_place(o, &p, out, why);
    psti_net_watch_set(before);
    psti_far_free(o->far);
    psti_tree_free(o->tree);
    psti_free(o->index_path);
    place_fini(&p);
    return rc;
}
