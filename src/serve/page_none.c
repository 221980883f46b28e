/* SPDX-License-Identifier: Apache-2.0
 * In place of the page where none was built: whatever was built takes precedence. */
#include "serve/page.h"

__attribute__((weak)) const unsigned char psti_page_gz[1] = {0};
__attribute__((weak)) const size_t psti_page_gz_size = 0;
__attribute__((weak)) const char psti_page_csp[] = "default-src 'none'; frame-ancestors 'none'";
