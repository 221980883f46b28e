/* SPDX-License-Identifier: Apache-2.0
 * Datasets whose samples the caller's function fetches: making one, its reading threads, and what
 * is remembered of values that come with the samples. Threads are started when the first job opens
 * and end with the dataset; in a forked child they are started anew. The caller's functions are
 * called with no lock held. */
#include "source/custom.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/field.h"
#include "core/memory.h"
#include "core/status.h"
#include "source/crew.h"

enum { THREADS_DEFAULT = 8, THREADS_MAX = 256 };

void pst_custom_init(pst_custom *spec)
{
    memset(spec, 0, sizeof *spec);
    spec->size = sizeof *spec;
}

/* ---- values ---------------------------------------------------------------------------------- */

int psti_custom_value(const struct psti_custom *custom, int64_t id, int field, const void **value,
                      size_t *bytes)
{
    const psti_late *late = &custom->late[field];
    if (!late->bytes)
        return -EAGAIN;
    const uint64_t bits = atomic_load_explicit(&late->present[id / 64], memory_order_acquire);
    if (!(bits >> (id % 64) & 1))
        return -EAGAIN;
    *value = &late->cells[id];
    *bytes = late->bytes;
    return 0;
}

static void remember_locked(psti_late *late, int64_t id, const psti_part *part)
{
    const uint64_t bit = 1ull << (id % 64);
    if (!late->bytes || !part->there || part->size != late->bytes ||
        atomic_load(&late->present[id / 64]) & bit)
        return;
    memcpy(&late->cells[id], part->bytes, part->size);
    atomic_fetch_or_explicit(&late->present[id / 64], bit, memory_order_release);
}

static void remember(struct psti_custom *custom, const psti_dataset *data, const psti_fetch *fetch)
{
    pthread_mutex_lock(&custom->lock);
    for (int i = 0; i < data->fields; i++)
        remember_locked(&custom->late[i], fetch->id, &fetch->sink.part[i]);
    pthread_mutex_unlock(&custom->lock);
}

uint64_t psti_custom_bytes(const struct psti_custom *custom, int fields)
{
    uint64_t total = sizeof *custom;
    for (int i = 0; i < fields; i++)
        if (custom->late[i].bytes)
            total += (uint64_t)custom->count * 8 + (uint64_t)custom->count / 8;
    return total;
}

psti_id128 psti_custom_identity(const psti_dataset *data, int64_t id)
{
    psti_hash h;
    const char *kind = psti_kind_name(data->kind);
    psti_hash_init(&h);
    psti_hash_text(&h, kind, strlen(kind));
    psti_hash_u64(&h, data->revision.lo);
    psti_hash_u64(&h, data->revision.hi);
    psti_hash_u64(&h, (uint64_t)id);
    return psti_hash_final(&h);
}

/* ---- fetching -------------------------------------------------------------------------------- */

int psti_fetch_now(psti_dataset *data, psti_fetch *fetch)
{
    struct psti_custom *custom = data->custom;
    psti_fetch_clear(fetch);
    psti_error_clear(&fetch->sink.error);
    fetch->sink.data = data;
    pst_error *err = &fetch->sink.error;
    int rc = custom->spec.read(custom->spec.user, fetch->id, &fetch->sink, err);
    if (rc >= 0 && fetch->sink.rc < 0)
        return fetch->sink.rc; /* a sink refused something; the error is its own */
    if (rc >= 0) {
        remember(custom, data, fetch);
        return 0;
    }
    if (!err->code)
        psti_fail(err, rc, "read", NULL, "%s", pst_strerror(rc));
    err->code = rc;
    snprintf(err->stage, sizeof err->stage, "read");
    return rc;
}

void psti_fetch_clear(psti_fetch *fetch)
{
    for (int i = 0; i < PSTI_FIELDS_MAX; i++) {
        psti_part *part = &fetch->sink.part[i];
        if (part->free_fn)
            part->free_fn(part->arg);
        *part = (psti_part){0};
    }
    fetch->sink.rc = 0;
}

