/* SPDX-License-Identifier: Apache-2.0
 * penstock synth: made-up data, to try things out and to test with. The files are a function of
 * seed and number alone; threads take the next number and share nothing else. What is made is the
 * matter of synth_KIND.c; this file has the command, the threads and the writing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "progress.h"
#include "synth.h"

static const synth_kind *const kinds[] = {&synth_images, &synth_volumes, &synth_detection,
                                          &synth_speech};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Shared by the threads of one run. */
typedef struct shop {
    const synth_kind *kind;
    const synth_values *values;
    atomic_int_fast64_t next, done, bytes;
    atomic_int error; /* errno of the first failure; ends the others */
    pthread_mutex_t lock;
    char failed[PATH_MAX]; /* its path; guarded by lock */
} shop;

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

int synth_write(const char *path, const unsigned char *bytes, size_t size)
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

int synth_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return fail_errno(errno, "make folder", path);
    return CLI_OK;
}

static void note_failure(shop *s, int error, const char *path)
{
    int none = 0;
    pthread_mutex_lock(&s->lock);
    if (atomic_compare_exchange_strong(&s->error, &none, error))
        snprintf(s->failed, sizeof s->failed, "%s", path);
    pthread_mutex_unlock(&s->lock);
}

static void make_one(shop *s, void *tools, int64_t number)
{
    char path[PATH_MAX];
    int64_t bytes = 0;
    const int error = s->kind->make(s->values, tools, number, path, &bytes);
    if (error != 0) {
        note_failure(s, error, path);
        return;
    }
    atomic_fetch_add(&s->bytes, bytes);
    atomic_fetch_add(&s->done, 1);
}

static bool going_on(shop *s)
{
    return atomic_load(&s->error) == 0 && interrupt_signal() == 0;
}

static void show_progress(shop *s)
{
    progress_step(&(progress_at){.what = "synth",
                                 .things = s->kind->things,
                                 .done = (uint64_t)atomic_load(&s->done),
                                 .all = (uint64_t)s->values->count});
}

