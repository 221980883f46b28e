/* SPDX-License-Identifier: Apache-2.0
 * From scanned shards to a dataset: which extension becomes which field, labels from cls, typed
 * values from json. Shards are scanned by the crew; joining them runs in the thread that opens the
 * dataset, in shard order, so that the outcome depends on the shards alone. */
#include "source/tar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/memory.h"
#include "core/status.h"
#include "source/source_priv.h"

enum { EXTS_MAX = 64, SLOT_NONE = -1, FAR_THREADS = 16 };

/* An extension that occurs, and where its members go. */
typedef struct ext {
    const char *text; /* in the pool of the scan where it first occurred */
    psti_format format;
    bool bare_image; /* jpg, jpeg, png, webp alone */
    bool primary;    /* bare image that is the sample's `image` somewhere */
    bool aside;      /* bare image that stands beside a better one somewhere */
    int slot;        /* member column; bare images: of the one set aside */
} ext;

typedef struct joining {
    psti_opening *o;
    psti_tar_scan *scans;
    size_t shards;
    int64_t samples;
    ext exts[EXTS_MAX];
    int ext_count;
    bool has_image, has_cls;
    uint64_t left_out; /* members whose field has no place */
    int image_slot;
    int slots;
    psti_stages cls, json;
    psti_dataset *data;
} joining;

static int no_memory(const joining *j, pst_error *err)
{
    return psti_fail(err, -ENOMEM, "list", j->o->path, "out of memory while listing");
}

static int run_scan(psti_work *work, psti_crew *crew, pst_error *err)
{
    psti_tar_scan *scan = (psti_tar_scan *)((char *)work - offsetof(psti_tar_scan, work));
    const int rc = psti_tar_scan_run(scan, err);
    atomic_fetch_add(&crew->found, scan->sample_count);
    return rc;
}

/* What the listing says of a shard in a bucket. */
static void aim_far(const joining *j, psti_tar_scan *scan)
{
    const psti_entry *entry = psti_far_find(j->o->tree, scan->path);
    const psti_etag etag = {(uint64_t)entry->mtime_ns, entry->inode};
    scan->far = j->o->far;
    scan->stamp = (psti_stamp){
        .size = entry->size, .mtime_ns = entry->mtime_ns, .inode = entry->inode, .mode = S_IFREG};
    char room[PSTI_ETAG_ROOM];
    snprintf(scan->etag, sizeof scan->etag, "%s", psti_etag_show(j->o->etags, etag, room));
}

static int scan_all(joining *j, const char *const *shards, pst_error *err)
{
    j->scans = psti_calloc(PSTI_MEM_SOURCE, j->shards, sizeof *j->scans);
    if (!j->scans)
        return no_memory(j, err);
    psti_crew crew;
    const int threads = j->o->opts->threads; /* who waits for a server takes no core */
    psti_crew_init(&crew, j->o->far && threads <= 0 ? FAR_THREADS : threads);
    for (size_t i = 0; i < j->shards; i++) {
        j->scans[i].root = j->o->root;
        j->scans[i].path = shards[i];
        j->scans[i].guard = j->o->guard;
        j->scans[i].guard_user = j->o->guard_user;
        if (j->o->far)
            aim_far(j, &j->scans[i]);
        j->scans[i].work.run = run_scan;
        psti_crew_push(&crew, &j->scans[i].work);
    }
    const int rc = psti_crew_run(&crew, j->o->opts, err);
    psti_crew_fini(&crew);
    for (size_t i = 0; i < j->shards; i++)
        j->samples += (int64_t)j->scans[i].sample_count;
    return rc;
}

/* ---- extensions and fields ------------------------------------------------------------------- */

static bool is_value(const char *text)
{
    return strcmp(text, "cls") == 0 || strcmp(text, "json") == 0;
}

/* The dot between a field's name and its format, as in seg.png; NULL where there is only a format.
 */
static const char *dot_of(const char *text)
{
    const char *dot = strrchr(text, '.');
    if (!dot || psti_format_of_ext(text, strlen(text)))
        return NULL; /* nii.gz is one ending */
    const char *ending = psti_ext_of_name(text, strlen(text));
    return ending ? ending - 1 : dot;
}

/* The extension's entry, made if needed; NULL when there are too many. */
static ext *find_ext(joining *j, const char *text)
{
    for (int i = 0; i < j->ext_count; i++)
        if (strcmp(j->exts[i].text, text) == 0)
            return &j->exts[i];
    if (j->ext_count == EXTS_MAX)
        return NULL;
    const char *dot = dot_of(text), *last = dot ? dot + 1 : text;
    const psti_format format = psti_format_of_ext(last, strlen(last));
    ext *e = &j->exts[j->ext_count++];
    *e = (ext){.text = text, .format = format, .slot = SLOT_NONE};
    e->bare_image = !dot && format && psti_format_kind(format) == PST_IMAGE;
    return e;
}

