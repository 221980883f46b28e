/* SPDX-License-Identifier: Apache-2.0
 * penstock synth: made-up photographs in class folders, to try things out and to test with. The
 * files are a function of seed and number alone; threads take the next number and share nothing
 * else. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "progress.h"
#include "scene.h"

typedef struct synth_values {
    const char *kind, *dir;
    int64_t count, classes, jobs;
    uint64_t seed;
    bool force;
} synth_values;

/* What one file is like, drawn from (seed, number). */
typedef struct photo {
    scene scene;
    int quality;
    bool grey, progressive, halved; /* halved: colour at half the resolution */
} photo;

/* Shared by the threads of one run. */
typedef struct shop {
    const synth_values *values;
    atomic_int_fast64_t next, done, bytes;
    atomic_int error; /* errno of the first failure; ends the others */
    pthread_mutex_t lock;
    char failed[PATH_MAX]; /* its path; guarded by lock */
} shop;

/* ---- what a photo is like ------------------------------------------------------------------- */

static void draw_size(draws *d, int *width, int *height)
{
    static const struct {
        int permille, width, height;
    } sizes[] = {{470, 500, 375}, {140, 375, 500}, {120, 500, 333}, {50, 333, 500},
                 {40, 500, 500},  {40, 640, 480},  {20, 480, 640},  {30, 400, 300},
                 {30, 320, 240},  {20, 256, 256},  {10, 800, 600},  {5, 1024, 768}};
    int at = draws_int(d, 0, 999);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        at -= sizes[i].permille;
        if (at < 0) {
            *width = sizes[i].width;
            *height = sizes[i].height;
            return;
        }
    }
    *width = draws_int(d, 150, 700); /* the rest: any */
    *height = draws_int(d, 150, 700);
}

static photo draw_photo(uint64_t seed, int64_t number, int64_t class_index, int64_t classes)
{
    draws d = draws_of(seed, (uint64_t)number + 16);
    photo p = {.quality = draws_int(&d, 93, 98)};
    p.scene.seed = draws_u64(&d);
    p.scene.hue = (int)(class_index * 1536 / classes) + draws_int(&d, -30, 30);
    p.scene.texture = draws_int(&d, 70, 440);
    p.scene.grain = draws_int(&d, 80, 440);
    p.grey = draws_int(&d, 0, 99) < 3;
    p.progressive = draws_int(&d, 0, 99) < 4;
    p.halved = draws_int(&d, 0, 99) < 25;
    draw_size(&d, &p.scene.width, &p.scene.height);
    return p;
}

/* ---- JPEG ----------------------------------------------------------------------------------- */

/* A thread's encoder. libjpeg's jumps stay in this file. */
typedef struct press {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    unsigned char *buf; /* kept from picture to picture */
    unsigned long capacity, size;
    canvas canvas;
} press;

static void on_jpeg_error(j_common_ptr jpeg)
{
    press *p = jpeg->client_data;
    longjmp(p->out, 1);
}

static void press_init(press *p)
{
    memset(p, 0, sizeof *p);
    p->jpeg.err = jpeg_std_error(&p->errors);
    p->errors.error_exit = on_jpeg_error;
    p->jpeg.client_data = p;
    p->capacity = 4 << 20;
    p->buf = cli_alloc(p->capacity);
}

static void press_fini(press *p)
{
    canvas_fini(&p->canvas);
    free(p->buf);
}

static void set_parameters(struct jpeg_compress_struct *jpeg, const photo *like)
{
    jpeg->image_width = (JDIMENSION)like->scene.width;
    jpeg->image_height = (JDIMENSION)like->scene.height;
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_YCbCr;
    jpeg_set_defaults(jpeg);
    jpeg_set_colorspace(jpeg, like->grey ? JCS_GRAYSCALE : JCS_YCbCr);
    jpeg_set_quality(jpeg, like->quality, TRUE);
    jpeg->dct_method = JDCT_ISLOW;
    if (!like->grey && !like->halved)
        jpeg->comp_info[0].h_samp_factor = jpeg->comp_info[0].v_samp_factor = 1;
    if (like->progressive)
        jpeg_simple_progression(jpeg);
}

