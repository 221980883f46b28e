/* SPDX-License-Identifier: Apache-2.0
 * log_mel: a recording becomes frames of log-mel features. */
#include "core/status.h"
#include "op/audio/audio_ops.h"

typedef struct log_mel_params {
    int64_t mels, n_fft, win, hop;
    int window, mel, norm;
    bool periodic, center;
    double fmin, fmax, eps;
} log_mel_params;

enum { HANN, HAMMING };
static const char *const window_words[] = {"hann", "hamming", NULL};
static const char *const mel_words[] = {"slaney", "htk", NULL}; /* psti_mel_scale */
static const char *const norm_words[] = {"slaney", "none", NULL};

static const psti_param table[] = {
    {.name = "mels",
     .type = PSTI_P_INT,
     .offset = offsetof(log_mel_params, mels),
     .min = 1,
     .max = 4096,
     .def = "80",
     .help = "features of a frame"},
    {.name = "n_fft",
     .type = PSTI_P_INT,
     .offset = offsetof(log_mel_params, n_fft),
     .min = 8,
     .max = PSTI_FFT_MOST,
     .def = "512",
     .help =
         "samples of a transform: even, with no prime factor above 5; powers of two are fastest"},
    {.name = "win",
     .type = PSTI_P_INT,
     .offset = offsetof(log_mel_params, win),
     .min = 1,
     .max = PSTI_FFT_MOST,
     .def = "320",
     .help = "samples under the window, in the middle of the transform"},
    {.name = "hop",
     .type = PSTI_P_INT,
     .offset = offsetof(log_mel_params, hop),
     .min = 1,
     .max = PSTI_FFT_MOST,
     .def = "160",
     .help = "samples from one frame to the next"},
    {.name = "window",
     .type = PSTI_P_WORD,
     .offset = offsetof(log_mel_params, window),
     .words = window_words,
     .def = "hann",
     .help = "its shape"},
    {.name = "periodic",
     .type = PSTI_P_BOOL,
     .offset = offsetof(log_mel_params, periodic),
     .def = "false",
     .help = "the window's period is its length, not one less"},
    {.name = "mel",
     .type = PSTI_P_WORD,
     .offset = offsetof(log_mel_params, mel),
     .words = mel_words,
     .def = "slaney",
     .help = "the scale of tones"},
    {.name = "norm",
     .type = PSTI_P_WORD,
     .offset = offsetof(log_mel_params, norm),
     .words = norm_words,
     .def = "slaney",
     .help = "slaney: filters of one area; none: of one height"},
    {.name = "fmin",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(log_mel_params, fmin),
     .min = 0,
     .max = 384000,
     .def = "0",
     .help = "Hz at which the lowest filter begins"},
    {.name = "fmax",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(log_mel_params, fmax),
     .min = 0,
     .max = 384000,
     .def = "0",
     .help = "Hz at which the highest filter ends; 0 = half the recording's rate"},
    {.name = "eps",
     .type = PSTI_P_FLOAT,
     .offset = offsetof(log_mel_params, eps),
     .min = 1e-37,
     .max = 1e6,
     .def = "1e-20",
     .help = "added before the logarithm"},
    {.name = "center",
     .type = PSTI_P_BOOL,
     .offset = offsetof(log_mel_params, center),
     .def = "true",
     .help = "frames are centred, the recording mirrored at its ends"},
    {.name = NULL},
};

static int check(const void *p, pst_error *err)
{
    const log_mel_params *params = p;
    if (!psti_fft_fits((int)params->n_fft))
        return psti_fail(err, PST_EPIPELINE, "log_mel", NULL,
                         "n_fft is %lld: powers of two can be used and, where the build has "
                         "kissfft, even numbers with no prime factor above 5",
                         (long long)params->n_fft);
    if (params->win > params->n_fft)
        return psti_fail(err, PST_EPIPELINE, "log_mel", NULL,
                         "win is %lld, more than the %lld of n_fft", (long long)params->win,
                         (long long)params->n_fft);
    if (params->fmax > 0 && params->fmax <= params->fmin)
        return psti_fail(err, PST_EPIPELINE, "log_mel", NULL, "fmax is %g, fmin is %g: fmin first",
                         params->fmax, params->fmin);
    return 0;
}