/* jpg before jpeg before png before webp: the first is the sample's image. */
static int image_rank(const char *text)
{
    static const char *const order[] = {"jpg", "jpeg", "png", "webp"};
    int rank = 0;
    while (rank < 4 && strcmp(order[rank], text) != 0)
        rank++;
    return rank;
}

static const char *ext_of(const psti_tar_scan *scan, uint64_t member)
{
    return scan->names.data + scan->members[member].ext;
}

/* The member that is the sample's `image`, or -1. */
static int64_t image_of(const psti_tar_scan *scan, const psti_tar_sample *sample)
{
    int64_t best = -1;
    int best_rank = 4;
    for (uint32_t i = 0; i < sample->members; i++) {
        const int rank = image_rank(ext_of(scan, sample->first + i));
        if (rank < best_rank) {
            best_rank = rank;
            best = (int64_t)(sample->first + i);
        }
    }
    return best;
}

static void note_sample(joining *j, const psti_tar_scan *scan, const psti_tar_sample *sample)
{
    const int64_t image = image_of(scan, sample);
    j->has_image |= image >= 0;
    for (uint32_t i = 0; i < sample->members; i++) {
        const char *text = ext_of(scan, sample->first + i);
        j->has_cls |= strcmp(text, "cls") == 0;
        if (is_value(text))
            continue;
        ext *e = find_ext(j, text);
        if (!e)
            j->left_out++;
        else if (e->bare_image && (int64_t)(sample->first + i) != image)
            e->aside = true;
        else
            e->primary = true;
    }
}

static void note_all(joining *j)
{
    for (size_t s = 0; s < j->shards; s++)
        for (size_t i = 0; i < j->scans[s].sample_count; i++)
            note_sample(j, &j->scans[s], &j->scans[s].samples[i]);
}

static bool name_is_free(const joining *j, const char *name, size_t len)
{
    if (!psti_field_name_ok(name, len) || psti_dataset_find_field(j->data, name, len) >= 0)
        return false;
    return !(j->has_cls && len == 5 && memcmp(name, "label", 5) == 0);
}

static pst_kind kind_of_ext(const ext *e, size_t name_len, bool compound)
{
    const pst_kind kind = psti_format_kind(e->format);
    const bool may_mask = e->format == PSTI_FORMAT_PNG || kind == PST_VOLUME;
    if (may_mask && compound && psti_is_mask_name(e->text, name_len))
        return PST_MASK;
    if (e->format)
        return kind;
    const char *dot = strrchr(e->text, '.');
    return strcmp(dot ? dot + 1 : e->text, "txt") == 0 ? PST_TEXT : PST_BYTES;
}

/* One field for one extension: NAME.ext is called NAME, or in full when that name is taken. */
static void add_ext_field(joining *j, ext *e)
{
    const char *dot = dot_of(e->text);
    const size_t full = strlen(e->text), part = dot ? (size_t)(dot - e->text) : full;
    const size_t len = name_is_free(j, e->text, part) ? part : full;
    if (!name_is_free(j, e->text, len) || j->slots == PSTI_FIELDS_MAX)
        return;
    const char *format = e->format ? psti_format_by_name(e->format) : dot ? dot + 1 : e->text;
    const pst_field_info info =
        psti_member_info(e->text, len, kind_of_ext(e, part, dot != NULL), format);
    if (psti_dataset_add_field(j->data, &info, true, j->slots) >= 0)
        e->slot = j->slots++;
}

static const char *image_format(const joining *j)
{
    psti_format format = PSTI_FORMAT_NONE;
    for (int i = 0; i < j->ext_count; i++) {
        if (!j->exts[i].bare_image || !j->exts[i].primary)
            continue;
        if (format && format != j->exts[i].format)
            return "mixed";
        format = j->exts[i].format;
    }
    return psti_format_by_name(format);
}

