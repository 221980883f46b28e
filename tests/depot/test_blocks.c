/* SPDX-License-Identifier: Apache-2.0
 * Checksums of blocks: kept with a revision, for whatever way its files came; mending by them; and
 * the ring between receiving and writing. */
#include "place.h"

#include <errno.h>

enum { B = PSTI_DEPOT_BLOCK, LARGE = 20 * B + 321 };
static pst_error err;

static void fill(const place *p)
{
    put_file(at(p, "bucket/a.tar"), LARGE, 1);
    put_file(at(p, "bucket/b.bin"), 0, 2);
    put_file(at(p, "bucket/c.bin"), 100, 3);
    put_file(at(p, "bucket/d.bin"), B, 4);
}

/* How many objects of the latest revision have checksums of blocks that fit; -1: there are none. */
static int fitting(const place *p)
{
    listing l;
    int count = 0;
    const int rev = open(at(p, "depot/set/latest"), O_RDONLY | O_DIRECTORY);
    const int fd = openat(rev, "blocks", O_RDONLY);
    CHECK(listing_read(&l, rev, "manifest", NULL, 0, &err) == 0);
    for (size_t i = 0; fd >= 0 && i < l.count; i++) {
        uint32_t *sums = blocks_room(&l.objects[i]);
        count += blocks_load(fd, &l.objects[i], sums) == 0;
        psti_free(sums);
    }
    listing_fini(&l);
    close(rev);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : count;
}

static psti_depot_keeper *pulled(const place *p)
{
    pst_revision r;
    psti_depot_keeper *k = NULL;
    CHECKF(pull_now(p, "set", p->bucket, &r, NULL, &err) == 0, "%s", err.message);
    CHECKF(psti_depot_keeper_open(r.path, &k, &err) == 0, "%s", err.message);
    return k;
}

static int mend(psti_depot_keeper *k, uint64_t offset, uint64_t length)
{
    return psti_depot_keeper_mend(k, "a.tar", offset, length, &err);
}

static bool is_mended(const place *p)
{
    return same_files(at(p, "original"), at(p, "depot/set/latest/data/a.tar"));
}

static void every_object_has_them(void)
{
    place p;
    place_init(&p);
    fill(&p);
    psti_depot_keeper *k = pulled(&p);
    uint64_t first;
    uint32_t sums[21];
    CHECK(fitting(&p) == 4);
    CHECK(psti_depot_keeper_has_blocks(k));
    CHECK(psti_depot_keeper_first(k, "a.tar", LARGE, &first) == 0 && first == 0);
    CHECK(psti_depot_keeper_first(k, "d.bin", B, &first) == 0 && first == 22);
    CHECK(psti_depot_keeper_first(k, "d.bin", B + 1, &first) == -ENOENT);
    CHECK(psti_depot_keeper_blocks(k, 0, 21, sums) == 0 && sums[0] != sums[1]);
    struct stat st;
    CHECK(stat(at(&p, "depot/set/latest/blocks"), &st) == 0 && st.st_size == 32 + 4 * 23);
    psti_depot_keeper_close(k);
    place_fini(&p);
}

static void linked_objects_keep_theirs(void)
{
    place p;
    pst_revision r;
    place_init(&p);
    fill(&p);
    psti_depot_keeper_close(pulled(&p));
    put_file(at(&p, "bucket/0.bin"), 5 * B + 1, 9); /* the places of all others change */
    put_file(at(&p, "bucket/c.bin"), 3 * B, 9);
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    CHECK(fitting(&p) == 5);
    place_fini(&p);
}

/* It goes back to where it is pulled, with most of it there and next to nothing of them. */
static void a_pull_that_goes_on_completes_them(void)
{
    place p;
    pst_revision r;
    place_init(&p);
    fill(&p);
    psti_depot_keeper_close(pulled(&p));
    const ino_t before = inode_of(at(&p, "depot/set/latest/data/a.tar"));
    CHECK(truncate(at(&p, "depot/set/latest/blocks"), 40) == 0 && fitting(&p) == 1);
    unlink(at(&p, "depot/set/latest/data/c.bin"));
    CHECK(pull_now(&p, "set", p.bucket, &r, NULL, &err) == 0);
    CHECK(fitting(&p) == 4 && inode_of(at(&p, "depot/set/latest/data/a.tar")) == before);
    place_fini(&p);
}

