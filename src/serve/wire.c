/* SPDX-License-Identifier: Apache-2.0
 * Packets in and out, with descriptors. Both ends use it; no state, any thread. */
#include "serve/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"

/* What every version reads, and what this one is: another size is another version. */
_Static_assert(sizeof(wire_head) == 16 && sizeof(wire_hello) == 24, "HELLO stays as it is");
_Static_assert(sizeof(wire_refused) == 24 + 824, "REFUSED stays as it is, with its error");
_Static_assert(sizeof(wire_welcome) == 96 && sizeof(wire_open) == 80 && sizeof(wire_list) == 56,
               "of version 6");
_Static_assert(offsetof(wire_batch, stats.read_away_ns) == 824 && sizeof(wire_credit) == 32,
               "of version 6");
_Static_assert(sizeof(wire_batch) == 824 + 8 + sizeof(psti_feed_facts), "of version 7");

/* ---- versions -------------------------------------------------------------------------------- */

wire_range wire_speaks(void)
{
    const char *claimed = getenv("PENSTOCK_WIRE_VERSIONS");
    char *end = NULL;
    const unsigned long oldest = claimed ? strtoul(claimed, &end, 10) : 0;
    if (!claimed || end == claimed || *end != '-')
        return (wire_range){WIRE_OLDEST, WIRE_VERSION};
    return (wire_range){(uint16_t)oldest, (uint16_t)strtoul(end + 1, NULL, 10)};
}

uint16_t wire_agree(wire_range mine, wire_range theirs)
{
    const uint16_t version = mine.newest < theirs.newest ? mine.newest : theirs.newest;
    return version >= mine.oldest && version >= theirs.oldest ? version : 0;
}

/* ---- packets --------------------------------------------------------------------------------- */

size_t wire_size(int kind, uint16_t version)
{
    static const size_t sizes[] = {
        [WIRE_HELLO] = sizeof(wire_hello),     [WIRE_WELCOME] = sizeof(wire_welcome),
        [WIRE_REFUSED] = sizeof(wire_refused), [WIRE_OPEN] = sizeof(wire_open),
        [WIRE_SEGMENT] = sizeof(wire_segment), [WIRE_OPENED] = sizeof(wire_opened),
        [WIRE_RESTART] = sizeof(wire_restart), [WIRE_CREDIT] = sizeof(wire_credit),
        [WIRE_BATCH] = sizeof(wire_batch),     [WIRE_SKIP] = sizeof(wire_skip),
        [WIRE_END] = sizeof(wire_end),         [WIRE_FAILED] = sizeof(wire_failed),
        [WIRE_RELEASE] = sizeof(wire_release), [WIRE_LIST] = sizeof(wire_list),
        [WIRE_LISTED] = sizeof(wire_listed)};
    if (version < WIRE_SETS && (kind == WIRE_LIST || kind == WIRE_LISTED))
        return 0;
    if (version < WIRE_SETS && kind == WIRE_OPEN)
        return offsetof(wire_open, depot_revision);
    if (version < WIRE_FACTS && kind == WIRE_BATCH)
        return offsetof(wire_batch, stats.read_away_ns);
    return kind > 0 && (size_t)kind < sizeof sizes / sizeof *sizes ? sizes[kind] : 0;
}

void wire_init(wire_packet *packet, uint16_t version, int kind, uint32_t generation)
{
    memset(packet, 0, wire_size(kind, WIRE_VERSION));
    packet->head = (wire_head){.magic = WIRE_MAGIC,
                               .version = version,
                               .kind = (uint16_t)kind,
                               .generation = generation,
                               .bytes = (uint32_t)wire_size(kind, version)};
}

typedef union fd_room {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(WIRE_FDS * sizeof(int))];
} fd_room;

int wire_send(int sock, const wire_packet *packet, const int *fds, int fd_count)
{
    fd_room room;
    struct iovec part = {(void *)packet, packet->head.bytes};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        memset(&room, 0, sizeof room);
        msg.msg_control = room.bytes;
        msg.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        memcpy(CMSG_DATA(head), fds, (size_t)fd_count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

static void keep_fds(struct msghdr *msg, wire_mail *mail)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head; head = CMSG_NXTHDR(msg, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (mail->fd_count < WIRE_FDS)
                mail->fds[mail->fd_count++] = fd;
            else
                close(fd);
        }
    }
}

/* A packet of another version may only be a HELLO or a REFUSED, whose layout never changes. Before
 * one is agreed on, a WELCOME says which it is. */
