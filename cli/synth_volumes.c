/* SPDX-License-Identifier: Apache-2.0
 * penstock synth volumes: made-up scans of two kidneys with tumours, and their masks. As raw NIfTI,
 * with the spacings and the spread of sizes that the KiTS scans have, or as the arrays that the
 * preparation of MLPerf's 3D U-Net makes of these. A body is a list of ellipsoids; a file is made
 * and packed line by line, along the axis that is the fastest in it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef PSTI_HAVE_GZIP
#include <zlib.h>
#endif

#include "cli.h"
#include "npy.h"
#include "scene.h"
#include "synth.h"

enum { AIR = -1000, PARTS_MAX = 24, LEAST = 128, NIFTI_HEAD = 352, CHUNK = 1 << 18 };
static const double target[3] = {1.6, 1.2, 1.2}; /* mm between voxels once prepared */

/* Coordinates run from 0 to 1 along each axis; later parts lie over earlier ones. */
typedef struct part {
    double centre[3], radius[3];
    int value; /* Hounsfield units */
    int label; /* -1: leaves the mask as it is */
} part;

typedef struct scan {
    int64_t size[3]; /* planes, rows, columns */
    double unit[3];  /* mm between them */
    part parts[PARTS_MAX];
    int count;
    uint64_t grain; /* key of the noise */
} scan;

/* ---- what a scan is like -------------------------------------------------------------------- */

static double draw_unit(draws *d)
{
    return (double)(draws_u64(d) >> 11) * 0x1p-53;
}

static double draw_range(draws *d, double low, double high)
{
    return low + (high - low) * draw_unit(d);
}

/* e^x for small x, the same on every machine. */
static double exp_of(double x)
{
    double sum = 1, term = 1;
    for (int i = 1; i < 40; i++) {
        term = term * x / i;
        sum += term;
    }
    return sum;
}

static double cube_root(double x)
{
    double r = 1;
    for (int i = 0; i < 200; i++)
        r -= (r * r * r - x) / (3 * r * r);
    return r;
}

/* Voxels once prepared: lognormal about 23.5 million, cut to 6 .. 75 million, times the scale. */
static double draw_voxels(draws *d, double scale)
{
    double normal = -6;
    for (int i = 0; i < 12; i++)
        normal += draw_unit(d);
    double voxels = 23.5e6 * exp_of(0.55 * normal);
    voxels = voxels < 6e6 ? 6e6 : voxels > 75e6 ? 75e6 : voxels;
    return voxels * scale;
}

static int64_t at_least(double value, int64_t least)
{
    const int64_t whole = (int64_t)(value + 0.5);
    return whole > least ? whole : least;
}

static bool is_npy(const synth_values *v)
{
    return strcmp(v->form, "npy") == 0;
}

static void draw_size(draws *d, const synth_values *v, scan *s)
{
    const bool npy = is_npy(v);
    const double voxels = draw_voxels(d, v->scale), ratio = draw_range(d, 1, 2);
    const double planes = cube_root(voxels / (ratio * ratio)), side = planes * ratio;
    const double thick = draw_range(d, 0.5, 5);
    const double prepared[3] = {planes, side, side};
    /* About 512 rows and columns at full size, within what scanners have. */
    double fine = side * target[1] / (512 * cube_root(v->scale));
    fine = fine < 0.44 ? 0.44 : fine > 1.04 ? 1.04 : fine;
    const double raw[3] = {thick, fine, fine};
    for (int i = 0; i < 3; i++) {
        s->unit[i] = npy ? target[i] : raw[i];
        s->size[i] = at_least(prepared[i] * target[i] / s->unit[i], npy ? LEAST : 2);
    }
}

static part *add_part(scan *s, const double centre[3], const double radius[3], int value, int label)
{
    part *p = &s->parts[s->count++];
    *p = (part){.value = value, .label = label};
    memcpy(p->centre, centre, sizeof p->centre);
    memcpy(p->radius, radius, sizeof p->radius);
    return p;
}

static void add_ball(scan *s, draws *d, const part *near, double size, int value, int label)
{
    double centre[3], radius[3];
    for (int i = 0; i < 3; i++) {
        centre[i] = near->centre[i] + draw_range(d, -0.8, 0.8) * near->radius[i];
        radius[i] = size * draw_range(d, 0.8, 1.2);
    }
    add_part(s, centre, radius, value, label);
}

