/* SPDX-License-Identifier: Apache-2.0
 * Datasets in buckets, seen from inside: etags in few bytes, identities, copies on disk, ranges,
 * joined reads, memory a key. The server is tests/faultd, a child of this program. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "core/memory.h"
#include "fixture.h"
#include "source/far.h"

static pid_t child;
static int child_in = -1, child_out = -1;

/* A bucket b over SCRATCH/b, and k with a hundred thousand keys. */
static bool start_server(const char *faultd)
{
    int to[2], from[2];
    char folder[400], line[200] = "", url[64];
    snprintf(folder, sizeof folder, "b=%s/b", scratch);
    if (pipe(to) || pipe(from))
        return false;
    child = fork();
    if (child == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execlp("/usr/bin/python3", "python3", faultd, "--until-eof", "--bucket", folder,
               "--bucket-spec",
               "k={\"count\": 20000, \"classes\": 100, \"format\": "
               "\"class{c:04d}/{i:08d}.jpg\", \"size\": 1000}",
               NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    child_in = to[1];
    size_t got = 0; /* the line may come in pieces, and who writes it must not be left alone */
    for (ssize_t n; !strchr(line, '\n') && got < sizeof line - 1; got += (size_t)n)
        if ((n = read(from[0], line + got, sizeof line - 1 - got)) <= 0)
            break;
    child_out = from[0];
    const char *port = strstr(line, "\"http\": ");
    if (!port)
        return false;
    snprintf(url, sizeof url, "http://127.0.0.1:%d", atoi(port + 8));
    setenv("AWS_ENDPOINT_URL_S3", url, 1);
    setenv("AWS_REGION", "us-east-1", 1);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    return true;
}

static const char *at_server(const char *path)
{
    static char url[128];
    snprintf(url, sizeof url, "%s/%s", getenv("AWS_ENDPOINT_URL_S3"), path);
    return url;
}

static void end_server(void)
{
    close(child_in);
    close(child_out);
    waitpid(child, NULL, 0);
}

static void etags_fit_into_two_words(void)
{
    static const char *const packed[] = {"\"00000000000000000000000000000000\"",
                                         "\"0123456789abcdef0123456789abcdef\"",
                                         "\"fffffffffffffffffffffffffffffffc\""};
    static const char *const kept[] = {"",
                                       "\"0123456789abcdef0123456789abcdef-12\"",
                                       "\"0123456789ABCDEF0123456789abcdef\"",
                                       "W/\"0123456789abcdef0123456789abcd\"",
                                       "\"0123456789abcdeffffffffffffffffd\"",
                                       "\"0123456789abcdeffffffffffffffffe\"",
                                       "\"0123456789abcdefffffffffffffffff\""};
    psti_strings names = {0};
    char room[PSTI_ETAG_ROOM];
    psti_etag etag;
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        CHECK(psti_etag_pack(packed[i], &etag));
        CHECK(strcmp(psti_etag_show(&names, etag, room), packed[i]) == 0);
    }
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        CHECKF(!psti_etag_pack(kept[i], &etag), "%s", kept[i]);
        CHECK(psti_etag_keep(kept[i], &names, &etag) == 0 && etag.b == PSTI_ETAG_TEXT);
        CHECK(strcmp(psti_etag_show(&names, etag, room), kept[i]) == 0);
    }
    psti_strings_free(&names);
}

/* The etags that the bucket gave, by path. */
static int etag_of(void *user, const char *path, uint64_t size, const char **etag)
{
    static char room[PSTI_ETAG_ROOM];
    psti_dataset *far = user;
    for (int64_t id = 0; id < psti_dataset_count(far); id++) {
        psti_extent at;
        if (psti_dataset_extent(far, id, 0, &at) || strcmp(at.path, path) != 0)
            continue;
        CHECK(at.file_size == size);
        if (!at.etag)
            psti_etag_render((uint64_t)at.mtime_ns, at.inode, room);
        *etag = at.etag ? at.etag : room;
        return 0;
    }
    return -ENOENT;
}

