/* SPDX-License-Identifier: Apache-2.0
 * Room: limits and watermarks, reservations, pins, revisions in use, and what goes. */
#include "place.h"

#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

enum { KB = 1000 };

static pst_error err;

/* A dataset of count objects of 10 KB. */
static int pull_set(const place *p, const char *name, int count, pst_revision *r)
{
    for (int i = 0; i < count; i++)
        put_file(at(p, "%s-bucket/%02d", name, i), 10 * KB, (unsigned)i + (unsigned)name[0]);
    return pull_now(p, name, at(p, "%s-bucket", name), r, NULL, &err);
}

static void limit(const place *p, uint64_t capacity, double high, double low)
{
    const pst_datasets_limits l = {.capacity = capacity, .high = high, .low = low};
    CHECKF(pst_datasets_limit(p->depot, &l, NULL, &err) == 0, "%s", err.message);
}

static uint64_t used(const place *p)
{
    pst_datasets_limits l = {0};
    CHECK(pst_datasets_limit(p->depot, NULL, &l, &err) == 0);
    return l.used;
}

static bool has(const place *p, const char *name)
{
    pst_revision r;
    return pst_datasets_find(p->depot, name, &r, NULL) == 0;
}

/* So many uses, some hours ago. */
static void set_uses(const place *p, const pst_revision *r, double uses, int hours)
{
    FILE *f = fopen(at(p, "depot/%s/.use.%s", r->name, r->revision), "w");
    fprintf(f, "%24.9f %20lld\n", uses, (long long)(wall_s() - 3600 * hours));
    fclose(f);
}

static void above_the_high_mark_it_goes_down_to_the_low_one(void)
{
    place p;
    pst_revision a, b, c;
    place_init(&p);
    limit(&p, 100 * KB, 0.9, 0.5);
    CHECK(pull_set(&p, "a", 4, &a) == 0);
    CHECK(pull_set(&p, "b", 4, &b) == 0);
    set_uses(&p, &a, 0.001, 0);
    set_uses(&p, &b, 1000, 0);
    CHECK(has(&p, "a") && has(&p, "b") && used(&p) == 80 * KB);
    CHECK(pull_set(&p, "c", 1, &c) == 0); /* 90 KB is not above */
    CHECK(has(&p, "a"));
    set_uses(&p, &c, 1, 0);
    CHECK(pull_set(&p, "d", 1, &c) == 0); /* 100 KB is, and 50 KB is aimed at */
    CHECK(!has(&p, "a") && has(&p, "b") && !has(&p, "c") && has(&p, "d"));
    CHECKF(used(&p) == 50 * KB, "%d", (int)used(&p));
    place_fini(&p);
}

static void what_cannot_fit_evicts_nothing(void)
{
    place p;
    pst_revision a, b;
    place_init(&p);
    limit(&p, 100 * KB, 0.9, 0.5);
    CHECK(pull_set(&p, "a", 4, &a) == 0);
    CHECK(pull_set(&p, "b", 10, &b) == -ENOSPC);
    CHECK(strstr(err.message, "100000 bytes more") != NULL);
    CHECK(has(&p, "a") && used(&p) == 40 * KB);
    place_fini(&p);
}

static void pinned_and_used_ones_stay(void)
{
    place p;
    pst_revision a, b, c;
    psti_depot_hold hold;
    place_init(&p);
    limit(&p, 100 * KB, 1, 1);
    CHECK(pull_set(&p, "a", 4, &a) == 0 && pull_set(&p, "b", 4, &b) == 0);
    CHECK(pst_datasets_pin(p.depot, "a", 1, &err) == 0);
    CHECK(psti_depot_hold_path(b.path, true, &hold, &err) == 0 && hold.lock >= 0);
    CHECK(pull_set(&p, "c", 4, &c) == -ENOSPC);
    CHECK(has(&p, "a") && has(&p, "b"));
    CHECK(pst_datasets_evict(p.depot, "a", NULL, &err) == -EBUSY);
    CHECK(strstr(err.message, "pinned") != NULL);
    CHECK(pst_datasets_evict(p.depot, "b", NULL, &err) == -EBUSY);
    CHECK(strstr(err.message, "in use") != NULL);
    uint64_t freed;
    CHECK(pst_datasets_fit(p.depot, 50 * KB, &freed, &err) == -EBUSY && freed == 0);
    psti_depot_let_go(&hold);
    CHECK(pull_set(&p, "c", 4, &c) == 0);
    CHECK(has(&p, "a") && !has(&p, "b"));
    CHECK(pst_datasets_pin(p.depot, "a", 0, &err) == 0);
    CHECK(pst_datasets_evict(p.depot, "a", &freed, &err) == 0 && freed == 40 * KB);
    CHECK(!has(&p, "a") && pst_datasets_evict(p.depot, "a", NULL, &err) == -ENOENT);
    place_fini(&p);
}

