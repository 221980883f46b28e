/* SPDX-License-Identifier: Apache-2.0
 * AWS Signature Version 4. The hashes are libcrypto's; HMAC is put together here, so that keys stay
 * in secret memory and nothing is allocated per request. A signer is used by one thread at a time.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/opensslv.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "net/net_priv.h"

enum { BLOCK = 64, HASH = 32 };

const char sign_empty_hash[65] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/* In secret memory. */
typedef struct signer {
    EVP_MD *sha256;
    EVP_MD_CTX *context;
    /* What the signing key was made for. */
    uint32_t version;
    char day[9], region[64], service[16];
    uint8_t key[HASH];
    uint8_t pad[BLOCK];
} signer;

/* Fetched once: the implicit way looks the algorithm up for every hash. */
static EVP_MD *fetch_sha256(void)
{
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
    return EVP_MD_fetch(NULL, "SHA256", NULL);
#else
    return (EVP_MD *)EVP_sha256();
#endif
}

struct signer *signer_new(void)
{
    signer *s = secret_alloc(sizeof *s);
    if (!s)
        return NULL;
    s->sha256 = fetch_sha256();
    s->context = EVP_MD_CTX_new();
    if (s->sha256 && s->context)
        return s;
    signer_free(s);
    return NULL;
}

void signer_free(struct signer *s)
{
    if (!s)
        return;
    EVP_MD_CTX_free(s->context);
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
    EVP_MD_free(s->sha256);
#endif
    secret_free(s, sizeof *s);
}

static bool hash_begin(signer *s)
{
    return EVP_DigestInit_ex(s->context, s->sha256, NULL) == 1;
}

static bool hash_add(signer *s, const void *bytes, size_t count)
{
    return EVP_DigestUpdate(s->context, bytes, count) == 1;
}

static bool hash_text(signer *s, const char *text)
{
    return hash_add(s, text, strlen(text));
}

static bool hash_end(signer *s, uint8_t out[HASH])
{
    return EVP_DigestFinal_ex(s->context, out, NULL) == 1;
}

static bool pad_begin(signer *s, const uint8_t *key, size_t size, uint8_t with)
{
    memset(s->pad, with, BLOCK);
    for (size_t i = 0; i < size; i++)
        s->pad[i] ^= key[i];
    return hash_begin(s) && hash_add(s, s->pad, BLOCK);
}

static bool hmac(signer *s, const uint8_t *key, size_t size, const char *text, uint8_t out[HASH])
{
    uint8_t inner[HASH];
    const bool fine = pad_begin(s, key, size, 0x36) && hash_text(s, text) && hash_end(s, inner) &&
                      pad_begin(s, key, size, 0x5c) && hash_add(s, inner, HASH) && hash_end(s, out);
    secret_wipe(inner, sizeof inner);
    return fine;
}

static bool make_key(signer *s, const creds *c, const sign_input *in)
{
    uint8_t start[4 + sizeof c->secret_key];
    size_t size = strlen(c->secret_key) + 4;
    memcpy(start, "AWS4", 4);
    memcpy(start + 4, c->secret_key, size - 4);
    bool fine = true;
    if (size > BLOCK) { /* a longer key is replaced by its hash */
        fine = hash_begin(s) && hash_add(s, start, size) && hash_end(s, start);
        size = HASH;
    }
    fine =
        fine && hmac(s, start, size, s->day, s->key) && hmac(s, s->key, HASH, in->region, s->key) &&
        hmac(s, s->key, HASH, in->service, s->key) && hmac(s, s->key, HASH, "aws4_request", s->key);
    secret_wipe(start, sizeof start);
    return fine;
}

static bool key_fits(const signer *s, uint32_t version, const sign_input *in)
{
    return s->version == version && memcmp(s->day, in->time, 8) == 0 &&
           strcmp(s->region, in->region) == 0 && strcmp(s->service, in->service) == 0;
}

static int renew_key(signer *s, const creds *c, uint32_t version, const sign_input *in)
{
    if (key_fits(s, version, in) && s->day[0])
        return 0;
    memcpy(s->day, in->time, 8);
    s->day[8] = 0;
    snprintf(s->region, sizeof s->region, "%s", in->region);
    snprintf(s->service, sizeof s->service, "%s", in->service);
    s->version = version;
    if (make_key(s, c, in))
        return 0;
    s->day[0] = 0;
    return -EIO;
}

static void hex(const uint8_t hash[HASH], char out[2 * HASH + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < HASH; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[2 * HASH] = 0;
}

/* name;name;… */
static bool name_headers(const sign_input *in, char *out, size_t room)
{
    size_t len = 0;
    out[0] = 0;
    for (int i = 0; i < in->headers; i++) {
        const int n = snprintf(out + len, room - len, "%s%s", i ? ";" : "", in->header[i].name);
        if (n < 0 || (size_t)n >= room - len)
            return false;
        len += (size_t)n;
    }
    return true;
}

static bool hash_request(signer *s, const sign_input *in, const char *names, uint8_t out[HASH])
{
    bool fine = hash_begin(s) && hash_text(s, in->method) && hash_add(s, "\n", 1) &&
                hash_text(s, in->path) && hash_add(s, "\n", 1) && hash_text(s, in->query) &&
                hash_add(s, "\n", 1);
    for (int i = 0; fine && i < in->headers; i++)
        fine = hash_text(s, in->header[i].name) && hash_add(s, ":", 1) &&
               hash_text(s, in->header[i].value) && hash_add(s, "\n", 1);
    return fine && hash_add(s, "\n", 1) && hash_text(s, names) && hash_add(s, "\n", 1) &&
           hash_text(s, in->payload_hash) && hash_end(s, out);
}

int signer_sign(struct signer *s, const creds *c, uint32_t version, const sign_input *in,
                char out[SIGN_AUTHORIZATION_ROOM])
{
    char names[160], scope[160], digest[2 * HASH + 1], text[400];
    uint8_t hash[HASH];
    if (renew_key(s, c, version, in) < 0 || !name_headers(in, names, sizeof names) ||
        !hash_request(s, in, names, hash))
        return -EIO;
    hex(hash, digest);
    snprintf(scope, sizeof scope, "%s/%s/%s/aws4_request", s->day, in->region, in->service);
    snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", in->time, scope, digest);
    if (!hmac(s, s->key, HASH, text, hash))
        return -EIO;
    hex(hash, digest);
    const int n = snprintf(out, SIGN_AUTHORIZATION_ROOM,
                           "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
                           c->access_key, scope, names, digest);
    return n > 0 && n < SIGN_AUTHORIZATION_ROOM ? 0 : -ENAMETOOLONG;
}

void sign_time(int64_t now_s, char out[17])
{
    struct tm t;
    const time_t at = (time_t)now_s;
    if (!gmtime_r(&at, &t) || strftime(out, 17, "%Y%m%dT%H%M%SZ", &t) != 16)
        memcpy(out, "19700101T000000Z", 17);
}
