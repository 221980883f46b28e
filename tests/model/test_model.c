/* SPDX-License-Identifier: Apache-2.0
 * The model that is acted on: values worked out by hand for small cases, and what must hold on any
 * machine. The machines are drawn from a fixed seed. */
#include <math.h>
#include <time.h>

#include "check.h"
#include "core/rng.h"
#include "model/model.h"

enum { E = PSTI_MODEL_ENCODED, D = PSTI_MODEL_DECODED, A = PSTI_MODEL_AUGMENTED, MACHINES = 400 };

/* Photos of 110 KB on two cores, measured; nothing cached, no limit but the cores. */
static psti_model_input photos(void)
{
    return (psti_model_input){
        .samples = 20000,
        .cores = 2,
        .bytes = {110e3, 560e3, 150e3},
        .out_bytes = 602112,
        .read_s = 30e-6,
        .crop_s = 1.3e-3,
        .full_s = 1.8e-3,
        .augment_s = 0.25e-3,
        .keep_s = 15e-6,
        .finish_s = 40e-6,
        .other_s = 5e-6,
        .jobs = 1,
    };
}

static psti_model_input any_machine(uint64_t n)
{
    const psti_rng_key key = {.seed = 5, .id = n};
    psti_rng rng;
    psti_rng_init(&rng, &key, 0);
    psti_model_input in = photos();
    in.samples = 1e3 * pow(10, 3 * psti_rng_unit(&rng));
    in.cores = 1 + (double)psti_rng_below(&rng, 64);
    in.bytes[E] = 1e4 * pow(10, 2 * psti_rng_unit(&rng));
    in.bytes[D] = psti_rng_below(&rng, 8) ? in.bytes[E] * (0.5 + 10 * psti_rng_unit(&rng)) : 0;
    in.bytes[A] = in.bytes[E] * (0.1 + 5 * psti_rng_unit(&rng));
    in.crop_s = 1e-4 * pow(10, 2 * psti_rng_unit(&rng));
    in.full_s = in.crop_s * (1 + psti_rng_unit(&rng));
    in.augment_s = in.crop_s * psti_rng_unit(&rng);
    in.cache_bytes = in.samples * in.bytes[E] * 2 * psti_rng_unit(&rng);
    const double source = in.cores / in.crop_s * in.bytes[E];
    in.source_bytes_s = psti_rng_below(&rng, 4) ? source * pow(10, 2 * psti_rng_unit(&rng) - 1) : 0;
    in.jobs = 1 + (int)psti_rng_below(&rng, 8);
    for (int j = 0; j < in.jobs && psti_rng_below(&rng, 2); j++)
        in.consumer[j] = 100 * pow(10, 2 * psti_rng_unit(&rng));
    if (psti_rng_below(&rng, 3) == 0) { /* a disk tier that brings a form faster than the source */
        in.disk_form = in.bytes[D] > 0 && psti_rng_below(&rng, 2) ? D : E;
        in.disk_entry_bytes = in.bytes[in.disk_form];
        in.disk_read_s = in.read_s;
        in.disk_bytes = 2 * psti_rng_unit(&rng) * in.samples * in.disk_entry_bytes;
    }
    if (psti_rng_below(&rng, 2)) {
        in.remote_found = psti_rng_unit(&rng);
        in.remote_decoded = psti_rng_below(&rng, 2);
        in.remote_s = in.crop_s * 0.5 * psti_rng_unit(&rng);
        in.remote_bytes_s =
            psti_rng_below(&rng, 4) ? 4 * source * pow(10, 2 * psti_rng_unit(&rng) - 1) : 0;
    }
    return in;
}

static bool near(double got, double want)
{
    return fabs(got - want) <= 1e-9 * fabs(want);
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void without_cache_the_cores_are_the_limit(void)
{
    const psti_model_input in = photos();
    psti_model_rate rate;
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &rate);
    CHECK(near(rate.total, 2 / (30e-6 + 1.3e-3 + 40e-6 + 5e-6)));
    CHECK(rate.binding == PSTI_MODEL_CPU && rate.from_source == 1 && rate.preparations == 1);
}

