/* SPDX-License-Identifier: Apache-2.0
 * Random driving: engines with several jobs at once, taken from in any order, batches held, epochs
 * changed, states saved, joined and loaded again and again, jobs closed in the middle. What every
 * epoch delivered is compared with a model: the multiset of (id, bytes) that a plain job on the
 * undamaged data gives, less the samples that are broken. Each trial has a fixed seed that is
 * printed when it fails; "test_stress FIRST COUNT" runs others. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "engine_kit.h"

enum { SAMPLES = 61, CLASSES = 3, WORLD_MAX = 3, EPOCHS = 3, SAMPLERS = 5, PIPELINES = 3 };
enum { GIVEN = 70, GROUPS_MAX = 3, HELD_MAX = 6, TRIALS = 500 };

static const int broken_files[] = {0, 4, 13, 14, 15, 33, 47, 58, 60};
enum { BROKEN = sizeof broken_files / sizeof *broken_files };

static char *clean_folder, *broken_folder;
static pst_dataset *clean, *broken;
static bool is_bad[SAMPLES]; /* by id */
static double weights[SAMPLES];
static int64_t given[GIVEN];
static uint64_t rng;
static unsigned trial;

static unsigned draw(unsigned below)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(rng >> 33) % below;
}

/* ---- one delivered sample -----------------------------------------------------------------------
 */

/* Of the sample's own bytes, whatever the batch padded them with. */
static uint32_t padded_crc(uint32_t crc, const pst_batch_desc *desc, const pst_field *f,
                           uint32_t slot)
{
    const int64_t *shape =
        (const int64_t *)((const uint8_t *)desc + f->shapes_offset) + (size_t)slot * f->rank;
    size_t bytes;
    const uint8_t *data = pst_batch_slot(desc, f, slot, &bytes);
    const size_t row = (size_t)(shape[1] * shape[2]), stride = (size_t)(f->shape[1] * f->shape[2]);
    for (int64_t y = 0; y < f->shape[0]; y++) {
        const size_t own = y < shape[0] ? row : 0;
        crc = own ? pst_crc32c(crc, data + (size_t)y * stride, own) : crc;
        for (size_t x = own; x < stride; x++)
            if (data[(size_t)y * stride + x]) /* the rest is zero */
                return ~crc;
    }
    return crc;
}

static uint32_t content_crc(const pst_batch_desc *desc, uint32_t slot)
{
    uint32_t crc = 0;
    for (uint32_t i = 0; i < desc->fields; i++) {
        const pst_field *f = pst_batch_field(desc, i);
        if (f->kind == PST_META || strcmp(f->name, "key") == 0)
            continue;
        if (f->packing == PST_PADDED) {
            crc = padded_crc(crc, desc, f, slot);
            continue;
        }
        size_t bytes;
        const void *data = pst_batch_slot(desc, f, slot, &bytes);
        crc = pst_crc32c(crc, data, bytes);
    }
    return crc;
}

static void note(ledger *l, const pst_batch_desc *desc, int rank)
{
    const int64_t *ids = pst_batch_data(desc, pst_batch_find(desc, "id"));
    const uint8_t *valid = pst_batch_data(desc, pst_batch_find(desc, "valid"));
    uint32_t counted = 0;
    for (uint32_t i = 0; i < desc->slots; i++) {
        const line one = {desc->epoch, desc->step,           rank,    (int)i,
                          ids[i],      content_crc(desc, i), valid[i]};
        counted += valid[i];
        if (valid[i])
            ledger_push(l, &one);
    }
    CHECK(counted == desc->valid_slots);
    l->batches++;
}

/* ---- the model ----------------------------------------------------------------------------------
 */

typedef struct setup {
    int sampler, pipeline, order, ends, skip;
} setup;

