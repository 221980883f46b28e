/* SPDX-License-Identifier: Apache-2.0
 * Buckets from URLs and settings, whose credentials are used and how they are renewed, and listings
 * page by page, against a server. */
#include <sys/stat.h>

#include "rig.h"

static char folder[64];

static const char *put_file(const char *name, const char *text)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    return path;
}

static void plain_environment(void)
{
    static const char *const names[] = {"AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_PROFILE",
                                        "PENSTOCK_S3_STYLE",
                                        "AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
}

static psti_bucket *opened(const char *url, const char *want_rest)
{
    psti_bucket *b = NULL;
    char *rest = NULL;
    pst_error err = {0};
    const int rc = psti_bucket_open(url, &b, &rest, &err);
    CHECKF(rc == 0, "%s: %s", url, err.message);
    CHECKF(rc < 0 || strcmp(rest, want_rest) == 0, "%s: %s", url, rest ? rest : "");
    psti_free(rest);
    return b;
}

static int refused(const char *url, pst_error *err)
{
    psti_bucket *b = NULL;
    char *rest = NULL;
    memset(err, 0, sizeof *err);
    const int rc = psti_bucket_open(url, &b, &rest, err);
    CHECK(rc < 0 && !b && !rest && *err->message);
    psti_bucket_unref(b);
    return rc;
}

/* ---- settings -------------------------------------------------------------------------------- */

static void urls_become_buckets(void)
{
    pst_error err;
    plain_environment();
    psti_bucket *b = opened("s3://my-bucket/a b/%20c", "a b/%20c");
    CHECK(strcmp(b->url, "https://my-bucket.s3.us-east-1.amazonaws.com/") == 0);
    CHECK(strcmp(b->base, "/") == 0 && strcmp(psti_bucket_name(b), "s3://my-bucket") == 0);
    CHECK(psti_bucket_lists(b) && !b->creds);
    psti_bucket_unref(b);
    b = opened("s3://my.bucket", "");
    CHECK(strcmp(b->url, "https://s3.us-east-1.amazonaws.com/") == 0);
    CHECK(strcmp(b->base, "/my.bucket/") == 0);
    psti_bucket_unref(b);
    b = opened("https://Example.com:8443/a%20b/c.tar", "a b/c.tar");
    CHECK(strcmp(b->url, "https://example.com:8443/") == 0 && !psti_bucket_lists(b));
    CHECK(strcmp(psti_bucket_name(b), "https://example.com:8443") == 0);
    psti_bucket_unref(b);
    CHECK(refused("s3://", &err) == -EINVAL && refused("s3:///x", &err) == -EINVAL);
    CHECK(refused("s3://a@b/x", &err) == -EINVAL && refused("s3://a..b/", &err) == -EINVAL);
    CHECK(refused("http://h/%zz", &err) == -EINVAL && refused("http://h/%00", &err) == -EINVAL);
    CHECK(refused("http://user:hunter2@h/", &err) == -EINVAL);
    CHECK(!strstr(err.message, "hunter2") && !strstr(err.key, "hunter2"));
    CHECK(refused("file:///etc/passwd", &err) == -EINVAL);
}

static void endpoints_and_styles_come_from_the_environment(void)
{
    pst_error err;
    plain_environment();
    setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/base/", 1);
    setenv("AWS_REGION", "eu-west-3", 1);
    psti_bucket *b = opened("s3://b/p", "p");
    CHECK(strcmp(b->url, "http://127.0.0.1:9000/") == 0 && strcmp(b->base, "/base/b/") == 0);
    CHECK(strcmp(b->region, "eu-west-3") == 0 && b->loopback);
    psti_bucket_unref(b);
    setenv("AWS_ENDPOINT_URL_S3", "https://minio.example", 1);
    setenv("PENSTOCK_S3_STYLE", "virtual", 1);
    b = opened("s3://b/p", "p");
    CHECK(strcmp(b->url, "https://b.minio.example/") == 0 && strcmp(b->base, "/") == 0);
    psti_bucket_unref(b);
    setenv("PENSTOCK_S3_STYLE", "sideways", 1);
    CHECK(refused("s3://b", &err) == -EINVAL && strstr(err.message, "PENSTOCK_S3_STYLE"));
    setenv("PENSTOCK_S3_STYLE", "auto", 1);
    setenv("AWS_ENDPOINT_URL_S3", "ftp://x", 1);
    CHECK(refused("s3://b", &err) == -EINVAL && strstr(err.message, "endpoint"));
    unsetenv("AWS_ENDPOINT_URL_S3");
    setenv("AWS_REGION", "a\nb", 1);
    CHECK(refused("s3://b", &err) == -EINVAL);
}

static void profiles_bring_settings_and_credentials(void)
{
    pst_error err;
    plain_environment();
    setenv("AWS_CONFIG_FILE",
           put_file("config",
                    "[profile lab]\nregion = eu-north-1\nendpoint_url = http://127.0.0.1:81\n"
                    "s3 =\n  addressing_style = virtual\n"
                    "[profile role]\nrole_arn = arn:aws:iam::1:role/x\n"),
           1);
    setenv("AWS_SHARED_CREDENTIALS_FILE",
           put_file("credentials", "[default]\naws_access_key_id=AK0\naws_secret_access_key=s0\n"
                                   "[lab]\naws_access_key_id=AK1\naws_secret_access_key=s1\n"
                                   "aws_session_token=tok\n"
                                   "[bad]\naws_access_key_id=AK 1\naws_secret_access_key=s1\n"),
           1);
    psti_bucket *b = opened("s3://b", "");
    CHECK(b->creds && strcmp(b->creds->now->access_key, "AK0") == 0 && !*b->creds->now->token);
    psti_bucket_unref(b);
    setenv("AWS_PROFILE", "lab", 1);
    b = opened("s3://b", "");
    CHECK(strcmp(b->creds->now->access_key, "AK1") == 0 &&
          strcmp(b->creds->now->token, "tok") == 0);
    CHECK(strcmp(b->region, "eu-north-1") == 0 && strcmp(b->url, "http://b.127.0.0.1:81/") == 0);
    psti_bucket_unref(b);
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1); /* the environment comes first */
    setenv("AWS_SECRET_ACCESS_KEY", "senv", 1);
    b = opened("s3://b", "");
    CHECK(strcmp(b->creds->now->access_key, "AKENV") == 0);
    psti_bucket_unref(b);
    unsetenv("AWS_ACCESS_KEY_ID");
    setenv("AWS_PROFILE", "role", 1);
    CHECK(refused("s3://b", &err) == -ENOTSUP && strstr(err.message, "role_arn"));
    setenv("AWS_PROFILE", "absent", 1);
    CHECK(refused("s3://b", &err) == -ENOENT && strstr(err.message, "absent"));
    setenv("AWS_PROFILE", "bad", 1);
    CHECK(refused("s3://b", &err) == -EINVAL && !strstr(err.message, "AK 1"));
}