/* Body, fat and muscle, spine, liver; then kidneys with tumours, and crumbs of both classes. */
static void draw_body(draws *d, scan *s)
{
    const double z = draw_range(d, 0.42, 0.58);
    const double big = draw_range(d, 0.85, 1.15);
    add_part(s, (double[3]){0.5, 0.52, 0.5}, (double[3]){9, 0.38, 0.46}, -100, -1);
    add_part(s, (double[3]){0.5, 0.52, 0.5}, (double[3]){9, 0.33, 0.41}, 45, -1);
    add_part(s, (double[3]){0.5, 0.74, 0.5}, (double[3]){9, 0.07, 0.06}, 420, -1);
    add_part(s, (double[3]){0.5, 0.76, 0.5}, (double[3]){9, 0.02, 0.02}, 1100, -1);
    add_part(s, (double[3]){0.35, 0.44, 0.33}, (double[3]){0.3, 0.2, 0.18}, 95, -1);
    part *kidneys[2];
    for (int i = 0; i < 2; i++) {
        const double centre[3] = {z + draw_range(d, -0.05, 0.05), draw_range(d, 0.6, 0.66),
                                  i ? draw_range(d, 0.66, 0.72) : draw_range(d, 0.28, 0.34)};
        kidneys[i] = add_part(s, centre, (double[3]){0.15 * big, 0.075 * big, 0.065 * big}, 165, 1);
    }
    for (int i = draws_int(d, 0, 2); i > 0; i--)
        add_ball(s, d, kidneys[draws_int(d, 0, 1)], draw_range(d, 0.02, 0.07), 85, 2);
    for (int i = draws_int(d, 1, 4); i > 0; i--)
        add_ball(s, d, kidneys[draws_int(d, 0, 1)], draw_range(d, 0.006, 0.014), 150,
                 draws_int(d, 1, 2));
}

