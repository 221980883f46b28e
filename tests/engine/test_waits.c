/* SPDX-License-Identifier: Apache-2.0
 * Waits of a consumer in another process, of which the engine is told: in a trace none overlaps
 * another, however late they are heard of, and each keeps its length and its batch. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine/engine.h"
#include "engine_kit.h"

enum { IMAGES = 8, BATCH = 4, WAITS = 3 };

typedef struct wait {
    double at_us, took_us;
    int step;
} wait;

static double number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtod(at + strlen(name), NULL) : -1;
}

/* The waits that the trace has of steps from 100 on. */
static int read_waits(const char *path, wait out[WAITS])
{
    char text[4096];
    int count = 0;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (file && fgets(text, sizeof text, file))
        if (strstr(text, "\"cat\":\"wait\"") && number_after(text, "\"step\":") >= 100 &&
            count < WAITS)
            out[count++] = (wait){number_after(text, "\"ts\":"), number_after(text, "\"dur\":"),
                                  (int)number_after(text, "\"step\":")};
    if (file)
        fclose(file);
    return count;
}

static void test_waits_that_are_heard_of_late_do_not_overlap(void)
{
    static const uint64_t took_ns[WAITS] = {50000, 70000, 20000};
    char *folder = kit_folder(), path[512];
    wait found[WAITS] = {0};
    pst_engine_options opts;
    kit_images(folder, IMAGES, 2);
    snprintf(path, sizeof path, "%s.trace", folder);
    pst_engine_options_init(&opts);
    opts.workers = 1;
    opts.trace = path;
    pst_dataset *data = kit_dataset(folder);
    pst_engine *engine = kit_engine_with(&opts);
    const pst_job_options jo = kit_options(KIT_PIPELINE, BATCH, 1, 1);
    pst_job *job = kit_job(engine, data, &jo);
    for (int i = 0; i < WAITS; i++)
        psti_job_waited(job, 100 + i, took_ns[i]);
    pst_job_close(job);
    pst_engine_free(engine);
    CHECK(read_waits(path, found) == WAITS);
    for (int i = 0; i < WAITS; i++) {
        CHECK(found[i].step == 100 + i);
        CHECK(found[i].took_us == 1e-3 * (double)took_ns[i]);
        if (i > 0)
            CHECK(found[i].at_us >= found[i - 1].at_us + found[i - 1].took_us - 0.001);
    }
    remove(path);
    pst_dataset_close(data);
    kit_remove(folder);
}

int main(void)
{
    RUN(test_waits_that_are_heard_of_late_do_not_overlap);
    return check_report();
}
