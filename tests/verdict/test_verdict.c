/* SPDX-License-Identifier: Apache-2.0
 * The verdict's borders: a machine that is busy decoding, and from there one figure after another
 * is moved to either side of where the sentence changes. */
#include "check.h"
#include "watch/verdict.h"

/* 10 s of a job whose consumer waits for 4 of them, on 4 cores with 4 busy workers. */
static psti_verdict_input busy_decoding(void)
{
    return (psti_verdict_input){
        .seconds = 10,
        .open_s = 20,
        .step_s = 0.1,
        .batches_ever = 200,
        .samples = 1000,
        .batches = 100,
        .wait_s = 4,
        .for_s = {[PSTI_FOR_WORK] = 3.9, [PSTI_FOR_REST] = 0.1},
        .demand = 1000 / 6.0,
        .workers = 4,
        .cpus = 4,
        .busy = 3.9,
        .cpu = 3.8,
        .part_s = {0.001, 0.030, 0.006, 0.002},
        .form_s = 0.030,
        .stage = "decode",
        .stage_share = 0.77,
        .depth = 4,
        .depth_wanted = 4,
        .budget_bytes = 0x1p30,
        .jobs = 1,
        .more_cores = {3, 166},
        .more_cache = {0x1p32, 166},
        .faster_source = {3, 166},
        .more_workers = {0, 0},
        .more_memory = {0x1p29, 166},
    };
}

static pst_verdict verdict_of(const psti_verdict_input *in)
{
    pst_verdict out = {.size = sizeof out};
    psti_verdict_make(in, &out);
    return out;
}

static bool says(const pst_verdict *v, const char *words)
{
    return strstr(v->text, words) != NULL;
}

static bool offers(const pst_verdict *v, const char *what)
{
    for (int i = 0; i < v->help_count; i++)
        if (strcmp(v->help[i].what, what) == 0)
            return true;
    return false;
}

/* ---- one figure each ------------------------------------------------------------------------- */

/* The fields that a row moves, AT(…), and where to. */
typedef struct moved {
    const char *why;
    int kind;
    size_t at[3];
    double to[3];
} moved;

#define AT(field) (offsetof(psti_verdict_input, field) + 1) /* 0: none */

