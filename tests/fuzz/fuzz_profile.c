/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a file of profiles and as the answer of a credential server. What is found must fit
 * the room it was given. The bytes lie at the end of their block, so that reading on is noticed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(bool found, const char *out, size_t room)
{
    if (found && strnlen(out, room) >= room)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sections[] = {"default", "profile lab", "services s"};
    static const char *const keys[] = {"aws_access_key_id", "endpoint_url", "region", "a"};
    static const char *const names[] = {"AccessKeyId", "Token", "Expiration", "a"};
    char out[32];
    char *copy = malloc(size ? size : 1);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    const profile_file file = {copy, size};
    for (int s = 0; s < 3; s++)
        for (int k = 0; k < 4; k++)
            for (int parent = 0; parent < 2; parent++)
                check_text(
                    profile_get(&file, sections[s], parent ? "s3" : NULL, keys[k], out, sizeof out),
                    out, sizeof out);
    for (int k = 0; k < 4; k++) {
        const bool found = profile_json(copy, size, names[k], out, sizeof out);
        check_text(found, out, sizeof out);
        if (found)
            (void)profile_time(out);
    }
    free(copy);
    return 0;
}
