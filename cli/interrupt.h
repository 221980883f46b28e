/* SPDX-License-Identifier: Apache-2.0
 * Ctrl-C and SIGTERM: the first one asks the command to wind up, the second ends the process at
 * once. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

#include "penstock.h"

void interrupt_setup(void);
/* The job that the signal aborts; NULL before it is closed. */
void interrupt_job(pst_job *job);
/* The server that the signal stops; NULL before it is closed. */
void interrupt_server(pst_server *server);
/* The signal was what the command waited for: it ends well. */
void interrupt_forget(void);
/* The signal that came, 0 if none did. Any thread. */
int interrupt_signal(void);
/* Sleeps until clock_ns() reaches deadline_ns or a signal comes; true if it slept to the end. */
bool interrupt_sleep(int64_t deadline_ns);
/* Exit code after a signal: 130 for Ctrl-C. */
int interrupt_exit_code(void);

#endif
