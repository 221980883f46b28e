/* SPDX-License-Identifier: Apache-2.0
 * Datasets in buckets, seen from inside: etags in few bytes, identities, copies on disk, ranges,
 * memory a key. The server is tests/faultd, a child of this program. */
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

static void runs_of_bytes_are_ranges(void)
{
    psti_dataset *far = open_plain("s3://b/large");
    uint8_t *buf = calloc(1, 600000);
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
    const psti_span beyond = {.offset = 599990, .length = 11, .count = 1};
    CHECK(psti_read_spans(&at, &beyond, false, buf) == -ERANGE);
    CHECK(psti_read_now(&at, buf) == 0 && buf[599999] == 599999 % 251);
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

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    scratch_open();
    put_text(at("b/d/a/1.jpg"), "one");
    put_text(at("b/d/a/2.jpg"), "two");
    put_text(at("b/d/b/3.jpg"), "three");
    for (int i = 1; i <= 2; i++) {
        char list[32], picture[32];
        snprintf(list, sizeof list, "b/v%d/list.tsv", i);
        snprintf(picture, sizeof picture, "b/v%d/x.jpg", i);
        put_text(at(list), "key\tlabel\nx.jpg\t1\n");
        put_text(at(picture), "the same");
    }
    uint8_t *large = malloc(600000);
    for (int i = 0; i < 600000; i++)
        large[i] = (uint8_t)(i % 251);
    put_bytes(at("b/large/x.npy"), large, 600000);
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
    end_server();
    remove_tree(scratch);
    return check_report();
}