/* Encodes the canvas into p->buf, p->size bytes. Returns 0 or an errno. */
static int press_photo(press *p, const photo *like)
{
    unsigned char *const before = p->buf;
    p->size = p->capacity;
    if (setjmp(p->out) != 0) {
        jpeg_destroy_compress(&p->jpeg);
        return ENOMEM; /* all that can go wrong with parameters of our own */
    }
    /* A new one each time: a progressive picture leaves its own Huffman tables behind in the old
     * one. */
    jpeg_create_compress(&p->jpeg);
    jpeg_mem_dest(&p->jpeg, &p->buf, &p->size);
    set_parameters(&p->jpeg, like);
    jpeg_start_compress(&p->jpeg, TRUE);
    while (p->jpeg.next_scanline < p->jpeg.image_height) {
        JSAMPROW row =
            p->canvas.pixels + (size_t)p->jpeg.next_scanline * (size_t)like->scene.width * 3;
        jpeg_write_scanlines(&p->jpeg, &row, 1);
    }
    jpeg_finish_compress(&p->jpeg);
    jpeg_destroy_compress(&p->jpeg);
    if (p->buf != before) { /* it was too small: the library made a larger one, which is ours now */
        free(before);
        p->capacity = p->size;
    }
    return 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

static int write_all(int fd, const unsigned char *bytes, size_t size)
{
    while (size > 0) {
        const ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        bytes += n;
        size -= (size_t)n;
    }
    return 0;
}

/* A file that could not be written whole is removed again. */
static int write_file(const char *path, const unsigned char *bytes, size_t size)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    int error = write_all(fd, bytes, size);
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error != 0)
        unlink(path);
    return error;
}

static void note_failure(shop *s, int error, const char *path)
{
    int none = 0;
    pthread_mutex_lock(&s->lock);
    if (atomic_compare_exchange_strong(&s->error, &none, error))
        snprintf(s->failed, sizeof s->failed, "%s", path);
    pthread_mutex_unlock(&s->lock);
}

static void make_photo(shop *s, press *p, int64_t number)
{
    char path[PATH_MAX];
    const int64_t class_index = number % s->values->classes;
    const photo like = draw_photo(s->values->seed, number, class_index, s->values->classes);
    scene_render(&like.scene, &p->canvas);
    snprintf(path, sizeof path, "%s/class_%03lld/img_%06lld.jpg", s->values->dir,
             (long long)class_index, (long long)number);
    int error = press_photo(p, &like);
    if (error == 0)
        error = write_file(path, p->buf, p->size);
    if (error != 0) {
        note_failure(s, error, path);
        return;
    }
    atomic_fetch_add(&s->bytes, (int64_t)p->size);
    atomic_fetch_add(&s->done, 1);
}

static bool going_on(shop *s)
{
    return atomic_load(&s->error) == 0 && interrupt_signal() == 0;
}

static void show_progress(shop *s, int64_t begin_ns)
{
    const double seconds = (double)(clock_ns() - begin_ns) * 1e-9;
    const int64_t done = atomic_load(&s->done);
    progress_show("synth: %lld of %lld photos, %.0f a second", (long long)done,
                  (long long)s->values->count, seconds > 0 ? (double)done / seconds : 0);
}

static void work(shop *s, bool shows)
{
    press *p = cli_alloc(sizeof *p);
    press_init(p);
    const int64_t begin_ns = clock_ns();
    for (;;) {
        const int64_t number = atomic_fetch_add(&s->next, 1);
        if (number >= s->values->count || !going_on(s))
            break;
        make_photo(s, p, number);
        if (shows)
            show_progress(s, begin_ns);
    }
    press_fini(p);
    free(p);
}

static void *work_thread(void *shop_arg)
{
    work(shop_arg, false);
    return NULL;
}

