/* SPDX-License-Identifier: Apache-2.0
 * The .npy writer. Main thread. */
#include <errno.h>
#include <string.h>

#include "cli.h"
#include "npy.h"
#include "outfile.h"

static const char *descr(int dtype)
{
    static const char *const names[] = {
        [PST_U8] = "|u1",  [PST_I8] = "|i1",  [PST_U16] = "<u2", [PST_I16] = "<i2",
        [PST_I32] = "<i4", [PST_I64] = "<i8", [PST_F16] = "<f2", [PST_BF16] = "<u2",
        [PST_F32] = "<f4", [PST_F64] = "<f8", [PST_BOOL] = "|b1"};
    if (dtype < PST_U8 || dtype > PST_BOOL)
        return NULL;
    return names[dtype];
}

/* Fills header with magic, length and dictionary, padded so that the data starts at a multiple
 * of 64. Returns its size. */
static size_t make_header(char header[512], const char *type, int rank, const int64_t *shape)
{
    enum { FIXED = 10, ALIGN = 64 };
    char *text = header + FIXED;
    const size_t room = 512 - FIXED - ALIGN;
    size_t used =
        (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
    for (int i = 0; i < rank; i++)
        used +=
            (size_t)snprintf(text + used, room - used, i ? ", %lld" : "%lld", (long long)shape[i]);
    used += (size_t)snprintf(text + used, room - used, rank == 1 ? ",), }" : "), }");
    while ((FIXED + used + 1) % ALIGN != 0)
        text[used++] = ' ';
    text[used++] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(used & 255);
    header[9] = (char)(used >> 8);
    return FIXED + used;
}

int npy_write(const char *path, int dtype, int rank, const int64_t *shape, const void *data,
              size_t bytes)
{
    char header[512];
    const char *type = descr(dtype);
    if (type == NULL)
        return fail("the field's type %d cannot be written as .npy", dtype);
    outfile out;
    const int exit_code = outfile_open(&out, path);
    if (exit_code != CLI_OK)
        return exit_code;
    const size_t length = make_header(header, type, rank, shape);
    errno = 0;
    fwrite(header, 1, length, out.file); /* failures stay in the stream for commit */
    fwrite(data, 1, bytes, out.file);
    return outfile_commit(&out);
}