static scan draw_scan(const synth_values *v, int64_t number)
{
    draws d = draws_of(v->seed, (uint64_t)number + 16);
    scan s = {.grain = draws_u64(&d)};
    draw_size(&d, v, &s);
    draw_body(&d, &s);
    return s;
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Which elements of the line lie in the part: *from .. *to - 1. at: the line's place on the other
 * two axes. */
static void span_of(const scan *s, const part *p, int axis, const double at[3], int64_t *from,
                    int64_t *to)
{
    const double n = (double)s->size[axis];
    double rest = 1;
    for (int i = 0; i < 3; i++)
        if (i != axis)
            rest -= (at[i] - p->centre[i]) * (at[i] - p->centre[i]) / (p->radius[i] * p->radius[i]);
    const double half = rest > 0 ? p->radius[axis] * __builtin_sqrt(rest) : 0;
    const double low = (p->centre[axis] - half) * n, high = (p->centre[axis] + half) * n;
    *from = low > 0 ? (int64_t)low : 0;
    *to = high < n ? (int64_t)high : s->size[axis];
}

static void add_grain(uint64_t key, int16_t *line, int64_t n)
{
    draws d = {.key = key};
    for (int64_t i = 0; i < n; i += 4) {
        const uint64_t bits = draws_u64(&d);
        for (int64_t k = i; k < n && k < i + 4; k++) {
            const int two = (int)(bits >> 16 * (k - i) & 0xffff);
            line[k] = (int16_t)(line[k] + (two & 31) + (two >> 8 & 31) - 31);
        }
    }
}

/* values or labels may be NULL. number: of the line in its file. */
static void draw_line(const scan *s, int axis, const double at[3], int64_t number, int16_t *values,
                      uint8_t *labels)
{
    const int64_t n = s->size[axis];
    for (int64_t i = 0; values && i < n; i++)
        values[i] = AIR;
    if (labels)
        memset(labels, 0, (size_t)n);
    for (int k = 0; k < s->count; k++) {
        int64_t from, to;
        span_of(s, &s->parts[k], axis, at, &from, &to);
        for (int64_t i = from; values && i < to; i++)
            values[i] = (int16_t)s->parts[k].value;
        if (labels && s->parts[k].label >= 0 && to > from)
            memset(labels + from, s->parts[k].label, (size_t)(to - from));
    }
    if (values)
        add_grain(s->grain ^ (uint64_t)number * 0x9e3779b97f4a7c15u, values, n);
}

/* ---- a file that grows ---------------------------------------------------------------------- */

typedef struct sink {
    int fd, error;
    int64_t bytes;
#ifdef PSTI_HAVE_GZIP
    z_stream zip;
#endif
    bool packs;
    unsigned char *room; /* CHUNK bytes of the thread's */
} sink;

static void put_plain(sink *s, const unsigned char *bytes, size_t size)
{
    while (size > 0 && s->error == 0) {
        const ssize_t n = write(s->fd, bytes, size);
        if (n < 0 && errno != EINTR)
            s->error = errno;
        if (n <= 0)
            continue;
        bytes += n;
        size -= (size_t)n;
        s->bytes += n;
    }
}

#ifdef PSTI_HAVE_GZIP
static void pack(sink *s, const void *bytes, size_t size, int flush)
{
    s->zip.next_in = (unsigned char *)bytes;
    s->zip.avail_in = (uInt)size;
    do {
        s->zip.next_out = s->room;
        s->zip.avail_out = CHUNK;
        deflate(&s->zip, flush);
        put_plain(s, s->room, CHUNK - s->zip.avail_out);
    } while (s->zip.avail_out == 0 && s->error == 0);
}
#endif

static void sink_open(sink *s, const char *path, bool packs, unsigned char *room)
{
    *s = (sink){.room = room, .packs = packs};
    s->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    s->error = s->fd < 0 ? errno : 0;
#ifdef PSTI_HAVE_GZIP
    if (packs && s->error == 0 &&
        deflateInit2(&s->zip, 4, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        s->error = ENOMEM;
#endif
}

static void sink_put(sink *s, const void *bytes, size_t size)
{
#ifdef PSTI_HAVE_GZIP
    if (s->packs && s->error == 0) {
        pack(s, bytes, size, Z_NO_FLUSH);
        return;
    }
#endif
    put_plain(s, bytes, size);
}

static int sink_close(sink *s, const char *path, int64_t *bytes)
{
#ifdef PSTI_HAVE_GZIP
    if (s->packs && s->error == 0)
        pack(s, NULL, 0, Z_FINISH);
    if (s->packs && s->fd >= 0)
        deflateEnd(&s->zip);
#endif
    if (s->fd >= 0 && close(s->fd) != 0 && s->error == 0)
        s->error = errno;
    if (s->error != 0 && s->fd >= 0)
        unlink(path);
    *bytes += s->bytes;
    return s->error;
}

/* ---- files ---------------------------------------------------------------------------------- */

typedef struct tools {
    unsigned char *room;
    int16_t *values;
    uint8_t *labels;
    float *floats;
    int64_t length; /* of a line that fits */
} tools;

static void *tools_new(void)
{
    tools *t = cli_alloc(sizeof *t);
    *t = (tools){.room = cli_alloc(CHUNK)};
    return t;
}

static void tools_free(void *tools_arg)
{
    tools *t = tools_arg;
    free(t->room);
    free(t->values);
    free(t->labels);
    free(t->floats);
    free(t);
}

static void tools_fit(tools *t, int64_t length)
{
    if (length <= t->length)
        return;
    t->values = cli_realloc(t->values, (size_t)length, sizeof *t->values);
    t->labels = cli_realloc(t->labels, (size_t)length, sizeof *t->labels);
    t->floats = cli_realloc(t->floats, (size_t)length, sizeof *t->floats);
    t->length = length;
}

static void put_i16(unsigned char *at, int value)
{
    at[0] = (unsigned char)(value & 255);
    at[1] = (unsigned char)(value >> 8 & 255);
}

static void put_f32(unsigned char *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(bits >> 8 * i & 255);
}

static void nifti_head(const scan *s, bool mask, unsigned char head[NIFTI_HEAD])
{
    memset(head, 0, NIFTI_HEAD);
    put_i16(head, 348);
    put_i16(head + 40, 3);
    put_f32(head + 76, 1);
    for (int i = 0; i < 3; i++) {
        put_i16(head + 42 + 2 * i, (int)s->size[i]);
        put_f32(head + 80 + 4 * i, (float)s->unit[i]);
    }
    for (int i = 3; i < 7; i++)
        put_i16(head + 42 + 2 * i, 1);
    put_i16(head + 70, mask ? 2 : 4); /* u8, i16 */
    put_i16(head + 72, mask ? 8 : 16);
    put_f32(head + 108, NIFTI_HEAD);
    put_f32(head + 112, 1);
    head[123] = 2; /* mm */
    memcpy(head + 344, "n+1", 4);
}

static void put_head(sink *out, const scan *s, bool npy, bool mask)
{
    unsigned char head[NIFTI_HEAD];
    char text[NPY_HEADER_BYTES];
    const int64_t shape[4] = {1, s->size[0], s->size[1], s->size[2]};
    if (!npy) {
        nifti_head(s, mask, head);
        sink_put(out, head, sizeof head);
    } else {
        sink_put(out, text, npy_header(text, mask ? PST_U8 : PST_F32, 4, shape));
    }
}

/* What the preparation makes of a value: cut to -79 .. 304, less 101, by 76.9. */
static void put_line(sink *out, tools *t, int64_t n, bool npy, bool mask)
{
    for (int64_t i = 0; npy && !mask && i < n; i++) {
        const int x = t->values[i] < -79 ? -79 : t->values[i] > 304 ? 304 : t->values[i];
        t->floats[i] = ((float)x - 101.0f) / 76.9f;
    }
    if (mask)
        sink_put(out, t->labels, (size_t)n);
    else if (npy)
        sink_put(out, t->floats, (size_t)n * sizeof *t->floats);
    else
        sink_put(out, t->values, (size_t)n * sizeof *t->values);
}

/* NIfTI has the planes side by side, NPY the columns. */
static int write_scan(const scan *s, tools *t, const char *path, bool npy, bool mask,
                      int64_t *bytes)
{
    const int axis = npy ? 2 : 0, outer = npy ? 0 : 2;
    sink out;
    sink_open(&out, path, !npy && strstr(path, ".gz"), t->room);
    put_head(&out, s, npy, mask);
    tools_fit(t, s->size[axis]);
    int64_t number = 0;
    for (int64_t a = 0; a < s->size[outer] && out.error == 0; a++)
        for (int64_t b = 0; b < s->size[1] && out.error == 0; b++) {
            double at[3] = {0};
            at[outer] = ((double)a + 0.5) / (double)s->size[outer];
            at[1] = ((double)b + 0.5) / (double)s->size[1];
            draw_line(s, axis, at, number++, mask ? NULL : t->values, mask ? t->labels : NULL);
            put_line(&out, t, s->size[axis], npy, mask);
        }
    return sink_close(&out, path, bytes);
}

#ifdef PSTI_HAVE_GZIP
#define NIFTI_ENDING "nii.gz"
#else
#define NIFTI_ENDING "nii"
#endif

static int make_scan(const synth_values *v, void *tools_arg, int64_t number, char *path,
                     int64_t *bytes)
{
    static const char *const names[2][2] = {
        {"/imaging." NIFTI_ENDING, "/segmentation." NIFTI_ENDING}, {"_x.npy", "_y.npy"}};
    const scan s = draw_scan(v, number);
    const bool npy = is_npy(v);
    snprintf(path, PATH_MAX, "%s/case_%05lld", v->dir, (long long)number);
    if (!npy && mkdir(path, 0777) != 0 && errno != EEXIST)
        return errno;
    int error = 0;
    for (int mask = 0; mask < 2 && error == 0; mask++) {
        snprintf(path, PATH_MAX, "%s/case_%05lld%s", v->dir, (long long)number, names[npy][mask]);
        error = write_scan(&s, tools_arg, path, npy, mask, bytes);
    }
    return error;
}

static int no_folders(const synth_values *v)
{
    (void)v;
    return CLI_OK;
}

static const char *const forms[] = {"nifti", "npy", NULL};

const synth_kind synth_volumes = {
    .name = "volumes",
    .things = "scans",
    .forms = forms,
    .scales = true,
    .folders = no_folders,
    .tools_new = tools_new,
    .tools_free = tools_free,
    .make = make_scan,
};
