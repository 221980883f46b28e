/* SPDX-License-Identifier: Apache-2.0
 * penstock feed: runs a job and consumes its batches as fast as it can, or at a trainer's pace.
 * Main thread; the signal handler only aborts the job, so what was delivered until then is
 * reported, recorded and saved. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "choose.h"
#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "ledger.h"
#include "open.h"
#include "outfile.h"
#include "progress.h"
#include "report.h"
#include "state.h"

typedef struct feed_values {
    const char *data, *pipeline, *split, *fields, *sampler, *rank, *on_error, *ledger, *save_state,
        *load_state, *index_dir, *group, *bucket_by, *forms, *engine, *without, *disk, *remote,
        *watch, *trace;
    int64_t batch, epochs, start_epoch, workers, max_batches, io_depth, ready_depth, reorder_window,
        draws;
    uint64_t seed, memory, cache;
    double step_ms;
    int order, ends, io, sampling, schedule;
    bool json, quiet;
} feed_values;

/* A running feed: everything that is to be closed. */
typedef struct feed {
    const feed_values *v;
    char pipeline[PIPELINE_BYTES]; /* canonical */
    pst_engine *engine;
    pst_dataset *data;
    pst_job *job;
    pst_job_options opts;
    choice chosen;
    ledger ledger;
    report report;
    int64_t begin_ns;
} feed;

/* ---- opening -------------------------------------------------------------------------------- */

static int open_engine(feed *f)
{
    pst_engine_options opts;
    pst_error err = {0};
    pst_engine_options_init(&opts);
    opts.memory_bytes = f->v->memory;
    opts.cache_bytes = f->v->cache;
    opts.workers = (int)f->v->workers;
    opts.io_depth = (int)f->v->io_depth;
    opts.io = f->v->io;
    opts.address = f->v->engine;
    opts.disk = f->v->disk;
    opts.remote = f->v->remote;
    opts.watch = f->v->watch;
    opts.trace = f->v->trace;
    const int exit_code = choose_forms(f->v->forms, opts.forms);
    if (exit_code != CLI_OK)
        return exit_code;
    if (pst_engine_new(&opts, &f->engine, &err) < 0)
        return fail_error(&err);
    pst_engine_settings(f->engine, &f->report.settings);
    return CLI_OK;
}

static int fill_options(feed *f)
{
    const feed_values *v = f->v;
    pst_job_options *o = &f->opts;
    pst_job_options_init(o);
    o->pipeline = v->pipeline;
    o->split = v->split;
    o->fields = v->fields;
    o->batch = (int)v->batch;
    o->seed = v->seed;
    o->first_epoch = (uint64_t)v->start_epoch;
    o->epochs = (uint64_t)v->epochs;
    o->order = v->order;
    o->ends = v->ends;
    o->ready_depth = (int)v->ready_depth;
    o->reorder_window = v->reorder_window;
    o->sampling = v->sampling;
    o->schedule = v->schedule;
    o->group = v->group;
    o->bucket_by = v->bucket_by;
    int exit_code = choose_rank(v->rank, o);
    if (exit_code == CLI_OK)
        exit_code = choose_without(v->without, o);
    if (exit_code == CLI_OK)
        exit_code = choose_on_error(v->on_error, o);
    return exit_code;
}

static int open_job(feed *f)
{
    pst_error err = {0};
    int exit_code = choose_sampler(f->v->sampler, f->data, &f->opts, &f->chosen);
    if (exit_code != CLI_OK)
        return exit_code;
    if (f->v->draws > 0)
        f->opts.draws = f->v->draws;
    if (pst_job_open(f->engine, f->data, &f->opts, &f->job, &err) < 0)
        return fail_open(f->opts.pipeline, &err);
    interrupt_job(f->job);
    if (f->v->load_state != NULL)
        exit_code = state_load(f->job, f->v->load_state);
    return exit_code;
}

static int feed_open(feed *f)
{
    int exit_code = check_pipeline(f->v->pipeline, f->pipeline);
    if (exit_code == CLI_OK)
        exit_code = fill_options(f);
    if (exit_code == CLI_OK && f->v->save_state != NULL)
        exit_code = outfile_check(f->v->save_state);
    if (exit_code == CLI_OK && f->v->ledger != NULL)
        exit_code = outfile_check(f->v->ledger);
    if (exit_code == CLI_OK)
        exit_code = open_engine(f);
    if (exit_code == CLI_OK)
        exit_code = open_data(f->v->data, f->v->index_dir, &f->data);
    if (exit_code == CLI_OK)
        exit_code = open_job(f);
    if (exit_code == CLI_OK)
        exit_code = ledger_open(&f->ledger, f->v->ledger, f->v->seed, f->pipeline,
                                f->v->sampling == PST_SAMPLING_OPPORTUNISTIC);
    return exit_code;
}