static void a_copy_has_the_identities_of_the_bucket(void)
{
    psti_dataset *far = open_plain("s3://b/d"), *near = open_plain(at("b/d"));
    CHECKF(far && near, "%s", last_error.message);
    if (!far || !near)
        return;
    CHECK(psti_dataset_is_far(far) && !psti_dataset_is_far(near));
    CHECK(strcmp(psti_dataset_url(far), "s3://b/d") == 0 && !psti_dataset_url(near));
    const psti_id128 a = psti_dataset_identity(far, 1), b = psti_dataset_identity(near, 1);
    CHECK(a.lo != b.lo);
    CHECK(psti_dataset_take_etags(near, etag_of, far) == 0);
    const psti_id128 c = psti_dataset_identity(near, 1);
    CHECK(a.lo == c.lo && a.hi == c.hi);
    const psti_id128 one = psti_dataset_revision(far), other = psti_dataset_revision(near);
    CHECK(one.lo == other.lo && one.hi == other.hi);
    psti_dataset_unref(near);
    psti_dataset_unref(far);
}

/* The same bytes under the same name: in buckets one sample, on web servers two, whose etags need
 * not tell contents apart. */
static void what_web_servers_have_is_known_by_its_place(void)
{
    char url[160];
    psti_id128 id[2][2];
    for (int web = 0; web < 2; web++)
        for (int i = 0; i < 2; i++) {
            snprintf(url, sizeof url, "%s/v%d/list.tsv", web ? at_server("b") : "s3://b", i + 1);
            psti_dataset *far = open_plain(url);
            CHECKF(far && psti_dataset_look(far, 0) == 0, "%s: %s", url, last_error.message);
            if (!far)
                return;
            id[web][i] = psti_dataset_identity(far, 0);
            psti_dataset_unref(far);
        }
    CHECK(id[0][0].lo == id[0][1].lo && id[0][0].hi == id[0][1].hi);
    CHECK(id[1][0].lo != id[1][1].lo && id[1][0].lo != id[0][0].lo);
}

enum { LARGE = 3000000 }; /* bytes of an object */

static void runs_of_bytes_are_ranges(void)
{
    psti_dataset *far = open_plain("s3://b/large");
    uint8_t *buf = calloc(1, LARGE);
    psti_extent at;
    CHECKF(far && psti_dataset_extent(far, 0, 0, &at) == 0, "%s", last_error.message);
    if (!far) {
        free(buf);
        return;
    }
    CHECK(psti_read_try(&at, buf) == -EAGAIN);
    const psti_span apart = {.offset = 1000, .length = 10, .step = 100000, .count = 5};
    CHECK(psti_read_spans(&at, &apart, false, buf) == 0);
    for (int i = 0; i < 5; i++)
        CHECK(buf[1000 + i * 100000] == (uint8_t)((1000 + i * 100000) % 251));
    CHECK(buf[999] == 0 && buf[1010] == 0 && buf[50000] == 0);
    const psti_span close_by = {.offset = 7, .length = 10, .step = 1000, .count = 3};
    CHECK(psti_read_spans(&at, &close_by, false, buf) == 0 && buf[2007] == 2007 % 251);
    const psti_span beyond = {.offset = LARGE - 10, .length = 11, .count = 1};
    CHECK(psti_read_spans(&at, &beyond, false, buf) == -ERANGE);
    CHECK(psti_read_now(&at, buf) == 0 && buf[LARGE - 1] == (LARGE - 1) % 251);
    psti_dataset_unref(far);
    free(buf);
}

static void memory_a_key(void)
{
    psti_dataset *far = open_plain("s3://k");
    CHECKF(far && psti_dataset_count(far) == 20000, "%s", last_error.message);
    if (!far)
        return;
    CHECK(psti_dataset_classes(far) == 100);
    CHECKF(psti_dataset_bytes(far) <= 20000 * 140, "%llu bytes a key",
           (unsigned long long)psti_dataset_bytes(far) / 20000);
    psti_dataset_unref(far);
}

typedef struct landing {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int left, status;
} landing;

static void on_read(psti_read *read, int status)
{
    landing *l = read->user;
    pthread_mutex_lock(&l->lock);
    l->status = status ? status : l->status;
    l->left--;
    pthread_cond_signal(&l->done);
    pthread_mutex_unlock(&l->lock);
}