static void what_a_remote_tier_has_is_neither_read_nor_decoded(void)
{
    psti_model_input in = photos();
    in.remote_found = 0.5;
    in.remote_s = 0.5e-3;
    in.remote_decoded = true;
    psti_model_rate rate;
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &rate);
    const double made = 30e-6 + 1.3e-3 + 45e-6, got = 0.5e-3 + 0.25e-3 + 45e-6;
    CHECK(near(rate.total, 2 / ((made + got) / 2)));
    CHECK(near(rate.from_remote, 0.5) && near(rate.from_source, 0.5) && rate.remote_s == 0);
    in.remote_decoded = false; /* stored bytes are decoded all the same */
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &rate);
    CHECK(near(rate.total, 2 / ((made + 0.5e-3 + 1.3e-3 + 45e-6) / 2)));
}

/* B_cache / (M * S_data) */
static void the_line_to_a_remote_tier_is_a_limit(void)
{
    psti_model_input in = photos();
    in.remote_found = 1;
    in.remote_bytes_s = 100e6;
    in.remote_decoded = true;
    psti_model_rate rate;
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &rate);
    CHECK(near(rate.total, 100e6 / 560e3) && rate.binding == PSTI_MODEL_REMOTE);
    in.cache_bytes = in.samples / 2 * in.bytes[D]; /* half of them need not come */
    psti_model_evaluate(&in, &(psti_model_split){{0, 1, 0}}, true, &rate);
    CHECK(near(rate.total, 2 * 100e6 / 560e3));
    psti_model_answer answer;
    psti_model_solve(&in, &answer);
    const double encoded = answer.rate.entries[E] / in.samples;
    CHECKF(encoded > 0.5 && answer.rate.total > 1000, "%g encoded, %g/s", encoded,
           answer.rate.total);
}

static void half_decoded_is_the_mean_of_times_not_of_rates(void)
{
    psti_model_input in = photos();
    in.cache_bytes = in.samples / 2 * in.bytes[D];
    psti_model_rate rate;
    psti_model_evaluate(&in, &(psti_model_split){{0, 1, 0}}, true, &rate);
    const double miss = 30e-6 + 1.3e-3 + 45e-6, hit = 0.25e-3 + 45e-6;
    CHECK(near(rate.total, 2 / ((miss + hit) / 2)));
    CHECK(near(rate.from[D], 0.5) && near(rate.from_source, 0.5));
}

static void first_epoch_pays_for_whole_pictures(void)
{
    psti_model_input in = photos();
    in.cache_bytes = in.samples * in.bytes[D];
    psti_model_rate rate;
    psti_model_evaluate(&in, &(psti_model_split){{0, 1, 0}}, false, &rate);
    CHECK(near(rate.total, 2 / (30e-6 + 1.8e-3 + 0.25e-3 + 45e-6)));
    CHECK(near(rate.from_source, 1));
}

static void slow_source_is_the_limit_until_encoded_bytes_are_cached(void)
{
    psti_model_input in = photos();
    in.source_bytes_s = 10e6; /* 91 samples a second */
    in.cache_bytes = in.samples * in.bytes[E] / 2;
    psti_model_rate none, half;
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &none);
    psti_model_evaluate(&in, &(psti_model_split){{1, 0, 0}}, true, &half);
    CHECK(none.binding == PSTI_MODEL_SOURCE && near(none.total, 10e6 / 110e3));
    CHECK(half.binding == PSTI_MODEL_SOURCE && near(half.total, 2 * 10e6 / 110e3));
}

static void requests_cost_the_source_beside_their_bytes(void)
{
    psti_model_input in = photos();
    in.source_request_s = 5e-3;
    psti_model_rate rate;
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &rate);
    CHECK(rate.binding == PSTI_MODEL_SOURCE && near(rate.total, 200));
}

