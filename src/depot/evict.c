/* SPDX-License-Identifier: Apache-2.0
 * Making room: limits, what goes, and how it goes. A revision is hidden before anything of it is
 * removed, and of a large one only as much goes as is needed; a later pull then fetches just that.
 * Everything here runs with the depot locked. Any thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "depot/depot_priv.h"

/* Small objects go together: each by itself would be worth so little that all of them would go
 * before one large object. */
uint64_t depot_unit_bytes = (uint64_t)1 << 30;

/* ---- limits ------------------------------------------------------------------------------------
 */

int limits_read(depot *d, pst_datasets_limits *out, pst_error *err)
{
    char text[200];
    *out = (pst_datasets_limits){.high = 0.95, .low = 0.85};
    const ssize_t len = file_read(d->dir, "limit", text, sizeof text);
    if (len == -ENOENT)
        return 0;
    if (len < 0 ||
        sscanf(text, "%" SCNu64 " %lf %lf", &out->capacity, &out->high, &out->low) != 3 ||
        !(out->high > 0 && out->high <= 1 && out->low >= 0 && out->low <= out->high))
        return psti_fail(err, len < 0 ? (int)len : PST_ECORRUPT, "depot", d->path,
                         "the file 'limit' cannot be read; penstock datasets --limit sets it anew");
    return 0;
}

static int limits_write(depot *d, const pst_datasets_limits *l, pst_error *err)
{
    char text[200];
    if (!(l->high > 0 && l->high <= 1 && l->low >= 0 && l->low <= l->high))
        return psti_fail(err, -EINVAL, "depot", NULL,
                         "watermarks are shares from 0 to 1, the low one not above the high one");
    const int len =
        snprintf(text, sizeof text, "%" PRIu64 " %.6f %.6f\n", l->capacity, l->high, l->low);
    const int rc = file_write(d->dir, "limit", text, (size_t)len);
    return rc < 0 ? psti_fail(err, rc, "depot", d->path, "%s", strerror(-rc)) : 0;
}

static uint64_t share_of(uint64_t bytes, double share)
{
    return (uint64_t)((double)bytes * share);
}