static pst_job_options options(const setup *s, int batch, int rank, int world)
{
    static const char *const pipelines[PIPELINES] = {KIT_PIPELINE, "decode", "decode"};
    static const char *const fields[PIPELINES] = {NULL, "image=padded,label", "image,label"};
    pst_job_options o;
    pst_job_options_init(&o);
    o.pipeline = pipelines[s->pipeline];
    o.fields = fields[s->pipeline];
    o.batch = batch;
    o.seed = 5 + (uint64_t)s->sampler;
    o.epochs = EPOCHS;
    o.order = s->order;
    o.ends = s->ends;
    o.rank = rank;
    o.world = world;
    o.on_error = s->skip ? PST_SKIP : PST_RAISE;
    o.skip_limit = SAMPLES;
    static const int samplers[SAMPLERS] = {PST_SHUFFLE, PST_SEQUENTIAL, PST_WEIGHTED,
                                           PST_WEIGHTED_ONCE, PST_GIVEN};
    o.sampler = samplers[s->sampler];
    o.repeat = s->sampler == 1 ? 2 : 1;
    if (s->sampler == 2 || s->sampler == 3) {
        o.weights = weights;
        o.weights_count = SAMPLES;
    } else if (s->sampler == 4) {
        o.ids = given;
        o.ids_count = GIVEN;
    }
    return o;
}

static ledger models[SAMPLERS][PIPELINES][EPOCHS];

/* How often the sampler has an id in an epoch; -1: the draw decides. */
static int times(int sampler, int64_t id)
{
    if (sampler == 2)
        return -1;
    int n = sampler == 1 ? 2 : sampler == 4 ? 0 : 1;
    for (int i = 0; sampler == 4 && i < GIVEN; i++)
        n += given[i] == id;
    return n;
}

static void make_model(pst_engine *engine, int sampler, int pipeline)
{
    const setup s = {sampler, pipeline, PST_ORDER_STRICT, PST_ENDS_SHORT, 0};
    const pst_job_options o = options(&s, 7, 0, 1);
    pst_job *job = kit_job(engine, clean, &o);
    for (int e = 0; e < EPOCHS;) {
        pst_batch *b;
        const int rc = pst_job_next(job, 20000000000, &b);
        CHECK(rc >= 0);
        if (rc < 0)
            break;
        e += rc == 0;
        if (rc == 1)
            note(&models[sampler][pipeline][e], pst_batch_get(b), 0);
        pst_batch_release(b);
    }
    pst_job_close(job);
    for (int e = 0; e < EPOCHS; e++) {
        int seen[SAMPLES] = {0};
        const ledger *l = &models[sampler][pipeline][e];
        for (size_t i = 0; i < l->count; i++)
            seen[l->at[i].id]++;
        for (int id = 0; id < SAMPLES; id++)
            CHECK(times(sampler, id) < 0 || seen[id] == times(sampler, id));
    }
}

/* ---- a group: the jobs of all ranks -------------------------------------------------------------
 */

typedef struct group {
    setup s;
    int world, batch, epoch;
    pst_job *job[WORLD_MAX];
    size_t quota[WORLD_MAX], taken[WORLD_MAX];
    uint64_t batches[WORLD_MAX]; /* since the job was opened, whatever the epoch */
    bool ended[WORLD_MAX];
    int phases; /* resumes and changes of epoch that are still to come */
    bool resumed, one_rank, over;
    ledger got;
    pst_batch *held[HELD_MAX];
    uint32_t held_crc[HELD_MAX];
} group;

static void say(const group *g, const char *what)
{
    fprintf(stderr,
            "trial %u: %s (sampler %d pipeline %d order %d ends %d skip %d world %d batch %d "
            "epoch %d resumed %d)\n",
            trial, what, g->s.sampler, g->s.pipeline, g->s.order, g->s.ends, g->s.skip, g->world,
            g->batch, g->epoch, g->resumed);
}

#define EXPECT(g, cond)                                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            say(g, #cond);                                                                         \
            check_in_behaviour++;                                                                  \
        }                                                                                          \
    } while (0)

static void open_jobs(group *g, pst_engine *engine)
{
    g->world = draw(3) ? 1 + (int)draw(WORLD_MAX) : 1;
    g->batch = 1 + (int)draw(9);
    g->one_rank &= g->world == 1;
    const int depth = (int)draw(7);
    const int64_t window = draw(2) ? draw(60) : 0;
    for (int rank = 0; rank < g->world; rank++) {
        pst_job_options o = options(&g->s, g->batch, rank, g->world);
        o.ready_depth = depth;
        o.reorder_window = window;
        g->job[rank] = kit_job(engine, g->s.skip ? broken : clean, &o);
        g->batches[rank] = 0;
    }
}

static void close_jobs(group *g)
{
    for (int rank = 0; rank < g->world; rank++) {
        pst_job_stats stats = {.size = sizeof stats};
        pst_job_stats_get(g->job[rank], &stats);
        EXPECT(g, stats.batches == g->batches[rank]);
        pst_job_close(g->job[rank]);
        g->job[rank] = NULL;
    }
}

