/* SPDX-License-Identifier: Apache-2.0
 * How many seconds a sample will take, learned while samples are run: a weighted sum of the numbers
 * that describe its work, and what the sample itself took before. No locks: the caller serialises.
 * Nothing is allocated after predict_init. */
#ifndef PSTI_SCHED_PREDICT_H
#define PSTI_SCHED_PREDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PREDICT_FEATURES_MAX = 16,
    PREDICT_READY = 16 /* samples to be learned before predictions are of use */
};

/* Whether what samples took before says what they take now. Of samples that were run before, means
 * that slowly forget; log is of measured by predicted from the features alone. */
typedef struct predict_trust {
    double pairs;               /* how many */
    double then, now;           /* log before, log this time */
    double then_then, then_now; /* variance, covariance */
    double without, with;       /* mean absolute error of the two ways to predict, seconds */
    double share;               /* of the log before that is believed, 0 to 1 */
} predict_trust;

typedef struct predictor {
    int count; /* of features */
    uint64_t learned;
    /* Sums of products over the samples learned, lighter the longer ago; lower triangle. */
    double xx[PREDICT_FEATURES_MAX][PREDICT_FEATURES_MAX], xy[PREDICT_FEATURES_MAX], weight;
    /* What follows from them, as of `stale` samples ago: the factor of the scaled sums, its
     * diagonal inverted; seconds for one of each feature. */
    double root[PREDICT_FEATURES_MAX][PREDICT_FEATURES_MAX], scale[PREDICT_FEATURES_MAX];
    double seconds[PREDICT_FEATURES_MAX];
    int stale;
    double cost, error;   /* means: seconds, absolute error of the whole prediction */
    double spread;        /* mean relative error by the features alone, without outliers */
    double lately, usual; /* the same over few and over many samples: apart, the law has changed */
    bool new_law;
    predict_trust trust;
    uint16_t *past; /* by id; NULL: not kept */
    int64_t samples;
} predictor;

/* samples: how many ids may come, for the past of each (2 bytes); 0: it is not kept. 0, or -ENOMEM;
 * on failure nothing is held. */
int predict_init(predictor *p, int features, int64_t samples);
void predict_fini(predictor *p);          /* zero-initialised is fine */
size_t predict_bytes(const predictor *p); /* that it holds beyond itself */
bool predict_ready(const predictor *p);
/* Above 0 once anything was learned. id < 0, or past what was told: from the features alone. */
double predict_seconds(const predictor *p, const double *features, int64_t id);
/* Whether that goes by the sample's own past. */
bool predict_knows(const predictor *p, int64_t id);
/* What the sample took. Times below 0 or not finite are passed over. */
void predict_learn(predictor *p, const double *features, int64_t id, double seconds);
/* Mean absolute error of predictions by mean cost; 0 until ready. */
double predict_error(const predictor *p);

#endif
