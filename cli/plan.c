/* SPDX-License-Identifier: Apache-2.0
 * penstock plan: measures what samples cost on this machine and says what a cache would bring, how
 * it is best split, what limits the throughput and what would help. Main thread; the library
 * measures with threads of its own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cli.h"
#include "commands.h"
#include "heatmap.h"
#include "interrupt.h"
#include "json.h"
#include "open.h"
#include "outfile.h"
#include "progress.h"

typedef struct plan_values {
    const char *data, *pipeline, *fields, *index_dir, *consumer, *disk, *svg;
    uint64_t cache, source, remote, seed;
    int64_t jobs, cores;
    double seconds;
    bool quiet, json, paper;
} plan_values;

typedef struct planning {
    const plan_values *v;
    char pipeline[PIPELINE_BYTES];
    pst_dataset *data;
    pst_plan *plan;
    double consumer[PST_PLAN_JOBS];
    int jobs;
    pst_plan_inputs in;
    pst_plan_point best, corner[PST_FORMS], none;
} planning;

static const char *const form_names[] = {"encoded", "decoded", "augmented"};
static const char *const limit_names[] = {"cores",     "source",    "memory",
                                          "consumers", "disk tier", "remote tier"};
static const char *const source_names[] = {"", "cold", "warm", "given"};

/* ---- arguments ------------------------------------------------------------------------------ */

/* One rate for all jobs, or one for each: then --jobs need not be given. */
static int parse_consumer(planning *p)
{
    const char *at = p->v->consumer;
    int count = 0;
    p->jobs = p->v->jobs > 0 ? (int)p->v->jobs : 1;
    while (at != NULL && *at != '\0') {
        char word[64];
        const size_t length = strcspn(at, ",");
        double rate = 0;
        if (length >= sizeof word || count == PST_PLAN_JOBS)
            return fail_usage("--consumer-rate %s: at most %d rates", p->v->consumer,
                              PST_PLAN_JOBS);
        memcpy(word, at, length);
        word[length] = '\0';
        if (!text_to_real(word, &rate) || !isfinite(rate) || rate < 0)
            return fail_usage("--consumer-rate: '%s' is not a rate; samples a second, for example "
                              "500, or one for each job: 100,200,300",
                              word);
        p->consumer[count++] = rate;
        at += length + (at[length] == ',');
    }
    if (p->v->consumer != NULL && count == 0)
        return fail_usage("--consumer-rate is empty; samples a second, for example 500");
    if (count > 1 && p->v->jobs > 0 && count != p->v->jobs)
        return fail_usage("--consumer-rate names %d rates for %lld jobs", count,
                          (long long)p->v->jobs);
    p->jobs = count > 1 ? count : p->jobs;
    for (int j = 1; count == 1 && j < p->jobs; j++)
        p->consumer[j] = p->consumer[0];
    return CLI_OK;
}

/* ---- measuring ------------------------------------------------------------------------------ */

static int show(double done, void *user)
{
    (void)user;
    progress_step(&(progress_at){.what = "plan, measuring", .share = done});
    return interrupt_signal() != 0;
}

static int measure(planning *p)
{
    pst_plan_options opts;
    pst_error err = {0};
    pst_plan_options_init(&opts);
    opts.pipeline = p->pipeline;
    opts.fields = p->v->fields;
    opts.cache_bytes = p->v->cache;
    opts.jobs = p->jobs;
    opts.consumer = p->consumer;
    opts.cores = (int)p->v->cores;
    opts.source_bytes_s = p->v->source;
    opts.disk = p->v->disk;
    opts.remote_bytes_s = p->v->remote;
    opts.seconds = p->v->seconds;
    opts.seed = p->v->seed;
    opts.progress = show;
    const int rc = pst_plan_new(p->data, &opts, &p->plan, &err);
    progress_clear();
    if (rc < 0)
        return fail_open(p->pipeline, &err);
    p->in.size = sizeof p->in;
    p->best.size = p->none.size = sizeof p->best;
    pst_plan_measured(p->plan, &p->in);
    pst_plan_best(p->plan, &p->best);
    const double nothing[PST_FORMS] = {0};
    pst_plan_at(p->plan, nothing, &p->none);
    for (int form = 0; form < PST_FORMS; form++) {
        double share[PST_FORMS] = {0};
        share[form] = 1;
        p->corner[form].size = sizeof p->corner[form];
        pst_plan_at(p->plan, share, &p->corner[form]);
    }
    return CLI_OK;
}