static void work(shop *s, bool shows)
{
    void *tools = s->kind->tools_new();
    for (;;) {
        const int64_t number = atomic_fetch_add(&s->next, 1);
        if (number >= s->values->count || !going_on(s))
            break;
        make_one(s, tools, number);
        if (shows)
            show_progress(s);
    }
    s->kind->tools_free(tools);
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

static void end_all(shop *s)
{
    char path[PATH_MAX];
    int64_t bytes = 0;
    const int error = s->kind->end ? s->kind->end(s->values, path, &bytes) : 0;
    if (error != 0)
        note_failure(s, error, path);
    atomic_fetch_add(&s->bytes, bytes);
}

/* ---- the command ---------------------------------------------------------------------------- */

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

static int make_folders(const synth_kind *kind, const synth_values *v)
{
    int exit_code = synth_folder(v->dir);
    if (exit_code == CLI_OK)
        exit_code = check_empty(v);
    return exit_code == CLI_OK ? kind->folders(v) : exit_code;
}

/* NULL after a message. */
static const synth_kind *find_kind(const char *name)
{
    const char *names[KINDS + 1] = {NULL};
    char all[128] = "";
    for (int i = 0; i < KINDS; i++) {
        names[i] = kinds[i]->name;
        if (strcmp(name, names[i]) == 0)
            return kinds[i];
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = text_nearest(name, names);
    fail_usage("synth cannot make '%s'%s%s%s; it makes: %s", name, near ? " (did you mean " : "",
               near ? near : "", near ? "?)" : "", all);
    return NULL;
}

/* What the kind knows of --form and --scale; fills in the usual form. */
static int check_form(const synth_kind *kind, synth_values *v)
{
    if (v->scale != 1 && !kind->scales)
        return fail_usage("--scale is not for %s", kind->name);
    if (!kind->forms)
        return v->form ? fail_usage("--form is not for %s", kind->name) : CLI_OK;
    char all[128] = "";
    for (int i = 0; kind->forms[i]; i++) {
        if (!v->form || strcmp(v->form, kind->forms[i]) == 0) {
            v->form = kind->forms[i];
            return CLI_OK;
        }
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "",
                 kind->forms[i]);
    }
    return fail_usage("--form '%s' is unknown for %s; there are: %s", v->form, kind->name, all);
}

static int run_synth(const void *values)
{
    synth_values given = *(const synth_values *)values;
    const synth_values *v = &given;
    char count[TEXT_SHORT], size[TEXT_SHORT], mean[TEXT_SHORT], time[TEXT_SHORT];
    const synth_kind *kind = find_kind(v->kind);
    if (!kind)
        return CLI_USAGE;
    if (v->quiet)
        progress_quiet();
    int exit_code = check_form(kind, &given);
    if (exit_code == CLI_OK)
        exit_code = make_folders(kind, v);
    if (exit_code != CLI_OK)
        return exit_code;
    shop s = {.kind = kind, .values = v, .lock = PTHREAD_MUTEX_INITIALIZER};
    const int64_t begin_ns = clock_ns();
    work_all(&s, v->jobs > 0 ? v->jobs : machine_cpus());
    if (going_on(&s))
        end_all(&s);
    progress_clear();
    if (atomic_load(&s.error) != 0)
        return fail_errno(atomic_load(&s.error), "write", s.failed);
    const uint64_t done = (uint64_t)atomic_load(&s.done), bytes = (uint64_t)atomic_load(&s.bytes);
    if (v->quiet)
        return CLI_OK;
    printf("%s %s in %s, %s, %s each on average, %s%s\n", text_count(count, done), kind->things,
           v->dir, text_bytes(size, bytes), text_bytes(mean, done > 0 ? bytes / done : 0),
           text_seconds(time, (double)(clock_ns() - begin_ns) * 1e-9),
           interrupt_signal() != 0 ? " (interrupted)" : "");
    return CLI_OK;
}

#define AT(field) offsetof(synth_values, field)
static const arg_operand operands[] = {
    {"KIND", AT(kind), false,
     "what to make: images, volumes, detection (pictures with COCO annotations), speech"},
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
            "class folders, or kinds of objects; a class shows in the colours"),
    OPT_REAL("scale", "F", AT(scale), 1e-6, 1000, "1",
             "times so many voxels, pixels or samples of sound; not for images"),
    OPT_TEXT("form", "FORM", AT(form), NULL,
             "volumes: nifti (as scanned) or npy (prepared); speech: flac or wav. The first if not "
             "said"),
    OPT_INT("jobs", "J", AT(jobs), 0, 256, "0", "threads; 0 = one per CPU. Changes no byte"),
    OPT_FLAG("force", AT(force), "write into a folder that is not empty"),
    OPT_FLAG("quiet", AT(quiet), "no progress, no summary"),
    OPT_END,
};
#undef AT

const command command_synth = {
    .name = "synth",
    .summary = "make data that looks real to a decoder, to try things out",
    .about = "images: JPEGs in class folders, about 110 KB each, mostly 500x375, some of other "
             "sizes, a few grey, a few progressive, colour at full and at half resolution.\n"
             "volumes: scans of two kidneys with tumours, and their masks, as NIfTI with the sizes "
             "and spacings of the KiTS data, or as the arrays that MLPerf's 3D U-Net is trained "
             "on: image and mask 30 to 375 MB, 136 MB on average.\n"
             "detection: JPEGs of COCO's sizes with COCO annotations, objects as many and as large "
             "as there, with boxes and polygons.\n"
             "speech: LibriSpeech's layout and lengths, 1.3 to 16.7 seconds at 16 kHz, silent at "
             "both ends; made-up words that the sound tells.",
    .examples = "penstock synth images photos --count 200\n"
                "penstock synth images big --count 20000 --classes 100 --seed 7\n"
                "penstock synth volumes scans --count 8 --scale 0.05\n"
                "penstock synth detection objects --count 500 --scale 0.1\n"
                "penstock synth speech talk --count 300 --scale 0.25",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(synth_values),
    .run = run_synth,
};
