/* SPDX-License-Identifier: Apache-2.0
 * The job behind a connection, and what conn.c and job.c call of each other. Private. */
#ifndef PSTI_SERVE_JOB_H
#define PSTI_SERVE_JOB_H

#include "serve/server.h"

/* conn.c */
bool conn_post(conn *c, const wire_packet *packet, int fd);
bool conn_start(conn *c, conn_state state, void (*work)(conn *));

/* job.c. Those that answer false have met a client that breaks the protocol, or is gone. */
void job_open_thread(conn *c);  /* fills open_rc and open_error */
void job_close_thread(conn *c); /* takes everything back */
bool job_announce(conn *c);     /* SEGMENT…, OPENED */
bool job_credit(conn *c, const wire_credit *credit);
bool job_release(conn *c, uint32_t id);
bool job_restart(conn *c, wire_mail *mail);
void job_pump(conn *c); /* hands on what is ready, as far as the client has credit */

#endif