static void add_member_fields(joining *j)
{
    j->image_slot = SLOT_NONE;
    if (j->has_image) {
        const pst_field_info info = psti_member_info("image", 5, PST_IMAGE, image_format(j));
        j->image_slot = j->slots++;
        psti_dataset_add_field(j->data, &info, true, j->image_slot);
    }
    for (int i = 0; i < j->ext_count; i++)
        if (!j->exts[i].bare_image || j->exts[i].aside)
            add_ext_field(j, &j->exts[i]);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int take_cls(joining *j, const psti_tar_scan *scan, const psti_tar_member *m, int64_t id,
                    pst_error *err)
{
    const char *text = scan->names.data + m->text;
    size_t len = m->length;
    int64_t label;
    while (len && strchr(" \t\r\n", *text))
        text++, len--;
    while (len && strchr(" \t\r\n", text[len - 1]))
        len--;
    if (!psti_text_i64(text, len, &label))
        return psti_fail_at(
            err, PST_EDATASET, "list", scan->path, (int64_t)m->offset,
            "the cls member does not hold a whole number; write the label as decimal digits");
    psti_stage *stage = psti_stage_find(&j->cls, "label", 5);
    return psti_stage_int(stage, id, label) ? no_memory(j, err) : 0;
}

static int stage_object(joining *j, const json_t *object, int64_t id)
{
    const char *name;
    json_t *value;
    int rc = 0;
    json_object_foreach((json_t *)object, name, value)
    {
        psti_stage *stage = psti_stage_find(&j->json, name, strlen(name));
        if (stage && !rc)
            rc = psti_stage_json(&j->json, stage, id, value);
        else if (!stage)
            j->json.left_out++;
    }
    return rc;
}

static int take_json(joining *j, const psti_tar_scan *scan, const psti_tar_member *m, int64_t id,
                     pst_error *err)
{
    json_error_t at;
    json_t *value = json_loadb(scan->names.data + m->text, m->length,
                               JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &at);
    if (!value)
        return psti_fail_at(err, PST_EDATASET, "list", scan->path, (int64_t)m->offset,
                            "the json member is not valid JSON: %s", at.text);
    int rc = 0;
    psti_stage *whole = json_is_object(value) ? NULL : psti_stage_find(&j->json, "json", 4);
    if (json_is_object(value))
        rc = stage_object(j, value, id);
    else if (whole)
        rc = psti_stage_json(&j->json, whole, id, value);
    else
        j->json.left_out++;
    json_decref(value);
    if (rc == -EFBIG)
        return psti_fail_at(err, PST_ELIMIT, "list", scan->path, (int64_t)m->offset,
                            "a json value is too large");
    return rc ? no_memory(j, err) : 0;
}

static int add_column(joining *j, const psti_stages *all, const psti_stage *stage, const char *name,
                      const char *format)
{
    psti_dataset *data = j->data;
    psti_column column;
    if (data->fields == PSTI_FIELDS_MAX) {
        j->left_out += stage->count;
        return 0;
    }
    const int rc = psti_stage_finish(all, stage, data->count, &column);
    if (rc)
        return rc;
    pst_field_info info = {0};
    memcpy(info.name, name, strlen(name));
    memcpy(info.format, format, strlen(format));
    psti_column_describe(&column, &info);
    data->column[data->columns] = column;
    const int field = psti_dataset_add_field(data, &info, false, data->columns++);
    if (strcmp(name, "label") == 0 && column.type == PSTI_COL_I64) {
        data->field[field].info.kind = PST_LABEL;
        data->label = field;
    }
    return 0;
}

/* The name of a json key as a field: itself, or json.NAME where that is taken; empty when neither
 * will do. */
static void json_field_name(const joining *j, const char *key, char out[PST_NAME_BYTES])
{
    const size_t len = strlen(key);
    out[0] = 0;
    if (name_is_free(j, key, len)) {
        memcpy(out, key, len + 1);
    } else if (len + 5 < PST_NAME_BYTES) {
        memcpy(out, "json.", 5);
        memcpy(out + 5, key, len + 1);
        if (!name_is_free(j, out, len + 5))
            out[0] = 0;
    }
}

static int add_value_fields(joining *j)
{
    int rc = 0;
    if (j->cls.count)
        rc = add_column(j, &j->cls, &j->cls.stage[0], "label", "cls");
    for (int i = 0; i < j->json.count && !rc; i++) {
        char name[PST_NAME_BYTES];
        json_field_name(j, j->json.stage[i].name, name);
        if (name[0])
            rc = add_column(j, &j->json, &j->json.stage[i], name, "json");
        else
            j->json.left_out += j->json.stage[i].count;
    }
    return rc;
}

/* ---- joining --------------------------------------------------------------------------------- */

static int write_key(joining *j, const psti_tar_scan *scan, size_t sample, int64_t id,
                     pst_error *err)
{
    psti_strings *pool = &j->data->names;
    const char *stem = scan->names.data + scan->stems[sample];
    const size_t above = strlen(scan->path), len = strlen(stem);
    if (above + 1 + len > PSTI_KEY_MAX)
        return psti_fail(err, PST_ELIMIT, "list", scan->path,
                         "a member name is longer than 4096 bytes");
    if (psti_strings_add(pool, scan->path, above, &j->data->keys[id]))
        return no_memory(j, err);
    pool->data[pool->len - 1] = '/';
    uint64_t at;
    return psti_strings_add(pool, stem, len, &at) ? no_memory(j, err) : 0;
}

static int write_sample(joining *j, size_t shard, size_t sample, int64_t id, pst_error *err)
{
    const psti_tar_scan *scan = &j->scans[shard];
    const psti_tar_sample *s = &scan->samples[sample];
    const int64_t image = image_of(scan, s);
    int rc = write_key(j, scan, sample, id, err);
    for (uint32_t i = 0; i < s->members && !rc; i++) {
        const psti_tar_member *m = &scan->members[s->first + i];
        const char *text = scan->names.data + m->ext;
        if (strcmp(text, "cls") == 0) {
            rc = take_cls(j, scan, m, id, err);
        } else if (strcmp(text, "json") == 0) {
            rc = take_json(j, scan, m, id, err);
        } else {
            const ext *e = find_ext(j, text);
            const int slot = (int64_t)(s->first + i) == image ? j->image_slot
                             : e                              ? e->slot
                                                              : SLOT_NONE;
            if (slot == SLOT_NONE)
                j->left_out += e != NULL; /* too many extensions were counted before */
            else
                *psti_member_at(j->data, id, slot) =
                    (psti_member){.length = m->length, .place = shard, .offset = m->offset};
        }
    }
    return rc;
}

static int write_shards(joining *j)
{
    psti_dataset *data = j->data;
    data->shard = psti_calloc(PSTI_MEM_SOURCE, j->shards, sizeof *data->shard);
    if (!data->shard)
        return -ENOMEM;
    data->shards = j->shards;
    for (size_t i = 0; i < j->shards; i++) {
        data->shard[i].stamp = j->scans[i].stamp;
        data->shard[i].fd = -1;
    }
    for (size_t i = 0; i < j->shards; i++)
        if (psti_strings_add(&data->names, j->scans[i].path, strlen(j->scans[i].path),
                             &data->shard[i].path))
            return -ENOMEM;
    return 0;
}

static int join(joining *j, pst_error *err)
{
    note_all(j);
    add_member_fields(j);
    if (write_shards(j) || psti_dataset_make_room(j->data, j->samples, j->slots))
        return no_memory(j, err);
    int64_t id = 0;
    int rc = 0;
    for (size_t s = 0; s < j->shards && !rc; s++)
        for (size_t i = 0; i < j->scans[s].sample_count && !rc; i++)
            rc = write_sample(j, s, i, id++, err);
    if (!rc && add_value_fields(j))
        rc = no_memory(j, err);
    if (!rc && j->left_out + j->json.left_out)
        psti_log(
            PSTI_LOG_WARN,
            "%s: %" PRIu64
            " members or values are left out: their names cannot be field names, or there are more "
            "than %d fields",
            j->o->path, j->left_out + j->json.left_out, PSTI_FIELDS_MAX);
    return rc;
}

static int nothing_usable(const joining *j, pst_error *err)
{
    uint64_t ignored = 0;
    for (size_t i = 0; i < j->shards; i++)
        ignored += j->scans[i].ignored;
    return psti_fail(err, PST_EDATASET, "list", j->o->path,
                     "no samples: the shards hold %" PRIu64
                     " members, none with an extension; members are named STEM.jpg, STEM.cls, …",
                     ignored);
}

int psti_tar_build(psti_opening *o, const char *const *shards, size_t count, psti_dataset **out,
                   pst_error *err)
{
    joining *j = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *j);
    if (!j)
        return psti_fail(err, -ENOMEM, "list", o->path, "out of memory while listing");
    j->o = o;
    j->shards = count;
    int rc = scan_all(j, shards, err);
    if (!rc && !j->samples)
        rc = nothing_usable(j, err);
    if (!rc) {
        j->data = psti_dataset_begin(o, PSTI_KIND_TAR);
        rc = j->data ? join(j, err) : no_memory(j, err);
    }
    if (!rc) {
        psti_dataset_settle(j->data);
        *out = j->data;
        j->data = NULL;
    }
    psti_dataset_unref(j->data);
    for (size_t i = 0; j->scans && i < j->shards; i++)
        psti_tar_scan_fini(&j->scans[i]);
    psti_stages_fini(&j->cls);
    psti_stages_fini(&j->json);
    psti_free(j->scans);
    psti_free(j);
    return rc;
}