/* Takes every half-open state. */
static void feed_close(feed *f)
{
    interrupt_job(NULL);
    pst_job_close(f->job);
    pst_dataset_close(f->data);
    pst_engine_free(f->engine);
    choice_fini(&f->chosen);
}

/* ---- consuming ------------------------------------------------------------------------------ */

static void show_progress(const feed *f)
{
    const double seconds = (double)(clock_ns() - f->begin_ns) * 1e-9;
    const uint64_t samples = f->report.samples;
    const int64_t steps = pst_job_steps(f->job);
    char count[TEXT_SHORT];
    progress_show("epoch %llu, %s samples, batch %llu (%lld an epoch), %.0f samples/s",
                  (unsigned long long)pst_job_epoch(f->job), text_count(count, samples),
                  (unsigned long long)f->report.batches, (long long)steps,
                  seconds > 0 ? (double)samples / seconds : 0);
}

static int take_batch(feed *f, pst_batch *batch)
{
    report *r = &f->report;
    const pst_batch_desc *desc = pst_batch_get(batch);
    if (r->batches == 0)
        r->first_batch_s = clock_since_start();
    r->batches++;
    r->samples += desc->valid_slots;
    r->pads += desc->slots - desc->valid_slots;
    const int exit_code = ledger_batch(&f->ledger, desc);
    pst_batch_release(batch);
    show_progress(f);
    return exit_code;
}

/* Waits as a trainer's step would: from the moment the batch came. */
static void take_step(const feed *f, int64_t came_ns)
{
    if (f->v->step_ms > 0)
        interrupt_sleep(came_ns + (int64_t)(f->v->step_ms * 1e6));
}

/* Also before the first batch: a state may have been saved after the last. */
static bool all_done(const feed *f)
{
    return pst_job_epoch(f->job) >= f->opts.first_epoch + f->opts.epochs;
}

static bool going_on(const feed *f)
{
    const uint64_t most = f->v->max_batches > 0 ? (uint64_t)f->v->max_batches : UINT64_MAX;
    return f->report.batches < most && interrupt_signal() == 0 && !all_done(f);
}

static void note_error(feed *f, int rc)
{
    pst_error *err = &f->report.error;
    if (rc == -ECANCELED)
        return;
    pst_job_error(f->job, err);
    if (err->code == 0) {
        *err = (pst_error){.code = rc, .id = -1, .offset = -1};
        snprintf(err->message, sizeof err->message, "no batch came: %s", pst_strerror(rc));
    }
}

/* Until the last epoch ends, --max-batches are through, a signal comes or something fails. */
static int consume(feed *f)
{
    const int64_t patience_ns = progress_seen() ? 200000000 : -1;
    int exit_code = CLI_OK;
    while (exit_code == CLI_OK && going_on(f)) {
        pst_batch *batch = NULL;
        const int rc = pst_job_next(f->job, patience_ns, &batch);
        const int64_t came_ns = clock_ns();
        if (rc == 1) {
            exit_code = take_batch(f, batch);
            take_step(f, came_ns);
        } else if (rc == 0) {
            f->report.epochs++;
        } else if (rc == -ETIMEDOUT) {
            show_progress(f);
        } else {
            note_error(f, rc);
            return CLI_FAIL;
        }
    }
    return exit_code;
}

/* ---- winding up ----------------------------------------------------------------------------- */

static int close_ledger(feed *f)
{
    const size_t bad = pst_engine_bad_count(f->engine);
    for (size_t i = 0; i < bad; i++) {
        pst_error err = {0};
        if (pst_engine_bad_get(f->engine, i, &err) == 0)
            ledger_bad(&f->ledger, &err);
    }
    return ledger_close(&f->ledger);
}

static void measure(feed *f)
{
    report *r = &f->report;
    r->seconds = (double)(clock_ns() - f->begin_ns) * 1e-9;
    r->cpu_s = clock_cpu();
    r->engine = f->engine;
    r->pipeline = f->pipeline;
    r->order = f->opts.order;
    r->batch = f->opts.batch;
    r->rank = f->opts.rank;
    r->world = f->opts.world;
    r->interrupted = interrupt_signal() != 0;
    r->stats.size = sizeof r->stats;
    pst_job_stats_get(f->job, &r->stats);
    r->verdict.size = sizeof r->verdict;
    if (pst_job_verdict(f->job, &r->verdict) < 0)
        r->verdict = (pst_verdict){0};
}

static int say_error(const feed *f)
{
    const pst_error *err = &f->report.error;
    const int exit_code = fail_error(err);
    if (err->id >= 0 && err->code != PST_EBUDGET && f->opts.on_error == PST_RAISE)
        say("repair or remove it, or leave bad samples out with --on-error skip:N; "
            "'penstock inspect %s --deep' finds them all",
            f->v->data);
    return exit_code;
}

