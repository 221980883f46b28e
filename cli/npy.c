/* SPDX-License-Identifier: Apache-2.0
 * The .npy writer. npy_header: any thread; the rest: main thread. */
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

size_t npy_header(char header[NPY_HEADER_BYTES], int dtype, int rank, const int64_t *shape)
{
    enum { FIXED = 10, ALIGN = 64 };
    char *text = header + FIXED;
    const char *type = descr(dtype);
    const size_t room = NPY_HEADER_BYTES - FIXED - ALIGN;
    if (type == NULL)
        return 0;
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
    char header[NPY_HEADER_BYTES];
    const size_t length = npy_header(header, dtype, rank, shape);
    if (length == 0)
        return fail("the field's type %d cannot be written as .npy", dtype);
    outfile out;
    const int exit_code = outfile_open(&out, path);
    if (exit_code != CLI_OK)
        return exit_code;
    errno = 0;
    fwrite(header, 1, length, out.file); /* failures stay in the stream for commit */
    fwrite(data, 1, bytes, out.file);
    return outfile_commit(&out);
}
