/* SPDX-License-Identifier: Apache-2.0
 * The page that is built in: gzipped, and the policy that goes with it. A build without the page
 * has none of it (size 0). Private. */
#ifndef PSTI_SERVE_PAGE_H
#define PSTI_SERVE_PAGE_H

#include <stddef.h>

extern const unsigned char psti_page_gz[];
extern const size_t psti_page_gz_size;
extern const char psti_page_csp[];

#endif