/* State and ledger first: they are what is missed most if a second signal comes. */
static int wind_up(feed *f, int exit_code)
{
    measure(f);
    const int state_code = f->v->save_state ? state_save(f->job, f->v->save_state) : CLI_OK;
    const int ledger_code = close_ledger(f);
    progress_clear();
    if (f->v->json)
        report_json(&f->report);
    else if (!f->v->quiet)
        report_print(&f->report);
    if (f->report.error.code != 0)
        exit_code = say_error(f);
    if (exit_code == CLI_OK)
        exit_code = ledger_code != CLI_OK ? ledger_code : state_code;
    return exit_code;
}

static int run_feed(const void *values)
{
    feed *f = cli_alloc(sizeof *f);
    f->v = values;
    f->report.first_batch_s = -1;
    if (f->v->quiet)
        progress_quiet();
    int exit_code = feed_open(f);
    if (exit_code == CLI_OK) {
        f->begin_ns = clock_ns();
        exit_code = wind_up(f, consume(f));
        if (interrupt_signal() != 0) {
            /* All is written. A worker in the middle of a large picture would hold us up; the
             * kernel takes it down. */
            fflush(stdout);
            pst_engine_end_watch(f->engine);
            pst_engine_end_trace(f->engine);
            _exit(interrupt_exit_code());
        }
    }
    ledger_close(&f->ledger);
    feed_close(f);
    free(f);
    return exit_code;
}

/* ---- the command ---------------------------------------------------------------------------- */

static const char *const order_words[] = {"strict", "ready", NULL}; /* as pst_order */
static const char *const ends_words[] = {"default", "drop", "pad", "short", NULL}; /* as pst_ends */
static const char *const sampling_words[] = {"plain", "opportunistic", NULL}; /* as pst_sampling */
static const char *const schedule_words[] = {"penstock", "plain", "inorder", "batch-per-worker",
                                             NULL};                       /* as pst_schedule */
static const char *const io_words[] = {"auto", "uring", "threads", NULL}; /* as pst_io */

#define AT(field) offsetof(feed_values, field)
static const arg_operand operands[] = {
    {"DATA", AT(data), false, "folder, tar file, folder of tar shards, or manifest (.tsv, .jsonl)"},
    {NULL, 0, false, NULL},
};