static void a_reader_reads_from_both(void)
{
    enum { READS = 24 };
    psti_dataset *far = open_plain("s3://b/d"), *near = open_plain(at("b/d"));
    psti_reader *reader = NULL;
    static psti_read reads[READS];
    static uint8_t bytes[READS][64];
    landing l = {.left = READS};
    pthread_mutex_init(&l.lock, NULL);
    pthread_cond_init(&l.done, NULL);
    CHECK(far && near && psti_reader_open(PST_IO_AUTO, 2, &reader, &last_error) == 0);
    if (!reader)
        return;
    for (int i = 0; i < READS; i++) {
        reads[i] = (psti_read){.buf = bytes[i], .done = on_read, .user = &l};
        CHECK(psti_dataset_extent(i % 2 ? near : far, i / 2 % 3, 0, &reads[i].at) == 0);
        psti_reader_submit(reader, &reads[i]);
    }
    pthread_mutex_lock(&l.lock);
    while (l.left)
        pthread_cond_wait(&l.done, &l.lock);
    pthread_mutex_unlock(&l.lock);
    CHECK(l.status == 0);
    for (int i = 0; i < READS; i += 2)
        CHECK(memcmp(bytes[i], bytes[i + 1], 64) == 0 && bytes[i][0]);
    psti_reader_close(reader);
    psti_dataset_unref(near);
    psti_dataset_unref(far);
}

static void a_replaced_object_says_so(void)
{
    psti_dataset *far = open_plain("s3://b/d");
    psti_reader *reader = NULL;
    landing l = {.left = 1};
    uint8_t buf[64];
    pst_error why = {0};
    pthread_mutex_init(&l.lock, NULL);
    pthread_cond_init(&l.done, NULL);
    CHECK(far && psti_reader_open(PST_IO_AUTO, 2, &reader, &last_error) == 0);
    if (!reader)
        return;
    psti_read read = {.buf = buf, .done = on_read, .user = &l, .err = &why};
    CHECK(psti_dataset_extent(far, 0, 0, &read.at) == 0);
    put_text(at("b/d/a/1.jpg"), "another");
    psti_reader_submit(reader, &read);
    pthread_mutex_lock(&l.lock);
    while (l.left)
        pthread_cond_wait(&l.done, &l.lock);
    pthread_mutex_unlock(&l.lock);
    CHECK(l.status == PST_ECHANGED && why.code == PST_ECHANGED);
    CHECKF(strstr(why.message, "replaced") && strstr(why.key, "d/a/1.jpg"), "%s", why.message);
    CHECK(psti_dataset_renew(far, 0, 0, &last_error) == PST_ECHANGED);
    psti_reader_close(reader);
    psti_dataset_unref(far);
}

/* ---- joined reads ---------------------------------------------------------------------------- */

enum { PARTS = 6 };

typedef struct parts {
    psti_dataset *data;
    psti_reader *reader;
    landing l;
    psti_read read[PARTS];
    pst_error why[PARTS];
    uint8_t buf[PARTS][380096];
    uint64_t length; /* of those that are asked for next */
    uint64_t before; /* requests that were sent */
    bool more;       /* of those that are asked for next */
} parts;

static uint64_t requests(void)
{
    psti_net_stats stats;
    psti_net_stats_get(&stats);
    return stats.requests;
}

static parts *parts_open(void)
{
    parts *p = calloc(1, sizeof *p);
    pthread_mutex_init(&p->l.lock, NULL);
    pthread_cond_init(&p->l.done, NULL);
    p->data = open_plain("s3://b/large");
    CHECKF(p->data && psti_reader_open(PST_IO_AUTO, 2, &p->reader, &last_error) == 0, "%s",
           last_error.message);
    p->before = requests();
    p->length = 4000;
    return p;
}

/* Part i of the object, from that byte on. */
static void ask_for(parts *p, int i, uint64_t offset)
{
    psti_read *r = &p->read[i];
    *r = (psti_read){
        .buf = p->buf[i], .done = on_read, .user = &p->l, .err = &p->why[i], .more = p->more};
    CHECK(psti_dataset_extent(p->data, 0, 0, &r->at) == 0);
    r->at.offset = offset;
    r->at.length = p->length;
    pthread_mutex_lock(&p->l.lock);
    p->l.left++;
    pthread_mutex_unlock(&p->l.lock);
    psti_reader_submit(p->reader, r);
}

static void await(parts *p, int left)
{
    pthread_mutex_lock(&p->l.lock);
    while (p->l.left > left)
        pthread_cond_wait(&p->l.done, &p->l.lock);
    pthread_mutex_unlock(&p->l.lock);
}

