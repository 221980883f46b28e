/* SPDX-License-Identifier: Apache-2.0
 * See lanes_kit.h. */
#include "lanes_kit.h"

#include <time.h>

/* Batches between two pauses: as much as may be gets ready, and is then asked for at once. So
 * samples are put aside however busy the machine is. */
enum { BURST = 6 };

char *lanes_folder(void)
{
    char *folder = kit_folder();
    kit_images(folder, LANES_SAMPLES, 1);
    return folder;
}

pst_job_options lanes_options(const char *pipeline, uint64_t epochs)
{
    pst_job_options o = kit_options(pipeline, 4, 7, epochs);
    o.order = PST_ORDER_READY;
    o.sampler = PST_SEQUENTIAL;
    o.reorder_window = 160;
    return o;
}

void lanes_pause(int64_t ns)
{
    const struct timespec t = {ns / 1000000000, ns % 1000000000};
    nanosleep(&t, NULL);
}

void lanes_open(pst_engine *engine, pst_dataset *data, const pst_job_options *o, int world,
                pst_job **jobs)
{
    pst_job_options mine = *o;
    mine.world = world;
    for (mine.rank = 0; mine.rank < world; mine.rank++)
        jobs[mine.rank] = kit_job(engine, data, &mine);
}

uint64_t lanes_parks(const pst_job *job)
{
    pst_job_stats stats = {.size = sizeof stats};
    pst_job_stats_get(job, &stats);
    return stats.slow_parked;
}

static bool enough(pst_job **jobs, int world, uint64_t parks)
{
    uint64_t sum = 0;
    for (int rank = 0; parks && rank < world; rank++)
        sum += lanes_parks(jobs[rank]);
    return parks && sum >= parks;
}

int lanes_drive(pst_job **jobs, int world, int64_t pause_ns, uint64_t parks, ledger *out)
{
    bool ended[LANES_RANKS] = {false};
    int taken = 0;
    for (int left = world, rank = 0; left && !enough(jobs, world, parks);
         rank = (rank + 1) % world) {
        if (ended[rank])
            continue;
        const size_t before = out->batches;
        const int rc = kit_collect(jobs[rank], rank, 1, 1, out);
        if (rc < 0)
            return rc;
        ended[rank] = out->batches == before;
        left -= ended[rank];
        if (pause_ns && ++taken % BURST == 0)
            lanes_pause(BURST * pause_ns);
    }
    return 0;
}

ledger lanes_model(pst_dataset *data, const pst_job_options *like, uint64_t epochs)
{
    pst_engine *engine = kit_engine(LANES_WORKERS, 64 << 20);
    pst_job_options o = *like;
    o.order = PST_ORDER_STRICT;
    o.schedule = PST_SCHEDULE_INORDER;
    o.rank = 0;
    o.world = 1;
    o.ends = PST_ENDS_SHORT;
    o.epochs = epochs;
    pst_job *job = kit_job(engine, data, &o);
    ledger l = {0};
    if (kit_collect(job, 0, epochs, SIZE_MAX, &l) != 0)
        l.count = 0;
    pst_job_close(job);
    pst_engine_free(engine);
    ledger_sort(&l);
    return l;
}