/* ---- credentials that run out ---------------------------------------------------------------- */

static atomic_int token_number;

static bool answer_credentials(request *r)
{
    char text[100], body[300], when[40];
    const int n = atomic_fetch_add(&token_number, 1) + 1;
    if (strcmp(header_of(r, "authorization", text, sizeof text), "let-me-in") != 0)
        return send_text(r, "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
    const time_t soon = time(NULL) + 3600;
    struct tm t;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&soon, &t));
    snprintf(body, sizeof body,
             "{\"AccessKeyId\":\"AKC%d\",\"SecretAccessKey\":\"canary-c\",\"Token\":\"token-%d\","
             "\"Expiration\":\"%s\"}",
             n, n, when);
    return send_text(r, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
}

/* Takes no token but the newest. */
static bool answer_newest(request *r)
{
    char text[100], want[32];
    static const char body[] = "<Error><Code>ExpiredToken</Code></Error>";
    snprintf(want, sizeof want, "token-%d", *(const int *)r->server->user);
    if (strcmp(header_of(r, "x-amz-security-token", text, sizeof text), want) == 0)
        return answer_right(r);
    return send_text(r, "HTTP/1.1 400 Bad Request\r\nContent-Length: %zu\r\n\r\n%s", strlen(body),
                     body);
}