static void custom_unref(struct psti_custom *custom)
{
    if (atomic_fetch_sub_explicit(&custom->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (custom->spec.destroy)
        custom->spec.destroy(custom->spec.user);
    for (int i = 0; i < PSTI_FIELDS_MAX; i++) {
        psti_free(custom->late[i].cells);
        psti_free(custom->late[i].present);
    }
    pthread_cond_destroy(&custom->more);
    pthread_mutex_destroy(&custom->lock);
    psti_free(custom->thread);
    psti_free(custom);
}

static void serve(psti_fetch *fetch)
{
    const bool wanted = fetch->wanted(fetch);
    const uint64_t begin = psti_now_ns();
    const int rc = wanted ? psti_fetch_now(fetch->data, fetch) : -ECANCELED;
    fetch->took_ns = psti_now_ns() - begin;
    fetch->done(fetch, rc);
}

/* How many may be in the caller's function at once. Calls that come back quickly mostly wait for
 * each other, an interpreter's lock being one: two of them are faster than eight. Slow ones wait
 * for something far away, and more of them help. */
static int most_busy_locked(const struct psti_custom *custom)
{
    if (!custom->adapts || custom->mean_ns > 4e6)
        return custom->spec.threads;
    return custom->mean_ns > 1e6 ? 4 : 2;
}

static void note_call_locked(struct psti_custom *custom, uint64_t ns)
{
    custom->busy--;
    custom->mean_ns += ((double)ns - custom->mean_ns) / 16;
    if (custom->first && custom->busy + 1 < most_busy_locked(custom))
        pthread_cond_signal(&custom->more);
}

static void *read_main(void *arg)
{
    struct psti_custom *custom = arg;
    const pst_custom *spec = &custom->spec;
    void *mine = spec->thread_begin ? spec->thread_begin(spec->user) : NULL;
    pthread_mutex_lock(&custom->lock);
    for (;;) {
        psti_fetch *fetch = custom->first;
        if (!fetch && custom->closed)
            break;
        if (!fetch || (!custom->closed && custom->busy >= most_busy_locked(custom))) {
            pthread_cond_wait(&custom->more, &custom->lock);
            continue;
        }
        custom->first = fetch->next;
        if (!custom->first)
            custom->last = NULL;
        custom->busy++;
        pthread_mutex_unlock(&custom->lock);
        const uint64_t begin = psti_now_ns();
        serve(fetch);
        const uint64_t end = psti_now_ns();
        pthread_mutex_lock(&custom->lock);
        note_call_locked(custom, end - begin);
    }
    pthread_mutex_unlock(&custom->lock);
    if (spec->thread_end)
        spec->thread_end(spec->user, mine);
    custom_unref(custom);
    return NULL;
}

void psti_fetch_submit(psti_dataset *data, psti_fetch *fetch)
{
    struct psti_custom *custom = data->custom;
    fetch->data = data;
    fetch->next = NULL;
    pthread_mutex_lock(&custom->lock);
    if (custom->last)
        custom->last->next = fetch;
    else
        custom->first = fetch;
    custom->last = fetch;
    pthread_cond_signal(&custom->more);
    pthread_mutex_unlock(&custom->lock);
}

int psti_dataset_start(psti_dataset *data, pst_error *err)
{
    struct psti_custom *custom = data->custom;
    int rc = 0;
    if (!custom)
        return 0;
    pthread_mutex_lock(&custom->lock);
    while (custom->threads < custom->spec.threads && rc == 0) {
        atomic_fetch_add(&custom->refs, 1);
        rc = psti_thread_start(&custom->thread[custom->threads], read_main, custom);
        custom->threads += rc == 0;
        if (rc)
            atomic_fetch_sub(&custom->refs, 1);
    }
    const bool some = custom->threads > 0; /* fewer than wished for is enough */
    pthread_mutex_unlock(&custom->lock);
    return some ? 0
                : psti_fail(err, rc, "read", data->path, "reading threads cannot be started: %s",
                            pst_strerror(rc));
}

/* The threads and what they had in hand are the parent's. */
static void start_over(void *arg)
{
    struct psti_custom *custom = arg;
    pthread_cond_init(&custom->more, NULL);
    custom->first = custom->last = NULL;
    custom->threads = custom->busy = 0;
    atomic_store(&custom->refs, 1);
}

/* The last reference may go in one of the threads itself, when the caller's function drops it. */
void psti_custom_close(struct psti_custom *custom)
{
    if (!custom)
        return;
    psti_fork_guard_remove(&custom->forks);
    pthread_mutex_lock(&custom->lock);
    custom->closed = true;
    pthread_cond_broadcast(&custom->more);
    const int threads = custom->threads;
    pthread_mutex_unlock(&custom->lock);
    for (int i = 0; i < threads; i++) {
        if (pthread_equal(custom->thread[i], pthread_self()))
            pthread_detach(custom->thread[i]);
        else
            pthread_join(custom->thread[i], NULL);
    }
    custom_unref(custom);
}

/* ---- making ---------------------------------------------------------------------------------- */

static int refuse(pst_error *err, const char *name, const char *what)
{
    return psti_fail(err, -EINVAL, "dataset", name, "%s", what);
}

static int check_spec(const pst_custom *spec, pst_error *err)
{
    if (spec->size != sizeof *spec)
        return refuse(err, spec->size > offsetof(pst_custom, name) ? spec->name : NULL,
                      "a pst_custom of another version; call pst_custom_init");
    if (!spec->name || !*spec->name)
        return refuse(err, NULL, "a dataset of your own needs a name");
    if (!spec->read)
        return refuse(err, spec->name, "a function that reads a sample is needed");
    if (spec->count < 0)
        return refuse(err, spec->name, "the number of samples must not be negative");
    if (spec->threads < 0 || spec->threads > THREADS_MAX)
        return refuse(err, spec->name, "threads must be 0..256");
    if (spec->field_count < 0 || spec->field_count > PSTI_FIELDS_MAX)
        return refuse(err, spec->name, "there are more than 32 fields");
    return 0;
}

/* Pictures, volumes and recordings: what comes of them is known once they are decoded. */
static bool is_decoded(const pst_field_info *info)
{
    return info->kind == PST_IMAGE || info->kind == PST_MASK || info->kind == PST_VOLUME ||
           info->kind == PST_AUDIO;
}

/* These and stored arrays are decoded; everything else is handed on as it comes. */
static bool is_member(const pst_field_info *info)
{
    return is_decoded(info) || (info->kind == PST_ARRAY && strcmp(info->format, "npy") == 0);
}

static int check_field(const psti_dataset *data, const pst_field_info *info, pst_error *err)
{
    const size_t len = strnlen(info->name, sizeof info->name);
    const bool text = info->kind == PST_TEXT || info->kind == PST_BYTES;
    bool varies = false;
    for (int d = 0; d < info->rank && d < PST_MAX_RANK; d++)
        varies = varies || info->shape[d] < 0;
    if (len == 0 || len == sizeof info->name || psti_dataset_find_field(data, info->name, len) >= 0)
        return refuse(err, data->path,
                      "every field needs a name of its own, shorter than 32 bytes");
    if (info->kind < PST_IMAGE || info->kind > PST_META || info->rank > PST_MAX_RANK)
        return refuse(err, data->path, "a field has a kind or rank that is not known");
    if (!is_decoded(info) && !text && !psti_dtype_bytes(info->dtype))
        return refuse(err, data->path, "a field's element type is not known");
    if (!is_member(info) && varies && info->rank > 1)
        return refuse(err, data->path, "only arrays of one dimension may vary in length");
    return 0;
}

/* Completes what the caller need not say of what is decoded, and of texts. */
static pst_field_info complete(const pst_field_info *info)
{
    const bool decoded = is_decoded(info);
    if (!decoded && info->kind != PST_TEXT && info->kind != PST_BYTES)
        return *info;
    pst_field_info whole = psti_member_info(info->name, strlen(info->name), info->kind,
                                            *info->format ? info->format
                                            : decoded     ? "mixed"
                                                          : "");
    whole.optional = info->optional;
    if (info->kind == PST_MASK && info->rank == 4) { /* a volume's */
        whole.rank = 4;
        whole.shape[3] = -1;
    }
    return whole;
}

static int add_fields(psti_dataset *data, const pst_custom *spec, pst_error *err)
{
    static const pst_field_info usual[] = {{.name = "image", .kind = PST_IMAGE},
                                           {.name = "label", .kind = PST_LABEL, .dtype = PST_I64}};
    const pst_field_info *fields = spec->fields ? spec->fields : usual;
    const int count = spec->fields ? spec->field_count : 2;
    for (int i = 0; i < count; i++) {
        const int rc = check_field(data, &fields[i], err);
        if (rc < 0)
            return rc;
        const pst_field_info info = complete(&fields[i]);
        psti_dataset_add_field(data, &info, is_member(&info), 0);
        if (info.kind == PST_LABEL && info.rank == 0 && info.dtype == PST_I64 && data->label < 0)
            data->label = i;
    }
    return count > 0 ? 0 : refuse(err, data->path, "there is no field");
}

/* Room for the values that are remembered. */
static int make_late(psti_dataset *data)
{
    struct psti_custom *custom = data->custom;
    for (int i = 0; i < data->fields; i++) {
        const pst_field_info *info = &data->field[i].info;
        psti_late *late = &custom->late[i];
        if (data->field[i].member || info->rank || info->kind == PST_TEXT)
            continue;
        const size_t count = (size_t)data->count;
        late->cells = psti_calloc(PSTI_MEM_SOURCE, count, sizeof *late->cells);
        late->present = psti_calloc(PSTI_MEM_SOURCE, count / 64 + 1, sizeof *late->present);
        if (!late->cells || !late->present)
            return -ENOMEM;
        late->bytes = psti_dtype_bytes(info->dtype);
    }
    return 0;
}

static int take_labels(psti_dataset *data, const int64_t *labels, pst_error *err)
{
    if (!labels)
        return 0;
    if (data->label < 0)
        return refuse(err, data->path, "labels are given, but no field is an int64 label");
    psti_late *late = &data->custom->late[data->label];
    memcpy(late->cells, labels, (size_t)data->count * sizeof *labels);
    for (int64_t i = 0; i <= data->count / 64; i++)
        atomic_init(&late->present[i], UINT64_MAX);
    return 0;
}

static size_t print_id(int64_t id, char *out)
{
    char digits[24];
    size_t n = 0, len = 0;
    do
        digits[n++] = (char)('0' + id % 10);
    while (id /= 10);
    while (n)
        out[len++] = digits[--n];
    return len;
}

static const char *fault_of_key(const char *key, int len)
{
    if (len < 0)
        return "cannot be had";
    if (len == 0 || len > PSTI_KEY_MAX)
        return "is empty or longer than 4096 bytes";
    for (int i = 0; i < len; i++)
        if ((unsigned char)key[i] < 0x20 || key[i] == 0x7f)
            return "holds a control byte";
    return psti_utf8_ok(key, (size_t)len) ? NULL : "is not UTF-8";
}

static int add_keys(psti_dataset *data, const pst_custom *spec, pst_error *err)
{
    char key[PSTI_KEY_MAX + 1];
    for (int64_t id = 0; id < data->count; id++) {
        size_t len = 0;
        if (spec->key) {
            const int got = spec->key(spec->user, id, key, sizeof key);
            const char *fault = fault_of_key(key, got);
            if (fault)
                return psti_fail(err, got < 0 ? got : PST_EDATASET, "dataset", data->path,
                                 "the key of sample %lld %s", (long long)id, fault);
            len = (size_t)got;
        } else {
            len = print_id(id, key);
        }
        if (psti_strings_add(&data->names, key, len, &data->keys[id]) < 0)
            return psti_fail(err, -ENOMEM, "dataset", data->path, "out of memory");
        data->key_max = len > data->key_max ? len : data->key_max;
    }
    return 0;
}

static void set_revision(psti_dataset *data, const pst_custom *spec)
{
    psti_hash h;
    psti_hash_init(&h);
    psti_hash_text(&h, spec->name, strlen(spec->name));
    psti_hash_u64(&h, (uint64_t)spec->count);
    data->revision = spec->revision ? psti_id128_load(spec->revision) : psti_hash_final(&h);
    data->revision_known = true;
}

static struct psti_custom *custom_new(const pst_custom *spec)
{
    struct psti_custom *custom = psti_calloc(PSTI_MEM_SOURCE, 1, sizeof *custom);
    if (!custom)
        return NULL;
    const int threads = spec->threads ? spec->threads : THREADS_DEFAULT;
    custom->thread = psti_calloc(PSTI_MEM_SOURCE, (size_t)threads, sizeof *custom->thread);
    if (!custom->thread) {
        psti_free(custom);
        return NULL;
    }
    custom->spec = *spec;
    custom->spec.threads = threads;
    custom->adapts = spec->threads == 0;
    custom->spec.destroy = NULL; /* until the dataset stands, user is the caller's */
    custom->count = spec->count;
    atomic_init(&custom->refs, 1);
    pthread_mutex_init(&custom->lock, NULL);
    pthread_cond_init(&custom->more, NULL);
    psti_fork_guard_add(&custom->forks, &custom->lock, start_over, custom);
    return custom;
}

int psti_dataset_custom(const pst_custom *spec, psti_dataset **out, pst_error *err)
{
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    psti_dataset *data = psti_dataset_new(PSTI_KIND_CUSTOM, spec->name, "", -1);
    if (!data)
        return psti_fail(err, -ENOMEM, "dataset", spec->name, "out of memory");
    rc = add_fields(data, spec, err);
    if (rc == 0) {
        data->custom = custom_new(spec);
        if (!data->custom || psti_dataset_make_room(data, spec->count, 0) < 0 ||
            make_late(data) < 0)
            rc = psti_fail(err, -ENOMEM, "dataset", spec->name, "out of memory");
    }
    if (rc == 0)
        rc = take_labels(data, spec->labels, err);
    if (rc == 0)
        rc = add_keys(data, spec, err);
    if (rc < 0) {
        psti_dataset_unref(data);
        return rc;
    }
    set_revision(data, spec);
    data->custom->spec.destroy = spec->destroy;
    *out = data;
    return 0;
}

bool psti_dataset_fetches(const psti_dataset *data)
{
    return data->custom != NULL;
}
