/* SPDX-License-Identifier: Apache-2.0
 * What this library was built with. A table made at build time: nothing is probed here. Any thread.
 * The build gives the libraries' versions as macros; one that is missing was not linked. */
#include <errno.h>
#include <stddef.h>

#include "penstock.h"

typedef struct feature {
    const char *name, *detail;
    int built;
} feature;

static const feature features[] = {
    {"jpeg", "libjpeg-turbo " PSTI_JPEG_VERSION, 1},
#ifdef PSTI_HAVE_PNG
    {"png", "libspng " PSTI_PNG_VERSION, 1},
#else
    {"png", "built without libspng", 0},
#endif
#ifdef PSTI_HAVE_WEBP
    {"webp", "libwebp " PSTI_WEBP_VERSION, 1},
#else
    {"webp", "built without libwebp", 0},
#endif
#ifdef PSTI_HAVE_GZIP
    {"gzip", "zlib " PSTI_GZIP_VERSION, 1},
#else
    {"gzip", "built without zlib", 0},
#endif
#ifdef PSTI_HAVE_DEFLATE
    {"deflate", "libdeflate " PSTI_DEFLATE_VERSION, 1},
#else
    {"deflate", "built without libdeflate", 0},
#endif
#ifdef PSTI_HAVE_FLAC
    {"flac", "libFLAC " PSTI_FLAC_VERSION, 1},
#else
    {"flac", "built without libFLAC", 0},
#endif
#ifdef PSTI_HAVE_FFT
    {"fft", "kissfft " PSTI_FFT_VERSION, 1},
#else
    {"fft", "built without kissfft", 0},
#endif
#ifdef PSTI_HAVE_URING
    {"uring", "liburing " PSTI_URING_VERSION, 1},
#else
    {"uring", "built without liburing", 0},
#endif
#ifdef PSTI_HAVE_CONTROL
    {"control", "libmicrohttpd " PSTI_CONTROL_VERSION, 1},
#else
    {"control", "built without libmicrohttpd", 0},
#endif
#ifdef PSTI_HAVE_BUCKET
    {"bucket", "libcurl " PSTI_BUCKET_VERSION, 1},
#else
    {"bucket", "built without libcurl, expat and libcrypto", 0},
#endif
#ifdef PSTI_HAVE_REMOTE
    {"remote", "hiredis " PSTI_REMOTE_VERSION, 1},
#else
    {"remote", "built without hiredis", 0},
#endif
};

int pst_feature(int index, const char **name, const char **detail)
{
    if (index < 0 || (size_t)index >= sizeof features / sizeof features[0])
        return -ENOENT;
    *name = features[index].name;
    *detail = features[index].detail;
    return features[index].built;
}