/* In strict order without skips all ranks stop at one step, as trainers do. */
static void set_quota(group *g, bool to_the_end)
{
    const bool together = g->s.order == PST_ORDER_STRICT && !g->s.skip;
    const size_t common = draw(2) ? draw(4) : draw(25);
    for (int rank = 0; rank < g->world; rank++) {
        g->quota[rank] = to_the_end ? SIZE_MAX : together ? common : draw(2) ? draw(3) : draw(20);
        g->taken[rank] = 0;
        g->ended[rank] = false;
    }
}

static void new_phase(group *g)
{
    set_quota(g, g->phases == 0);
}

static uint32_t batch_crc(const pst_batch *b)
{
    const pst_batch_desc *desc = pst_batch_get(b);
    return pst_crc32c(0, desc, desc->total_bytes);
}

static void let_go(group *g, int i)
{
    if (!g->held[i])
        return;
    EXPECT(g, batch_crc(g->held[i]) == g->held_crc[i]);
    pst_batch_release(g->held[i]);
    g->held[i] = NULL;
}

static void keep_or_release(group *g, pst_batch *b)
{
    const int i = (int)draw(HELD_MAX);
    let_go(g, i);
    if (draw(3)) {
        pst_batch_release(b);
        return;
    }
    g->held[i] = b;
    g->held_crc[i] = batch_crc(b);
}

/* ---- what an epoch must have delivered ----------------------------------------------------------
 */

static ledger expected(const group *g)
{
    const ledger *model = &models[g->s.sampler][g->s.pipeline][g->epoch];
    ledger want = {0};
    for (size_t i = 0; i < model->count; i++)
        if (!g->s.skip || !is_bad[model->at[i].id])
            ledger_push(&want, &model->at[i]);
    return want;
}

/* Whether a is part of b; both sorted. */
static bool contained(const ledger *a, const ledger *b)
{
    size_t j = 0;
    for (size_t i = 0; i < a->count; i++, j++) {
        while (j < b->count && (b->at[j].id < a->at[i].id ||
                                (b->at[j].id == a->at[i].id && b->at[j].crc < a->at[i].crc)))
            j++;
        if (j == b->count || b->at[j].id != a->at[i].id || b->at[j].crc != a->at[i].crc)
            return false;
    }
    return true;
}

static void check_epoch(group *g)
{
    ledger want = expected(g);
    const bool sequence = g->one_rank && g->s.order == PST_ORDER_STRICT;
    for (size_t i = 0; sequence && i < g->got.count && i < want.count; i++)
        if (g->got.at[i].id != want.at[i].id || g->got.at[i].crc != want.at[i].crc) {
            EXPECT(g, !"the sequence is the model's");
            break;
        }
    ledger_sort(&want);
    ledger_sort(&g->got);
    EXPECT(g, contained(&g->got, &want));
    if (g->s.ends != PST_ENDS_DROP && g->got.count != want.count) {
        EXPECT(g, g->got.count == want.count);
        fprintf(stderr, "  %zu of %zu\n", g->got.count, want.count);
    }
    for (int rank = 1; g->s.ends != PST_ENDS_SHORT && rank < g->world; rank++)
        EXPECT(g, g->resumed || g->taken[rank] == g->taken[0]);
    if (g->s.ends == PST_ENDS_DROP && !g->resumed && !g->s.skip) {
        const size_t length = models[g->s.sampler][g->s.pipeline][g->epoch].count;
        const size_t round = (size_t)(g->world * g->batch);
        EXPECT(g, g->got.count == length / round * round);
    }
    ledger_free(&want);
    g->got.count = 0;
}

/* ---- what happens between phases ----------------------------------------------------------------
 */

typedef struct blob {
    void *bytes;
    size_t size;
} blob;

static blob save(const group *g, int rank)
{
    blob b = {0};
    pst_job_state(g->job[rank], NULL, 0, &b.size);
    b.size += 256; /* more may be found to be bad in between */
    b.bytes = malloc(b.size);
    EXPECT(g, pst_job_state(g->job[rank], b.bytes, b.size, &b.size) == 0);
    return b;
}

