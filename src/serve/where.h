/* SPDX-License-Identifier: Apache-2.0
 * Where daemon and clients meet: a directory with two sockets and a lock file, or two: the feed's
 * socket in one, the control socket and the lock in the other. Private. */
#ifndef PSTI_SERVE_WHERE_H
#define PSTI_SERVE_WHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "penstock.h"

#define WHERE_FEED    "feed.sock"
#define WHERE_CONTROL "control.sock"
enum { WHERE_BYTES = 4096 };

/* The directory of an address: "unix:DIR", "unix:" and "auto" (this user's default), or DIR as the
 * command line gives it (NULL = default). 0 or -EINVAL. */
int where_find(const char *address, char dir[WHERE_BYTES]);

/* The daemon's side: makes the directory if need be, checks that it is this user's alone, and takes
 * its lock (locks), which the kernel drops with the process. others: other users may come in. */
typedef struct where {
    int dir, lock; /* -1 = not open, or not locked */
    bool ours;
} where;
int where_take(const char *dir, bool others, bool locks, where *out, pst_error *err);
/* A listening socket; what a dead daemon left is replaced. An fd or negative. */
int where_listen(const where *w, const char *name, int type, bool others, pst_error *err);
void where_clear(const where *w, const char *name);
void where_leave(where *w);

/* The client's side: a connected socket, or -errno (-ECONNREFUSED: nobody listens). server: the
 * daemon's user. */
int where_connect(const char *dir, const char *name, int type, uid_t *server);

#endif