static void work_all(shop *s, int64_t jobs)
{
    enum { JOBS_MAX = 256 };
    pthread_t threads[JOBS_MAX];
    int64_t started = 0;
    while (started < jobs - 1 && pthread_create(&threads[started], NULL, work_thread, s) == 0)
        started++; /* fewer threads make the same files */
    work(s, true);
    for (int64_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return fail_errno(errno, "make folder", path);
    return CLI_OK;
}

static int check_empty(const synth_values *v)
{
    DIR *dir = opendir(v->dir);
    if (dir == NULL)
        return fail_errno(errno, "open folder", v->dir);
    int entries = 0;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        entries += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    if (entries > 0 && !v->force)
        return fail("%s is not empty; choose another folder, or --force to write into this one",
                    v->dir);
    return CLI_OK;
}

static int make_folders(const synth_values *v)
{
    int exit_code = make_folder(v->dir);
    if (exit_code == CLI_OK)
        exit_code = check_empty(v);
    const int64_t used = v->count < v->classes ? v->count : v->classes;
    for (int64_t i = 0; i < used && exit_code == CLI_OK; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/class_%03lld", v->dir, (long long)i) >=
            (int)sizeof path - 32)
            return fail("the path %.60s… is too long", v->dir);
        exit_code = make_folder(path);
    }
    return exit_code;
}

static int run_synth(const void *values)
{
    const synth_values *v = values;
    char count[TEXT_SHORT], size[TEXT_SHORT], mean[TEXT_SHORT], time[TEXT_SHORT];
    static const char *const kinds[] = {"images", NULL};
    if (strcmp(v->kind, "images") != 0)
        return fail_usage("synth cannot make '%s'%s; it makes: images", v->kind,
                          text_nearest(v->kind, kinds) ? " (did you mean images?)" : "");
    const int exit_code = make_folders(v);
    if (exit_code != CLI_OK)
        return exit_code;
    shop s = {.values = v, .lock = PTHREAD_MUTEX_INITIALIZER};
    const int64_t begin_ns = clock_ns();
    work_all(&s, v->jobs > 0 ? v->jobs : machine_cpus());
    progress_clear();
    if (atomic_load(&s.error) != 0)
        return fail_errno(atomic_load(&s.error), "write", s.failed);
    const uint64_t done = (uint64_t)atomic_load(&s.done), bytes = (uint64_t)atomic_load(&s.bytes);
    printf("%s photos in %s, %s, %s each on average, %s%s\n", text_count(count, done), v->dir,
           text_bytes(size, bytes), text_bytes(mean, done > 0 ? bytes / done : 0),
           text_seconds(time, (double)(clock_ns() - begin_ns) * 1e-9),
           interrupt_signal() != 0 ? " (interrupted)" : "");
    return CLI_OK;
}

#define AT(field) offsetof(synth_values, field)
static const arg_operand operands[] = {
    {"KIND", AT(kind), false, "what to make: images"},
    {"DIR", AT(dir), false, "folder to make them in; must be new or empty"},
    {NULL, 0, false, NULL},
};

static const arg_option options[] = {
    {.name = "count",
     .type = ARG_INT,
     .meta = "N",
     .offset = AT(count),
     .min = 1,
     .max = 1e9,
     .required = true,
     .help = "how many samples"},
    OPT_U64("seed", "S", AT(seed), "0", "the same seed gives the same files, whatever the machine"),
    OPT_INT("classes", "K", AT(classes), 1, 100000, "10",
            "class folders; a class shows in the colours"),
    OPT_INT("jobs", "J", AT(jobs), 0, 256, "0", "threads; 0 = one per CPU. Changes no byte"),
    OPT_FLAG("force", AT(force), "write into a folder that is not empty"),
    OPT_END,
};
#undef AT

const command command_synth = {
    .name = "synth",
    .summary = "make photo-like JPEGs in class folders, to try things out",
    .about = "The files look like photographs to a decoder: about 110 KB each, mostly 500x375, "
             "some of other sizes, a few grey, a "
             "few progressive, colour at full and at half resolution.",
    .examples = "penstock synth images photos --count 200\n"
                "penstock synth images big --count 20000 --classes 100 --seed 7",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(synth_values),
    .run = run_synth,
};