/* ---- text ----------------------------------------------------------------------------------- */

static const char *rate_text(char buf[TEXT_SHORT], double samples_s)
{
    return text_count(buf, (uint64_t)llround(samples_s));
}

static void print_cost(const char *what, double seconds, const char *note, double bytes)
{
    char time[TEXT_SHORT], size[TEXT_SHORT];
    printf("  %-34s %10s", what, text_seconds(time, seconds));
    if (bytes > 0)
        printf("   %s %s", note, text_bytes(size, (uint64_t)bytes));
    printf("\n");
}

/* What the disk tier would hold once it is filled. */
static void print_disk(const pst_plan_inputs *in)
{
    char bytes[TEXT_SHORT], speed[TEXT_SHORT];
    if (in->disk_bytes == 0) {
        printf("  disk tier: it would keep nothing of these samples\n");
        return;
    }
    const double all = (double)in->samples * in->disk_entry_bytes;
    printf("  %-34s %10s", "disk tier, getting a sample back",
           text_seconds(bytes, in->disk_read_s));
    printf("   %s %s, %.0f %% of them fit", form_names[in->disk_form & 1],
           text_bytes(bytes, (uint64_t)in->disk_entry_bytes),
           100 * fmin(1, (double)in->disk_bytes / all));
    if (in->disk_bytes_s > 0)
        printf(", %s/s", text_bytes(speed, (uint64_t)in->disk_bytes_s));
    printf("\n");
}

static void print_inputs(const planning *p)
{
    const pst_plan_inputs *in = &p->in;
    char count[TEXT_SHORT], bytes[TEXT_SHORT];
    printf("data: %s, %s samples, %s encoded\npipeline: %s\n\n", p->v->data,
           text_count(count, (uint64_t)in->samples),
           text_bytes(bytes, (uint64_t)((double)in->samples * in->bytes[PST_FORM_ENCODED])),
           p->pipeline);
    printf("one sample, CPU time on one of %d busy cores (%s measured", in->cores,
           text_count(count, (uint64_t)in->measured));
    if (in->bad > 0)
        printf(", %s bad", text_count(count, (uint64_t)in->bad));
    printf(")\n");
    print_cost("read", in->read_s, "encoded", in->bytes[PST_FORM_ENCODED]);
    print_cost("encoded to augmented", in->crop_s, "augmented", in->bytes[PST_FORM_AUGMENTED]);
    if (in->bytes[PST_FORM_DECODED] > 0) {
        print_cost("encoded to decoded, kept whole", in->full_s, "decoded",
                   in->bytes[PST_FORM_DECODED]);
        print_cost("decoded to augmented", in->augment_s, "", 0);
    } else {
        printf("  this pipeline has no decoded form that could be kept\n");
    }
    print_cost("finish", in->finish_s, "batch", in->out_bytes);
    printf("  %-34s %10s/s", "source", text_bytes(bytes, (uint64_t)in->source_bytes_s));
    static const char *const notes[] = {"", "", "   from the page cache: the true source is slower",
                                        "   as given"};
    printf("%s\n", notes[in->source & 3]);
    if (p->v->disk != NULL)
        print_disk(in);
    if (in->remote_bytes_s > 0)
        printf("  %-34s %10s/s   as given\n", "remote tier",
               text_bytes(bytes, (uint64_t)in->remote_bytes_s));
    printf("\n");
}

static void print_best(const planning *p)
{
    const pst_plan_point *b = &p->best;
    char bytes[TEXT_SHORT], a[TEXT_SHORT], first[TEXT_SHORT];
    printf("cache %s, %d %s\n", text_bytes(bytes, p->in.cache_bytes), p->jobs,
           p->jobs == 1 ? "job" : "jobs");
    printf("  best: %.0f %% encoded, %.0f %% decoded, %.0f %% augmented\n", 100 * b->share[0],
           100 * b->share[1], 100 * b->share[2]);
    printf("        %s samples/s", rate_text(a, b->samples_s));
    if (p->jobs > 1)
        printf(" for all jobs");
    printf(", %s in the first epoch; limit: %s\n", rate_text(first, b->first_samples_s),
           limit_names[b->limit]);
    printf("        deliveries begin from: encoded %.1f %%, decoded %.1f %%, augmented %.1f %%, ",
           100 * b->from[0], 100 * b->from[1], 100 * b->from[2]);
    if (p->in.disk_bytes > 0)
        printf("disk tier %.1f %%, ", 100 * b->from_disk);
    if (p->in.remote_bytes_s > 0)
        printf("remote tier %.1f %%, ", 100 * b->from_remote);
    printf("source %.1f %%\n", 100 * b->from_source);
    if (p->jobs > 1)
        printf("        %.3f preparations per delivery\n", b->preparations);
    if (p->jobs > 1 && p->v->consumer != NULL) {
        printf("        by job:");
        for (int j = 0; j < p->jobs; j++)
            printf(" %s", rate_text(a, b->job_s[j]));
        printf("\n");
    }
}

