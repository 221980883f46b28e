/* SPDX-License-Identifier: Apache-2.0
 * Pulls of what does not fit, pulls that only look, why pulls fail, and folders of datasets. */
#include "place.h"

#include <errno.h>

enum { KB = 1000 };

static pst_error err;

static void fill(const place *p, const char *name, int count)
{
    for (int i = 0; i < count; i++)
        put_file(at(p, "%s-bucket/%02d", name, i), 10 * KB, (unsigned)i + (unsigned)name[0]);
}

static int pull_part(const place *p, const char *name, int partial, pst_revision *r,
                     pst_pull_failure *failure)
{
    pst_pull_options o;
    pst_pull_options_init(&o);
    o.partial = partial;
    o.failure = failure;
    return pull_now(p, name, at(p, "%s-bucket", name), r, &o, &err);
}

static void limit(const place *p, uint64_t capacity)
{
    const pst_datasets_limits l = {.capacity = capacity, .high = 1, .low = 1};
    CHECKF(pst_datasets_limit(p->depot, &l, NULL, &err) == 0, "%s", err.message);
}

static pst_datasets_limits limits(const place *p)
{
    pst_datasets_limits l = {0};
    CHECK(pst_datasets_limit(p->depot, NULL, &l, &err) == 0);
    return l;
}

static void as_much_as_fits_and_later_all(void)
{
    place p;
    pst_revision r;
    place_init(&p);
    fill(&p, "a", 10);
    limit(&p, 45 * KB);
    CHECK(pull_part(&p, "a", 0, &r, NULL) == -ENOSPC);
    CHECK(pull_part(&p, "a", 1, &r, NULL) == 0);
    CHECK(!r.complete && r.partial && !r.pulling && r.objects == 10 && r.objects_done == 4);
    CHECK(r.bytes == 100 * KB && r.bytes_here == 40 * KB);
    CHECK(limits(&p).used == 40 * KB && limits(&p).free == 5 * KB);
    CHECK(!exists(at(&p, "depot/a/latest")));
    CHECK(same_files(at(&p, "a-bucket/03"), at(&p, "depot/a/.%s/data/03", r.revision)));
    CHECK(!exists(at(&p, "depot/a/.%s/data/04", r.revision)));
    CHECK(pull_part(&p, "a", 1, &r, NULL) == 0 && r.objects_done == 4); /* the same again */
    limit(&p, 75 * KB);
    CHECK(pull_part(&p, "a", 1, &r, NULL) == 0 && r.objects_done == 7 && r.partial);
    limit(&p, 100 * KB);
    CHECK(pull_part(&p, "a", 1, &r, NULL) == 0 && r.complete && !r.partial);
    CHECK(r.bytes_here == 100 * KB && !exists(at(&p, "depot/a/latest/left")));
    for (int i = 0; i < 10; i++)
        CHECK(same_files(at(&p, "a-bucket/%02d", i), at(&p, "depot/a/latest/data/%02d", i)));
    place_fini(&p);
}

/* An object that is too large for what is left does not keep smaller ones out. */
static void a_large_one_is_left(void)
{
    place p;
    pst_revision r;
    place_init(&p);
    fill(&p, "a", 4);
    put_file(at(&p, "a-bucket/01"), 90 * KB, 7);
    limit(&p, 50 * KB);
    CHECK(pull_part(&p, "a", 1, &r, NULL) == 0 && r.objects_done == 3 && r.bytes_here == 30 * KB);
    CHECK(exists(at(&p, "depot/a/.%s/data/03", r.revision)));
    limit(&p, 1 * KB);
    pst_pull_failure why;
    CHECK(pull_part(&p, "b", 1, &r, &why) < 0);
    fill(&p, "b", 2);
    CHECK(pull_part(&p, "b", 1, &r, &why) == -ENOSPC && strcmp(why.reason, "no_space") == 0);
    place_fini(&p);
}