/* Room for half of the samples on the disk, and a quarter of all in the cache. */
static void a_disk_tier_stands_in_for_the_source_as_far_as_it_reaches(void)
{
    psti_model_input in = photos();
    in.cache_bytes = in.samples / 4 * in.bytes[D];
    in.disk_form = D;
    in.disk_entry_bytes = 564e3;
    in.disk_read_s = 0.3e-3;
    in.disk_bytes = in.samples / 2 * in.disk_entry_bytes;
    psti_model_rate rate, first;
    psti_model_evaluate(&in, &(psti_model_split){{0, 1, 0}}, true, &rate);
    const double hit = 0.25e-3 + 45e-6, near_by = hit + 0.3e-3, miss = 30e-6 + 1.3e-3 + 45e-6;
    CHECK(near(rate.total, 2 / (0.25 * hit + 0.375 * near_by + 0.375 * miss)));
    CHECK(near(rate.from_disk, 0.375) && near(rate.from_source, 0.375));
    psti_model_evaluate(&in, &(psti_model_split){{0, 1, 0}}, false, &first);
    CHECK(first.from_disk == 0 && near(first.from_source, 1));
    const double made = 30e-6 + 1.8e-3 + 0.25e-3 + 45e-6; /* by those for whom there is room */
    CHECK(near(first.total, 2 / (0.5 * made + 0.5 * miss)));
    in.disk_form = E; /* stored bytes save the source and no work */
    in.source_bytes_s = 10e6;
    in.disk_entry_bytes = in.bytes[E];
    in.disk_bytes = in.samples * in.bytes[E];
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &rate);
    CHECK(rate.binding == PSTI_MODEL_CPU && rate.from_source == 0 && rate.source_s == 0);
    in.disk_bytes_s = 20e6;
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &rate);
    CHECK(rate.binding == PSTI_MODEL_DISK && near(rate.total, 20e6 / 110e3));
}

static void jobs_share_cores_and_no_job_gets_more_than_it_takes(void)
{
    psti_model_input in = photos();
    in.jobs = 3;
    in.consumer[0] = 100;
    psti_model_rate rate;
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &rate);
    const double all = 2 / (30e-6 + 1.3e-3 + 45e-6);
    CHECK(near(rate.total, all) && near(rate.job[0], 100));
    CHECK(near(rate.job[1], (all - 100) / 2) && near(rate.job[2], rate.job[1]));
    in.consumer[1] = in.consumer[2] = 50;
    psti_model_evaluate(&in, &(psti_model_split){{0}}, true, &rate);
    CHECK(near(rate.total, 200) && rate.binding == PSTI_MODEL_CONSUMER);
    CHECK(near(rate.capacity, all));
}

static void equal_jobs_in_step_prepare_once_for_all(void)
{
    psti_model_input in = photos();
    in.jobs = 4;
    in.cache_bytes = 0.2 * in.samples * in.bytes[A];
    psti_model_rate rate;
    psti_model_evaluate(&in, &(psti_model_split){{0, 0, 1}}, true, &rate);
    CHECK(near(rate.preparations, 0.25) && near(rate.from[A], 0.75));
    CHECK(near(rate.total, 2 / (0.25 * (1.33e-3 + 15e-6) + 45e-6)));
}

