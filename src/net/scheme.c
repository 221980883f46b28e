/* SPDX-License-Identifier: Apache-2.0
 * Which texts are URLs of buckets; built with and without the libraries. Pure function. */
#include <string.h>

#include "net/net.h"

bool psti_is_bucket_url(const char *text)
{
    static const char *const schemes[] = {"s3://", "http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strncmp(text, schemes[i], strlen(schemes[i])) == 0)
            return true;
    return false;
}