/* What stands for all ranks. */
static blob save_all(const group *g)
{
    const bool any = g->world == 1 || (g->s.order == PST_ORDER_STRICT && !g->s.skip);
    if (any)
        return save(g, (int)draw((unsigned)g->world));
    blob part[WORLD_MAX], whole = {0};
    const void *bytes[WORLD_MAX];
    void *joined;
    size_t sizes[WORLD_MAX];
    for (int rank = 0; rank < g->world; rank++) {
        part[rank] = save(g, rank);
        bytes[rank] = part[rank].bytes;
        sizes[rank] = part[rank].size;
    }
    pst_error err = {0};
    const int rc = pst_state_merge(bytes, sizes, (size_t)g->world, &joined, &whole.size, &err);
    if (rc < 0) {
        say(g, err.message);
        check_in_behaviour++;
    } else {
        whole.bytes = malloc(whole.size);
        memcpy(whole.bytes, joined, whole.size);
        pst_free(joined);
    }
    for (int rank = 0; rank < g->world; rank++)
        free(part[rank].bytes);
    return whole;
}

static void resume(group *g, pst_engine *engine)
{
    const group before = *g;
    blob b = save_all(g);
    if (!b.bytes) {
        g->over = true;
        return;
    }
    const bool close_first = draw(2);
    if (close_first)
        close_jobs(g);
    open_jobs(g, engine);
    for (int rank = 0; rank < g->world; rank++)
        for (int again = draw(4) == 0; again >= 0; again--) {
            pst_error err = {0};
            const int rc = pst_job_load_state(g->job[rank], b.bytes, b.size, &err);
            if (rc < 0)
                say(g, err.message);
            check_in_behaviour += rc < 0;
        }
    if (!close_first) {
        group old = before;
        close_jobs(&old);
    }
    free(b.bytes);
    g->resumed = true;
}

static void change_epoch(group *g)
{
    const int epoch = draw(2) ? (g->epoch + 1) % EPOCHS : (int)draw(EPOCHS);
    for (int rank = 0; rank < g->world; rank++) {
        EXPECT(g, pst_job_set_epoch(g->job[rank], (uint64_t)epoch) == 0);
        EXPECT(g, pst_job_epoch(g->job[rank]) == (uint64_t)epoch);
    }
    g->epoch = epoch;
    g->resumed = false;
    g->one_rank = g->world == 1;
    g->got.count = 0;
}

static void end_phase(group *g, pst_engine *engine)
{
    if (g->phases == 0)
        return;
    g->phases--;
    const unsigned what = draw(8);
    if (what < 5)
        resume(g, engine);
    else if (what < 7)
        change_epoch(g);
    else
        g->over = true; /* closed in the middle */
    if (!g->over)
        new_phase(g);
}

/* All ranks came to the end of the epoch. */
static void end_epoch(group *g)
{
    check_epoch(g);
    g->resumed = false;
    g->one_rank = g->world == 1;
    g->epoch++;
    g->over = g->epoch == EPOCHS || draw(2);
    new_phase(g);
}

static void take(group *g, int rank)
{
    pst_batch *b;
    const int rc = pst_job_next(g->job[rank], 20000000000, &b);
    if (rc < 0) {
        pst_error err;
        pst_job_error(g->job[rank], &err);
        say(g, rc == -ETIMEDOUT ? "timed out" : err.message);
        check_in_behaviour++;
        g->over = true;
    } else if (rc == 0) {
        g->ended[rank] = true;
        for (int i = 0; i < g->world; i++) /* states of two epochs do not fit together */
            g->quota[i] = SIZE_MAX;
    } else {
        const pst_batch_desc *desc = pst_batch_get(b);
        EXPECT(g, desc->epoch == (uint64_t)g->epoch);
        EXPECT(g, g->s.ends == PST_ENDS_SHORT || desc->slots == (uint32_t)g->batch);
        note(&g->got, desc, rank);
        g->taken[rank]++;
        g->batches[rank]++;
        keep_or_release(g, b);
    }
}

static void step(group *g, pst_engine *engine)
{
    int open[WORLD_MAX], count = 0, ended = 0;
    for (int rank = 0; rank < g->world; rank++) {
        ended += g->ended[rank];
        if (!g->ended[rank] && g->taken[rank] < g->quota[rank])
            open[count++] = rank;
    }
    if (count)
        take(g, open[draw((unsigned)count)]);
    else if (ended == g->world)
        end_epoch(g);
    else
        end_phase(g, engine);
}