static void credentials_of_containers_are_renewed(void)
{
    int newest = 1;
    char uri[100];
    pst_error err = {0};
    server *source = server_open(answer_credentials, NULL);
    server *s = server_open(answer_newest, &newest);
    plain_environment();
    snprintf(uri, sizeof uri, "http://127.0.0.1:%d/creds", source->port);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri, 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", put_file("token", "let-me-in\n"), 1);
    psti_bucket *b = bucket_on(s->port);
    static uint8_t buf[OBJECT_SIZE];
    psti_get get = whole(b, buf, &err);
    CHECK(psti_net_now(&get) == 0 && atomic_load(&source->requests) == 1);
    newest = 2; /* the first one is no longer taken */
    CHECKF(psti_net_now(&get) == 0, "%s", err.message);
    CHECKF(atomic_load(&source->requests) == 2, "%d", atomic_load(&source->requests));
    b->creds->now->expires_s = (int64_t)time(NULL) + 60; /* soon: renewed beside the gets */
    newest = 3;
    CHECK(psti_net_now(&get) == 0);
    CHECK(atomic_load(&source->requests) == 3);
    newest = 99;
    CHECK(psti_net_now(&get) == -EACCES && strstr(err.message, "ExpiredToken"));
    CHECK(!strstr(err.message, "canary") && !strstr(err.message, "token-"));
    psti_bucket_unref(b);
    server_close(s);
    server_close(source);
}

static void credentials_are_not_fetched_in_the_clear_from_elsewhere(void)
{
    pst_error err;
    plain_environment();
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.invalid/creds", 1);
    CHECK(refused("s3://b", &err) == -EINVAL && strstr(err.message, "https"));
}