/* Held by a process that is killed: the kernel lets go. */
static void a_killed_reader_holds_nothing(void)
{
    place p;
    pst_revision a;
    int tell[2];
    place_init(&p);
    CHECK(pull_set(&p, "a", 2, &a) == 0 && pipe(tell) == 0);
    const pid_t child = fork();
    if (child == 0) {
        psti_depot_hold hold;
        const char ok = psti_depot_hold_path(a.path, true, &hold, NULL) == 0 && hold.lock >= 0;
        if (write(tell[1], &ok, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char ok = 0;
    CHECK(read(tell[0], &ok, 1) == 1 && ok);
    CHECK(pst_datasets_evict(p.depot, "a", NULL, &err) == -EBUSY);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(pst_datasets_evict(p.depot, "a", NULL, &err) == 0);
    close(tell[0]);
    close(tell[1]);
    place_fini(&p);
}

static void use_and_cost_decide(void)
{
    place p;
    pst_revision a, b;
    place_init(&p);
    CHECK(pull_set(&p, "a", 4, &a) == 0 && pull_set(&p, "b", 4, &b) == 0);
    set_uses(&p, &a, 8, 240); /* often, ten days ago */
    set_uses(&p, &b, 2, 0);
    CHECK(pst_datasets_fit(p.depot, 40 * KB, NULL, &err) == 0);
    CHECK(!has(&p, "a") && has(&p, "b"));
    place_fini(&p);
}

static void opening_counts_and_survives_eviction(void)
{
    place p;
    pst_revision a, again;
    psti_depot_hold hold;
    place_init(&p);
    CHECK(pull_set(&p, "a", 2, &a) == 0 && a.uses == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(psti_depot_hold_path(i ? a.path : at(&p, "depot/a/latest"), true, &hold, &err) == 0);
        CHECK(hold.lock >= 0 && strcmp(hold.path, a.path) == 0);
        psti_depot_let_go(&hold);
    }
    CHECK(pst_datasets_find(p.depot, "a", &again, &err) == 0 && again.uses > 2.99);
    CHECK(pst_datasets_evict(p.depot, "a", NULL, &err) == 0);
    CHECK(pull_set(&p, "a", 2, &a) == 0); /* written anew: another revision */
    CHECK(psti_depot_hold_path(p.bucket, true, &hold, &err) == 0 && hold.lock == -1 &&
          !hold.path[0]);
    CHECK(psti_depot_hold_path("penstock://nobody", true, &hold, &err) == -ENOENT);
    place_fini(&p);
}

/* A shard, a manifest or a class folder in it is read: all of it is in use. */
static void a_part_that_is_read_holds_the_whole(void)
{
    place p;
    pst_revision a;
    psti_depot_hold hold;
    place_init(&p);
    put_file(at(&p, "a-bucket/train/x.tar"), 10, 1);
    put_file(at(&p, "a-bucket/annotations/one.json"), 10, 1);
    CHECK(pull_now(&p, "a", at(&p, "a-bucket"), &a, NULL, &err) == 0);
    const char *paths[] = {"train", "train/x.tar", "annotations/one.json"};
    const char *below[] = {"train/", "train/", ""};
    for (int i = 0; i < 3; i++) {
        CHECK(psti_depot_hold_path(at(&p, "depot/a/latest/data/%s", paths[i]), true, &hold, &err) ==
              0);
        CHECK(hold.lock >= 0 && hold.part && strcmp(hold.path, a.path) == 0);
        CHECKF(strcmp(hold.below, below[i]) == 0, "%s", hold.below);
        CHECK(pst_datasets_evict(p.depot, "a", NULL, &err) == -EBUSY);
        psti_depot_let_go(&hold);
    }
    CHECK(psti_depot_hold_path(at(&p, "depot/a/latest/manifest"), true, &hold, &err) == 0);
    CHECK(hold.lock >= 0 && !hold.path[0] && !hold.part); /* none of its files */
    psti_depot_let_go(&hold);
    CHECK(psti_depot_hold_path(at(&p, "depot/a"), true, &hold, &err) == 0 && hold.lock >= 0);
    CHECK(strcmp(hold.path, a.path) == 0 && !hold.part); /* the dataset's folder: its latest one */
    psti_depot_let_go(&hold);
    place_fini(&p);
}

/* Looking must not be taken for reading or evicting. */
static void looking_is_in_nobodys_way(void)
{
    place p;
    pst_revision a;
    psti_depot_hold hold;
    int failed = 0;
    place_init(&p);
    CHECK(pull_set(&p, "a", 2, &a) == 0);
    const pid_t child = fork();
    if (child == 0)
        for (;;) {
            pst_revision *list;
            size_t count;
            if (pst_datasets(p.depot, &list, &count, NULL) == 0)
                psti_free(list);
        }
    for (int i = 0; i < 3000; i++) {
        failed += psti_depot_hold_path(a.path, true, &hold, &err) < 0;
        psti_depot_let_go(&hold);
    }
    for (int i = 0; i < 20; i++)
        failed += pull_now(&p, "a", NULL, &a, NULL, &err) < 0;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECKF(failed == 0, "%d", failed);
    place_fini(&p);
}

/* One that was hidden under its readers stays until they are gone. */
static void a_hidden_one_that_is_read_stays(void)
{
    place p;
    pst_revision a, b;
    psti_depot_hold hold;
    place_init(&p);
    CHECK(pull_set(&p, "a", 2, &a) == 0);
    CHECK(psti_depot_hold_path(a.path, true, &hold, &err) == 0 && hold.lock >= 0);
    unlink(at(&p, "depot/a/latest/data/00"));
    put_file(at(&p, "a-bucket/00"), 10 * KB, 50); /* the bucket moved on */
    pst_pull_options o;
    pst_pull_options_init(&o);
    o.revision = a.revision;
    CHECK(pull_now(&p, "a", NULL, &b, &o, &err) == PST_ECHANGED);
    CHECK(pull_now(&p, "a", NULL, &b, NULL, &err) == 0); /* another revision */
    CHECK(exists(at(&p, "depot/a/.%s/data/01", a.revision)));
    CHECK(pst_datasets_fit(p.depot, 20 * KB, NULL, &err) == 0 || err.code == -EBUSY);
    CHECK(exists(at(&p, "depot/a/.%s/data/01", a.revision)));
    psti_depot_let_go(&hold);
    CHECK(pst_datasets_evict(p.depot, "a", NULL, &err) == 0);
    place_fini(&p);
}

static void revisions_that_share_make_room_too(void)
{
    place p;
    pst_revision a, b;
    place_init(&p);
    CHECK(pull_set(&p, "a", 8, &a) == 0);
    for (unsigned day = 0; day < 3; day++) { /* four revisions that share seven objects */
        put_file(at(&p, "a-bucket/00"), 10 * KB, 60 + day);
        CHECK(pull_now(&p, "a", NULL, &b, NULL, &err) == 0);
    }
    CHECK(used(&p) == 110 * KB);
    CHECKF(pst_datasets_fit(p.depot, 50 * KB, NULL, &err) == 0, "%s", err.message);
    CHECK(used(&p) <= 50 * KB);
    place_fini(&p);
}

static void of_a_large_one_only_a_part_goes(void)
{
    place p;
    pst_revision a;
    pst_revision *list;
    size_t count;
    place_init(&p);
    depot_unit_bytes = 20 * KB;
    CHECK(pull_set(&p, "a", 8, &a) == 0);
    CHECK(pst_datasets_fit(p.depot, 45 * KB, NULL, &err) == 0);
    CHECK(!has(&p, "a") && !exists(at(&p, "depot/a/latest")) && used(&p) == 40 * KB);
    CHECK(pst_datasets(p.depot, &list, &count, &err) == 0 && count == 1 && !list[0].complete);
    CHECK(list[0].objects == 8 && list[0].objects_done == 4);
    psti_free(list);
    CHECK(pst_datasets_fit(p.depot, 25 * KB, NULL, &err) == 0 && used(&p) == 20 * KB);
    CHECK(pull_now(&p, "a", NULL, &a, NULL, &err) == 0 && a.complete && used(&p) == 80 * KB);
    for (int i = 0; i < 8; i++)
        CHECK(same_files(at(&p, "a-bucket/%02d", i), at(&p, "depot/a/latest/data/%02d", i)));
    depot_unit_bytes = 1 << 30;
    place_fini(&p);
}

static void shared_files_stay_for_the_other_revision(void)
{
    place p;
    pst_revision a, b;
    uint64_t freed;
    place_init(&p);
    CHECK(pull_set(&p, "a", 4, &a) == 0);
    put_file(at(&p, "a-bucket/00"), 10 * KB, 99);
    CHECK(pull_now(&p, "a", NULL, &b, NULL, &err) == 0);
    CHECK(used(&p) == 50 * KB);
    char spec[100];
    snprintf(spec, sizeof spec, "a@%.10s", a.revision);
    CHECK(pst_datasets_evict(p.depot, spec, &freed, &err) == 0 && freed == 10 * KB);
    CHECK(used(&p) == 40 * KB && has(&p, "a"));
    CHECK(same_files(at(&p, "a-bucket/03"), at(&p, "depot/a/latest/data/03")));
    place_fini(&p);
}

static int stop_now(const pst_pull_progress *now, void *user)
{
    (void)now;
    (void)user;
    return 1;
}

/* While it runs all bytes count; what a stopped one left counts as far as it came. */
static int look_meanwhile(const pst_pull_progress *now, void *user)
{
    (void)now;
    CHECK(used(user) == 40 * KB);
    return 1;
}

static void a_pull_reserves_its_bytes(void)
{
    place p;
    pst_revision a, b;
    pst_pull_options o;
    place_init(&p);
    limit(&p, 100 * KB, 1, 1);
    for (int i = 0; i < 4; i++)
        put_file(at(&p, "a-bucket/%02d", i), 10 * KB, (unsigned)i);
    pst_pull_options_init(&o);
    o.progress = look_meanwhile;
    o.user = &p;
    CHECK(pull_now(&p, "a", at(&p, "a-bucket"), &a, &o, &err) == -ECANCELED);
    CHECK(used(&p) == 0);
    CHECK(pull_set(&p, "b", 9, &b) == 0); /* the stopped one is in nobody's way */
    CHECK(pull_now(&p, "a", NULL, &a, NULL, &err) == 0);
    CHECK(!has(&p, "b") && has(&p, "a"));
    place_fini(&p);
}

static void one_pull_of_a_name_at_a_time(void)
{
    place p;
    pst_revision a;
    place_init(&p);
    CHECK(pull_set(&p, "a", 2, &a) == 0);
    const int fd = open(at(&p, "depot/a/.pulling"), O_RDWR);
    CHECK(fd >= 0 && lock_take(fd) == 0);
    CHECK(pull_now(&p, "a", NULL, &a, NULL, &err) == -EBUSY);
    close(fd);
    CHECK(pull_now(&p, "a", NULL, &a, NULL, &err) == 0);
    place_fini(&p);
}

static void what_somebody_was_removing_is_removed(void)
{
    place p;
    pst_revision a;
    place_init(&p);
    CHECK(pull_set(&p, "a", 2, &a) == 0);
    put_file(at(&p, "depot/a/.gone.0123/data/x"), 10, 1);
    CHECK(pst_datasets_evict(p.depot, "a", NULL, &err) == 0);
    CHECK(!exists(at(&p, "depot/a/.gone.0123")));
    place_fini(&p);
}

static void a_stopped_pull_can_be_evicted(void)
{
    place p;
    pst_revision a;
    pst_pull_options o;
    place_init(&p);
    put_file(at(&p, "a-bucket/x"), 10 * KB, 1);
    pst_pull_options_init(&o);
    o.progress = stop_now;
    CHECK(pull_now(&p, "a", at(&p, "a-bucket"), &a, &o, &err) == -ECANCELED);
    CHECK(pst_datasets_evict(p.depot, "a", NULL, &err) == 0);
    pst_revision *list;
    size_t count;
    CHECK(pst_datasets(p.depot, &list, &count, &err) == 0 && count == 0);
    psti_free(list);
    place_fini(&p);
}

int main(void)
{
    RUN(above_the_high_mark_it_goes_down_to_the_low_one);
    RUN(what_cannot_fit_evicts_nothing);
    RUN(pinned_and_used_ones_stay);
    RUN(a_killed_reader_holds_nothing);
    RUN(use_and_cost_decide);
    RUN(opening_counts_and_survives_eviction);
    RUN(a_part_that_is_read_holds_the_whole);
    RUN(looking_is_in_nobodys_way);
    RUN(a_hidden_one_that_is_read_stays);
    RUN(revisions_that_share_make_room_too);
    RUN(of_a_large_one_only_a_part_goes);
    RUN(shared_files_stay_for_the_other_revision);
    RUN(a_pull_reserves_its_bytes);
    RUN(one_pull_of_a_name_at_a_time);
    RUN(what_somebody_was_removing_is_removed);
    RUN(a_stopped_pull_can_be_evicted);
    return check_report();
}