static const moved rows[] = {
    {"as it is", PST_VERDICT_DECODE, {0}, {0}},
    {"a stall of 2 %", PST_VERDICT_DECODE, {AT(wait_s)}, {0.2}},
    {"a little less", PST_VERDICT_GPU, {AT(wait_s)}, {0.199}},
    {"four batches", PST_VERDICT_DECODE, {AT(seconds), AT(batches), AT(wait_s)}, {0.5, 4, 0.2}},
    {"three", PST_VERDICT_STARTING, {AT(seconds), AT(batches), AT(wait_s)}, {0.5, 3, 0.2}},
    {"half a second", PST_VERDICT_STARTING, {AT(seconds), AT(batches), AT(wait_s)}, {0.49, 4, 0.2}},
    {"one in ten seconds", PST_VERDICT_DECODE, {AT(batches)}, {1}},
    {"one in less", PST_VERDICT_STARTING, {AT(batches), AT(seconds)}, {1, 9.9}},
    {"two quiet seconds", PST_VERDICT_IDLE, {AT(quiet_s)}, {2}},
    {"less", PST_VERDICT_DECODE, {AT(quiet_s)}, {1.9}},
    {"two seconds, steps of one", PST_VERDICT_DECODE, {AT(quiet_s), AT(step_s)}, {4.9, 1}},
    {"five steps", PST_VERDICT_IDLE, {AT(quiet_s), AT(step_s)}, {5, 1}},
    {"5 % bad", PST_VERDICT_BAD, {AT(skipped)}, {53}},
    {"fewer", PST_VERDICT_DECODE, {AT(skipped)}, {52}},
    {"bad where nobody waits", PST_VERDICT_BAD, {AT(skipped), AT(wait_s)}, {53, 0}},
    {"four bad of few", PST_VERDICT_DECODE, {AT(skipped), AT(samples)}, {4, 40}},
    {"five of few", PST_VERDICT_BAD, {AT(skipped), AT(samples)}, {5, 40}},
    {"mostly the source", PST_VERDICT_SOURCE, {AT(for_s[PSTI_FOR_SOURCE])}, {4}},
    {"a little less", PST_VERDICT_DECODE, {AT(for_s[PSTI_FOR_SOURCE])}, {3.8}},
    {"mostly the remote tier", PST_VERDICT_REMOTE, {AT(for_s[PSTI_FOR_REMOTE])}, {4}},
    {"mostly no room", PST_VERDICT_MEMORY, {AT(for_s[PSTI_FOR_ROOM])}, {4}},
    {"ops", PST_VERDICT_AUGMENT, {AT(part_s[PSTI_PART_AUGMENT])}, {0.031}},
    {"finish", PST_VERDICT_AUGMENT, {AT(part_s[PSTI_PART_FINISH])}, {0.031}},
    {"reading", PST_VERDICT_READ, {AT(part_s[PSTI_PART_READ])}, {0.031}},
    {"two jobs, equal", PST_VERDICT_DECODE, {AT(jobs), AT(for_s[PSTI_FOR_TURN])}, {2, 3.9}},
    {"a quarter", PST_VERDICT_DECODE, {AT(jobs), AT(for_s[PSTI_FOR_TURN])}, {2, 11.6}},
    {"less", PST_VERDICT_STARVED, {AT(jobs), AT(for_s[PSTI_FOR_TURN])}, {2, 11.8}},
    {"of three jobs a sixth", PST_VERDICT_DECODE, {AT(jobs), AT(for_s[PSTI_FOR_TURN])}, {3, 19.4}},
    {"less", PST_VERDICT_STARVED, {AT(jobs), AT(for_s[PSTI_FOR_TURN])}, {3, 19.6}},
    {"a remote tier that is up", PST_VERDICT_DECODE, {AT(remote)}, {PSTI_STATE_UP}},
    {"that is down", PST_VERDICT_REMOTE, {AT(remote)}, {PSTI_STATE_DOWN}},
    {"and would save little",
     PST_VERDICT_DECODE,
     {AT(remote), AT(form_s)},
     {PSTI_STATE_DOWN, 0.011}},
    {"a disk tier that is off", PST_VERDICT_DISK, {AT(disk)}, {PSTI_STATE_DOWN}},
    {"nobody waits", PST_VERDICT_GPU, {AT(disk), AT(wait_s)}, {PSTI_STATE_DOWN, 0}},
    {"a cache with a part", PST_VERDICT_CACHE, {AT(cache_bytes), AT(found)}, {0x1p28, 0.3}},
    {"of which nothing came", PST_VERDICT_DECODE, {AT(cache_bytes)}, {0x1p28}},
    {"that saves little",
     PST_VERDICT_DECODE,
     {AT(cache_bytes), AT(found), AT(form_s)},
     {0x1p28, 0.3, 0.011}},
    {"more of which would not do",
     PST_VERDICT_DECODE,
     {AT(cache_bytes), AT(found), AT(more_cache)},
     {0x1p28, 0.3, 0}},
    {"one busy worker", PST_VERDICT_WORKERS, {AT(workers), AT(busy), AT(cpu)}, {1, 1, 1}},
    {"workers that sleep", PST_VERDICT_WORKERS, {AT(cpu)}, {2}},
    {"and run", PST_VERDICT_DECODE, {AT(cpu)}, {3.1}},
    {"three of four", PST_VERDICT_WORKERS, {AT(workers), AT(busy), AT(cpu)}, {3, 3, 2.9}},
    {"that run all the time", PST_VERDICT_DECODE, {AT(workers), AT(busy), AT(cpu)}, {3, 3, 3}},
    {"that run more than half", PST_VERDICT_DECODE, {AT(cpu)}, {2.4}},
    {"others have the cores", PST_VERDICT_DECODE, {AT(cpu), AT(queued)}, {2, 1.5}},
    {"too little memory", PST_VERDICT_MEMORY, {AT(busy), AT(depth)}, {1, 2}},
    {"which does not matter", PST_VERDICT_DECODE, {AT(depth)}, {2}},
};

static void set(psti_verdict_input *in, size_t at, double to)
{
    char *field = (char *)in + at - 1;
    if (at == AT(disk) || at == AT(remote))
        *(int *)field = (int)to;
    else
        *(double *)field = to;
}

