/* SPDX-License-Identifier: Apache-2.0
 * Every allocation of opening a dataset fails in turn, once and from there on: an error, no crash,
 * nothing left over. */
#include "core/memory.h"
#include "fixture.h"

static tarball t;

static void make_all(void)
{
    scratch_clear();
    put_text(at("classes/a/1.jpg"), "1");
    put_text(at("classes/a/deep/2.npy"), "2");
    put_text(at("classes/b/3.jpg"), "3");
    put_text(at("classes/splits/s.txt"), "0\n");
    put_text(at("splits/train/a/1.jpg"), "1");
    put_text(at("splits/val/b/2.jpg"), "2");
    put_text(at("pairs/images/a.jpg"), "a");
    put_text(at("pairs/masks/a.png"), "m");
    put_text(at("manifest/x.jpg"), "x");
    put_text(at("manifest/y.jpg"), "y");
    put_text(at("manifest/m.tsv"),
             "key\tlabel\tsplit\tn\tmask\nx.jpg\tdog\ttrain\t1.5\ty.jpg\ny.jpg\tcat\tval\t\t\n");
    put_text(at("manifest/m.jsonl"),
             "{\"key\": \"x.jpg\", \"v\": [1, 2], \"t\": {\"a\": 1}}\n"
             "{\"key\": \"y.jpg\", \"v\": [0.5], \"t\": \"x\", \"mask\": \"x.jpg\"}\n");
    t.len = 0;
    tar_file(&t, "1.jpg", "1");
    tar_file(&t, "1.cls", "1");
    tar_file(&t, "1.json", "{\"v\": [1], \"t\": 1, \"name\": \"n\"}");
    tar_file(&t, "2.png", "2");
    tar_file(&t, "2.mask.png", "2");
    tar_file(&t, "2.json", "{\"v\": [0.5], \"t\": \"s\"}");
    tar_end(&t);
    tar_save(&t, at("shards/1.tar"));
    tar_save(&t, at("shards/2.tar"));
    put_text(at("coco/x/1.jpg"), "1");
    put_text(at("coco/annotations/instances_x.json"),
             "{\"images\": [{\"id\": 1, \"file_name\": \"1.jpg\", \"width\": 5}], "
             "\"categories\": [{\"id\": 2, \"name\": \"c\"}], \"annotations\": [{\"id\": 1, "
             "\"image_id\": 1, \"category_id\": 2, \"bbox\": [1, 2, 3, 4], "
             "\"segmentation\": [[1, 2, 3, 4, 5, 6.5]]}]}");
    age_dirs(scratch);
}

/* Opens with the n-th allocation failing until one try goes through. */
static void exhaust(const char *path, bool remembered, bool persistent)
{
    char copy[6000];
    snprintf(copy, sizeof copy, "%s", path);
    uint64_t n = 1;
    for (;; n++) {
        psti_mem_stats before, after;
        psti_mem_stats_total(&before);
        psti_mem_fail_at(n, persistent);
        psti_dataset *data = remembered ? open_remembered(copy) : open_plain(copy);
        psti_mem_fail_at(0, false);
        psti_mem_stats_total(&after);
        const bool reached = after.allocs - before.allocs < n && data;
        if (!data)
            CHECKF(last_error.code == -ENOMEM, "%s, allocation %llu: %d %s", copy,
                   (unsigned long long)n, last_error.code, last_error.message);
        psti_dataset_unref(data);
        psti_mem_stats_total(&after);
        CHECKF(after.live == before.live && after.live_bytes == before.live_bytes,
               "%s, allocation %llu leaves %llu blocks", copy, (unsigned long long)n,
               (unsigned long long)(after.live - before.live));
        if (reached || n > 2000)
            break;
    }
    CHECKF(n > 5 && n < 2000, "%s: %llu allocations", copy, (unsigned long long)n);
}

static const char *const paths[] = {"classes",
                                    "splits",
                                    "pairs",
                                    "manifest/m.tsv",
                                    "manifest/m.jsonl",
                                    "shards",
                                    "shards/1.tar",
                                    "manifest/x.jpg",
                                    "coco",
                                    "coco/annotations/instances_x.json"};
enum { PATHS = sizeof paths / sizeof *paths };

static void one_failure_anywhere(void)
{
    for (int i = 0; i < PATHS; i++)
        exhaust(at("%s", paths[i]), false, false);
}

static void all_failures_from_anywhere(void)
{
    for (int i = 0; i < PATHS; i++)
        exhaust(at("%s", paths[i]), false, true);
}

static void failures_around_remembered_listings(void)
{
    for (int i = 0; i < PATHS; i++) {
        remove_tree(at("index"));
        exhaust(at("%s", paths[i]), true, false); /* writing it, then reading it */
        exhaust(at("%s", paths[i]), true, true);
    }
}

int main(void)
{
    scratch_open();
    pst_log_set(count_log, NULL);
    make_all();
    RUN(one_failure_anywhere);
    RUN(all_failures_from_anywhere);
    RUN(failures_around_remembered_listings);
    remove_tree(scratch);
    return check_report();
}
