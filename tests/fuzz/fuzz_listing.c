/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a page of a listing, as they are and inside the frame that a right page has. What is
 * handed on must be in order and below the prefix; what is refused must be refused with a message.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct last_key {
    char key[PSTI_OBJECT_KEY_MAX + 1];
    size_t len;
    int count;
} last_key;

static int check_object(void *user, const psti_object *o)
{
    last_key *last = user;
    if (o->key_len < 1 || o->key_len > PSTI_OBJECT_KEY_MAX || strlen(o->key) != o->key_len ||
        o->key[0] != 'p' || strlen(o->etag) >= PSTI_ETAG_ROOM)
        abort();
    if (last->count && strcmp(last->key, o->key) >= 0)
        abort();
    memcpy(last->key, o->key, o->key_len + 1);
    last->count++;
    return 0;
}

static void parse(const char *bytes, size_t size)
{
    last_key last = {0};
    pst_error err = {0};
    listing *l = listing_new("s3://b", "p", check_object, &last, &err);
    if (l && listing_page(l, bytes, size) < 0 && !err.message[0])
        abort();
    listing_free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char begin[] = "<ListBucketResult><EncodingType>url</EncodingType>";
    static const char end[] = "</ListBucketResult>";
    parse((const char *)data, size);
    char *framed = malloc(size + sizeof begin + sizeof end);
    if (!framed)
        return 0;
    memcpy(framed, begin, sizeof begin - 1);
    memcpy(framed + sizeof begin - 1, data, size);
    memcpy(framed + sizeof begin - 1 + size, end, sizeof end - 1);
    parse(framed, size + sizeof begin + sizeof end - 2);
    free(framed);
    return 0;
}