static void print_row(const char *name, const pst_plan_point *point, double best)
{
    char rate[TEXT_SHORT];
    printf("  %-16s %12s %9.2f   %s\n", name, rate_text(rate, point->samples_s),
           best > 0 ? point->samples_s / best : 0, limit_names[point->limit]);
}

static void print_corners(const planning *p)
{
    char name[32];
    printf("\n  %-16s %12s %9s   %s\n", "split", "samples/s", "of best", "limit");
    print_row("best", &p->best, p->best.samples_s);
    for (int form = 0; form < PST_FORMS; form++) {
        snprintf(name, sizeof name, "all %s", form_names[form]);
        print_row(name, &p->corner[form], p->best.samples_s);
    }
    print_row("no cache", &p->none, p->best.samples_s);
}

/* As much again, up to 4 GiB. */
static double more_cache(const planning *p)
{
    const double most = 4.0 * 1024 * 1024 * 1024, cache = (double)p->in.cache_bytes;
    return cache > 0 && cache < most ? cache : most;
}

static void print_help(const planning *p)
{
    char bytes[TEXT_SHORT], cache[TEXT_SHORT + 16];
    double cpu, source;
    pst_plan_prices(p->plan, &cpu, &source);
    snprintf(cache, sizeof cache, "%s more cache", text_bytes(bytes, (uint64_t)more_cache(p)));
    printf("\nwhat would help\n");
    printf("  %-26s %+7.1f %%\n", cache,
           100 * pst_plan_gain(p->plan, PST_MORE_CACHE, more_cache(p)));
    printf("  %-26s %+7.1f %%\n", "2 cores more", 100 * pst_plan_gain(p->plan, PST_MORE_CORES, 2));
    printf("  %-26s %+7.1f %%\n", "a source twice as fast",
           100 * pst_plan_gain(p->plan, PST_MORE_SOURCE, 2));
    printf("  worth of a saved second: of all cores %.2f, of the source %.2f\n", cpu, source);
}

static void print_paper(const planning *p)
{
    double share[PST_FORMS], samples_s;
    char rate[TEXT_SHORT], real[TEXT_SHORT];
    pst_plan_point point = {.size = sizeof point};
    pst_plan_paper(p->plan, share, &samples_s);
    pst_plan_at(p->plan, share, &point);
    printf("\nSeneca's equations, with these inputs\n  %.0f %% encoded, %.0f %% decoded, %.0f %% "
           "augmented: %s samples/s as they count, %s by the count above\n",
           100 * share[0], 100 * share[1], 100 * share[2], rate_text(rate, samples_s),
           rate_text(real, point.samples_s));
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void json_forms(json *j, const char *key, const double value[PST_FORMS])
{
    json_object(j, key);
    for (int form = 0; form < PST_FORMS; form++)
        json_real(j, form_names[form], value[form]);
    json_object_end(j);
}

static void json_inputs(json *j, const planning *p)
{
    const pst_plan_inputs *in = &p->in;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"out_bytes", in->out_bytes},
                   {"read_s", in->read_s},
                   {"crop_s", in->crop_s},
                   {"full_s", in->full_s},
                   {"augment_s", in->augment_s},
                   {"keep_s", in->keep_s},
                   {"finish_s", in->finish_s},
                   {"other_s", in->other_s},
                   {"source_bytes_s", in->source_bytes_s},
                   {"memory_bytes_s", in->memory_bytes_s}};
    json_object(j, "inputs");
    json_int(j, "samples", in->samples);
    json_int(j, "measured", in->measured);
    json_int(j, "bad", in->bad);
    json_uint(j, "cache_bytes", in->cache_bytes);
    json_int(j, "cores", in->cores);
    json_int(j, "jobs", in->jobs);
    json_forms(j, "bytes", in->bytes);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_real(j, numbers[i].key, numbers[i].value);
    json_text(j, "source", source_names[in->source & 3]);
    if (in->disk_bytes > 0) {
        json_object(j, "disk");
        json_uint(j, "bytes", in->disk_bytes);
        json_text(j, "form", form_names[in->disk_form & 1]);
        json_real(j, "entry_bytes", in->disk_entry_bytes);
        json_real(j, "read_s", in->disk_read_s);
        json_real(j, "bytes_s", in->disk_bytes_s);
        json_object_end(j);
    }
    json_array(j, "consumer");
    for (int k = 0; k < in->jobs; k++)
        json_real(j, NULL, in->consumer[k]);
    json_array_end(j);
    json_object_end(j);
}