/* ---- trials ------------------------------------------------------------------------------------
 */

static void start_group(group *g, pst_engine *engine)
{
    *g = (group){.one_rank = true, .phases = (int)draw(4)};
    g->s = (setup){(int)draw(SAMPLERS), draw(2) ? 0 : 1 + (int)draw(2), (int)draw(2),
                   PST_ENDS_DROP + (int)draw(3), (int)draw(2)};
    open_jobs(g, engine);
    new_phase(g);
}

static void run_trial(unsigned number)
{
    trial = number;
    rng = number * 2654435761u + 12345;
    const int workers = 1 + (int)draw(6);
    pst_engine *engine = kit_engine(workers, (uint64_t)(16 + draw(49)) << 20);
    group all[GROUPS_MAX];
    const int groups = 1 + (int)draw(GROUPS_MAX);
    for (int i = 0; i < groups; i++)
        start_group(&all[i], engine);
    for (int live = groups; live;) {
        group *g = &all[draw((unsigned)groups)];
        if (g->over)
            continue;
        step(g, engine);
        live -= g->over;
    }
    const bool engine_first = draw(4) == 0;
    if (engine_first)
        pst_engine_free(engine);
    for (int i = 0; i < groups; i++) {
        for (int rank = 0; rank < all[i].world; rank++)
            pst_job_close(all[i].job[rank]);
        for (int h = 0; h < HELD_MAX; h++)
            let_go(&all[i], h);
        ledger_free(&all[i].got);
    }
    if (!engine_first)
        pst_engine_free(engine);
}

static unsigned first_trial = 1, trials = TRIALS;

static void random_driving_delivers_the_model(void)
{
    printf("trials %u to %u\n", first_trial, first_trial + trials - 1);
    for (unsigned i = 0; i < trials; i++) {
        alarm(60); /* a hang ends the program; the trial's number was printed */
        const int before = check_in_behaviour;
        if (getenv("STRESS_VERBOSE"))
            fprintf(stderr, "trial %u\n", first_trial + i);
        run_trial(first_trial + i);
        if (check_in_behaviour != before)
            fprintf(stderr, "trial %u failed\n", first_trial + i);
    }
    alarm(0);
}

static void the_model_is_what_was_asked_for(void)
{
    pst_engine *engine = kit_engine(2, 64 << 20);
    for (int sampler = 0; sampler < SAMPLERS; sampler++)
        for (int pipeline = 0; pipeline < PIPELINES; pipeline++)
            make_model(engine, sampler, pipeline);
    pst_engine_free(engine);
}

static void find_bad_ids(void)
{
    for (int64_t id = 0; id < SAMPLES; id++) {
        pst_sample_info info;
        CHECK(pst_dataset_sample(broken, id, &info) == 0);
        const int index = atoi(strstr(info.key, "img_") + 4);
        for (int i = 0; i < BROKEN; i++)
            is_bad[id] |= index == broken_files[i];
    }
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        first_trial = (unsigned)atoi(argv[1]);
        trials = (unsigned)atoi(argv[2]);
    }
    clean_folder = kit_folder();
    broken_folder = kit_folder();
    kit_images(clean_folder, SAMPLES, CLASSES);
    kit_images(broken_folder, SAMPLES, CLASSES);
    for (int i = 0; i < BROKEN; i++)
        kit_break(broken_folder, broken_files[i], CLASSES);
    clean = kit_dataset(clean_folder);
    broken = kit_dataset(broken_folder);
    for (int i = 0; i < SAMPLES; i++)
        weights[i] = 1.0 + i % 7;
    for (int i = 0; i < GIVEN; i++)
        given[i] = i * 13 % SAMPLES;
    find_bad_ids();
    pst_log_set(NULL, NULL); /* warnings of batches kept would bury what failed */
    RUN(the_model_is_what_was_asked_for);
    RUN(random_driving_delivers_the_model);
    for (int i = 0; i < SAMPLERS * PIPELINES * EPOCHS; i++)
        ledger_free(&models[i / PIPELINES / EPOCHS][i / EPOCHS % PIPELINES][i % EPOCHS]);
    pst_dataset_close(clean);
    pst_dataset_close(broken);
    kit_remove(clean_folder);
    kit_remove(broken_folder);
    return check_report();
}
