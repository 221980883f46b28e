/* SPDX-License-Identifier: Apache-2.0
 * The library's own notices: few, each said once, sent to one function that the user may replace.
 * Any thread. */
#ifndef PSTI_CORE_LOG_H
#define PSTI_CORE_LOG_H

enum { PSTI_LOG_ERROR = 0, PSTI_LOG_WARN = 1, PSTI_LOG_INFO = 2 };

__attribute__((format(printf, 2, 3))) void psti_log(int level, const char *fmt, ...);

#endif
