/* SPDX-License-Identifier: Apache-2.0
 * The parts that need no server: URLs, profile files, checksums, when to try again. */
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "core/hash.h"
#include "net/list.h"

/* ---- URLs ------------------------------------------------------------------------------------ */

static const char *refusal(const char *text)
{
    url_parts parts;
    return url_split(text, &parts);
}

static void urls_are_split(void)
{
    url_parts p;
    CHECK(!url_split("http://Example.COM:8080/a/b", &p));
    CHECK(!p.https && p.port == 8080 && strcmp(p.host, "example.com") == 0);
    CHECK(strcmp(p.path, "/a/b") == 0);
    CHECK(!url_split("https://h:443", &p) && p.port == 0 && p.https && p.path[0] == 0);
    CHECK(!url_split("http://[::1]:81/x", &p) && strcmp(p.host, "[::1]") == 0 && p.port == 81);
    CHECK(refusal("ftp://h/") && refusal("http:///x") && refusal("http://u:p@h/"));
    CHECK(refusal("http://h:0/") && refusal("http://h:65536/") && refusal("http://h:x/"));
    CHECK(refusal("http://h/x?y") && refusal("http://h/x#y") && refusal("http://[::1/"));
    CHECK(refusal("http://a b/") && refusal("http://h\n/") && refusal("file:///etc/passwd"));
    CHECK(url_is_loopback("127.0.0.1") && url_is_loopback("localhost") && url_is_loopback("[::1]"));
    CHECK(!url_is_loopback("127.0.0.1.evil.example") && !url_is_loopback("10.0.0.1"));
    CHECK(!url_is_loopback("169.254.169.254"));
}

static void keys_are_escaped_and_come_back(void)
{
    char out[64], all[256], escaped[1024];
    CHECK(url_escape(out, 0, sizeof out, "a b/ü+%~", 9, true) == 19);
    CHECK(strcmp(out, "a%20b/%C3%BC%2B%25~") == 0);
    CHECK(url_escape(out, 0, 4, "a b", 3, true) == SIZE_MAX);
    CHECK(url_escape(out, 0, 4, "abc", 3, true) == 3);
    CHECK(url_escape(out, 0, 3, "abc", 3, true) == SIZE_MAX);
    for (int i = 1; i < 256; i++)
        all[i - 1] = (char)i;
    size_t len = url_escape(escaped, 0, sizeof escaped, all, 255, false);
    CHECK(url_unescape(escaped, &len, true) && len == 255 && memcmp(all, escaped, 255) == 0);
    char broken[] = "a%4", hidden[] = "a%00b", plus[] = "a+b";
    len = 3;
    CHECK(!url_unescape(broken, &len, false));
    len = 5;
    CHECK(!url_unescape(hidden, &len, false));
    len = 3;
    CHECK(url_unescape(plus, &len, false) && strcmp(plus, "a+b") == 0);
    CHECK(url_unescape(plus, &len, true) && strcmp(plus, "a b") == 0);
}

/* ---- files of settings ----------------------------------------------------------------------- */

static profile_file file_of(const char *text)
{
    return (profile_file){(char *)text, strlen(text)};
}