static const arg_option options[] = {
    OPT_HEADING("What is fed"),
    OPT_NEEDED("pipeline", "TEXT", AT(pipeline), "what is done to each sample; see: penstock ops"),
    OPT_INT("batch", "B", AT(batch), 1, 1048576, "32", "samples in a batch"),
    OPT_TEXT("split", "NAME", AT(split), NULL, "only this split of the data"),
    OPT_TEXT("fields", "LIST", AT(fields), NULL,
             "fields to deliver, as in image,label; with packing as in image=padded, "
             "image=padded(32) or image=ragged"),
    OPT_HEADING("Order"),
    OPT_INT("epochs", "E", AT(epochs), 1, 4294967295.0, "1", "passes over the data"),
    OPT_INT("start-epoch", "E", AT(start_epoch), 0, 4294967295.0, "0", "number of the first one"),
    OPT_U64("seed", "S", AT(seed), "0", "of order and random choices"),
    OPT_WORD("order", "strict|ready", AT(order), order_words, "strict",
             "strict: the same batches every time; ready: whatever is finished first"),
    OPT_INT("reorder-window", "N", AT(reorder_window), 0, 1e12, "0",
            "ready order: a sample is late by at most so many; 0 = 8 batches, at least 512"),
    OPT_TEXT("sampler", "SPEC", AT(sampler), NULL,
             "shuffle (default), shuffle:K (runs of K neighbours), sequential, subset:FILE, "
             "subset:ID,ID,…, weighted:FILE[,draws=N], "
             "weighted-once:FILE[,draws=N], "
             "weighted:balanced, given:FILE, repeat:K; joined by +"),
    OPT_WORD("sampling", "plain|opportunistic", AT(sampling), sampling_words, "plain",
             "opportunistic: samples that other jobs of the engine have prepared come first, each "
             "still once an epoch; needs --order ready and --cache"),
    OPT_TEXT("buckets", "BY", AT(bucket_by), NULL,
             "batches of samples that are alike: bytes:K, FIELD:K or aspect[:K]"),
    OPT_TEXT("group", "NAME", AT(group), NULL,
             "opportunistic: share only with jobs of this group (default: with all that have the "
             "same data and pipeline)"),
    OPT_INT("draws", "N", AT(draws), 0, 1e15, "0",
            "weighted samplers: samples an epoch; 0 = as many as there are"),
    OPT_TEXT("rank", "R/W", AT(rank), NULL, "be rank R of W (default 0/1)"),
    OPT_WORD("ends", "drop|pad|short", AT(ends), ends_words, "default",
             "when ranks do not come out even: drop samples, pad the last batch, or let it be "
             "short; default: pad with several "
             "ranks, short with one"),
    OPT_INT("max-batches", "N", AT(max_batches), 0, 1e15, "0", "stop after so many; 0 = no limit"),
    OPT_HEADING("Speed and memory"),
    OPT_TEXT("engine", "ADDRESS", AT(engine), NULL,
             "whose workers: embedded (default), unix:DIR for the daemon that serves DIR, auto for "
             "this user's daemon if one runs"),
    OPT_INT("workers", "N", AT(workers), 0, 1024, "0",
            "threads that prepare samples; 0 = by the CPU quota"),
    OPT_BYTES("memory", "BYTES", AT(memory), "0",
              "budget for everything, as in 512M or 2GiB; 0 = a quarter of what the process may "
              "have, at most 8 GiB"),
    OPT_CACHE(AT(cache), "0",
              "part of the budget for samples that are kept in memory, in the form that "
              "saves most; auto = what the rest leaves"),
    OPT_TEXT("forms", "E:D:A", AT(forms), NULL,
             "most that encoded, decoded and augmented samples may have of the cache, in percent, "
             "as in 0:60:40 (default: as it pays)"),
    OPT_DISK(AT(disk)),
    OPT_REMOTE(AT(remote)),
    OPT_WATCH(AT(watch)),
    OPT_TRACE(AT(trace)),
    OPT_INT("ready-depth", "N", AT(ready_depth), 0, 64, "0",
            "batches prepared ahead; 0 = 4, less if memory is short"),
    OPT_WORD(
        "schedule", "penstock|plain|inorder|batch-per-worker", AT(schedule), schedule_words,
        "penstock",
        "how workers are given samples; the others are there to compare with: one pool without "
        "lanes, the same in strict order, a batch for each worker"),
    OPT_TEXT(
        "without", "PARTS", AT(without), NULL,
        "leave out parts of the schedule, to see what they do: lanes, prediction, early, past, "
        "tuner; joined by commas"),
    OPT_WORD("io", "auto|uring|threads", AT(io), io_words, "auto", "how files are read"),
    OPT_INT("io-depth", "N", AT(io_depth), 0, 1024, "0", "reads in flight; 0 = 32"),
    OPT_INDEX_DIR(AT(index_dir)),
    OPT_REAL("step-ms", "X", AT(step_ms), 0, 3.6e6, "0",
             "hold each batch for X ms, as a trainer would; 0 = as fast as it goes"),
    OPT_HEADING("When things go wrong"),
    OPT_TEXT("on-error", "POLICY", AT(on_error), "raise",
             "raise; skip:N leaves out up to N bad samples; retry:N tries failed reads again; "
             "skip:N,retry:M does both"),
    OPT_HEADING("Output"),
    OPT_TEXT(
        "ledger", "FILE", AT(ledger), NULL,
        "one line per sample: epoch, step, rank, slot, id, key, crc32c, and with opportunistic "
        "sampling the preparation's number, tab-separated"),
    OPT_TEXT("save-state", "FILE", AT(save_state), NULL,
             "at the end, or at Ctrl-C: where to go on from"),
    OPT_TEXT("load-state", "FILE[,FILE…]", AT(load_state), NULL,
             "go on from there; several files are the states of all ranks"),
    OPT_FLAG("json", AT(json), "the report as one JSON object on the last line"),
    OPT_FLAG("quiet", AT(quiet), "no progress line and no table"),
    OPT_END,
};
#undef AT

const command command_feed = {
    .name = "feed",
    .summary = "run a job and consume its batches, with a report at the end",
    .about = "Ctrl-C stops it at once; report, ledger and state cover what was delivered until "
             "then. Running again with the same "
             "options and --load-state goes on with the next batch.",
    .examples =
        "penstock feed photos --pipeline 'decode | random_resized_crop(224) | hflip | "
        "normalize(imagenet)' --batch 64\n"
        "penstock feed photos --pipeline 'decode | resize(256) | center_crop(224)' --sampler "
        "sequential --ledger out.tsv\n"
        "penstock feed photos --pipeline 'decode | center_crop(224)' --rank 1/4 --ends pad "
        "--epochs 3 --json\n"
        "penstock feed photos --pipeline 'decode | center_crop(224)' --max-batches 10 --save-state "
        "run.state\n"
        "penstock feed photos --pipeline 'decode | center_crop(224)' --load-state run.state",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(feed_values),
    .run = run_feed,
};
