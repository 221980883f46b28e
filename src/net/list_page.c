/* SPDX-License-Identifier: Apache-2.0
 * One page of a listing, which comes from a server that is not trusted: no document type and so no
 * entities but the five of XML, bounded texts, keys in strict byte order and below the prefix. Keys
 * are handed on as they are; whoever makes paths of them has his own rules. Any thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "core/status.h"
#include "net/list.h"
#include "net/xml.h"

enum { NOTHING, KEY, SIZE, ETAG, TIME, TRUNCATED, TOKEN };
enum { DEPTH_MAX = 16 };

static const struct {
    const char *name;
    uint8_t place;
    bool in_object;
} elements[] = {{"Key", KEY, true},
                {"Size", SIZE, true},
                {"ETag", ETAG, true},
                {"LastModified", TIME, true},
                {"IsTruncated", TRUNCATED, false},
                {"NextContinuationToken", TOKEN, false}};

int listing_fail(listing *l, int code, const char *fmt, ...)
{
    char message[400];
    va_list args;
    if (l->rc)
        return l->rc;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    l->rc = psti_fail(l->err, code, "list", l->name, "%s", message);
    if (l->parser)
        l->xml->StopParser(l->parser, XML_FALSE);
    return l->rc;
}

/* For messages: bytes that could confuse a terminal are escaped. */
static const char *shown(const char *key, size_t len, char out[128])
{
    size_t at = 0;
    for (size_t i = 0; i < len && at < 116; i++) {
        const unsigned char c = (unsigned char)key[i];
        if (c >= 0x20 && c < 0x7f && c != '\\')
            out[at++] = (char)c;
        else
            at += (size_t)snprintf(out + at, 6, "\\x%02x", c);
    }
    snprintf(out + at, 4, "%s", at >= 116 ? "..." : "");
    return out;
}

static int order(const char *a, size_t a_len, const char *b, size_t b_len)
{
    const int first = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return first ? first : a_len < b_len ? -1 : a_len > b_len;
}

/* ---- objects --------------------------------------------------------------------------------- */

