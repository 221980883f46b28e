/* SPDX-License-Identifier: Apache-2.0
 * Signatures against the examples that AWS publishes: its test suite's get-vanilla ones, and the
 * requests worked through in the documentation of S3. */
#include <stdlib.h>

#include "check.h"
#include "net/net_priv.h"

static const char s3_time[] = "20130524T000000Z", s3_host[] = "examplebucket.s3.amazonaws.com";

static creds *example_creds(const char *id)
{
    creds *c = secret_alloc(sizeof *c);
    snprintf(c->access_key, sizeof c->access_key, "%s", id);
    const bool s3 = strcmp(id, "AKIAIOSFODNN7EXAMPLE") == 0;
    snprintf(c->secret_key, sizeof c->secret_key, "wJalrXUtnFEMI/K7MDENG%cbPxRfiCYEXAMPLEKEY",
             s3 ? '/' : '+');
    return c;
}

static bool signature_is(struct signer *s, const creds *c, const sign_input *in, const char *want)
{
    char out[SIGN_AUTHORIZATION_ROOM];
    if (signer_sign(s, c, 1, in, out) < 0)
        return false;
    const char *found = strstr(out, "Signature=");
    if (found && strcmp(found + 10, want) == 0)
        return true;
    fprintf(stderr, "%s\n", out);
    return false;
}

static void the_vanilla_requests_have_the_published_signatures(void)
{
    struct signer *s = signer_new();
    creds *c = example_creds("AKIDEXAMPLE");
    const sign_header header[] = {{"host", "example.amazonaws.com"},
                                  {"x-amz-date", "20150830T123600Z"}};
    sign_input in = {.method = "GET",
                     .path = "/",
                     .query = "",
                     .region = "us-east-1",
                     .service = "service",
                     .time = "20150830T123600Z",
                     .payload_hash = sign_empty_hash,
                     .header = header,
                     .headers = 2};
    CHECK(signature_is(s, c, &in,
                       "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"));
    in.query = "Param1=value1&Param2=value2"; /* get-vanilla-query-order-key-case */
    CHECK(signature_is(s, c, &in,
                       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"));
    in.query = "";
    in.method = "POST"; /* post-vanilla */
    CHECK(signature_is(s, c, &in,
                       "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"));
    secret_free(c, sizeof *c);
    signer_free(s);
}

static void the_examples_of_s3_have_the_published_signatures(void)
{
    struct signer *s = signer_new();
    creds *c = example_creds("AKIAIOSFODNN7EXAMPLE");
    const sign_header get[] = {{"host", s3_host},
                               {"range", "bytes=0-9"},
                               {"x-amz-content-sha256", sign_empty_hash},
                               {"x-amz-date", s3_time}};
    const sign_header list[] = {get[0], get[2], get[3]};
    sign_input in = {.method = "GET",
                     .path = "/test.txt",
                     .query = "",
                     .region = "us-east-1",
                     .service = "s3",
                     .time = s3_time,
                     .payload_hash = sign_empty_hash,
                     .header = get,
                     .headers = 4};
    CHECK(signature_is(s, c, &in,
                       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
    in.path = "/";
    in.query = "max-keys=2&prefix=J";
    in.header = list;
    in.headers = 3;
    CHECK(signature_is(s, c, &in,
                       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
    in.query = "lifecycle=";
    CHECK(signature_is(s, c, &in,
                       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
    secret_free(c, sizeof *c);
    signer_free(s);
}

static void the_key_follows_day_region_and_credentials(void)
{
    struct signer *s = signer_new();
    creds *c = example_creds("AKIDEXAMPLE");
    char first[SIGN_AUTHORIZATION_ROOM], other[SIGN_AUTHORIZATION_ROOM];
    const sign_header header[] = {{"host", "h"}};
    sign_input in = {.method = "GET",
                     .path = "/",
                     .query = "",
                     .region = "a",
                     .service = "s3",
                     .time = "20260131T235959Z",
                     .payload_hash = sign_empty_hash,
                     .header = header,
                     .headers = 1};
    CHECK(signer_sign(s, c, 1, &in, first) == 0);
    CHECK(signer_sign(s, c, 1, &in, other) == 0 && strcmp(first, other) == 0);
    in.time = "20260201T000000Z";
    CHECK(signer_sign(s, c, 1, &in, other) == 0 && strcmp(first, other) != 0);
    struct signer *anew = signer_new();
    CHECK(signer_sign(anew, c, 1, &in, first) == 0 && strcmp(first, other) == 0);
    c->secret_key[0] ^= 1;
    CHECK(signer_sign(anew, c, 2, &in, other) == 0 && strcmp(first, other) != 0);
    memset(c->secret_key, 'k', 200); /* longer than a block */
    CHECK(signer_sign(anew, c, 3, &in, other) == 0);
    signer_free(anew);
    signer_free(s);
    secret_free(c, sizeof *c);
}

static void times_are_written_as_aws_wants_them(void)
{
    char text[17];
    sign_time(1440938160, text);
    CHECK(strcmp(text, "20150830T123600Z") == 0);
}

int main(void)
{
    RUN(the_vanilla_requests_have_the_published_signatures);
    RUN(the_examples_of_s3_have_the_published_signatures);
    RUN(the_key_follows_day_region_and_credentials);
    RUN(times_are_written_as_aws_wants_them);
    return check_report();
}