static void json_point(json *j, const char *key, const planning *p, const pst_plan_point *point)
{
    json_object(j, key);
    json_forms(j, "share", point->share);
    json_real(j, "samples_per_s", point->samples_s);
    json_real(j, "first_epoch_samples_per_s", point->first_samples_s);
    json_real(j, "capacity_per_s", point->capacity_s);
    json_array(j, "job_samples_per_s");
    for (int k = 0; k < p->jobs; k++)
        json_real(j, NULL, point->job_s[k]);
    json_array_end(j);
    json_real(j, "preparations_per_delivery", point->preparations);
    json_forms(j, "from", point->from);
    json_real(j, "from_disk", point->from_disk);
    json_real(j, "from_source", point->from_source);
    json_real(j, "from_remote", point->from_remote);
    json_real(j, "cpu_s", point->cpu_s);
    json_real(j, "source_s", point->source_s);
    json_real(j, "memory_s", point->memory_s);
    json_real(j, "disk_s", point->disk_s);
    json_real(j, "remote_s", point->remote_s);
    json_text(j, "limit", limit_names[point->limit]);
    json_object_end(j);
}

static void json_help(json *j, const planning *p)
{
    double cpu, source;
    pst_plan_prices(p->plan, &cpu, &source);
    json_object(j, "worth");
    json_real(j, "cpu", cpu);
    json_real(j, "source", source);
    json_object_end(j);
    json_object(j, "more");
    json_uint(j, "cache_bytes", (uint64_t)more_cache(p));
    json_real(j, "cache_gain", pst_plan_gain(p->plan, PST_MORE_CACHE, more_cache(p)));
    json_int(j, "cores", 2);
    json_real(j, "cores_gain", pst_plan_gain(p->plan, PST_MORE_CORES, 2));
    json_int(j, "source_times", 2);
    json_real(j, "source_gain", pst_plan_gain(p->plan, PST_MORE_SOURCE, 2));
    json_object_end(j);
}

static void json_results(const planning *p)
{
    json j = {.out = stdout};
    json_object(&j, NULL);
    json_text(&j, "data", p->v->data);
    json_text(&j, "pipeline", p->pipeline);
    json_inputs(&j, p);
    json_point(&j, "best", p, &p->best);
    json_object(&j, "corners");
    for (int form = 0; form < PST_FORMS; form++)
        json_point(&j, form_names[form], p, &p->corner[form]);
    json_object_end(&j);
    json_point(&j, "no_cache", p, &p->none);
    json_help(&j, p);
    if (p->v->paper) {
        double share[PST_FORMS], samples_s;
        pst_plan_point point = {.size = sizeof point};
        pst_plan_paper(p->plan, share, &samples_s);
        pst_plan_at(p->plan, share, &point);
        json_object(&j, "paper");
        json_real(&j, "samples_per_s", samples_s);
        json_point(&j, "by_our_count", p, &point);
        json_object_end(&j);
    }
    json_object_end(&j);
    printf("\n");
}

/* ---- the command ---------------------------------------------------------------------------- */

static int write_svg(const planning *p)
{
    char bytes[TEXT_SHORT], title[96], subtitle[PIPELINE_BYTES];
    outfile out = {0};
    int exit_code = outfile_open(&out, p->v->svg);
    if (exit_code != CLI_OK)
        return exit_code;
    snprintf(title, sizeof title, "A cache of %s, split three ways: %d %s, %d %s",
             text_bytes(bytes, p->in.cache_bytes), p->jobs, p->jobs == 1 ? "job" : "jobs",
             p->in.cores, p->in.cores == 1 ? "core" : "cores");
    snprintf(subtitle, sizeof subtitle, "%.96s%s", p->pipeline,
             strlen(p->pipeline) > 96 ? " ..." : "");
    const heatmap_words words = {title, subtitle};
    heatmap_write(out.file, p->plan, &words);
    exit_code = outfile_commit(&out);
    outfile_drop(&out);
    return exit_code;
}