static psti_log_mel features_of(const log_mel_params *params, double rate)
{
    return (psti_log_mel){.mels = (int)params->mels,
                          .size = (int)params->n_fft,
                          .window = (int)params->win,
                          .hop = (int)params->hop,
                          .hamming = params->window == HAMMING,
                          .periodic = params->periodic,
                          .center = params->center,
                          .scale = (psti_mel_scale)params->mel,
                          .even = params->norm == 0,
                          .low = params->fmin,
                          .high = params->fmax > 0 ? params->fmax : rate / 2,
                          .rate = rate,
                          .floor = params->eps};
}

static void infer(const void *p, const psti_geom *in, psti_geom *out)
{
    (void)in;
    const log_mel_params *params = p;
    *out = (psti_geom){.rows = -1,
                       .cols = params->mels,
                       .channels = 1,
                       .dtype = PST_F32,
                       .axes = PSTI_AXES_FRAMES};
}

static int decide(const void *p, psti_rng *rng, const psti_geom *in, psti_draw *draw,
                  psti_geom *out, pst_error *err)
{
    (void)rng;
    const log_mel_params *params = p;
    const double rate = in->unit[0];
    const int rc = psti_audio_decide_floats("log_mel", in, draw, out, err);
    if (rc < 0)
        return rc;
    if (!(rate >= 1))
        return psti_fail(err, PST_EFIELD, "log_mel", NULL, "the recording's rate is not known");
    const psti_log_mel how = features_of(params, rate);
    if (how.high > rate / 2 || how.low >= how.high)
        return psti_fail(err, PST_EFIELD, "log_mel", NULL,
                         "tones from %g to %g Hz are asked for, the recording has %g samples a "
                         "second and tones up to half of that: put resample before",
                         how.low, how.high, rate);
    infer(p, in, out);
    out->rows = psti_log_mel_frames(&how, in->rows);
    if (out->rows < 1)
        return psti_fail(err, PST_EFIELD, "log_mel", NULL,
                         "the recording has %lld samples, too few for a transform of %d: it needs "
                         "%d at least",
                         (long long)in->rows, how.size, how.center ? how.size / 2 + 1 : how.size);
    draw->v[0] = rate;
    return 0;
}

static size_t scratch(const void *p, const psti_draw *draw, const psti_geom *in,
                      const psti_geom *out)
{
    (void)out;
    const psti_log_mel how = features_of(p, draw->v[0]);
    return psti_audio_floats_scratch(in) + psti_audio_scratch(psti_log_mel_scratch(&how));
}

static int run(const void *p, const psti_draw *draw, psti_op_ctx *ctx, const psti_field *in,
               psti_field *out, pst_error *err)
{
    const psti_log_mel how = features_of(p, draw->v[0]);
    const float *samples = psti_audio_floats(in, ctx);
    if (!samples || psti_buf_need(PSTI_MEM_OP, &ctx->weights, psti_log_mel_scratch(&how)) < 0)
        return psti_audio_no_memory("log_mel", err);
    psti_log_mel_run(&how, samples, in->shape[0], ctx->weights.data, (float *)(void *)out->data);
    return 0;
}

const psti_op psti_op_log_mel = {
    .name = "log_mel",
    .summary = "a recording's log-mel features, frame by frame",
    .params = table,
    .params_bytes = sizeof(log_mel_params),
    .flags = PSTI_OP_RETYPES,
    .on = PSTI_ON_WAVES,
    .becomes = 1 + PSTI_AXES_FRAMES,
    .check = check,
    .infer = infer,
    .decide = decide,
    .scratch = scratch,
    .run = run,
};