static void one_of_an_earlier_layout_gets_them_when_it_is_checked(void)
{
    place p;
    pst_revision r;
    pst_pull_options o;
    place_init(&p);
    fill(&p);
    psti_depot_keeper_close(pulled(&p));
    unlink(at(&p, "depot/set/latest/blocks"));
    char text[400];
    snprintf(text, sizeof text, "4 %d 0.5 %s\n", LARGE + 100 + B, p.bucket);
    const int rev = open(at(&p, "depot/set/latest"), O_RDONLY | O_DIRECTORY);
    CHECK(file_write(rev, ".complete", text, strlen(text)) == 0);
    close(rev);
    psti_depot_keeper *k = pulled(&p);
    uint64_t first;
    CHECK(!psti_depot_keeper_has_blocks(k));
    CHECK(psti_depot_keeper_first(k, "a.tar", LARGE, &first) == -ENOENT);
    flip(at(&p, "depot/set/latest/data/a.tar"), 99);
    CHECK(mend(k, 0, 200) == 1); /* the whole file, as ever */
    CHECK(same_files(at(&p, "bucket/a.tar"), at(&p, "depot/set/latest/data/a.tar")));
    psti_depot_keeper_close(k);
    CHECK(fitting(&p) == -1);
    pst_pull_options_init(&o);
    o.check = 1;
    CHECK(pull_now(&p, "set", p.bucket, &r, &o, &err) == 0 && r.complete);
    CHECK(strcmp(r.url, p.bucket) == 0);
    CHECK(fitting(&p) == 4);
    k = pulled(&p);
    CHECK(psti_depot_keeper_has_blocks(k));
    psti_depot_keeper_close(k);
    place_fini(&p);
}

/* Other bytes in the bucket that look the same from outside tell what was fetched. */
static void change_bucket(const place *p, off_t where)
{
    struct stat st;
    CHECK(stat(at(p, "bucket/a.tar"), &st) == 0);
    flip(at(p, "bucket/a.tar"), where);
    CHECK(utimensat(AT_FDCWD, at(p, "bucket/a.tar"), (struct timespec[]){st.st_atim, st.st_mtim},
                    0) == 0);
}

static void only_what_is_damaged_is_fetched(void)
{
    static const off_t places[] = {0, 5 * B - 1, 5 * B, 20 * B + 5, LARGE - 1};
    place p;
    place_init(&p);
    fill(&p);
    put_file(at(&p, "original"), LARGE, 1);
    psti_depot_keeper *k = pulled(&p);
    psti_depot_keeper_rest(k);
    change_bucket(&p, 11 * B + 77);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip(at(&p, "depot/set/latest/data/a.tar"), places[i]);
        flip(at(&p, "depot/set/latest/data/a.tar"), 8 * B + 1); /* found on the way */
        CHECKF(mend(k, (uint64_t)places[i], 1) == 1, "%s", err.message);
        CHECK(is_mended(&p));
        CHECK(mend(k, (uint64_t)places[i], 1) == 0); /* nothing is wrong any more */
    }
    chmod(at(&p, "depot/set/latest/data/a.tar"), 0644);
    CHECK(truncate(at(&p, "depot/set/latest/data/a.tar"), 15 * B + 1) == 0);
    CHECKF(mend(k, 0, 100) == 1, "%s", err.message);
    CHECK(is_mended(&p));
    chmod(at(&p, "depot/set/latest/data/a.tar"), 0644);
    CHECK(truncate(at(&p, "depot/set/latest/data/a.tar"), LARGE + 1) == 0);
    CHECKF(mend(k, 0, 100) == 1, "%s", err.message);
    CHECK(is_mended(&p));
    psti_depot_keeper_close(k);
    place_fini(&p);
}

static void what_cannot_be_fetched_says_where_and_what_to_do(void)
{
    place p;
    place_init(&p);
    fill(&p);
    put_file(at(&p, "original"), LARGE, 1);
    psti_depot_keeper *k = pulled(&p);
    flip(at(&p, "depot/set/latest/data/a.tar"), 7 * B + 9);
    change_bucket(&p, 7 * B + 1);
    CHECK(mend(k, 7 * B, B) == PST_ECORRUPT);
    unlink(at(&p, "bucket/a.tar"));
    CHECK(mend(k, 7 * B, B) == PST_ECHANGED);
    CHECK(err.offset == 7 * B && strcmp(err.key, "a.tar") == 0);
    CHECKF(strstr(err.message, "at byte 114688") && strstr(err.message, "penstock pull --check"),
           "%s", err.message);
    CHECK(!is_mended(&p)); /* what was there is left alone */
    unlink(at(&p, "depot/set/latest/data/a.tar"));
    CHECK(mend(k, 7 * B, B) == PST_ECHANGED && strstr(err.message, "gone or damaged"));
    psti_depot_keeper_close(k);
    place_fini(&p);
}

/* The bucket is gone: nothing but the file tells what its checksums are. */
static void damaged_checksums_are_made_anew_from_the_file(void)
{
    place p;
    uint32_t sums[21];
    place_init(&p);
    fill(&p);
    put_file(at(&p, "original"), LARGE, 1);
    psti_depot_keeper *k = pulled(&p);
    psti_depot_keeper_rest(k);
    CHECK(rename(p.bucket, at(&p, "elsewhere")) == 0);
    flip(at(&p, "depot/set/latest/blocks"), 32 + 4 * 3);
    CHECK(fitting(&p) == 3);
    CHECKF(mend(k, 3 * B, 1) == 0, "%s", err.message);
    CHECK(fitting(&p) == 4);
    CHECK(truncate(at(&p, "depot/set/latest/blocks"), 50) == 0);
    CHECK(psti_depot_keeper_blocks(k, 0, 21, sums) < 0);
    CHECKF(mend(k, 3 * B, 1) == 0, "%s", err.message);
    CHECK(psti_depot_keeper_blocks(k, 0, 21, sums) == 0);
    unlink(at(&p, "depot/set/latest/blocks"));
    flip(at(&p, "depot/set/latest/data/a.tar"), 5 * B);
    CHECK(mend(k, 3 * B, 1) == 0); /* those that it has open tell, for one more time */
    CHECK(rename(at(&p, "elsewhere"), p.bucket) == 0);
    CHECKF(mend(k, 5 * B, 1) == 1, "%s", err.message);
    CHECK(is_mended(&p) && psti_depot_keeper_blocks(k, 0, 21, sums) == 0);
    psti_depot_keeper_close(k);
    place_fini(&p);
}

