/* SPDX-License-Identifier: Apache-2.0
 * What a disk tier would do for a plan: which form it would keep, as the scheduler decides it, and
 * how fast its disk is. That is measured with a file that has no name, so nothing is left behind
 * and nobody else ever sees it. Calling thread. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cache/disk.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/status.h"
#include "engine/plan.h"

enum { PIECE = 1 << 20, PIECES = 48, BLOCK = 4096 };
static const double OPEN_S = 10e-6; /* to find, open and close an entry */

/* Where the tier's directory is, or would be made. */
static int open_unnamed(char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = 0;
    return open(slash ? dir : ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

static bool write_pieces(int fd, uint64_t *piece)
{
    for (int i = 0; i < PIECES; i++) {
        for (size_t k = 0; k < PIECE / sizeof *piece; k++) /* nothing that could be pressed */
            piece[k] = psti_mix64((uint64_t)i << 32 | k);
        if (pwrite(fd, piece, PIECE, (off_t)i * PIECE) != PIECE)
            return false;
    }
    return fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
}

/* Bytes a second, or 0 where it cannot be said. */
static double disk_rate(char *dir)
{
    uint64_t *piece = psti_malloc(PSTI_MEM_ENGINE, PIECE);
    const int fd = piece ? open_unnamed(dir) : -1;
    double rate = 0;
    if (fd >= 0 && write_pieces(fd, piece)) {
        const uint64_t since = psti_now_ns();
        int read = 0;
        while (read < PIECES && pread(fd, piece, PIECE, (off_t)read * PIECE) == PIECE)
            read++;
        const double took = 1e-9 * (double)(psti_now_ns() - since);
        rate = read == PIECES && took > 0 ? (double)PIECE * PIECES / took : 0;
    }
    if (fd >= 0)
        close(fd);
    psti_free(piece);
    return rate;
}

/* -1: nothing of these samples is kept. */
static int form_kept(const pst_plan_inputs *in, bool far, bool calls, uint64_t bytes)
{
    const double decoded = in->bytes[PST_FORM_DECODED], encoded = in->bytes[PST_FORM_ENCODED];
    const bool pays =
        decoded > 0 && !calls && in->crop_s - in->augment_s > PSTI_DISK_READ_BACK_S * decoded;
    const bool small = !far || decoded <= PSTI_DISK_DECODED_TIMES * encoded ||
                       decoded * (double)in->samples <= (double)bytes;
    return pays && small ? PST_FORM_DECODED : far ? PST_FORM_ENCODED : -1;
}

int plan_disk(psti_dataset *data, const psti_plan *plan, const char *text, pst_plan_inputs *in,
              pst_error *err)
{
    psti_disk_spec spec;
    const int rc = psti_disk_parse(text, &spec, err);
    if (rc < 0)
        return rc;
    const int form =
        psti_dataset_fetches(data)
            ? -1
            : form_kept(in, psti_dataset_is_far(data), psti_plan_decoded_calls(plan), spec.bytes);
    if (form >= 0) {
        in->disk_bytes = spec.bytes;
        in->disk_form = form;
        in->disk_entry_bytes = ceil(in->bytes[form] / BLOCK) * BLOCK;
        in->disk_read_s = OPEN_S + PSTI_DISK_READ_BACK_S * in->bytes[form];
        in->disk_bytes_s = disk_rate(spec.dir);
    }
    psti_free(spec.dir);
    return 0;
}