static void sharing_follows_the_known_figures(void)
{
    const double unlike[] = {1, 2, 3, 5}, equal[] = {7, 7, 7};
    const psti_model_sharing by_default = {0};
    const double a5 = psti_model_preparations(&by_default, unlike, 4, 0.05);
    const double a20 = psti_model_preparations(&by_default, unlike, 4, 0.20);
    CHECKF(a5 > 0.64 && a5 < 0.74, "5 %%: %.3f", a5);
    CHECKF(a20 > 0.51 && a20 < 0.57, "20 %%: %.3f", a20);
    CHECK(near(psti_model_preparations(&by_default, equal, 3, 0.05), 1.0 / 3));
    CHECK(psti_model_preparations(&by_default, equal, 3, 0) == 1);
    CHECK(psti_model_preparations(&by_default, unlike, 1, 0.5) == 1);
    /* What an engine measured is taken at that point, and goes on from there. */
    const psti_model_sharing measured = {.cached = 0.1, .preparations = 0.6};
    CHECK(fabs(psti_model_preparations(&measured, unlike, 4, 0.1) - 0.6) < 1e-6);
    CHECK(psti_model_preparations(&measured, unlike, 4, 0.3) < 0.6);
}

static void jobs_further_apart_get_more_augmented_room(void)
{
    psti_model_input in = photos();
    in.jobs = 4;
    in.cache_bytes = 0.5 * in.samples * in.bytes[E];
    psti_model_answer close, apart;
    psti_model_solve(&in, &close);
    in.sharing.spread = 0.1;
    psti_model_solve(&in, &apart);
    CHECKF(apart.rate.entries[A] > 2 * close.rate.entries[A], "%g %g", apart.rate.entries[A],
           close.rate.entries[A]);
    CHECK(apart.rate.capacity < close.rate.capacity);
}

/* ---- the best split -------------------------------------------------------------------------- */

static void one_job_keeps_decoded_samples_when_cores_bind(void)
{
    psti_model_input in = photos();
    in.cache_bytes = 1e9;
    psti_model_answer answer;
    psti_model_solve(&in, &answer);
    CHECK(answer.split.share[D] > 0.999 && answer.prices.cpu == 1);
}

static void one_job_keeps_encoded_samples_when_the_source_binds(void)
{
    psti_model_input in = photos();
    in.cache_bytes = 0.2 * in.samples * in.bytes[E];
    in.source_bytes_s = 20e6;
    psti_model_answer answer;
    psti_model_solve(&in, &answer);
    CHECK(answer.split.share[E] > 0.999 && answer.prices.source == 1);
}

static void between_them_both_are_balanced(void)
{
    psti_model_input in = photos();
    in.samples = 10000;
    in.cache_bytes = 1.5 * in.samples * in.bytes[E];
    in.source_bytes_s = 60e6;
    psti_model_answer answer;
    psti_model_solve(&in, &answer);
    const psti_model_split *best = &answer.split;
    CHECKF(best->share[E] > 0.05 && best->share[D] > 0.05, "%.3f %.3f", best->share[E],
           best->share[D]);
    CHECK(fabs(answer.rate.cpu_s - answer.rate.source_s) < 1e-6 * answer.rate.cpu_s);
    CHECK(answer.rate.capacity > answer.corner[E].capacity * 1.01);
    CHECK(answer.rate.capacity > answer.corner[D].capacity * 1.01);
    /* At these prices a byte is worth as much in either form. */
    const double cpu = answer.prices.cpu / in.cores, source = answer.prices.source;
    const double encoded = cpu * in.read_s + source * in.bytes[E] / in.source_bytes_s;
    const double decoded = encoded + cpu * (in.crop_s - in.augment_s);
    CHECKF(fabs(encoded / in.bytes[E] / (decoded / in.bytes[D]) - 1) < 0.01, "%g %g",
           encoded / in.bytes[E], decoded / in.bytes[D]);
}

static void several_jobs_share_augmented_samples_first(void)
{
    psti_model_input in = photos();
    in.jobs = 4;
    in.cache_bytes = 0.2 * in.samples * in.bytes[E];
    psti_model_answer answer;
    psti_model_solve(&in, &answer);
    CHECK(answer.split.share[A] > 0.1 && answer.rate.preparations < 0.26);
    CHECK(answer.split.share[D] > 0.5); /* what the jobs do not need to stay in step */
    CHECK(answer.rate.capacity > answer.corner[D].capacity);
}

