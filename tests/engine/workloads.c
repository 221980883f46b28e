/* SPDX-License-Identifier: Apache-2.0
 * See workloads.h. A new workload is one row, and a function that makes its data. */
#include "workloads.h"

static void make_images(const char *folder, int count)
{
    kit_images(folder, count, 3);
}

const workload workloads[] = {
    {.name = "images",
     .make = make_images,
     .pipeline = "decode | random_resized_crop(16) | hflip @ | normalize(imagenet)",
     .batch = 5,
     .decoded = true},
    {.name = "images of their own sizes",
     .make = make_images,
     .pipeline = "decode | resize(20) | hflip | color_jitter(0.4) @ | normalize(half)",
     .fields = "image=padded(8),label",
     .batch = 4,
     .decoded = true},
    {.name = "one image after the other",
     .make = make_images,
     .pipeline = "decode | vflip(0.5) @ | random_erasing(p=0.5)",
     .batch = 1,
     .decoded = true},
};
const int workload_count = sizeof workloads / sizeof *workloads;
