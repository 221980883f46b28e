/* SPDX-License-Identifier: Apache-2.0
 * What recordings of every format have in common: what is delivered for which header, and numbers
 * on their way from the file's channels to the field's. Called by wav.c and flac.c on a worker's
 * thread.
 *
 * Whole numbers of up to 16 bits stay 16-bit numbers, half the memory of floats, unless channels
 * are averaged; everything else becomes floats in -1..1. Averages are made in doubles and rounded
 * once. */
#include <stdio.h>

#include "codec/codec_priv.h"

int psti_wave_describe(psti_decoder *dec, const psti_wave_head *head, pst_error *err)
{
    const char *name = dec->codec->name;
    if (head->channels < 1 || head->channels > PSTI_WAVE_CHANNELS)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "%s: the header claims %d channels, 1 to %d are read", name,
                         head->channels, PSTI_WAVE_CHANNELS);
    if (head->rate < 1 || head->rate > PSTI_WAVE_RATE)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "%s: the header claims %lld samples a second, 1 to %d are read", name,
                         (long long)head->rate, PSTI_WAVE_RATE);
    if (head->frames < 1)
        return psti_fail(err, PST_EFORMAT, "decode", NULL,
                         "%s: the recording has no samples: take it out of the dataset", name);
    psti_picture *pic = &dec->pic;
    const bool mixed = head->channels > 1 && dec->opts.color != PSTI_COLOR_KEEP;
    pic->rows = head->frames;
    pic->cols = 1;
    pic->channels = mixed ? 1 : head->channels;
    pic->dtype = head->bits <= 16 && !head->floats && !mixed ? PST_I16 : PST_F32;
    pic->stored_channels = head->channels;
    pic->bits = head->bits;
    pic->unit[0] = (double)head->rate;
    dec->stored_rows = head->frames;
    dec->stored_cols = 1;
    snprintf(pic->detail, sizeof pic->detail, "%d-bit%s %lld Hz %d channel%s", head->bits,
             head->floats ? " float" : "", (long long)head->rate, head->channels,
             head->channels == 1 ? "" : "s");
    const psti_geom size = psti_picture_geom(pic);
    return psti_decoder_check_size(dec, &size, err);
}

void psti_wave_store(const psti_picture *pic, const double *samples, int64_t frames, float *dst)
{
    const int from = pic->stored_channels;
    if (pic->channels == from) {
        for (int64_t i = 0; i < frames * from; i++)
            dst[i] = (float)samples[i];
        return;
    }
    for (int64_t i = 0; i < frames; i++, samples += from) {
        double sum = samples[0];
        for (int c = 1; c < from; c++)
            sum += samples[c];
        dst[i] = (float)(sum / from);
    }
}
