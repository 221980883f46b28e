/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as COCO annotations, with two pictures beside them, so that good ones are followed to
 * their end: shapes are unpacked too. Once as a file, once as part of a folder. */
#include "core/outline.h"
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *prepared_folder(void)
{
    static const char *const files[] = {"x/a.jpg", "x/b.jpg"};
    static const char *folder;
    if (folder)
        return folder;
    folder = fuzz_folder();
    char path[300];
    snprintf(path, sizeof path, "%s/x", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/annotations", folder);
    mkdir(path, 0700);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        fuzz_put(path, files[i], strlen(files[i]));
    }
    return folder;
}

/* Every part of every shape; what the listing made must come out whole. */
static void walk_shapes(const uint8_t *at, const uint8_t *end, bool whole)
{
    psti_outline o;
    uint64_t n;
    double x, y;
    while (at < end) {
        const bool ok = psti_outline_next(&at, end, &o);
        if (!ok && whole)
            abort();
        if (!ok)
            return;
        while (psti_outline_polygon(&o, &n))
            for (uint64_t i = 0; i < n; i++)
                if (!psti_outline_point(&o, &x, &y) && whole)
                    abort();
        while (psti_outline_run(&o, &n))
            ;
        if (whole && (o.parts || o.at != o.end))
            abort();
    }
}

static void open_shapes(const char *path)
{
    const pst_dataset_options opts = {.size = sizeof opts, .index_dir = "", .threads = 1};
    psti_dataset *data = NULL;
    const psti_source_field *fields;
    if (psti_dataset_open(path, &opts, &data, NULL))
        return;
    const int count = psti_dataset_fields(data, &fields);
    for (int i = 0; i < count; i++)
        for (int64_t id = 0; id < psti_dataset_count(data); id++) {
            const void *value;
            size_t bytes;
            if (strcmp(fields[i].info.name, "masks") == 0 &&
                psti_dataset_value(data, id, i, &value, &bytes) == 0)
                walk_shapes(value, (const uint8_t *)value + bytes, true);
        }
    psti_dataset_unref(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/annotations/instances_x.json", prepared_folder());
    fuzz_put(path, data, size);
    fuzz_open(path);
    fuzz_open(prepared_folder());
    open_shapes(path);
    walk_shapes(data, data + size, false);
    return 0;
}