static bool take_size(listing *l)
{
    uint64_t value = 0;
    if (l->len == 0)
        return false;
    for (size_t i = 0; i < l->len; i++) {
        const unsigned digit = (unsigned)(l->text[i] - '0');
        if (digit > 9 || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    l->size = value;
    return value <= INT64_MAX;
}

/* With quotes, as answers have it. */
static bool take_etag(listing *l)
{
    const bool quoted = l->len >= 2 && l->text[0] == '"';
    const bool weak = l->len >= 2 && memcmp(l->text, "W/", 2) == 0;
    for (size_t i = 0; i < l->len; i++)
        if ((unsigned char)l->text[i] < 0x20 || (unsigned char)l->text[i] >= 0x7f)
            return false;
    if (l->len + 3 > sizeof l->etag)
        return false;
    const char *quote = quoted || weak || !l->len ? "" : "\"";
    snprintf(l->etag, sizeof l->etag, "%s%.*s%s", quote, (int)l->len, l->text, quote);
    return true;
}

static void check_key(listing *l)
{
    char text[128];
    const size_t prefix = strlen(l->prefix);
    if (l->escaped && !url_unescape(l->key, &l->key_len, true))
        listing_fail(l, PST_EDATASET, "the key %s holds a broken escape",
                     shown(l->key, l->key_len, text));
    else if (l->key_len == 0 || l->key_len > PSTI_OBJECT_KEY_MAX)
        listing_fail(l, PST_EDATASET, "a key has %zu bytes; 1 to 1,024 are allowed", l->key_len);
    else if (l->key_len < prefix || memcmp(l->key, l->prefix, prefix) != 0)
        listing_fail(l, PST_EDATASET, "the key %s does not begin with what was asked for",
                     shown(l->key, l->key_len, text));
    else if (l->any && order(l->last, l->last_len, l->key, l->key_len) >= 0)
        listing_fail(l, PST_EDATASET,
                     "the key %s comes out of order or twice: the listing cannot be relied on",
                     shown(l->key, l->key_len, text));
}

static void end_object(listing *l)
{
    if ((l->seen & 3) != 3) {
        listing_fail(l, PST_EDATASET, "an entry of the listing has no key or no size");
        return;
    }
    check_key(l);
    if (l->rc)
        return;
    memcpy(l->last, l->key, l->key_len + 1);
    l->last_len = l->key_len;
    l->any = true;
    l->in_page++;
    const psti_object object = {.key = l->key,
                                .key_len = l->key_len,
                                .size = l->size,
                                .mtime_ns = l->mtime_ns,
                                .etag = l->etag};
    l->rc = l->each(l->user, &object);
    if (l->rc)
        l->xml->StopParser(l->parser, XML_FALSE);
}

static void end_text(listing *l)
{
    l->text[l->len] = 0;
    switch (l->place) {
    case KEY:
        memcpy(l->key, l->text, l->len + 1);
        l->key_len = l->len;
        l->seen |= 1;
        break;
    case SIZE:
        if (!take_size(l))
            listing_fail(l, PST_EDATASET, "the size of an entry is no number");
        l->seen |= 2;
        break;
    case ETAG:
        if (!take_etag(l))
            listing_fail(l, PST_EDATASET, "the etag of an entry is none");
        break;
    case TIME: {
        const int64_t seconds = profile_time(l->text);
        l->mtime_ns = seconds > 0 && seconds < INT64_MAX / 1000000000 ? seconds * 1000000000 : 0;
        break;
    }
    case TRUNCATED:
        l->more = strcmp(l->text, "true") == 0;
        break;
    default:
        memcpy(l->token, l->text, l->len + 1);
        break;
    }
}

/* ---- expat's calls --------------------------------------------------------------------------- */

static void on_start(void *arg, const char *name, const char **attributes)
{
    listing *l = arg;
    (void)attributes;
    l->depth++;
    if (l->rc)
        return;
    if (l->depth > DEPTH_MAX) {
        listing_fail(l, PST_ELIMIT, "the listing is nested too deeply");
    } else if (l->depth == 1) {
        l->result = strcmp(name, "ListBucketResult") == 0;
        if (!l->result)
            listing_fail(l, PST_EDATASET, "the answer is no listing of S3");
    } else if (l->depth == 2 && strcmp(name, "Contents") == 0) {
        l->inside = 1;
        l->seen = 0;
        l->etag[0] = 0;
        l->mtime_ns = 0;
    }
    l->place = NOTHING;
    if (l->depth != (l->inside ? 3 : 2))
        return;
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if (elements[i].in_object == (bool)l->inside && strcmp(name, elements[i].name) == 0) {
            l->place = elements[i].place;
            l->len = 0;
        }
}

static void on_end(void *arg, const char *name)
{
    listing *l = arg;
    (void)name;
    if (!l->rc && l->place)
        end_text(l);
    l->place = NOTHING;
    if (!l->rc && l->inside && l->depth == 2)
        end_object(l);
    if (l->depth == 2)
        l->inside = 0;
    l->depth--;
}

static void on_text(void *arg, const char *text, int len)
{
    listing *l = arg;
    if (!l->place || l->rc)
        return;
    if ((size_t)len >= sizeof l->text - l->len) {
        listing_fail(l, PST_ELIMIT, "a text of the listing is longer than 4,095 bytes");
        return;
    }
    memcpy(l->text + l->len, text, (size_t)len);
    l->len += (size_t)len;
}

static void on_doctype(void *arg, const char *name, const char *system, const char *public, int own)
{
    (void)name;
    (void)system;
    (void)public;
    (void)own;
    listing_fail(arg, PST_EDATASET, "the listing declares a document type, which is refused");
}

/* ---- pages ----------------------------------------------------------------------------------- */

listing *listing_new(const char *name, const char *prefix,
                     int (*each)(void *user, const psti_object *object), void *user, pst_error *err)
{
    listing *l = psti_calloc(PSTI_MEM_NET, 1, sizeof *l);
    if (!l)
        return NULL;
    l->name = name;
    l->prefix = prefix;
    l->each = each;
    l->user = user;
    l->err = err;
    return l;
}

void listing_free(listing *l)
{
    psti_free(l);
}

int listing_page(listing *l, const char *bytes, size_t size)
{
    const xml_calls *xml = xml_calls_get();
    if (!xml)
        return listing_fail(
            l, -ENOTSUP, "listings need expat (libexpat.so.1), which this machine does not have");
    XML_Parser parser = xml->ParserCreate("UTF-8");
    if (!parser)
        return listing_fail(l, -ENOMEM, "out of memory");
    l->xml = xml;
    l->parser = parser;
    l->more = l->result = false;
    /* Known before the first key: some servers say it behind the last. */
    static const char escaped[] = "<EncodingType>url</EncodingType>";
    l->escaped = memmem(bytes, size, escaped, sizeof escaped - 1) != NULL;
    l->in_page = 0;
    l->depth = 0;
    l->inside = l->place = NOTHING;
    l->token[0] = 0;
    xml->SetUserData(parser, l);
    xml->SetElementHandler(parser, on_start, on_end);
    xml->SetCharacterDataHandler(parser, on_text);
    xml->SetStartDoctypeDeclHandler(parser, on_doctype);
    const enum XML_Status status = xml->Parse(parser, bytes, (int)size, 1);
    l->parser = NULL;
    if (status != XML_STATUS_OK && !l->rc)
        listing_fail(l, PST_EDATASET, "the listing is not XML: %s, line %lu",
                     xml->ErrorString(xml->GetErrorCode(parser)),
                     (unsigned long)xml->GetCurrentLineNumber(parser));
    xml->ParserFree(parser);
    return l->rc;
}