/* ---- the ring -----------------------------------------------------------------------------------
 */

enum { SENT = 1 << 20 };
typedef struct receiver {
    relay ring;
    uint64_t at;
    unsigned told_full;
    pthread_t thread;
} receiver;

static uint8_t byte_at(uint64_t at)
{
    return (uint8_t)(at * 2654435761u >> 16);
}

/* As the net's thread: pieces of odd sizes, until there is no room. */
static void *send_all(void *user)
{
    receiver *r = user;
    uint8_t piece[3001];
    while (r->at < SENT) {
        const size_t count = SENT - r->at < sizeof piece ? SENT - r->at : sizeof piece;
        for (size_t i = 0; i < count; i++)
            piece[i] = byte_at(r->at + i);
        if (relay_give(&r->ring, piece, count)) {
            relay_end(&r->ring, -ECANCELED);
            return NULL;
        }
        r->at += count;
    }
    relay_end(&r->ring, 0);
    return NULL;
}

typedef struct writer {
    uint64_t at;
    bool wrong;
} writer;

static int take(void *user, uint64_t at, const uint8_t *bytes, size_t count)
{
    writer *w = user;
    w->wrong |= at != w->at;
    for (size_t i = 0; i < count; i++)
        w->wrong |= bytes[i] != byte_at(at + i);
    w->at += count;
    return 0;
}

/* Ends each request when there is no room, and asks for the rest. */
static void nothing_is_lost_between_receiving_and_writing(void)
{
    for (int waits = 0; waits < 2; waits++) {
        receiver r = {0};
        writer w = {0};
        uint64_t done = 0;
        depot_relay_bytes = 5000;
        CHECK(relay_init(&r.ring, SENT, 0, waits) == 0 && r.ring.cap == 5000);
        while (done < SENT) {
            r.at = done;
            CHECK(pthread_create(&r.thread, NULL, send_all, &r) == 0);
            CHECK(relay_take(&r.ring, &done, take, &w));
            const int status = relay_wait(&r.ring);
            pthread_join(r.thread, NULL);
            const bool full = relay_again(&r.ring);
            CHECK(full == (status == -ECANCELED) && !(full && waits));
        }
        CHECK(done == SENT && w.at == SENT && !w.wrong);
        relay_fini(&r.ring);
    }
    depot_relay_bytes = 8 << 20;
}

static void who_gives_is_never_kept_waiting(void)
{
    relay r;
    uint8_t piece[1000];
    memset(piece, 1, sizeof piece);
    depot_relay_bytes = 2500;
    CHECK(relay_init(&r, SENT, 0, false) == 0);
    CHECK(relay_give(&r, piece, 1000) == 0 && relay_give(&r, piece, 1000) == 0);
    CHECK(relay_give(&r, piece, 1000) != 0 && r.held == 2500 && r.full);
    relay_fini(&r);
    depot_relay_bytes = 8 << 20;
}

static int refuse(void *user, uint64_t at, const uint8_t *bytes, size_t count)
{
    (void)user, (void)at, (void)bytes, (void)count;
    return 1;
}

static void a_writer_that_fails_stops_who_gives(void)
{
    receiver r = {0};
    uint64_t done = 0;
    depot_relay_bytes = 5000;
    CHECK(relay_init(&r.ring, SENT, 0, true) == 0); /* it waits for room, which never comes */
    CHECK(pthread_create(&r.thread, NULL, send_all, &r) == 0);
    CHECK(!relay_take(&r.ring, &done, refuse, NULL) && done == 0);
    CHECK(relay_wait(&r.ring) == -ECANCELED);
    pthread_join(r.thread, NULL);
    relay_fini(&r.ring);
    depot_relay_bytes = 8 << 20;
}

int main(void)
{
    RUN(every_object_has_them);
    RUN(linked_objects_keep_theirs);
    RUN(a_pull_that_goes_on_completes_them);
    RUN(one_of_an_earlier_layout_gets_them_when_it_is_checked);
    RUN(only_what_is_damaged_is_fetched);
    RUN(what_cannot_be_fetched_says_where_and_what_to_do);
    RUN(damaged_checksums_are_made_anew_from_the_file);
    RUN(nothing_is_lost_between_receiving_and_writing);
    RUN(who_gives_is_never_kept_waiting);
    RUN(a_writer_that_fails_stops_who_gives);
    return check_report();
}