/* Bytes that the file system still has for this user. */
static uint64_t free_bytes(const depot *d)
{
    struct statvfs fs;
    return fstatvfs(d->dir, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX / 2;
}

/* What all may take at most, and what is free of it. Others have the disk, too; what was reserved
 * is not on it yet. */
static void measure(const depot *d, const survey *s, pst_datasets_limits *l)
{
    const uint64_t most = s->used - survey_pending(s) + free_bytes(d);
    l->total = l->capacity && l->capacity < most ? l->capacity : most;
    const uint64_t high = share_of(l->total, l->high);
    l->free = high > s->used ? high - s->used : 0;
}

/* Lists are read only where a dataset has several revisions, which may share files. */
static int survey_take_exact(depot *d, survey *s, pst_error *err)
{
    int rc = survey_take(d, false, s, err);
    bool several = false;
    for (size_t i = 1; rc == 0 && i < s->count; i++)
        several =
            several || strcmp(s->revisions[i - 1].shown.name, s->revisions[i].shown.name) == 0;
    if (several) {
        survey_fini(s);
        rc = survey_take(d, true, s, err);
    }
    return rc;
}

int pst_datasets_limit(const char *dir, const pst_datasets_limits *set, pst_datasets_limits *out,
                       pst_error *err)
{
    depot d;
    survey s;
    pst_datasets_limits now = {0};
    int rc = depot_open(&d, dir, set != NULL, err);
    if (rc == 0 && set) {
        rc = depot_lock(&d, err);
        if (rc == 0)
            rc = limits_write(&d, set, err);
    }
    if (rc == 0)
        rc = limits_read(&d, &now, err);
    if (rc == 0 && out) {
        rc = survey_take_exact(&d, &s, err);
        if (rc == 0) {
            *out = now;
            out->used = s.used;
            measure(&d, &s, out);
            survey_fini(&s);
        }
    }
    depot_close(&d);
    return rc;
}

/* ---- taking away -------------------------------------------------------------------------------
 */

typedef struct doomed {
    int set, rev, lock, pulling;
    char folder[REVISION_HEX + 2];
} doomed;

static void doomed_close(doomed *w)
{
    if (w->lock >= 0)
        close(w->lock);
    if (w->pulling >= 0)
        close(w->pulling);
    if (w->rev >= 0)
        close(w->rev);
    if (w->set >= 0)
        close(w->set);
}

/* Opens a revision and makes sure that nobody reads or pulls it, until doomed_close. */
static int doom(depot *d, const pst_revision *r, doomed *w)
{
    *w = (doomed){-1, -1, -1, -1, ""};
    w->set = dir_open(d->dir, r->name);
    if (w->set < 0)
        return w->set;
    w->rev = dir_open(w->set, rev_folder(w->folder, r->revision, r->complete));
    if (w->rev < 0)
        return w->rev;
    w->lock = lock_open(w->rev, ".lock");
    if (w->lock < 0)
        return w->lock;
    int rc = lock_take(w->lock);
    if (rc == 0 && !r->complete) {
        w->pulling = lock_open(w->set, ".pulling");
        rc = w->pulling < 0 ? w->pulling : lock_take(w->pulling);
    }
    if (rc < 0)
        return rc;
    return faccessat(w->rev, ".pin", F_OK, 0) == 0 ? -EBUSY : 0;
}

static void hide_latest(const doomed *w, const pst_revision *r)
{
    if (r->complete && latest_is(w->set, r->revision))
        unlinkat(w->set, "latest", 0);
}

static int remove_whole(depot *d, const pst_revision *r, uint64_t *freed)
{
    doomed w;
    char gone[64];
    int rc = doom(d, r, &w);
    if (rc == 0) {
        sweep(w.set, ".gone."); /* what another process was removing when it ended */
        hide_latest(&w, r);
        snprintf(gone, sizeof gone, ".gone.%s", r->revision);
        if (renameat(w.set, w.folder, w.set, gone) != 0)
            rc = -errno;
    }
    if (rc == 0)
        rc = tree_remove(w.rev, "data", freed);
    if (rc == 0)
        rc = tree_remove(w.rev, "parts", freed);
    if (rc == 0)
        rc = tree_remove(w.set, gone, NULL);
    doomed_close(&w);
    return rc;
}

static int remove_object(int data, const char *key)
{
    const char *leaf;
    const int dir = dir_of_key(data, key, false, &leaf);
    if (dir < 0)
        return dir == -ENOENT ? 0 : dir;
    const int rc = unlinkat(dir, leaf, 0) != 0 && errno != ENOENT ? -errno : 0;
    close(dir);
    return rc;
}

/* Takes away the objects that are marked by known being unset; what stays is noted first. */
static int remove_part(depot *d, held_revision *h, uint64_t *freed)
{
    const pst_revision *r = &h->shown;
    doomed w;
    char hidden[REVISION_HEX + 2];
    int rc = doom(d, r, &w);
    if (rc == 0 && r->complete)
        rc = listing_write(&h->objects, w.rev, "listing", r->url, NULL);
    if (rc == 0)
        rc = done_write(&h->objects, w.rev);
    if (rc == 0 && r->complete) {
        hide_latest(&w, r);
        rev_folder(hidden, r->revision, false);
        rc = renameat(w.set, w.folder, w.set, hidden) != 0 || fsync(w.set) != 0 ? -errno : 0;
        unlinkat(w.rev, ".complete", 0);
        unlinkat(w.rev, "manifest", 0);
    }
    const int data = rc == 0 ? dir_open(w.rev, "data") : -1;
    for (size_t i = 0; data >= 0 && rc == 0 && i < h->objects.count; i++) {
        const object *o = &h->objects.objects[i];
        if (o->known)
            continue;
        rc = remove_object(data, object_key(&h->objects, o));
        *freed += o->shared ? 0 : o->size;
    }
    if (data >= 0)
        close(data);
    if (rc == 0)
        tree_remove(w.rev, "parts", NULL);
    doomed_close(&w);
    return rc;
}

/* ---- choosing ----------------------------------------------------------------------------------
 */

typedef struct units {
    psti_depot_unit *list;
    struct span {
        uint32_t revision;
        size_t first, end; /* objects */
    } * spans;
    size_t count, cap;
} units;

static void units_fini(units *u)
{
    psti_free(u->list);
    psti_free(u->spans);
}

static int units_push(units *u, const psti_depot_unit *unit, struct span span)
{
    if (u->count == u->cap) {
        const size_t cap = u->cap ? 2 * u->cap : 64;
        psti_depot_unit *list = psti_realloc(PSTI_MEM_DEPOT, u->list, cap, sizeof *list);
        if (list)
            u->list = list;
        struct span *spans = psti_realloc(PSTI_MEM_DEPOT, u->spans, cap, sizeof *spans);
        if (spans)
            u->spans = spans;
        if (!list || !spans)
            return -ENOMEM;
        u->cap = cap;
    }
    u->list[u->count] = *unit;
    u->spans[u->count++] = span;
    return 0;
}

static bool is_held(const held_revision *h)
{
    const pst_revision *r = &h->shown;
    return r->pinned || r->in_use || r->pulling || h->made;
}

/* Neighbours in key order, until there are enough bytes for a unit. */
static int units_add(units *u, const held_revision *h, uint32_t revision)
{
    const pst_revision *r = &h->shown;
    const psti_depot_unit empty = {.uses = r->uses, .last_s = r->last_used_s, .held = is_held(h)};
    psti_depot_unit unit = empty;
    size_t first = 0;
    int rc = 0;
    unit.bytes = h->parts_bytes;
    for (size_t i = 0; i < h->objects.count && rc == 0; i++) {
        const object *o = &h->objects.objects[i];
        unit.bytes += o->shared ? 0 : o->size;
        unit.refetch_s += o->shared ? 0 : (double)o->took_us * 1e-6;
        if (unit.bytes < depot_unit_bytes)
            continue;
        rc = units_push(u, &unit, (struct span){revision, first, i + 1});
        unit = empty;
        first = i + 1;
    }
    if (rc == 0 && (first < h->objects.count || h->objects.count == 0))
        rc = units_push(u, &unit, (struct span){revision, first, h->objects.count});
    return rc;
}

static int units_make(units *u, const survey *s)
{
    memset(u, 0, sizeof *u);
    int rc = 0;
    for (size_t i = 0; i < s->count && rc == 0; i++)
        if (!s->revisions[i].gone)
            rc = units_add(u, &s->revisions[i], (uint32_t)i);
    return rc;
}

/* What revisions share is in no unit: it becomes free when all but one of them are gone. Takes the
 * one that is worth least out of the survey; false when there is none that may go. */
static bool give_up_one(survey *s, int64_t now)
{
    held_revision *least = NULL;
    double lowest = 0;
    for (size_t i = 0; i < s->count; i++) {
        held_revision *h = &s->revisions[i];
        const psti_depot_unit whole = {
            .uses = h->shown.uses, .last_s = h->shown.last_used_s, .refetch_s = h->shown.refetch_s};
        const double score = psti_depot_score(&whole, now);
        if (is_held(h) || h->gone || h->shown.bytes_own == h->shown.bytes ||
            (least && score >= lowest))
            continue;
        least = h;
        lowest = score;
    }
    if (!least)
        return false;
    least->gone = true;
    survey_share(s);
    return true;
}

/* Carries a choice out, revision by revision. One that somebody opened meanwhile stays. */
static int carry_out(depot *d, survey *s, const units *u, const bool *goes, uint64_t *freed)
{
    int rc = 0;
    for (size_t i = 0; i < s->count && rc == 0; i++) {
        held_revision *h = &s->revisions[i];
        bool any = h->gone, all = true;
        for (size_t k = 0; k < u->count; k++) {
            if (u->spans[k].revision != i)
                continue;
            any = any || goes[k];
            all = all && (goes[k] || u->list[k].bytes == 0);
            for (size_t o = u->spans[k].first; o < u->spans[k].end; o++)
                h->objects.objects[o].known = h->objects.objects[o].known && !goes[k];
        }
        if (any)
            rc = all ? remove_whole(d, &h->shown, freed) : remove_part(d, h, freed);
        rc = rc == -EBUSY || rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

/* Marks units that free need bytes. What becomes free, or negative. */
static int64_t choose(const units *u, uint64_t need, int64_t now, bool *goes)
{
    uint32_t *order = psti_calloc(PSTI_MEM_DEPOT, u->count + 1, sizeof *order);
    if (!order)
        return -ENOMEM;
    const uint64_t freed = psti_depot_choose(u->list, u->count, need, now, order, goes);
    psti_free(order);
    return (int64_t)freed;
}

/* Chooses for need bytes, revision by revision where those share what stands in the way. 0: u and
 * goes are set; -ENOSPC: all that may go is less. */
static int choose_for(survey *s, uint64_t need, int64_t now, units *u, bool **goes)
{
    const uint64_t before = s->used;
    for (;;) {
        const uint64_t given_up = before - s->used;
        const uint64_t left = need > given_up ? need - given_up : 0;
        int rc = units_make(u, s);
        *goes = rc < 0 ? NULL : psti_calloc(PSTI_MEM_DEPOT, u->count + 1, sizeof **goes);
        const int64_t freed = *goes ? choose(u, left, now, *goes) : -ENOMEM;
        if (freed >= 0 && (uint64_t)freed >= left)
            return 0;
        rc = freed < 0 ? (int)freed : -ENOSPC;
        units_fini(u);
        psti_free(*goes);
        *goes = NULL;
        if (rc != -ENOSPC || !give_up_one(s, now))
            return rc;
    }
}

static void take_nothing_out(survey *s)
{
    for (size_t i = 0; i < s->count; i++)
        s->revisions[i].gone = false;
    survey_share(s);
}

/* At least need bytes, wanted ones if they can be had. 0, or -ENOSPC with nothing done. */
static int make_room(depot *d, survey *s, uint64_t need, uint64_t wanted, uint64_t *freed)
{
    units u;
    bool *goes = NULL;
    const int64_t now = wall_s();
    int rc = choose_for(s, wanted, now, &u, &goes);
    if (rc == -ENOSPC && need < wanted) {
        take_nothing_out(s);
        rc = choose_for(s, need, now, &u, &goes);
    }
    if (rc < 0) {
        take_nothing_out(s);
        return rc;
    }
    rc = carry_out(d, s, &u, goes, freed);
    psti_free(goes);
    units_fini(&u);
    return rc == 0 && *freed < need ? -ENOSPC : rc;
}

/* ---- for a pull ---------------------------------------------------------------------------------
 */

/* Marks the revision that is being made, so that what it shares with others is told apart. */
static int add_made(survey *s, const char *name, const char *revision, const listing *wanted)
{
    held_revision *h = NULL;
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->revisions[i].shown.name, name) == 0 && !s->revisions[i].shown.complete &&
            strcmp(s->revisions[i].shown.revision, revision) == 0)
            h = &s->revisions[i];
    if (!h)
        return -ENOENT;
    listing_fini(&h->objects);
    h->made = h->loaded = true;
    h->parts_bytes = 0;
    h->objects = *wanted; /* borrowed: given back by drop_made */
    survey_share(s);
    return 0;
}

static void drop_made(survey *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->revisions[i].made)
            memset(&s->revisions[i].objects, 0, sizeof s->revisions[i].objects);
}