static void each_border_is_where_it_was_drawn(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        psti_verdict_input in = busy_decoding();
        if (rows[i].kind == PST_VERDICT_WORKERS || strstr(rows[i].why, "run") != NULL ||
            strstr(rows[i].why, "others have"))
            in.more_workers = (psti_whatif){2, 166};
        for (int k = 0; k < 3; k++)
            if (rows[i].at[k])
                set(&in, rows[i].at[k], rows[i].to[k]);
        const pst_verdict v = verdict_of(&in);
        CHECKF(v.kind == rows[i].kind, "%s: %s, not %s: %s", rows[i].why, pst_verdict_name(v.kind),
               pst_verdict_name(rows[i].kind), v.text);
        CHECK(v.text[0] && v.stall >= 0 && v.stall <= 1 && v.number_count > 20);
    }
}

/* ---- what is offered ------------------------------------------------------------------------- */

static void help_is_for_what_is_short(void)
{
    psti_verdict_input in = busy_decoding();
    pst_verdict v = verdict_of(&in);
    CHECKF(says(&v, "decode-bound: 3 more cores or 4 GiB of cache would remove the stall (the "
                    "consumer waits 40 % of the time; decode takes 77 % of 39 ms a sample)"),
           "%s", v.text);
    CHECK(v.help_count == 2 && offers(&v, "cores") && offers(&v, "cache") && !offers(&v, "source"));
    CHECK(v.help[1].amount == 0x1p32 && v.help[0].stall < 0.02 && v.help[0].rate == 166);
    in.for_s[PSTI_FOR_SOURCE] = 8;
    v = verdict_of(&in);
    CHECKF(says(&v, "source-bound: a source 3 times as fast or 4 GiB of cache would remove"), "%s",
           v.text);
    CHECK(offers(&v, "source") && !offers(&v, "cores") && !offers(&v, "workers"));
}

static void nothing_is_offered_that_would_not_help(void)
{
    psti_verdict_input in = busy_decoding();
    in.more_cores = in.more_cache = in.faster_source = (psti_whatif){0};
    pst_verdict v = verdict_of(&in);
    CHECKF(v.help_count == 0 && says(&v, "decode-bound: no sensible number of cores"), "%s",
           v.text);
    in.demand = 0;
    v = verdict_of(&in);
    CHECKF(v.help_count == 0 && !says(&v, "would"), "%s", v.text);
    in.for_s[PSTI_FOR_SOURCE] = 8;
    v = verdict_of(&in);
    CHECK(v.kind == PST_VERDICT_SOURCE && v.help_count == 0 && !says(&v, "would"));
}

/* Its own speed is not known: how much faster it gets is all that can be said. */
static void a_consumer_that_takes_all_is_told_the_rate(void)
{
    psti_verdict_input in = busy_decoding();
    in.demand = 0;
    in.wait_s = 9.9;
    in.more_cores = (psti_whatif){4, 200};
    in.more_cache = (psti_whatif){0};
    pst_verdict v = verdict_of(&in);
    CHECKF(says(&v, "4 more cores would bring 200 samples/s") && says(&v, "all it gets") &&
               !says(&v, "remove"),
           "%s", v.text);
    in.more_cache = (psti_whatif){0x1p30, 1000};
    v = verdict_of(&in);
    CHECKF(says(&v, "4 more cores or 1 GiB of cache would bring 200 or at least 1000 samples/s"),
           "%s", v.text);
}

static void a_change_that_is_not_enough_is_not_called_so(void)
{
    psti_verdict_input in = busy_decoding();
    in.workers = in.busy = in.cpu = 1;
    in.more_workers = (psti_whatif){1, 120};
    const pst_verdict v = verdict_of(&in);
    CHECKF(v.kind == PST_VERDICT_WORKERS && says(&v, "1 more worker would bring 120 samples/s") &&
               v.help[0].stall > 0.2,
           "%s", v.text);
}