static bool is_right(const parts *p, int i)
{
    const psti_extent *at = &p->read[i].at;
    for (uint64_t k = 0; k < at->length; k++)
        if (p->buf[i][k] != (uint8_t)((at->offset + k) % 251))
            return false;
    return p->buf[i][at->length] == 0;
}

static void parts_close(parts *p)
{
    psti_reader_close(p->reader);
    psti_dataset_unref(p->data);
    free(p);
}

static void neighbours_are_one_request(void)
{
    static const uint64_t offset[PARTS] = {300000, 100000, 104000, 0, 110500, 400000};
    parts *p = parts_open();
    psti_reader_plug(p->reader);
    for (int i = 0; i < PARTS; i++)
        ask_for(p, i, offset[i]);
    CHECK(requests() == p->before);
    psti_reader_unplug(p->reader, false);
    await(p, 0);
    CHECK(p->l.status == 0);
    for (int i = 0; i < PARTS; i++)
        CHECKF(is_right(p, i), "part %d", i);
    CHECKF(requests() == p->before + 4, "%llu requests",
           (unsigned long long)(requests() - p->before));
    parts_close(p);
}

static void the_same_bytes_twice_are_two_requests(void)
{
    parts *p = parts_open();
    psti_reader_plug(p->reader);
    ask_for(p, 0, 5000);
    ask_for(p, 1, 5000);
    ask_for(p, 2, 6000);
    psti_reader_unplug(p->reader, false);
    await(p, 0);
    CHECK(p->l.status == 0 && is_right(p, 0) && is_right(p, 1) && is_right(p, 2));
    parts_close(p);
}

/* Three reads that follow each other, so that the next may wait; they have come. */
static void begin_in_order(parts *p)
{
    for (int i = 0; i < 3; i++) {
        ask_for(p, i, (uint64_t)i * 5000);
        await(p, 0);
    }
}

static void ask_calmly(parts *p, int i, uint64_t offset)
{
    psti_reader_plug(p->reader);
    ask_for(p, i, offset);
    psti_reader_unplug(p->reader, true);
}

static void who_reads_in_order_waits_for_more(void)
{
    parts *p = parts_open();
    begin_in_order(p);
    for (int i = 3; i < PARTS; i++)
        ask_calmly(p, i, (uint64_t)i * 5000);
    CHECK(requests() == p->before + 3);
    psti_reader_plug(p->reader);
    psti_reader_unplug(p->reader, false);
    await(p, 0);
    CHECK(p->l.status == 0 && requests() == p->before + 4);
    for (int i = 0; i < PARTS; i++)
        CHECKF(is_right(p, i), "part %d", i);
    parts_close(p);
}

/* Also where nothing was read before. */
static void who_says_that_more_comes_waits_for_it(void)
{
    parts *p = parts_open();
    p->more = true;
    ask_calmly(p, 0, 100000);
    ask_calmly(p, 1, 105000);
    CHECK(requests() == p->before);
    p->more = false;
    ask_calmly(p, 2, 110000);
    await(p, 0);
    CHECK(p->l.status == 0 && requests() == p->before + 1);
    for (int i = 0; i < 3; i++)
        CHECKF(is_right(p, i), "part %d", i);
    parts_close(p);
}

/* What finds no room in it is there already: nothing else can come. */
static void a_full_request_does_not_wait(void)
{
    parts *p = parts_open();
    p->more = true;
    p->length = 380000; /* five of them are less than is worth a request by itself */
    for (int i = 0; i < PARTS; i++)
        ask_calmly(p, i, (uint64_t)i * p->length);
    await(p, 1);
    CHECK(p->l.status == 0 && requests() == p->before + 1);
    for (int i = 0; i < PARTS - 1; i++)
        CHECKF(is_right(p, i), "part %d", i);
    psti_reader_plug(p->reader);
    psti_reader_unplug(p->reader, false);
    await(p, 0);
    CHECK(p->l.status == 0 && is_right(p, PARTS - 1));
    parts_close(p);
}

static void nobody_waits_for_ever(void)
{
    parts *p = parts_open();
    begin_in_order(p);
    ask_calmly(p, 3, 15000);
    for (int i = 0; i < 100; i++) {
        psti_reader_plug(p->reader);
        psti_reader_unplug(p->reader, true);
    }
    await(p, 0);
    CHECK(p->l.status == 0 && is_right(p, 3));
    parts_close(p);
}