static int no_room(const survey *s, uint64_t need, uint64_t capacity, double high, pst_error *err)
{
    uint64_t pinned = 0, in_use = 0;
    for (size_t i = 0; i < s->count; i++) {
        pinned += s->revisions[i].shown.pinned ? s->revisions[i].shown.bytes_own : 0;
        in_use += s->revisions[i].shown.in_use ? s->revisions[i].shown.bytes_own : 0;
    }
    return psti_fail(err, -ENOSPC, "pull", NULL,
                     "%" PRIu64 " bytes more are needed; %" PRIu64 " of %" PRIu64
                     " are taken (pinned %" PRIu64 ", in use %" PRIu64
                     "), and at most %.0f %% may be; evict something or raise the limit: penstock "
                     "datasets --limit",
                     need, s->used, capacity, pinned, in_use, 100 * high);
}

/* What a pull needs beside what there is. */
typedef struct wants {
    uint64_t mine, need; /* bytes that it has already, and those that it lacks */
    uint64_t capacity, high, low;
} wants;

static wants count_wants(const depot *d, const survey *s, const room_wish *wish,
                         const pst_datasets_limits *limits)
{
    wants w = {0};
    for (size_t i = 0; i < wish->wanted->count; i++) {
        const object *o = &wish->wanted->objects[i]; /* marked by add_made */
        w.mine += o->known && !o->shared ? o->size : 0;
        w.need += o->known || o->shared ? 0 : o->size;
    }
    const uint64_t parts = wish->parts < w.need ? wish->parts : w.need;
    w.mine += parts;
    w.need -= parts;
    const uint64_t most = s->used - survey_pending(s) + w.mine + free_bytes(d);
    w.capacity = limits->capacity && limits->capacity < most ? limits->capacity : most;
    w.high = share_of(w.capacity, limits->high);
    w.low = share_of(w.capacity, limits->low);
    return w;
}