static void functions_of_the_callers_own_are_named(void)
{
    psti_verdict_input in = busy_decoding();
    snprintf(in.stage, sizeof in.stage, "sharpen");
    in.stage_is_call = true;
    in.part_s[PSTI_PART_AUGMENT] = 0.1;
    in.cpu = 1;
    in.more_workers = (psti_whatif){4, 166};
    in.more_cache = (psti_whatif){0};
    pst_verdict v = verdict_of(&in);
    CHECKF(v.kind == PST_VERDICT_AUGMENT && says(&v, "sharpen takes") &&
               says(&v, "one at a time") && v.help_count == 0,
           "%s", v.text);
    in.queued = 1; /* beside other programs */
    v = verdict_of(&in);
    CHECKF(says(&v, "one at a time") && v.help_count == 0, "%s", v.text);
    in.cpu = 2.5; /* it runs beside itself */
    v = verdict_of(&in);
    CHECKF(!says(&v, "one at a time") && offers(&v, "cores"), "%s", v.text);
    in.queued = 0;
    in.cpu = 0.2; /* it sleeps: more of them can */
    v = verdict_of(&in);
    CHECKF(v.kind == PST_VERDICT_WORKERS, "%s", v.text);
}

/* Cores that others keep busy are not idle. */
static void cores_that_others_have_are_not_idle(void)
{
    psti_verdict_input in = busy_decoding();
    in.workers = in.busy = 3;
    in.more_workers = (psti_whatif){2, 166};
    in.cpu = 1.5;
    in.queued = 1.4;
    CHECK(verdict_of(&in).kind == PST_VERDICT_WORKERS);
    in.queued = 1.6;
    CHECK(verdict_of(&in).kind == PST_VERDICT_DECODE);
}

/* Together they are what the workers do; neither alone is as much as waiting for the source. */
static void own_work_and_that_of_others_count_together(void)
{
    psti_verdict_input in = busy_decoding();
    in.jobs = 2;
    in.for_s[PSTI_FOR_WORK] = 1.5;
    in.for_s[PSTI_FOR_TURN] = 1.5;
    in.for_s[PSTI_FOR_SOURCE] = 2;
    CHECK(verdict_of(&in).kind == PST_VERDICT_DECODE);
}

static void slow_samples_are_named_where_workers_stand_idle(void)
{
    psti_verdict_input in = busy_decoding();
    in.busy = 1;
    in.for_s[PSTI_FOR_WORK] = 3;
    in.for_s[PSTI_FOR_REST] = 1;
    pst_verdict v = verdict_of(&in);
    CHECKF(says(&v, "slow samples hold up") && says(&v, "order=ready") && v.help_count == 0, "%s",
           v.text);
    in.ready_order = true;
    v = verdict_of(&in);
    CHECKF(says(&v, "slow samples hold up") && !says(&v, "order=ready"), "%s", v.text);
    in.for_s[PSTI_FOR_REST] = 0.99;
    v = verdict_of(&in);
    CHECKF(says(&v, "in bursts") && v.help_count == 0, "%s", v.text);
}

static void notes_stand_beside_the_verdict(void)
{
    psti_verdict_input in = busy_decoding();
    in.workers = in.busy = 16;
    in.queued = 12;
    pst_verdict v = verdict_of(&in);
    CHECKF(v.kind == PST_VERDICT_DECODE && says(&v, "16 workers share 4 cores"), "%s", v.text);
    in = busy_decoding();
    in.cpu = 1.5;
    in.queued = 2.4;
    v = verdict_of(&in);
    CHECKF(v.kind == PST_VERDICT_DECODE && says(&v, "other programs have the cores"), "%s", v.text);
    in = busy_decoding();
    in.wait_s = 0;
    in.remote = PSTI_STATE_DOWN;
    v = verdict_of(&in);
    CHECKF(v.kind == PST_VERDICT_GPU && says(&v, "the remote tier does not answer"), "%s", v.text);
    in = busy_decoding();
    in.filling = true;
    v = verdict_of(&in);
    CHECKF(says(&v, "still being filled") && !offers(&v, "cache"), "%s", v.text);
}

/* ---- how it is said ---------------------------------------------------------------------------
 */