/* What may go makes way for it; what is pinned does not; and it makes way itself. */
static void it_takes_part_in_making_room(void)
{
    place p;
    pst_revision a, b, c;
    place_init(&p);
    limit(&p, 60 * KB);
    fill(&p, "a", 3);
    fill(&p, "b", 2);
    fill(&p, "c", 9);
    CHECK(pull_part(&p, "a", 0, &a, NULL) == 0 && pull_part(&p, "b", 0, &b, NULL) == 0);
    CHECK(pst_datasets_pin(p.depot, "b", 1, &err) == 0);
    CHECK(pull_part(&p, "c", 1, &c, NULL) == 0);
    CHECK(c.partial && c.bytes_here == 40 * KB);
    CHECK(pst_datasets_find(p.depot, "a", &a, NULL) == -ENOENT);
    CHECK(pst_datasets_find(p.depot, "b", &b, NULL) == 0);
    CHECK(pull_part(&p, "a", 0, &a, NULL) == 0); /* in place of some of c */
    CHECK(limits(&p).used <= 60 * KB);
    uint64_t freed;
    CHECK(pst_datasets_evict(p.depot, "b", NULL, &err) == -EBUSY);
    CHECK(psti_depot_evict(p.depot, "b", &freed, &err) == 0 && freed == 20 * KB);
    place_fini(&p);
}

static int look_meanwhile(const pst_pull_progress *now, void *user)
{
    const place *p = user;
    if (now->objects_done < 1)
        return 0;
    const pst_datasets_limits l = limits(p);
    CHECKF(l.used == 40 * KB && l.free == 5 * KB, "%d", (int)l.used);
    pst_revision *list;
    size_t count;
    CHECK(pst_datasets(p->depot, &list, &count, &err) == 0 && count == 1);
    CHECK(list[0].pulling && list[0].partial);
    psti_free(list);
    return 0;
}

static void only_what_it_wants_is_reserved(void)
{
    place p;
    pst_revision r;
    pst_pull_options o;
    place_init(&p);
    fill(&p, "a", 10);
    limit(&p, 45 * KB);
    CHECK(pull_part(&p, "a", 1, &r, NULL) == 0);
    unlink(at(&p, "depot/a/.%s/data/02", r.revision));
    pst_pull_options_init(&o);
    o.partial = 1;
    o.progress = look_meanwhile;
    o.user = &p;
    CHECK(pull_now(&p, "a", at(&p, "a-bucket"), &r, &o, &err) == 0 && r.objects_done == 4);
    place_fini(&p);
}

static void a_dry_run_fetches_nothing(void)
{
    place p;
    pst_revision r, s;
    pst_pull_options o;
    place_init(&p);
    fill(&p, "a", 10);
    limit(&p, 1 * KB);
    pst_pull_options_init(&o);
    o.dry = 1;
    CHECK(pull_now(&p, "a", at(&p, "a-bucket"), &r, &o, &err) == 0);
    CHECK(r.objects == 10 && r.bytes == 100 * KB && !r.complete && !r.bytes_here);
    CHECK(limits(&p).used == 0);
    limit(&p, 200 * KB);
    CHECK(pull_part(&p, "a", 0, &s, NULL) == 0 && strcmp(r.revision, s.revision) == 0);
    place_fini(&p);
}

static int stop(const pst_pull_progress *now, void *user)
{
    (void)now;
    (void)user;
    return 1;
}