/* ---- on any machine -------------------------------------------------------------------------- */

static void no_split_of_a_grid_is_better(void)
{
    for (uint64_t n = 0; n < MACHINES; n++) {
        const psti_model_input in = any_machine(n);
        psti_model_answer answer;
        psti_model_solve(&in, &answer);
        double most = 0;
        for (int a = 0; a <= 20; a++)
            for (int d = 0; d + a <= 20; d++) {
                psti_model_rate rate;
                const psti_model_split split = {{(20 - a - d) / 20.0, d / 20.0, a / 20.0}};
                psti_model_evaluate(&in, &split, true, &rate);
                most = fmax(most, rate.capacity);
            }
        CHECKF(answer.rate.capacity >= most * 0.999, "machine %d: %.2f, grid %.2f", (int)n,
               answer.rate.capacity, most);
        double sum = 0;
        for (int form = 0; form < PSTI_MODEL_FORMS; form++)
            sum += answer.split.share[form];
        CHECK(sum <= 1 + 1e-9);
    }
}

static void more_is_never_slower(void)
{
    for (uint64_t n = 0; n < MACHINES; n++) {
        const psti_model_input in = any_machine(n);
        const double cache = psti_model_gain(&in, PSTI_MODEL_MORE_CACHE, in.cache_bytes * 0.3);
        const double cores = psti_model_gain(&in, PSTI_MODEL_MORE_CORES, 2);
        const double source = psti_model_gain(&in, PSTI_MODEL_MORE_SOURCE, 1.5);
        CHECKF(cache > -1e-3 && cores > -1e-3 && source > -1e-3,
               "machine %d: cache %+.4f, cores %+.4f, source %+.4f", (int)n, cache, cores, source);
    }
}

/* For equal jobs, that is: a fast machine leaves a slow job behind, and one that is left behind has
 * less of a say in how well the others share. */
static void no_resource_gives_more_than_its_growth(void)
{
    for (uint64_t n = 0; n < MACHINES; n++) {
        psti_model_input in = any_machine(n);
        for (int j = 1; j < in.jobs; j++)
            in.consumer[j] = in.consumer[0];
        const double cores = psti_model_gain(&in, PSTI_MODEL_MORE_CORES, 2);
        const double source = psti_model_gain(&in, PSTI_MODEL_MORE_SOURCE, 1.5);
        CHECKF(cores < 2 / in.cores + 1e-3 && source < 0.5 + 1e-3,
               "machine %d: cores %+.4f, source %+.4f", (int)n, cores, source);
    }
}

static void answers_add_up(void)
{
    for (uint64_t n = 0; n < MACHINES; n++) {
        const psti_model_input in = any_machine(n);
        psti_model_answer answer;
        psti_model_solve(&in, &answer);
        const psti_model_rate *r = &answer.rate;
        double jobs = 0;
        for (int j = 0; j < in.jobs; j++) {
            jobs += r->job[j];
            CHECK(in.consumer[j] == 0 || r->job[j] <= in.consumer[j] * (1 + 1e-9));
        }
        CHECK(fabs(jobs - r->total) < 1e-6 * r->total && r->total <= r->capacity * (1 + 1e-9));
        const double cached = r->from[E] + r->from[D] + r->from[A];
        CHECK(fabs(cached + r->from_disk + r->from_remote + r->from_source - 1) < 1e-9);
        CHECK(r->from_source > -1e-9);
        CHECK(r->preparations <= 1 && r->preparations >= 1.0 / in.jobs - 1e-9);
        CHECK(near(answer.prices.cpu + answer.prices.source, 1) && answer.prices.cpu >= 0);
        /* A tier whose line is slower than making samples is not asked in the first epoch. */
        CHECKF(in.remote_found > 0 || answer.first.capacity <= r->capacity * (1 + 1e-6),
               "machine %d: %.2f > %.2f", (int)n, answer.first.capacity, r->capacity);
        CHECK(answer.none.capacity <= r->capacity * (1 + 1e-9));
    }
}