static bool answer_skewed(request *r)
{
    static const char body[] = "<Error><Code>RequestTimeTooSkewed</Code></Error>";
    char date[40];
    header_of(r, "x-amz-date", date, sizeof date);
    if (strncmp(date, "20300101T0000", 13) == 0)
        return answer_right(r);
    return send_text(r,
                     "HTTP/1.1 403 Forbidden\r\nDate: Tue, 01 Jan 2030 00:00:00 GMT\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     strlen(body), body);
}

static void a_wrong_clock_is_corrected(void)
{
    static uint8_t buf[OBJECT_SIZE];
    rig_begin();
    server *s = server_open(answer_skewed, NULL);
    psti_bucket *b = bucket_on(s->port);
    psti_get get = whole(b, buf, NULL);
    CHECK(psti_net_now(&get) == 0 && atomic_load(&s->requests) == 2);
    CHECK(psti_net_now(&get) == 0 && atomic_load(&s->requests) == 3);
    psti_bucket_unref(b);
    server_close(s);
}

static void nobodys_requests_are_unsigned(void)
{
    static uint8_t buf[OBJECT_SIZE];
    plain_environment();
    server *s = server_open(answer_right, NULL);
    psti_bucket *b = bucket_on(s->port);
    psti_get get = whole(b, buf, NULL);
    CHECK(psti_net_now(&get) == 0 && !strstr(s->log, "Authorization"));
    psti_bucket_unref(b);
    rig_begin(); /* plain HTTP is not signed with anybody's */
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/cat 1.jpg", s->port);
    b = opened(url, "cat 1.jpg");
    get.bucket = b;
    CHECK(psti_net_now(&get) == 0 && !strstr(s->log, "Authorization"));
    CHECK(strstr(s->log, "GET /cat%201.jpg HTTP/1.1"));
    psti_bucket_unref(b);
    server_close(s);
}

/* ---- listings -------------------------------------------------------------------------------- */

enum { KEYS = 2500 };

enum { BODY_ROOM = 1 << 18 };

__attribute__((format(printf, 3, 4))) static size_t put(char *body, size_t len, const char *fmt,
                                                        ...)
{
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(body + len, BODY_ROOM - len, fmt, args);
    va_end(args);
    return len + (size_t)n;
}

/* Pages of 1,000 keys; the token is the number of the next key. */
static bool answer_page(request *r)
{
    char *body = malloc(BODY_ROOM);
    const char *token = strstr(r->target, "continuation-token=n");
    const int from = token ? atoi(token + 20) : 0;
    size_t len = put(body, 0, "<ListBucketResult><EncodingType>url</EncodingType>");
    int i = from;
    for (; i < KEYS && i < from + 1000; i++)
        len = put(body, len,
                  "<Contents><Key>some/%05d+x.jpg</Key><Size>%d</Size>"
                  "<ETag>&quot;e%d&quot;</ETag></Contents>",
                  i, i * 10, i);
    len = put(body, len, "<IsTruncated>%s</IsTruncated>", i < KEYS ? "true" : "false");
    if (i < KEYS)
        len = put(body, len, "<NextContinuationToken>n%d</NextContinuationToken>", i);
    len = put(body, len, "</ListBucketResult>");
    const int cut = *(const int *)r->server->user == r->number ? 1 : 0;
    bool on =
        send_text(r, "HTTP/1.1 200 OK\r\nETag: \"page\"\r\nContent-Length: %zu\r\n\r\n", len) &&
        send_bytes(r, body, cut ? len / 2 : len);
    free(body);
    return on && !cut;
}

typedef struct count {
    int keys;
    bool wrong;
} count;

static int count_key(void *user, const psti_object *o)
{
    count *c = user;
    char key[40], etag[40];
    snprintf(key, sizeof key, "some/%05d x.jpg", c->keys);
    snprintf(etag, sizeof etag, "\"e%d\"", c->keys);
    if (strcmp(o->key, key) != 0 || o->size != (uint64_t)c->keys * 10 || strcmp(o->etag, etag) != 0)
        c->wrong = true;
    c->keys++;
    return 0;
}

static void listings_take_a_request_per_thousand(void)
{
    int cut_at = -1;
    rig_begin();
    server *s = server_open(answer_page, &cut_at);
    psti_bucket *b = bucket_on(s->port);
    count c = {0};
    pst_error err = {0};
    CHECKF(psti_net_list(b, "some/", count_key, &c, &err) == 0, "%s", err.message);
    CHECK(c.keys == KEYS && !c.wrong && atomic_load(&s->requests) == 3);
    CHECK(strstr(s->log, "GET /data/?encoding-type=url&list-type=2&max-keys=1000&prefix=some%2F "));
    c = (count){0};
    cut_at = 4; /* the second page breaks in its middle and comes once more, no key twice */
    CHECK(psti_net_list(b, "some/", count_key, &c, &err) == 0);
    CHECK(c.keys == KEYS && !c.wrong && atomic_load(&s->requests) == 7);
    psti_bucket_unref(b);
    server_close(s);
}

static bool answer_circle(request *r)
{
    static const char body[] = "<ListBucketResult><IsTruncated>true</IsTruncated>"
                               "<NextContinuationToken>again</NextContinuationToken>"
                               "</ListBucketResult>";
    return send_text(r, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
}

static void a_listing_in_circles_is_noticed(void)
{
    rig_begin();
    server *s = server_open(answer_circle, NULL);
    psti_bucket *b = bucket_on(s->port);
    count c = {0};
    pst_error err = {0};
    CHECK(psti_net_list(b, "", count_key, &c, &err) == PST_EDATASET);
    CHECK(strstr(err.message, "circles") && atomic_load(&s->requests) <= 3);
    psti_bucket_unref(b);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", s->port);
    b = opened(url, "");
    CHECK(psti_net_list(b, "", count_key, &c, &err) == -ENOTSUP);
    psti_bucket_unref(b);
    server_close(s);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/penstock-net-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    rig_begin();
    RUN(urls_become_buckets);
    RUN(endpoints_and_styles_come_from_the_environment);
    RUN(profiles_bring_settings_and_credentials);
    RUN(credentials_of_containers_are_renewed);
    RUN(credentials_are_not_fetched_in_the_clear_from_elsewhere);
    RUN(a_wrong_clock_is_corrected);
    RUN(nobodys_requests_are_unsigned);
    RUN(listings_take_a_request_per_thousand);
    RUN(a_listing_in_circles_is_noticed);
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return check_report() + (system(command) != 0);
}