static void it_says_why_it_failed(void)
{
    place p;
    pst_revision r;
    pst_pull_failure why;
    pst_pull_options o;
    place_init(&p);
    pst_pull_options_init(&o);
    o.failure = &why;
    fill(&p, "a", 10);
    limit(&p, 45 * KB);
    CHECK(pull_part(&p, "a", 0, &r, &why) == -ENOSPC && strcmp(why.reason, "no_space") == 0);
    CHECK(why.needed_bytes == 100 * KB && why.free_bytes == 45 * KB);
    mkdir(at(&p, "b-bucket"), 0777);
    CHECK(pull_part(&p, "b", 0, &r, &why) == PST_EDATASET && strcmp(why.reason, "empty") == 0);
    o.revision = "0123456789abcdef0123456789abcdef";
    CHECK(pull_now(&p, "a", at(&p, "a-bucket"), &r, &o, &err) == PST_ECHANGED);
    CHECK(strcmp(why.reason, "gone") == 0);
    o.revision = NULL;
    o.progress = stop;
    limit(&p, 0);
    CHECK(pull_now(&p, "a", at(&p, "a-bucket"), &r, &o, &err) == -ECANCELED);
    CHECK(strcmp(why.reason, "stopped") == 0);
    o.progress = NULL;
    CHECK(pull_now(&p, "a", at(&p, "a-bucket"), &r, &o, &err) == 0 && !why.reason[0]);
    place_fini(&p);
}

static void folders_of_datasets(void)
{
    place p;
    pst_revision r, s;
    struct stat st;
    char name[PST_DATASET_NAME_BYTES], revision[PST_REVISION_BYTES];
    psti_depot_choice c;
    psti_depot_hold hold;
    place_init(&p);
    CHECK(psti_depot_make_set(p.depot, "a", &err) == 0 && stat(at(&p, "depot/a"), &st) == 0);
    CHECK(psti_depot_make_set(p.depot, "../a", &err) == -EINVAL);
    CHECK(psti_depot_name_set(p.depot, st.st_dev, st.st_ino, name) == 0 && name[0] == 'a');
    CHECK(psti_depot_name_set(p.depot, st.st_dev, st.st_ino + 1, name) == -ENOENT);
    CHECK(psti_depot_choose_revision(p.depot, "a", "", &c, &err) == -ENOENT);
    CHECK(psti_depot_hold_path(at(&p, "depot/a"), false, &hold, &err) == -ENOENT);
    psti_depot_drop_set(p.depot, "a");
    CHECK(!exists(at(&p, "depot/a")));
    fill(&p, "a", 2);
    CHECK(pull_part(&p, "a", 0, &r, NULL) == 0);
    put_file(at(&p, "a-bucket/00"), 10 * KB, 99);
    CHECK(pull_part(&p, "a", 0, &s, NULL) == 0 && strcmp(r.revision, s.revision) != 0);
    psti_depot_drop_set(p.depot, "a"); /* there is something in it */
    CHECK(psti_depot_choose_revision(p.depot, "a", "", &c, &err) == 0 && c.complete);
    CHECK(strcmp(c.revision, s.revision) == 0 && strcmp(c.path, s.path) == 0);
    CHECK(psti_depot_choose_revision(p.depot, "a", r.revision, &c, &err) == 0);
    CHECK(strcmp(c.revision, r.revision) == 0);
    const int set = open(at(&p, "depot/a"), O_RDONLY | O_DIRECTORY);
    CHECK(psti_depot_look_in(set, revision) == 0 && strcmp(revision, s.revision) == 0);
    setenv("PENSTOCK_REVISION", r.revision, 1);
    CHECK(psti_depot_look_in(set, revision) == 0 && strcmp(revision, r.revision) == 0);
    setenv("PENSTOCK_REVISION", "../../etc", 1);
    CHECK(psti_depot_look_in(set, revision) == 0 && strcmp(revision, s.revision) == 0);
    unsetenv("PENSTOCK_REVISION");
    unlink(at(&p, "depot/a/latest"));
    CHECK(psti_depot_look_in(set, revision) == 0 && revision[0]);
    close(set);
    const int other = open(p.bucket, O_RDONLY | O_DIRECTORY);
    CHECK(psti_depot_look_in(other, revision) == -ENOTDIR);
    close(other);
    place_fini(&p);
}

int main(void)
{
    RUN(as_much_as_fits_and_later_all);
    RUN(a_large_one_is_left);
    RUN(it_takes_part_in_making_room);
    RUN(only_what_it_wants_is_reserved);
    RUN(a_dry_run_fetches_nothing);
    RUN(it_says_why_it_failed);
    RUN(folders_of_datasets);
    return check_report();
}
