/* SPDX-License-Identifier: Apache-2.0
 * What a split gives. A delivered sample takes CPU seconds, seconds of the source and bytes through
 * the memory; each resource allows its own number of deliveries a second, reading and computing
 * overlap, so the smallest is the capacity. Jobs share it evenly up to what each can take. How
 * often a sample is prepared per delivery depends on the jobs' rates, and these on it: a few rounds
 * find both. Pure. */
#include <math.h>
#include <stddef.h>

#include "model/model_priv.h"

enum { ROUNDS = 32 };
static const double spread_default = 0.02, reach_default = 0.035;

/* ---- checking -------------------------------------------------------------------------------- */

static bool sound(double value)
{
    return isfinite(value) && value >= 0;
}

const char *psti_model_check(const psti_model_input *in)
{
    const struct {
        const char *name;
        double value;
        bool needed;
    } all[] = {
        {"samples", in->samples, true},
        {"cache_bytes", in->cache_bytes, false},
        {"cores", in->cores, true},
        {"encoded bytes", in->bytes[E], true},
        {"decoded bytes", in->bytes[D], false},
        {"augmented bytes", in->bytes[A], false},
        {"out_bytes", in->out_bytes, false},
        {"read_s", in->read_s, false},
        {"crop_s", in->crop_s, false},
        {"full_s", in->full_s, false},
        {"augment_s", in->augment_s, false},
        {"keep_s", in->keep_s, false},
        {"finish_s", in->finish_s, false},
        {"other_s", in->other_s, false},
        {"source_bytes_s", in->source_bytes_s, false},
        {"source_request_s", in->source_request_s, false},
        {"memory_bytes_s", in->memory_bytes_s, false},
        {"disk_bytes", in->disk_bytes, false},
        {"disk_entry_bytes", in->disk_entry_bytes, in->disk_bytes > 0},
        {"disk_read_s", in->disk_read_s, false},
        {"disk_bytes_s", in->disk_bytes_s, false},
        {"remote_found", in->remote_found, false},
        {"remote_bytes_s", in->remote_bytes_s, false},
        {"remote_s", in->remote_s, false},
        {"spread", in->sharing.spread, false},
        {"reach", in->sharing.reach, false},
        {"cached", in->sharing.cached, false},
        {"preparations", in->sharing.preparations, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!sound(all[i].value) || (all[i].needed && all[i].value == 0))
            return all[i].name;
    if (in->crop_s + in->finish_s + in->other_s <= 0)
        return "crop_s";
    if (in->remote_found > 1)
        return "remote_found";
    if (in->jobs < 1 || in->jobs > PSTI_MODEL_JOBS)
        return "jobs";
    for (int j = 0; j < in->jobs; j++)
        if (!sound(in->consumer[j]))
            return "consumer";
    return NULL;
}

/* ---- sharing --------------------------------------------------------------------------------- */

/* How much of what sharing could save is not saved: 1 with nothing cached, 0 at the bound. In step
 * (1): jobs on one permutation that go at the same speed; the more they differ the less of it. */
static double missed(const psti_model_sharing *s, double in_step, double cached)
{
    const double reach = s->reach > 0 ? s->reach : reach_default;
    const double spread = s->spread > 0 ? s->spread : spread_default;
    const double substituted = reach / (reach + cached);
    const double in_order = cached < spread ? 1 - cached / spread : 0;
    const double saved = in_order < substituted ? substituted - in_order : 0;
    return substituted - in_step * saved;
}

/* From one measured point to others: the same curve, its reach taken from the measurement. */
static double missed_measured(const psti_model_sharing *s, double bound, double cached)
{
    double at = bound < 1 ? (s->preparations - bound) / (1 - bound) : 0;
    at = at < 1e-4 ? 1e-4 : at > 0.9999 ? 0.9999 : at;
    const double reach = s->cached * at / (1 - at);
    return reach / (reach + cached);
}

/* How much of the deliveries that could be shared belongs to jobs that keep up with the fastest:
 * all of it at the same speed, nothing from a tenth slower on. */
static double keeping_up(const double *rates, int jobs, double most)
{
    double sum = -most, close = -most;
    for (int j = 0; j < jobs; j++) {
        const double near = (rates[j] / most - 0.9) / 0.1;
        sum += rates[j];
        close += near > 0 ? near * rates[j] : 0;
    }
    return sum > 0 ? close / sum : 0;
}

double psti_model_preparations(const psti_model_sharing *sharing, const double *rates, int jobs,
                               double cached)
{
    double sum = 0, most = 0;
    for (int j = 0; j < jobs; j++) {
        sum += rates[j];
        most = rates[j] > most ? rates[j] : most;
    }
    if (jobs < 2 || !(sum > 0) || !(cached > 0))
        return 1;
    const double bound = most / sum;
    const double rest = sharing->preparations > 0 && sharing->cached > 0
                            ? missed_measured(sharing, bound, cached)
                            : missed(sharing, keeping_up(rates, jobs, most), cached);
    return bound + (1 - bound) * rest;
}

/* ---- costs ----------------------------------------------------------------------------------- */

double model_source_s(const psti_model_input *in)
{
    const double bytes = in->source_bytes_s > 0 ? in->bytes[E] / in->source_bytes_s : 0;
    return bytes + in->source_request_s;
}

double model_on_disk(const psti_model_input *in)
{
    const double all = in->samples * in->disk_entry_bytes;
    return !(in->disk_bytes > 0) || !(all > 0) ? 0
           : in->disk_bytes < all              ? in->disk_bytes / all
                                               : 1;
}

/* Between equals nothing moves on the disk: of what is not in the cache it has the same part as of
 * all. */
prep_cost model_prep(const psti_model_input *in, double encoded, double decoded)
{
    const double d = decoded / in->samples, e = encoded / in->samples, rest = 1 - d - e;
    const double k = rest * model_on_disk(in), t = (rest - k) * in->remote_found, s = rest - k - t;
    const double from_disk_s = in->disk_read_s + (in->disk_form == D ? in->augment_s : in->crop_s);
    const bool whole = in->remote_decoded && in->bytes[D] > 0;
    const double remote_bytes = in->bytes[whole ? D : E];
    const double from_remote_s = in->remote_s + (whole ? in->augment_s : in->crop_s);
    return (prep_cost){
        .cpu_s = d * in->augment_s + (e + s) * in->crop_s + s * in->read_s + k * from_disk_s +
                 t * from_remote_s,
        .source_s = s * model_source_s(in),
        .disk_s = in->disk_bytes_s > 0 ? k * in->disk_entry_bytes / in->disk_bytes_s : 0,
        .remote_s = in->remote_bytes_s > 0 ? t * remote_bytes / in->remote_bytes_s : 0,
        .bytes = d * in->bytes[D] + (e + 2 * s) * in->bytes[E] + 2 * k * in->disk_entry_bytes +
                 2 * t * remote_bytes + in->bytes[A],
    };
}

/* While cache and tiers fill, the first preparation of each sample finds nothing; it makes the
 * decoded form where the cache or the disk has room for it. Later ones, by other jobs, find it. */
static prep_cost first_prep(const psti_model_input *in, double encoded, double decoded, double each)
{
    const double first = each > 1 ? 1 / each : 1, in_cache = decoded / in->samples;
    const double on_disk = in->disk_form == D ? model_on_disk(in) : 0;
    const double d = on_disk > in_cache ? on_disk : in_cache;
    const prep_cost later = model_prep(in, encoded, decoded);
    return (prep_cost){
        .cpu_s = first * (in->read_s + d * (in->full_s + in->augment_s) + (1 - d) * in->crop_s) +
                 (1 - first) * later.cpu_s,
        .source_s = first * model_source_s(in) + (1 - first) * later.source_s,
        .disk_s = (1 - first) * later.disk_s,
        .remote_s = (1 - first) * later.remote_s,
        .bytes = first * (2 * in->bytes[E] + 2 * d * in->bytes[D] + in->bytes[A]) +
                 (1 - first) * later.bytes,
    };
}

/* What is found in augmented form comes from the memory; what was just prepared lies in the
 * processor's caches when it is finished. */
double model_delivery_s(const psti_model_input *in, const prep_cost *prep, double q)
{
    const double keep_s = q < 1 ? in->keep_s : 0;
    const double fetch_s =
        in->memory_bytes_s > 0 ? in->bytes[A] * in->cores / in->memory_bytes_s : 0;
    return q * (prep->cpu_s + keep_s) + (1 - q) * fetch_s + in->finish_s + in->other_s;
}

double model_entries(const psti_model_input *in, int form, double share)
{
    if (!(in->bytes[form] > 0))
        return 0;
    const double entries = share * in->cache_bytes / in->bytes[form];
    return entries < in->samples ? entries : in->samples;
}

/* ---- rates ----------------------------------------------------------------------------------- */

/* Deals a capacity out: no job gets more than it takes, what one leaves goes to the others. */
static double deal(const psti_model_input *in, double capacity, double *job)
{
    double given = 0, level = 0;
    bool full[PSTI_MODEL_JOBS] = {false};
    int open = in->jobs;
    for (bool again = true; again && open > 0;) {
        again = false;
        level = (capacity - given) / open;
        for (int j = 0; j < in->jobs; j++) {
            if (full[j] || in->consumer[j] == 0 || in->consumer[j] > level)
                continue;
            full[j] = again = true;
            given += in->consumer[j];
            open--;
        }
    }
    double total = 0;
    for (int j = 0; j < in->jobs; j++) {
        job[j] = full[j] ? in->consumer[j] : level;
        total += job[j];
    }
    return total;
}

static void costs(const psti_model_input *in, bool steady, psti_model_rate *r)
{
    const double q = r->preparations;
    const prep_cost prep = steady ? model_prep(in, r->entries[E], r->entries[D])
                                  : first_prep(in, r->entries[E], r->entries[D], q * in->jobs);
    r->cpu_s = model_delivery_s(in, &prep, q) / in->cores;
    r->source_s = q * prep.source_s;
    r->disk_s = q * prep.disk_s;
    r->remote_s = q * prep.remote_s;
    const double bytes = q * prep.bytes + in->bytes[A] + in->out_bytes;
    r->memory_s = in->memory_bytes_s > 0 ? bytes / in->memory_bytes_s : 0;
    r->binding = r->cpu_s >= r->source_s ? PSTI_MODEL_CPU : PSTI_MODEL_SOURCE;
    double most = r->cpu_s >= r->source_s ? r->cpu_s : r->source_s;
    if (r->memory_s > most) {
        r->binding = PSTI_MODEL_MEMORY;
        most = r->memory_s;
    }
    if (r->disk_s > most) {
        r->binding = PSTI_MODEL_DISK;
        most = r->disk_s;
    }
    if (r->remote_s > most) {
        r->binding = PSTI_MODEL_REMOTE;
        most = r->remote_s;
    }
    r->capacity = 1 / most;
}

/* The preparations per delivery that the jobs come to if they begin with r->preparations of them.
 */
static double round_trip(const psti_model_input *in, bool steady, double cached, psti_model_rate *r)
{
    costs(in, steady, r);
    r->total = deal(in, r->capacity, r->job);
    return psti_model_preparations(&in->sharing, r->job, in->jobs, cached);
}

/* Rates and preparations depend on each other. The more preparations, the less is delivered, the
 * more alike are the jobs, the better they share: so there is one place where both agree, and
 * halving finds it. Mostly the first guess is right: jobs that all want more are alike anyway. */
static void settle(const psti_model_input *in, bool steady, psti_model_rate *r)
{
    const double cached = r->entries[A] / in->samples, close = 1e-9;
    double low = 1.0 / in->jobs, high = 1;
    r->preparations = 1;
    r->preparations = round_trip(in, steady, cached, r);
    for (int round = 0; round < ROUNDS; round++) {
        const double q = round_trip(in, steady, cached, r);
        if (fabs(q - r->preparations) < close)
            break;
        if (q > r->preparations)
            low = r->preparations;
        else
            high = r->preparations;
        r->preparations = (low + high) / 2;
    }
    if (r->total < r->capacity * (1 - 1e-9))
        r->binding = PSTI_MODEL_CONSUMER;
}

void psti_model_evaluate(const psti_model_input *in, const psti_model_split *split, bool steady,
                         psti_model_rate *out)
{
    *out = (psti_model_rate){0};
    for (int form = 0; form < PSTI_MODEL_FORMS; form++)
        out->entries[form] = model_entries(in, form, split->share[form]);
    if (in->jobs < 2)
        out->entries[A] = 0; /* nobody else would take them */
    const double left = in->samples - out->entries[D];
    out->entries[E] = out->entries[E] < left ? out->entries[E] : left;
    settle(in, steady, out);
    const double q = out->preparations;
    out->from[A] = 1 - q;
    const double found = steady ? 1 : 1 - 1 / (q * in->jobs > 1 ? q * in->jobs : 1);
    out->from[D] = q * found * out->entries[D] / in->samples;
    out->from[E] = q * found * out->entries[E] / in->samples;
    const double rest = 1 - out->from[A] - out->from[D] - out->from[E];
    const double cached = (out->entries[D] + out->entries[E]) / in->samples;
    out->from_disk = q * found * (1 - cached) * model_on_disk(in);
    out->from_remote = found * in->remote_found * (rest - out->from_disk);
    out->from_source = rest - out->from_disk - out->from_remote;
}