static void profiles_are_read(void)
{
    const profile_file f =
        file_of("# aws_access_key_id = no\n"
                "[default]\naws_access_key_id = AKID1 ; comment\r\n"
                "region=eu-west-1\n"
                "s3 =\n    addressing_style = path\n    endpoint_url=http://in.s3\n"
                "endpoint_url = http://direct\n"
                "[profile  other]\nregion = r#2\n"
                "[services mine]\ns3 =\n  endpoint_url = http://svc\n"
                "dynamodb =\n  endpoint_url = http://dyn\n");
    char out[64];
    CHECK(profile_get(&f, "default", NULL, "aws_access_key_id", out, sizeof out));
    CHECK(strcmp(out, "AKID1") == 0);
    CHECK(profile_get(&f, "default", "s3", "addressing_style", out, sizeof out));
    CHECK(strcmp(out, "path") == 0);
    CHECK(profile_get(&f, "default", "s3", "endpoint_url", out, sizeof out));
    CHECK(strcmp(out, "http://in.s3") == 0);
    CHECK(profile_get(&f, "default", NULL, "endpoint_url", out, sizeof out));
    CHECK(strcmp(out, "http://direct") == 0);
    CHECK(profile_get(&f, "profile other", NULL, "region", out, sizeof out));
    CHECK(strcmp(out, "r#2") == 0);
    CHECK(profile_get(&f, "services mine", "s3", "endpoint_url", out, sizeof out));
    CHECK(strcmp(out, "http://svc") == 0);
    CHECK(!profile_get(&f, "profile other", NULL, "aws_access_key_id", out, sizeof out));
    CHECK(!profile_get(&f, "none", NULL, "region", out, sizeof out));
    CHECK(!profile_get(&f, "default", NULL, "region", out, 4)); /* too long for the room */
}

static void answers_of_credential_servers_are_read(void)
{
    static const char text[] = "{ \"Code\" : \"Success\", \"N\": 12, \"AccessKeyId\":\"AK\\/1\",\n"
                               "\"Token\" : \"t==\", \"Expiration\":\"2026-01-31T12:34:56Z\"}";
    char out[64];
    CHECK(profile_json(text, strlen(text), "AccessKeyId", out, sizeof out));
    CHECK(strcmp(out, "AK/1") == 0);
    CHECK(profile_json(text, strlen(text), "Token", out, sizeof out) && strcmp(out, "t==") == 0);
    CHECK(profile_json(text, strlen(text), "Expiration", out, sizeof out));
    CHECK(profile_time(out) == 1769862896);
    CHECK(!profile_json(text, strlen(text), "SecretAccessKey", out, sizeof out));
    CHECK(!profile_json(text, strlen(text), "N", out, sizeof out));
    for (size_t cut = 0; cut < strlen(text) - 40; cut++)
        CHECK(!profile_json(text, cut, "Expiration", out, sizeof out));
    CHECK(profile_time("2026-01-31T12:34:56.789Z") == 1769862896);
    CHECK(profile_time("yesterday") == -1 && profile_time("2026-13-31T12:34:56Z") == -1);
}

/* ---- checksums ------------------------------------------------------------------------------- */

static uint64_t bit_by_bit(uint64_t poly, uint64_t all, const uint8_t *p, size_t count)
{
    uint64_t crc = all;
    for (size_t i = 0; i < count; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? poly : 0);
    }
    return crc ^ all;
}

static void crcs_are_right_at_every_length(void)
{
    uint8_t bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)psti_mix64(i + 1);
    CHECK(sum_crc32(0, (const uint8_t *)"123456789", 9) == 0xcbf43926u);
    CHECK(sum_crc64nvme(0, (const uint8_t *)"123456789", 9) == 0xae8b14860a799888ull);
    for (size_t n = 0; n < sizeof bytes; n += n < 300 ? 1 : n < 1000 ? 13 : 61) {
        const uint64_t a = bit_by_bit(0xedb88320u, 0xffffffffu, bytes, n);
        const uint64_t b = bit_by_bit(0x9a6c9329ac4bc9b5ull, UINT64_MAX, bytes, n);
        CHECKF(sum_crc32(0, bytes, n) == a, "%zu bytes", n);
        CHECKF(sum_crc64nvme(0, bytes, n) == b, "%zu bytes", n);
        CHECK(sum_crc64nvme(sum_crc64nvme(0, bytes, n / 3), bytes + n / 3, n - n / 3) == b);
        CHECK(sum_crc32(sum_crc32(0, bytes, n / 3), bytes + n / 3, n - n / 3) == a);
    }
}