static bool is_sound(const wire_head *head, uint16_t version, size_t got, int flags)
{
    if (got < sizeof *head || (flags & (MSG_TRUNC | MSG_CTRUNC)) || head->magic != WIRE_MAGIC ||
        head->bytes != got)
        return false;
    const bool frozen = head->kind == WIRE_HELLO || head->kind == WIRE_REFUSED;
    if (!frozen && (version ? head->version != version : head->kind != WIRE_WELCOME))
        return false;
    return got == wire_size(head->kind, head->version);
}

static void fill_up(wire_packet *packet, size_t got)
{
    const size_t whole = wire_size(packet->head.kind, WIRE_VERSION);
    if (got < whole)
        memset((uint8_t *)packet + got, 0, whole - got);
}

int wire_receive(int sock, uint16_t version, wire_mail *mail)
{
    fd_room room;
    struct iovec part = {&mail->packet, sizeof mail->packet};
    struct msghdr msg = {.msg_iov = &part,
                         .msg_iovlen = 1,
                         .msg_control = room.bytes,
                         .msg_controllen = sizeof room.bytes};
    ssize_t got;
    mail->fd_count = 0;
    do
        got = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? -EAGAIN : -EPIPE;
    keep_fds(&msg, mail);
    if (got == 0 && mail->fd_count == 0)
        return -EPIPE;
    if (is_sound(&mail->packet.head, version, (size_t)got, msg.msg_flags)) {
        fill_up(&mail->packet, (size_t)got);
        return 0;
    }
    wire_drop(mail);
    return -EPROTO;
}

int wire_take(wire_mail *mail, int index)
{
    if (index >= mail->fd_count)
        return -1;
    const int fd = mail->fds[index];
    mail->fds[index] = -1;
    return fd;
}

void wire_drop(wire_mail *mail)
{
    for (int i = 0; i < mail->fd_count; i++)
        if (mail->fds[i] >= 0)
            close(mail->fds[i]);
    mail->fd_count = 0;
}

/* ---- statistics ------------------------------------------------------------------------------ */

#define COPY_COUNT(name) to->name = from->name;

void wire_stats_put(wire_stats *to, const pst_job_stats *from)
{
    WIRE_COUNTS(COPY_COUNT)
    COPY_COUNT(read_away_ns)
    memcpy(to->form_entries, from->form_entries, sizeof to->form_entries);
    memcpy(to->form_bytes, from->form_bytes, sizeof to->form_bytes);
    to->ready_depth = from->ready_depth + WIRE_AHEAD;
    to->stage_count = from->stage_count;
    for (uint32_t i = 0; i < from->stage_count && i < PST_STAGES_MAX; i++) {
        to->stage[i].runs = from->stages[i].runs;
        to->stage[i].total_ns = from->stages[i].total_ns;
    }
}

void wire_stats_get(const wire_stats *from, pst_job_stats *to)
{
    WIRE_COUNTS(COPY_COUNT)
    COPY_COUNT(read_away_ns)
    memcpy(to->form_entries, from->form_entries, sizeof to->form_entries);
    memcpy(to->form_bytes, from->form_bytes, sizeof to->form_bytes);
    if (from->ready_depth) /* none came yet otherwise */
        to->ready_depth = from->ready_depth;
    for (uint32_t i = 0; i < to->stage_count && i < from->stage_count && i < PST_STAGES_MAX; i++) {
        to->stages[i].runs = from->stage[i].runs;
        to->stages[i].total_ns = from->stage[i].total_ns;
    }
}

/* ---- what is too large for a packet ---------------------------------------------------------- */

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

int wire_blob(const char *name, const void *bytes, size_t size)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    size_t at = 0;
    while (at < size) {
        const ssize_t n = write(fd, (const uint8_t *)bytes + at, size - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    if (at == size && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
        return fd;
    const int rc = at < size ? -ENOSPC : -errno;
    close(fd);
    return rc;
}

int wire_blob_read(int fd, size_t bytes, size_t most, uint8_t **out)
{
    struct stat st;
    if (bytes > most)
        return -EFBIG;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) || (size_t)st.st_size != bytes)
        return -EPROTO;
    uint8_t *copy = psti_malloc(PSTI_MEM_SERVE, bytes ? bytes : 1);
    if (!copy)
        return -ENOMEM;
    size_t at = 0;
    while (at < bytes) {
        const ssize_t n = pread(fd, copy + at, bytes - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    if (at == bytes) {
        *out = copy;
        return 0;
    }
    psti_free(copy);
    return -EPROTO;
}