static void print_results(const planning *p)
{
    print_inputs(p);
    print_best(p);
    print_corners(p);
    print_help(p);
    if (p->v->paper)
        print_paper(p);
}

static int run_plan(const void *values)
{
    planning *p = cli_alloc(sizeof *p);
    p->v = values;
    if (p->v->quiet)
        progress_quiet();
    int exit_code = parse_consumer(p);
    if (exit_code == CLI_OK)
        exit_code = check_pipeline(p->v->pipeline, p->pipeline);
    if (exit_code == CLI_OK && p->v->svg != NULL)
        exit_code = outfile_check(p->v->svg);
    if (exit_code == CLI_OK)
        exit_code = open_data(p->v->data, p->v->index_dir, &p->data);
    if (exit_code == CLI_OK)
        exit_code = measure(p);
    if (exit_code == CLI_OK && p->v->svg != NULL)
        exit_code = write_svg(p);
    if (exit_code == CLI_OK && p->v->json)
        json_results(p);
    else if (exit_code == CLI_OK)
        print_results(p);
    pst_plan_free(p->plan);
    pst_dataset_close(p->data);
    free(p);
    return exit_code;
}

#define AT(field) offsetof(plan_values, field)
static const arg_operand operands[] = {
    {"DATA", AT(data), false, "folder, tar file, folder of tar shards, or manifest"},
    {NULL, 0, false, NULL},
};

static const arg_option options[] = {
    OPT_NEEDED("pipeline", "TEXT", AT(pipeline), "what happens to a sample"),
    {.name = "cache",
     .type = ARG_BYTES,
     .meta = "BYTES",
     .offset = AT(cache),
     .required = true,
     .help = "size of the cache, for example 4G"},
    OPT_INT("jobs", "N", AT(jobs), 0, PST_PLAN_JOBS, "0",
            "jobs that read the data at the same time; 0 = as many as there are rates, else one"),
    OPT_TEXT("consumer-rate", "R[,R...]", AT(consumer), NULL,
             "samples a second that a job takes at most, one for all jobs or one for each "
             "(default: all it gets)"),
    OPT_INT("cores", "N", AT(cores), 0, 1024, "0", "cores to plan for; 0 = those of this machine"),
    OPT_BYTES("source-rate", "BYTES", AT(source), "0",
              "bytes a second that the data comes at; 0 = measured"),
    OPT_TEXT("disk", "DIR:BYTES", AT(disk), NULL,
             "a disk tier behind the cache, as for feed; its disk is measured"),
    OPT_BYTES(
        "remote-rate", "BYTES", AT(remote), "0",
        "bytes a second that a remote tier brings which has all samples decoded; 0 = there is "
        "none. 'penstock feed --remote' prints what it measured"),
    OPT_TEXT("fields", "LIST", AT(fields), NULL, "fields that are delivered, as for feed"),
    OPT_REAL("seconds", "X", AT(seconds), 0.05, 600, "2", "how long samples are measured"),
    OPT_U64("seed", "S", AT(seed), "0", "of random choices"),
    OPT_INDEX_DIR(AT(index_dir)),
    OPT_TEXT("svg", "FILE", AT(svg), NULL, "draws all splits as a heat map"),
    OPT_FLAG("paper", AT(paper), "also what Seneca's published equations choose"),
    OPT_FLAG("quiet", AT(quiet), "no progress"),
    OPT_FLAG("json", AT(json), "one JSON object"),
    OPT_END,
};
#undef AT

const command command_plan = {
    .name = "plan",
    .summary = "what a cache would bring, how it is best split, what limits the throughput",
    .about = "Measures samples of the data on this machine: reading, preparing them from encoded "
             "bytes, decoding them whole, preparing them from decoded ones. From that it predicts "
             "samples a second for every split of the cache between the three forms.",
    .examples =
        "penstock plan photos --pipeline 'decode | random_resized_crop(224) | hflip' --cache 4G\n"
        "penstock plan photos --pipeline 'decode | random_resized_crop(224) | hflip' --cache 4G "
        "--jobs 4 --svg splits.svg",
    .operands = operands,
    .options = options,
    .values_bytes = sizeof(plan_values),
    .run = run_plan,
};