static void one_is_not_many(void)
{
    psti_verdict_input in = busy_decoding();
    in.more_cores = (psti_whatif){1, 166};
    in.more_cache = (psti_whatif){0};
    pst_verdict v = verdict_of(&in);
    CHECKF(says(&v, "1 more core would"), "%s", v.text);
    in = busy_decoding();
    in.batches = 1;
    in.seconds = 1;
    v = verdict_of(&in);
    CHECKF(says(&v, "1 batch in 1.0 s"), "%s", v.text);
    in = busy_decoding();
    in.remote = PSTI_STATE_DOWN;
    v = verdict_of(&in);
    CHECKF(says(&v, "does not answer, so samples"), "%s", v.text);
    in.remote_errors = 1;
    v = verdict_of(&in);
    CHECKF(says(&v, "does not answer (1 error), so samples"), "%s", v.text);
    in = busy_decoding();
    in.for_s[PSTI_FOR_SOURCE] = 40;
    in.source_bytes_s = 1e6;
    in.reads = 1;
    in.read_s = 0.1;
    v = verdict_of(&in);
    CHECKF(says(&v, "1 MB/s arrive, 1 sample waits 100 ms for its bytes"), "%s", v.text);
    in.reads = 2;
    v = verdict_of(&in);
    CHECKF(says(&v, "2 samples at a time wait 100 ms for their bytes"), "%s", v.text);
}

static void other_jobs_are_counted(void)
{
    psti_verdict_input in = busy_decoding();
    in.jobs = 2;
    in.for_s[PSTI_FOR_TURN] = 40;
    pst_verdict v = verdict_of(&in);
    CHECKF(says(&v, "1 other job takes 91 %"), "%s", v.text);
    in.jobs = 3;
    v = verdict_of(&in);
    CHECKF(says(&v, "2 other jobs take 91 %"), "%s", v.text);
}

static void long_times_have_long_units(void)
{
    static const struct {
        double seconds;
        const char *said;
    } spans[] = {{3, " 3 s"}, {119, " 119 s"}, {120, " 2 min"}, {7200, " 2 h"}};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        psti_verdict_input in = busy_decoding();
        in.quiet_s = spans[i].seconds;
        const pst_verdict v = verdict_of(&in);
        CHECKF(v.kind == PST_VERDICT_IDLE && says(&v, spans[i].said), "%s", v.text);
    }
}

static void memory_says_what_it_is_for(void)
{
    psti_verdict_input in = busy_decoding();
    in.for_s[PSTI_FOR_ROOM] = 40;
    pst_verdict v = verdict_of(&in);
    CHECKF(says(&v, "memory-bound: 512 MiB more memory would remove the stall; the budget of 1 GiB "
                    "is used up") &&
               v.help[0].stall < 0.02 && v.help[0].rate == 166,
           "%s", v.text);
    in.more_memory.rate = 120;
    v = verdict_of(&in);
    CHECKF(says(&v, "would bring 120 samples/s") && v.help[0].stall > 0.2, "%s", v.text);
    in.depth = 1;
    v = verdict_of(&in);
    CHECKF(says(&v, "would hold what should be ready") && says(&v, "1 of 4 batches"), "%s", v.text);
    in.more_memory.amount = 0;
    v = verdict_of(&in);
    CHECKF(v.help_count == 0 && says(&v, "memory-bound: the budget of"), "%s", v.text);
}

static void text_never_overflows(void)
{
    psti_verdict_input in = busy_decoding();
    memset(in.stage, 'x', sizeof in.stage - 1);
    in.part_s[PSTI_PART_AUGMENT] = in.samples = in.demand = 1e300;
    in.more_cores = in.more_cache = (psti_whatif){1e300, 1e300};
    in.workers = in.busy = in.queued = 1e300;
    in.remote = in.disk = PSTI_STATE_DOWN;
    in.form_s = 0;
    const pst_verdict v = verdict_of(&in);
    CHECK(strlen(v.text) < sizeof v.text);
    CHECK(pst_verdict_name(-1) == NULL && pst_verdict_name(99) == NULL);
    CHECK(strcmp(pst_verdict_name(PST_VERDICT_BAD), "bad") == 0);
}

int main(void)
{
    RUN(each_border_is_where_it_was_drawn);
    RUN(help_is_for_what_is_short);
    RUN(nothing_is_offered_that_would_not_help);
    RUN(a_consumer_that_takes_all_is_told_the_rate);
    RUN(a_change_that_is_not_enough_is_not_called_so);
    RUN(functions_of_the_callers_own_are_named);
    RUN(cores_that_others_have_are_not_idle);
    RUN(own_work_and_that_of_others_count_together);
    RUN(slow_samples_are_named_where_workers_stand_idle);
    RUN(notes_stand_beside_the_verdict);
    RUN(one_is_not_many);
    RUN(other_jobs_are_counted);
    RUN(long_times_have_long_units);
    RUN(memory_says_what_it_is_for);
    RUN(text_never_overflows);
    return check_report();
}
