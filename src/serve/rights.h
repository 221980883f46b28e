/* SPDX-License-Identifier: Apache-2.0
 * Who is at the other end of a socket, and which files he may read. Private. */
#ifndef PSTI_SERVE_RIGHTS_H
#define PSTI_SERVE_RIGHTS_H

#include <stdbool.h>
#include <sys/types.h>

#include "engine/engine.h"

typedef struct peer {
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* psti_malloc'ed */
    int group_count;
} peer;

/* As the kernel noted when he connected. 0 or -errno. */
int peer_of(int sock, peer *out);
void peer_fini(peer *p);

/* Whether the peer may search the root and every directory below it on the sample's way, and read
 * its files, by owner, group and mode: 0 or -EACCES with err filled. What has an ACL or is reached
 * through a link is refused, since the mode does not tell. The files are those of the listing: the
 * reader compares what it opens with the same inode. */
int peer_may_read(const peer *p, const psti_dataset *data, int64_t id, pst_error *err);

#endif