/* Leaves what does not fit into so many bytes, object by object. What the others need. */
static uint64_t leave_out(listing *wanted, uint64_t room)
{
    uint64_t need = 0;
    for (size_t i = 0; i < wanted->count; i++) {
        object *o = &wanted->objects[i];
        const uint64_t size = o->known || o->shared ? 0 : o->size;
        o->left = size > room - need;
        need += o->left ? 0 : size;
    }
    return need;
}

/* Bytes of everything that may go. */
static uint64_t may_go(const survey *s)
{
    units u;
    uint64_t bytes = 0;
    if (units_make(&u, s) == 0)
        for (size_t i = 0; i < u.count; i++)
            bytes += u.list[i].held ? 0 : u.list[i].bytes;
    units_fini(&u);
    return bytes;
}

static uint64_t beyond(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* As much as fits, in place of what others have that may go; where that cannot be, beside it. */
static int fit_part(depot *d, survey *s, const room_wish *wish, const wants *w)
{
    const uint64_t taken = s->used + w->mine;
    uint64_t freed = 0, need = leave_out(wish->wanted, beyond(w->high + may_go(s), taken));
    bool any = need > 0;
    for (size_t i = 0; i < wish->wanted->count && !any; i++)
        any = !wish->wanted->objects[i].left;
    const uint64_t lacks = beyond(taken + need, w->high);
    int rc = !any ? -ENOSPC : lacks ? make_room(d, s, lacks, lacks, &freed) : 0;
    if (rc == -ENOSPC && any) {
        leave_out(wish->wanted, beyond(w->high + freed, taken));
        rc = 0;
    }
    return rc;
}

int depot_make_room(depot *d, const room_wish *wish, pst_error *err)
{
    pst_datasets_limits limits;
    survey s;
    uint64_t freed = 0;
    int rc = limits_read(d, &limits, err);
    if (rc == 0)
        rc = survey_take(d, true, &s, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < wish->wanted->count; i++)
        wish->wanted->objects[i].left = false;
    rc = add_made(&s, wish->name, wish->revision, wish->wanted);
    const wants w = count_wants(d, &s, wish, &limits);
    const uint64_t total = s.used + w.mine + w.need;
    if (rc == 0 && w.need > 0 && total > w.high)
        rc = make_room(d, &s, total - w.high, total > w.low ? total - w.low : 0, &freed);
    if (rc == -ENOSPC && wish->partial)
        rc = fit_part(d, &s, wish, &w);
    if (rc == -ENOSPC && wish->short_of) {
        const uint64_t taken = s.used + w.mine;
        wish->short_of->needed_bytes = w.need;
        wish->short_of->free_bytes = w.high > taken ? w.high - taken : 0;
    }
    if (rc == -ENOSPC)
        rc = no_room(&s, w.need, w.capacity, limits.high, err);
    else if (rc < 0)
        rc = psti_fail(err, rc, "pull", d->path, "no room can be made: %s", strerror(-rc));
    drop_made(&s);
    survey_fini(&s);
    return rc;
}

/* ---- by hand ------------------------------------------------------------------------------------
 */

int pst_datasets_fit(const char *dir, uint64_t bytes, uint64_t *freed, pst_error *err)
{
    depot d;
    survey s;
    uint64_t gone = 0;
    int rc = depot_open(&d, dir, false, err);
    if (rc == 0)
        rc = depot_lock(&d, err);
    if (rc == 0)
        rc = survey_take(&d, true, &s, err);
    if (rc == 0) {
        if (s.used > bytes)
            rc = make_room(&d, &s, s.used - bytes, s.used - bytes, &gone);
        if (rc < 0)
            rc = psti_fail(err, rc == -ENOSPC ? -EBUSY : rc, "evict", d.path,
                           "%" PRIu64 " bytes are taken, and what is pinned, in use or being "
                           "pulled is more than %" PRIu64,
                           s.used, bytes);
        survey_fini(&s);
    }
    depot_close(&d);
    if (freed)
        *freed = gone;
    return rc;
}

static int refuse(const pst_revision *r, pst_error *err)
{
    return psti_fail(err, -EBUSY, "evict", r->name, "revision %.12s is %s", r->revision,
                     r->pinned    ? "pinned; penstock datasets --unpin lets go of it"
                     : r->pulling ? "being pulled"
                                  : "in use");
}

/* A pin that its owner takes away together with the revision. */
static void let_go_of_pin(depot *d, pst_revision *r)
{
    char folder[REVISION_HEX + 2];
    const int set = dir_open(d->dir, r->name);
    const int rev = set < 0 ? -1 : dir_open(set, rev_folder(folder, r->revision, r->complete));
    if (rev >= 0 && unlinkat(rev, ".pin", 0) == 0)
        r->pinned = 0;
    if (rev >= 0)
        close(rev);
    if (set >= 0)
        close(set);
}

static int evict_spec(const char *dir, const char *spec, bool pinned, uint64_t *freed,
                      pst_error *err)
{
    depot d;
    survey s = {0};
    uint64_t gone = 0;
    size_t fitting = 0;
    char name[PST_DATASET_NAME_BYTES], revision[PST_REVISION_BYTES];
    int rc = spec_split(spec, name, revision, err);
    if (rc < 0)
        return rc;
    rc = depot_open(&d, dir, false, err);
    if (rc == 0)
        rc = depot_lock(&d, err);
    if (rc == 0)
        rc = survey_take(&d, false, &s, err);
    for (size_t i = 0; rc == 0 && i < s.count; i++) {
        pst_revision *r = &s.revisions[i].shown;
        if (strcmp(r->name, name) != 0 || strncmp(r->revision, revision, strlen(revision)) != 0)
            continue;
        fitting++;
        if (pinned && r->pinned && !r->in_use && !r->pulling)
            let_go_of_pin(&d, r);
        rc = r->pinned || r->in_use || r->pulling ? -EBUSY : remove_whole(&d, r, &gone);
        if (rc == -EBUSY)
            rc = refuse(r, err);
        else if (rc < 0)
            rc = psti_fail(err, rc, "evict", spec, "%s", strerror(-rc));
    }
    if (rc == 0 && fitting == 0)
        rc = psti_fail(err, -ENOENT, "evict", spec, "there is no such dataset here");
    survey_fini(&s);
    depot_close(&d);
    if (freed)
        *freed = gone;
    return rc;
}

int pst_datasets_evict(const char *dir, const char *spec, uint64_t *freed, pst_error *err)
{
    return evict_spec(dir, spec, false, freed, err);
}

int psti_depot_evict(const char *dir, const char *spec, uint64_t *freed, pst_error *err)
{
    return evict_spec(dir, spec, true, freed, err);
}

int pst_datasets_pin(const char *dir, const char *spec, int pin, pst_error *err)
{
    depot d;
    pst_revision r;
    int rc = pst_datasets_find(dir, spec, &r, err);
    if (rc < 0)
        return rc;
    rc = depot_open(&d, dir, false, err);
    if (rc < 0)
        return rc;
    const int set = dir_open(d.dir, r.name);
    const int rev = set < 0 ? set : dir_open(set, r.revision);
    rc = rev < 0 ? rev : 0;
    if (rc == 0 && pin)
        rc = file_write(rev, ".pin", "", 0);
    else if (rc == 0 && unlinkat(rev, ".pin", 0) != 0 && errno != ENOENT)
        rc = -errno;
    if (rev >= 0)
        close(rev);
    if (set >= 0)
        close(set);
    depot_close(&d);
    return rc < 0 ? psti_fail(err, rc, "depot", spec, "%s", strerror(-rc)) : 0;
}
