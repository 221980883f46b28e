/* SPDX-License-Identifier: Apache-2.0
 * See workloads.h. A new workload is one row, and a function that makes its data. */
#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void make_images(const char *folder, int count)
{
    kit_images(folder, count, 3);
}

/* Pictures of one size with up to four boxes and polygons each. */
static void make_objects(const char *folder, int count)
{
    enum { WIDTH = 48, HEIGHT = 36 };
    char *all = NULL;
    size_t length = 0;
    FILE *notes = open_memstream(&all, &length);
    fputs("{\"annotations\":[", notes);
    for (int i = 0, written = 0; i < count; i++)
        for (int k = 0; k < i % 5; k++, written++) {
            const int x = (i * 7 + k * 11) % 30, y = (i * 5 + k * 3) % 20, w = 4 + (i + k) % 14;
            fprintf(notes,
                    "%s{\"id\":%d,\"image_id\":%d,\"category_id\":%d,\"bbox\":[%d,%d,%d,%d],"
                    "\"segmentation\":[[%d,%d,%d,%d.5,%d,%d]]}",
                    written ? "," : "", i * 10 + k, i, 1 + k, x, y, w, w, x, y, x + w, y + 1, x + 1,
                    y + w);
        }
    fputs("],\"images\":[", notes);
    for (int i = 0; i < count; i++) {
        char name[64];
        size_t size;
        uint8_t *bytes = kit_jpeg(WIDTH, HEIGHT, (unsigned)i + 1, false, &size);
        snprintf(name, sizeof name, "train/%03d.jpg", i);
        kit_write(folder, name, bytes, size);
        free(bytes);
        fprintf(notes, "%s{\"id\":%d,\"file_name\":\"%03d.jpg\",\"width\":%d,\"height\":%d}",
                i ? "," : "", i, i, WIDTH, HEIGHT);
    }
    fputs("]}", notes);
    fclose(notes);
    kit_write(folder, "annotations/instances_train.json", all, length);
    free(all);
}

static void put_little(uint8_t *at, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* Recordings of 0.1 s and more at 8 kHz: a sawtooth that grows and fades, silence around it. */
static void make_sounds(const char *folder, int count)
{
    static uint8_t file[44 + 2 * 8000];
    for (int i = 0; i < count; i++) {
        const int n = 800 + 173 * i;
        char name[64];
        memcpy(file, "RIFF\0\0\0\0WAVEfmt \20\0\0\0\1\0\1\0\0\0\0\0\0\0\0\0\2\0\20\0data", 40);
        put_little(file + 4, (uint32_t)(36 + 2 * n), 4);
        put_little(file + 24, 8000, 4);
        put_little(file + 28, 16000, 4);
        put_little(file + 40, (uint32_t)(2 * n), 4);
        for (int k = 0; k < n; k++) {
            const int loud = k < 100 || k > n - 150 ? 0 : (k - 100) * (n - 150 - k) / n;
            put_little(file + 44 + 2 * k, (uint32_t)(loud * (k % (20 + i) - 10 - i / 2)), 2);
        }
        snprintf(name, sizeof name, "%c/%03d.wav", 'a' + i % 3, i);
        kit_write(folder, name, file, (size_t)(44 + 2 * n));
    }
}

/* A volume and its mask as arrays, of sizes that differ: 18 to 24 voxels a side, a box of each
 * class in it, the last one without any. */
static void make_volumes(const char *folder, int count)
{
    static const char *const types[] = {"<f4", "|u1"};
    uint8_t *file = malloc(128 + 24 * 24 * 24 * sizeof(float));
    for (int i = 0; i < 2 * count; i++) {
        const int side[3] = {18 + i / 2 % 7, 18 + i / 2 % 5, 18 + i / 2 % 3}, mask = i & 1;
        const int voxels = side[0] * side[1] * side[2];
        char name[64], *head = (char *)file;
        memset(head, ' ', 128);
        memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
        const int n = snprintf(
            head + 10, 117, "{'descr': '%s', 'fortran_order': False, 'shape': (1, %d, %d, %d), }",
            types[mask], side[0], side[1], side[2]);
        head[10 + n] = ' ';
        head[127] = '\n';
        for (int v = 0; v < voxels; v++) {
            const int x = v % side[2], y = v / side[2] % side[1], z = v / side[2] / side[1];
            const bool one = x > 12 && y > 13 && z > 11, two = x < 3 && y < 4 && z < 5;
            const float value = (float)(v * 7 % 1013 + i);
            if (mask)
                file[128 + v] = i / 2 + 1 < count ? (uint8_t)(one ? 1 : two ? 2 : 0) : 0;
            else
                memcpy(file + 128 + 4 * v, &value, sizeof value);
        }
        snprintf(name, sizeof name, "case_%03d_%c.npy", i / 2, mask ? 'y' : 'x');
        kit_write(folder, name, file, 128 + (size_t)voxels * (mask ? 1 : sizeof(float)));
    }
    free(file);
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
    {.name = "objects",
     .make = make_objects,
     .pipeline = "decode | resize(40) | photometric_distort | zoom_out | iou_crop | hflip @ | "
                 "normalize(imagenet)",
     .fields = "image=padded(32),boxes,labels,masks,image_id",
     .batch = 4,
     .decoded = true},
    {.name = "speech",
     .make = make_sounds,
     .pipeline = "decode | trim(40, frame=200, hop=50) | speed | dither | preemphasis | "
                 "log_mel(16, n_fft=128, win=100, hop=50) | feature_norm | spec_augment @ | stack",
     .fields = "audio=padded,label",
     .batch = 4,
     .decoded = true},
    {.name = "crops of volumes",
     .make = make_volumes,
     .pipeline = "decode | balanced_crop(8) | random_flip @ | random_brightness((1.7, 2.3), p=0.5) "
                 "| gaussian_noise(0.1, p=0.5)",
     .batch = 3,
     .decoded = true},
    {.name = "prepared volumes",
     .make = make_volumes,
     .pipeline =
         "decode | clip(0, 900) | intensity(300, 50) | pad_min(20) | balanced_crop((12, 10, 14)) | "
         "random_flip @ | cast(f32)",
     .batch = 2,
     .decoded = true},
    {.name = "whole volumes",
     .make = make_volumes,
     .pipeline = "decode | intensity(300, 50) | random_flip @",
     .fields = "image=padded,mask=padded",
     .batch = 1,
     .decoded = true},
};
const int workload_count = sizeof workloads / sizeof *workloads;