static void who_does_not_is_sent_at_once(void)
{
    parts *p = parts_open();
    begin_in_order(p);
    ask_calmly(p, 3, 300000);
    await(p, 0);
    CHECK(p->l.status == 0 && is_right(p, 3));
    ask_calmly(p, 4, 304000); /* one neighbour is chance */
    await(p, 0);
    CHECK(p->l.status == 0 && is_right(p, 4));
    parts_close(p);
}

static void one_that_waits_can_be_cancelled(void)
{
    parts *p = parts_open();
    begin_in_order(p);
    ask_calmly(p, 3, 15000);
    psti_reader_cancel(p->reader, &p->read[3]);
    psti_reader_cancel(p->reader, &p->read[3]);
    await(p, 0);
    CHECKF(p->l.status == 0 || p->l.status == -ECANCELED, "%d", p->l.status);
    parts_close(p);
}

static void the_others_of_a_request_do_not_go_with_a_cancelled_one(void)
{
    parts *p = parts_open();
    psti_reader_plug(p->reader);
    for (int i = 0; i < PARTS; i++)
        ask_for(p, i, (uint64_t)i * 4000);
    psti_reader_unplug(p->reader, false);
    for (int i = 0; i < 2 * PARTS; i++) /* one of them again and again */
        psti_reader_cancel(p->reader, &p->read[i > 1 ? 2 : i]);
    await(p, 0);
    CHECK(p->l.status == 0 && is_right(p, 3) && is_right(p, 4) && is_right(p, 5));
    parts_close(p);
}

/* Last: the object is another one from here on. */
static void each_of_a_request_is_told_that_the_object_was_replaced(void)
{
    parts *p = parts_open();
    put_text(at("b/large/x.npy"), "another");
    psti_reader_plug(p->reader);
    for (int i = 0; i < PARTS; i++)
        ask_for(p, i, (uint64_t)i * 4000);
    psti_reader_unplug(p->reader, false);
    await(p, 0);
    CHECK(p->l.status == PST_ECHANGED);
    for (int i = 0; i < PARTS; i++) {
        const char *was = strstr(p->why[i].message, "etag was \""),
                   *is = strstr(p->why[i].message, "is now \"");
        CHECKF(p->why[i].code == PST_ECHANGED && was && is && strncmp(was + 9, is + 7, 34) != 0,
               "%s", p->why[i].message);
    }
    parts_close(p);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    scratch_open();
    put_text(at("b/d/a/1.jpg"), "one");
    put_text(at("b/d/a/2.jpg"), "two");
    put_text(at("b/d/b/3.jpg"), "three");
    for (int i = 1; i <= 2; i++) {
        put_text(at("b/v%d/list.tsv", i), "key\tlabel\nx.jpg\t1\n");
        put_text(at("b/v%d/x.jpg", i), "the same");
    }
    uint8_t *large = malloc(LARGE);
    for (int i = 0; i < LARGE; i++)
        large[i] = (uint8_t)(i % 251);
    put_bytes(at("b/large/x.npy"), large, LARGE);
    free(large);
    if (argc < 2 || !start_server(argv[1])) {
        fprintf(stderr, "the server did not start\n");
        return 1;
    }
    RUN(etags_fit_into_two_words);
    RUN(a_copy_has_the_identities_of_the_bucket);
    RUN(what_web_servers_have_is_known_by_its_place);
    RUN(runs_of_bytes_are_ranges);
    RUN(memory_a_key);
    RUN(a_reader_reads_from_both);
    RUN(a_replaced_object_says_so);
    RUN(neighbours_are_one_request);
    RUN(the_same_bytes_twice_are_two_requests);
    RUN(who_reads_in_order_waits_for_more);
    RUN(who_says_that_more_comes_waits_for_it);
    RUN(a_full_request_does_not_wait);
    RUN(nobody_waits_for_ever);
    RUN(who_does_not_is_sent_at_once);
    RUN(one_that_waits_can_be_cancelled);
    RUN(the_others_of_a_request_do_not_go_with_a_cancelled_one);
    RUN(each_of_a_request_is_told_that_the_object_was_replaced);
    end_server();
    remove_tree(scratch);
    return check_report();
}