static bool sum_of(const char *name, const char *text, const char *content)
{
    sum s = {0};
    if (!sum_expect(&s, name, strlen(name), text, strlen(text)))
        return false;
    sum_update(&s, (const uint8_t *)content, strlen(content) / 2);
    sum_update(&s, (const uint8_t *)content + strlen(content) / 2,
               strlen(content) - strlen(content) / 2);
    return sum_right(&s);
}

static void checksums_are_compared(void)
{
    CHECK(sum_of("crc32c", "4waSgw==", "123456789"));
    CHECK(sum_of("CRC32", "y/Q5Jg==", "123456789"));
    CHECK(sum_of("crc64nvme", "rosUhgp5mIg=", "123456789"));
    CHECK(sum_of("sha1", "98O8HYCOBHMq32eZZczDTKeuNEE=", "123456789"));
    CHECK(sum_of("sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=", "123456789"));
    CHECK(!sum_of("crc32c", "4waSgw==", "123456780"));
    CHECK(!sum_of("sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=", "12345678"));
    CHECK(!sum_of("crc32c", "4waSgw==-3", "123456789")); /* of parts */
    CHECK(!sum_of("md5", "4waSgw==", "123456789"));
    sum s = {0};
    CHECK(sum_expect(&s, "sha256", 6, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=", 44));
    CHECK(sum_expect(&s, "crc32c", 6, "4waSgw==", 8) && s.kind == SUM_CRC32C);
    CHECK(!sum_expect(&s, "sha1", 4, "98O8HYCOBHMq32eZZczDTKeuNEE=", 28));
}

/* ---- when again ------------------------------------------------------------------------------ */

static uint64_t state = 12345;
static uint64_t random_bits(void)
{
    state += 0x9e3779b97f4a7c15u;
    return psti_mix64(state);
}

static void pauses_are_jittered_and_bounded(void)
{
    for (int throttled = 0; throttled < 2; throttled++)
        for (uint32_t attempt = 1; attempt <= 12; attempt++) {
            double sum_s = 0, squares = 0, most = 0;
            for (int i = 0; i < 2000; i++) {
                const double s = (double)retry_pause(attempt, throttled, random_bits()) / 1e9;
                sum_s += s;
                squares += s * s;
                most = s > most ? s : most;
            }
            const double mean = sum_s / 2000, cv = sqrt(squares / 2000 - mean * mean) / mean;
            const double cap =
                throttled ? fmin(20, pow(2, attempt - 1)) : fmin(5, 0.05 * pow(2, attempt - 1));
            CHECKF(cv >= 0.5 && cv <= 0.65, "attempt %u: CV %.2f", attempt, cv);
            CHECKF(most <= cap + 1e-6 && mean > 0.45 * cap, "attempt %u: %.3f of %.3f s", attempt,
                   most, cap);
        }
}

/* Requests that go in `seconds` of an outage, with 64 who always want to. */
static int outage(retry_gate *gate, uint64_t *now, double seconds)
{
    uint64_t due[64];
    int sent = 0;
    const uint64_t end = *now + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < 64; i++)
        due[i] = *now + random_bits() % RETRY_MS;
    for (; *now < end; *now += RETRY_MS)
        for (int i = 0; i < 64; i++) {
            if (due[i] > *now)
                continue;
            const uint64_t wait = retry_may(gate, *now, true, random_bits());
            sent += wait == 0;
            due[i] = *now + (wait ? wait : retry_pause(3, false, random_bits()));
        }
    return sent;
}

static void an_outage_costs_a_tenth_of_the_usual_rate(void)
{
    retry_gate gate;
    uint64_t now = 1000 * RETRY_S;
    retry_gate_init(&gate);
    for (int i = 0; i < 2000; i++, now += 5 * RETRY_MS) { /* 200 a second */
        CHECK(retry_may(&gate, now, false, random_bits()) == 0);
        CHECK(!retry_success(&gate, now));
    }
    CHECKF(gate.rate > 180 && gate.rate < 220, "rate %.1f", gate.rate);
    const int drained = outage(&gate, &now, 5);
    CHECKF(gate.shut && drained <= 100 + 5 * 5, "%d sent until the tokens were spent", drained);
    const int in_outage = outage(&gate, &now, 60);
    CHECKF(in_outage <= 60 * 20 && in_outage >= 60 * 3, "%d sent in a minute", in_outage);
    CHECK(retry_success(&gate, now)); /* a probe comes through */
    int first_second = 0;
    for (int i = 0; i < 1000; i++, now += RETRY_MS)
        for (int k = 0; k < 4; k++)
            if (retry_may(&gate, now, k & 1, random_bits()) == 0) {
                first_second++;
                retry_success(&gate, now);
            }
    CHECKF(first_second <= 300 && first_second >= 150, "%d in the first second", first_second);
}

static void half_of_all_requests_may_fail_for_ever(void)
{
    retry_gate gate;
    uint64_t now = 1000 * RETRY_S;
    int sent = 0;
    retry_gate_init(&gate);
    for (int i = 0; i < 20000; i++) {
        bool again = false;
        for (;; again = true, now += RETRY_MS) {
            const uint64_t wait = retry_may(&gate, now, again, random_bits());
            CHECK(wait == 0);
            sent++;
            if (random_bits() & 1)
                break;
        }
        retry_success(&gate, now);
    }
    CHECKF(sent < 60000, "%d requests for 20,000 gets", sent);
}

static void a_bucket_that_never_worked_is_probed_once_a_second(void)
{
    retry_gate gate;
    uint64_t now = 1000 * RETRY_S;
    retry_gate_init(&gate);
    outage(&gate, &now, 5);
    const int sent = outage(&gate, &now, 30);
    CHECKF(sent >= 20 && sent <= 40, "%d in 30 s", sent);
}

/* ---- pages of listings ----------------------------------------------------------------------- */

typedef struct seen {
    int count;
    char last[1100];
    uint64_t size;
    char etag[PSTI_ETAG_ROOM];
    int64_t mtime_ns;
} seen;

static int note(void *user, const psti_object *o)
{
    seen *s = user;
    s->count++;
    s->size = o->size;
    s->mtime_ns = o->mtime_ns;
    snprintf(s->last, sizeof s->last, "%s", o->key);
    snprintf(s->etag, sizeof s->etag, "%s", o->etag);
    return s->count == 3 ? 77 : 0;
}

static int parse(const char *prefix, const char *inside, seen *s, pst_error *err)
{
    char text[32768];
    memset(s, 0, sizeof *s);
    snprintf(text, sizeof text,
             "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3\">%s</ListBucketResult>",
             inside);
    listing *l = listing_new("s3://b", prefix, note, s, err);
    const int rc = listing_page(l, text, strlen(text));
    listing_free(l);
    return rc;
}

#define ENTRY(key, size)                                                                           \
    "<Contents><Key>" key "</Key><LastModified>2026-01-31T12:34:56.000Z</LastModified>"            \
    "<ETag>&quot;e&quot;</ETag><Size>" size "</Size><Owner><ID>x</ID></Owner></Contents>"

static void listings_are_parsed(void)
{
    seen s;
    pst_error err;
    CHECK(parse("", ENTRY("a&amp;b", "12"), &s, &err) == 0 && s.count == 1);
    CHECK(strcmp(s.last, "a&b") == 0 && s.size == 12 && strcmp(s.etag, "\"e\"") == 0);
    CHECK(s.mtime_ns == 1769862896ll * 1000000000);
    CHECK(parse("", "<EncodingType>url</EncodingType>" ENTRY("a%0A+b", "1"), &s, &err) == 0);
    CHECK(strcmp(s.last, "a\n b") == 0);
    CHECK(parse("", ENTRY("a+b", "1"), &s, &err) == 0 && strcmp(s.last, "a+b") == 0);
    CHECK(parse("", ENTRY("a%0A+b", "1") "<EncodingType>url</EncodingType>", &s, &err) == 0);
    CHECK(strcmp(s.last, "a\n b") == 0);
    CHECK(parse("", ENTRY("a", "1") ENTRY("b", "1") ENTRY("c", "1") ENTRY("d", "1"), &s, &err) ==
          77);
    CHECK(s.count == 3);
    CHECK(parse("", "<Contents><Key>k</Key><ETag>abc</ETag><Size>0</Size></Contents>", &s, &err) ==
          0);
    CHECK(strcmp(s.etag, "\"abc\"") == 0 && s.mtime_ns == 0);
}

static void bad_listings_are_refused(void)
{
    seen s;
    pst_error err;
    CHECK(parse("", ENTRY("b", "1") ENTRY("a", "1"), &s, &err) == PST_EDATASET && s.count == 1);
    CHECK(strstr(err.message, "out of order"));
    CHECK(parse("", ENTRY("a", "1") ENTRY("a", "1"), &s, &err) == PST_EDATASET && s.count == 1);
    CHECK(parse("p/", ENTRY("q", "1"), &s, &err) == PST_EDATASET && s.count == 0);
    CHECK(parse("", ENTRY("a", "-1"), &s, &err) == PST_EDATASET);
    CHECK(parse("", ENTRY("a", "99999999999999999999"), &s, &err) == PST_EDATASET);
    CHECK(parse("", "<Contents><Key>a</Key></Contents>", &s, &err) == PST_EDATASET);
    CHECK(parse("", "<EncodingType>url</EncodingType>" ENTRY("a%zz", "1"), &s, &err) ==
          PST_EDATASET);
    CHECK(parse("", "<EncodingType>url</EncodingType>" ENTRY("a%00", "1"), &s, &err) ==
          PST_EDATASET);
    CHECK(parse("", "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>", &s, &err) == PST_ELIMIT);
    char long_key[8000];
    snprintf(long_key, sizeof long_key, "<Contents><Key>%01100d</Key><Size>1</Size></Contents>", 0);
    CHECK(parse("", long_key, &s, &err) == PST_EDATASET);
    snprintf(long_key, sizeof long_key, "<Contents><Key>%05000d</Key><Size>1</Size></Contents>", 0);
    CHECK(parse("", long_key, &s, &err) == PST_ELIMIT);
    CHECK(parse("", "<Contents>", &s, &err) == PST_EDATASET); /* not closed */
}

static void document_types_are_refused(void)
{
    static const char bomb[] =
        "<?xml version=\"1.0\"?><!DOCTYPE r [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b "
        "\"&a;&a;&a;&a;\">]>"
        "<ListBucketResult><Contents><Key>&b;</Key><Size>1</Size></Contents></ListBucketResult>";
    seen s = {0};
    pst_error err;
    listing *l = listing_new("s3://b", "", note, &s, &err);
    CHECK(listing_page(l, bomb, strlen(bomb)) == PST_EDATASET && s.count == 0);
    CHECK(strstr(err.message, "document type"));
    listing_free(l);
    CHECK(parse("", "<Contents><Key>&unknown;</Key><Size>1</Size></Contents>", &s, &err) ==
          PST_EDATASET);
}

int main(void)
{
    RUN(urls_are_split);
    RUN(keys_are_escaped_and_come_back);
    RUN(profiles_are_read);
    RUN(answers_of_credential_servers_are_read);
    RUN(crcs_are_right_at_every_length);
    RUN(checksums_are_compared);
    RUN(pauses_are_jittered_and_bounded);
    RUN(an_outage_costs_a_tenth_of_the_usual_rate);
    RUN(half_of_all_requests_may_fail_for_ever);
    RUN(a_bucket_that_never_worked_is_probed_once_a_second);
    RUN(listings_are_parsed);
    RUN(bad_listings_are_refused);
    RUN(document_types_are_refused);
    return check_report();
}