static void one_job_never_gets_augmented_entries(void)
{
    for (uint64_t n = 0; n < MACHINES; n++) {
        psti_model_input in = any_machine(n);
        in.jobs = 1;
        psti_model_answer answer;
        psti_model_solve(&in, &answer);
        CHECK(answer.split.share[A] == 0 && answer.rate.entries[A] == 0);
        CHECK(answer.corner[A].preparations == 1 && answer.corner[A].entries[A] == 0);
        CHECK(near(answer.corner[A].capacity, answer.none.capacity));
    }
}

/* A saving that is not the limit's is worth nothing; one that is, is worth all of it. */
static void prices_follow_the_limit(void)
{
    for (uint64_t n = 0; n < MACHINES; n++) {
        psti_model_input in = any_machine(n);
        in.memory_bytes_s = 0;
        psti_model_answer answer;
        psti_model_solve(&in, &answer);
        const double ratio = answer.rate.cpu_s / (answer.rate.source_s + 1e-15);
        if (ratio > 1.05)
            CHECKF(answer.prices.cpu == 1, "machine %d: %.3f", (int)n, answer.prices.cpu);
        else if (ratio < 0.95)
            CHECKF(answer.prices.source == 1, "machine %d: %.3f", (int)n, answer.prices.source);
    }
}

static void wrong_numbers_are_named(void)
{
    psti_model_input in = photos();
    CHECK(psti_model_check(&in) == NULL);
    in.crop_s = NAN;
    CHECK(strcmp(psti_model_check(&in), "crop_s") == 0);
    in = photos();
    in.cores = 0;
    CHECK(strcmp(psti_model_check(&in), "cores") == 0);
    in = photos();
    in.jobs = PSTI_MODEL_JOBS + 1;
    CHECK(strcmp(psti_model_check(&in), "jobs") == 0);
    in = photos();
    in.consumer[0] = -1;
    CHECK(strcmp(psti_model_check(&in), "consumer") == 0);
}

static void print_the_time_of_a_solve(void)
{
    psti_model_answer answer;
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (uint64_t n = 0; n < MACHINES; n++) {
        const psti_model_input in = any_machine(n);
        psti_model_solve(&in, &answer);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    const double s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
    printf("     %.0f us a solve\n", 1e6 * s / MACHINES);
}

int main(void)
{
    RUN(without_cache_the_cores_are_the_limit);
    RUN(what_a_remote_tier_has_is_neither_read_nor_decoded);
    RUN(the_line_to_a_remote_tier_is_a_limit);
    RUN(half_decoded_is_the_mean_of_times_not_of_rates);
    RUN(first_epoch_pays_for_whole_pictures);
    RUN(slow_source_is_the_limit_until_encoded_bytes_are_cached);
    RUN(requests_cost_the_source_beside_their_bytes);
    RUN(a_disk_tier_stands_in_for_the_source_as_far_as_it_reaches);
    RUN(jobs_share_cores_and_no_job_gets_more_than_it_takes);
    RUN(equal_jobs_in_step_prepare_once_for_all);
    RUN(sharing_follows_the_known_figures);
    RUN(one_job_keeps_decoded_samples_when_cores_bind);
    RUN(one_job_keeps_encoded_samples_when_the_source_binds);
    RUN(between_them_both_are_balanced);
    RUN(jobs_further_apart_get_more_augmented_room);
    RUN(several_jobs_share_augmented_samples_first);
    RUN(no_split_of_a_grid_is_better);
    RUN(more_is_never_slower);
    RUN(no_resource_gives_more_than_its_growth);
    RUN(answers_add_up);
    RUN(one_job_never_gets_augmented_entries);
    RUN(prices_follow_the_limit);
    RUN(wrong_numbers_are_named);
    RUN(print_the_time_of_a_solve);
    return check_report();
}
