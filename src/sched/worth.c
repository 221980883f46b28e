/* SPDX-License-Identifier: Apache-2.0
 * What cached forms are worth: how often a second a form is used, times the seconds that each use
 * saves, divided by its bytes. Rates and times are measured while running. Under pool->lock. */
#include "model/model.h"
#include "sched/sched_priv.h"

static const uint64_t UPDATE_NS = 200000000; /* between two looks at rates */
static const double PRICE_LEAST = 0.05;
static const double FROM_DECODED = 0.25;   /* of a sample's time, until it is measured */
static const double ASKED_FOR = 1e-30;     /* what the caller wants kept though it saves nothing */
static const double DECODED_BYTES = 500e3; /* until one was made */

/* Seconds from encoded bytes to finish; where every sample met was kept, what that took. */
static double whole_s(const psti_feed *feed)
{
    return feed->from_encoded_s > 0 ? feed->from_encoded_s : feed->made_decoded_s;
}

void worth_took_locked(psti_feed *feed, const task *t)
{
    pays_took_locked(feed, t);
    if (t->augmented || !t->took_ns)
        return;
    if (task_has_form(t))
        running_mean(&feed->from_decoded_s, 1e-9 * (double)t->took_ns);
    else if (t->made)
        running_mean(&feed->made_decoded_s, 1e-9 * (double)t->took_ns);
    else
        running_mean(&feed->from_encoded_s, 1e-9 * (double)t->took_ns);
    const double whole = whole_s(feed);
    const double rest = feed->from_decoded_s > 0 ? feed->from_decoded_s : FROM_DECODED * whole;
    if (whole > 0) /* else nothing was decoded yet, and nothing is known */
        atomic_store_explicit(&feed->decode_saves_s, whole - rest, memory_order_relaxed);
    double bytes = 0;
    for (int i = 0; i < t->read_count; i++)
        bytes += read_from_tier(t, i) ? 0 : (double)t->reads[i].at.length;
    if (bytes > 0)
        running_mean(&feed->encoded_bytes, bytes);
}

/* Reading is worth as much as work where workers wait for it, and nothing where they do not. What
 * cannot be seen now, since little is read, stays as it was. */
static void price_reading_locked(psti_pool *pool, uint64_t now)
{
    reading_settle_locked(pool, now);
    const uint64_t bytes = pool->read_bytes - pool->priced_read_bytes;
    const uint64_t reading = pool->reading_ns - pool->priced_reading_ns;
    const uint64_t starved = pool->starved_ns - pool->priced_starved_ns;
    const uint64_t elapsed = now - pool->priced_ns;
    if (!bytes && pool->reading)
        return; /* one that takes long: it counts with the time that it took */
    pool->priced_ns = now;
    pool->priced_read_bytes = pool->read_bytes;
    pool->priced_reading_ns = pool->reading_ns;
    pool->priced_starved_ns = pool->starved_ns;
    if (!bytes || !reading)
        return;
    const double share = (double)starved / ((double)elapsed * pool->worker_count);
    running_mean(&pool->read_s, 1e-9 * (double)reading / (double)bytes);
    pool->io_price += ((share > 1 ? 1 : share) - pool->io_price) / 4;
    /* What is not the limit today may be tomorrow. */
    if (pool->io_price < PRICE_LEAST)
        pool->io_price = PRICE_LEAST;
    if (pool->io_price > 1 - PRICE_LEAST)
        pool->io_price = 1 - PRICE_LEAST;
}

/* Seconds that a form saves each time, by the reading and the work that it spares. */
static double worth(const psti_pool *pool, double bytes, double seconds)
{
    return pool->io_price * bytes * pool->read_s + (1 - pool->io_price) * seconds;
}

static double decoded_saves(const psti_pool *pool, const psti_feed *feed)
{
    const double whole = whole_s(feed);
    const double part = feed->from_decoded_s > 0 ? feed->from_decoded_s : FROM_DECODED * whole;
    const double decoding = worth(pool, feed->encoded_bytes, whole > part ? whole - part : 0);
    /* What the remote tier has would be got from there, which takes a part of the line, too. */
    const double found = pays_found(feed), rate = ask_bandwidth(pool);
    const double line = rate > 0 ? pool->ask_price * pool->worker_count / rate : 0;
    const double getting = pays_fetch_s(feed) + line * feed->pays.bytes;
    return found > 0 && getting < decoding ? found * getting + (1 - found) * decoding : decoding;
}

static double uses(const psti_feed *feed)
{
    return feed->rate / (double)psti_order_length(feed->spec.order);
}

static double decoded_bytes(const psti_feed *feed)
{
    const double bytes = atomic_load_explicit(&feed->decoded_bytes, memory_order_relaxed);
    return bytes > 0 ? bytes : DECODED_BYTES;
}

/* The forms of one owner serve all its feeds. */
static void value_decoded_locked(psti_pool *pool, psti_feed *feed)
{
    double saved = 0;
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        if (f->decoded == feed->decoded)
            saved += uses(f) * decoded_saves(pool, f);
    psti_cache_owner_value(feed->decoded, saved / decoded_bytes(feed));
}

/* Of the forms that last a sample has one: that whose worth exceeds the price of its room by most.
 */
static void choose_form_locked(const psti_pool *pool, psti_feed *feed)
{
    const double price = psti_cache_floor(pool->cache);
    const double stored = feed->encoded_bytes;
    const double decoded = decoded_bytes(feed);
    const double unread = (1 - pays_found(feed)) * worth(pool, stored, 0);
    const bool better = feed->encoded && psti_cache_owner_wanted(feed->encoded) &&
                        uses(feed) * unread - price * stored >
                            uses(feed) * decoded_saves(pool, feed) - price * decoded;
    atomic_store_explicit(&feed->keeps_encoded, better, memory_order_relaxed);
}

static void value_encoded_locked(psti_pool *pool, psti_feed *feed)
{
    double used = 0;
    for (const psti_feed *f = pool->feeds; f; f = f->next)
        if (f->encoded == feed->encoded)
            used += uses(f);
    double value = used * worth(pool, 1, 0);
    if (pool->keeps_encoded && value <= 0)
        value = ASKED_FOR;
    psti_cache_owner_value(feed->encoded, value);
}

static void measure_rate_locked(psti_feed *feed, uint64_t now)
{
    const double seconds = 1e-9 * (double)(now - feed->rate_since_ns);
    const double rate = (double)(feed->samples - feed->rate_since_samples) / seconds;
    feed->rate = feed->rate_since_ns && feed->rate > 0 ? 0.75 * feed->rate + 0.25 * rate : rate;
    feed->rate_since_ns = now;
    feed->rate_since_samples = feed->samples;
}

/* ---- what the model plans -------------------------------------------------------------------- */

/* A follower that comes a little too late finds nothing: more than what the model's split says. */
static const double TARGET_TIMES = 1.3;
/* Feeds that stand closer than the model takes for granted may drift apart again. */
static const double SPREAD_LEAST = 0.02;
/* Jobs would take more than they get; how much does not matter, their proportion does. */
static const double DEMAND_TIMES = 4;

void worth_input_locked(const psti_pool *pool, const psti_feed *feed, psti_model_input *in)
{
    const double whole = whole_s(feed);
    const double part = feed->from_decoded_s > 0 ? feed->from_decoded_s : FROM_DECODED * whole;
    *in = (psti_model_input){
        .samples = (double)psti_dataset_count(feed->spec.data),
        .cache_bytes = (double)atomic_load_explicit(&pool->cache_allowed, memory_order_relaxed),
        .cores = pool->worker_count,
        .out_bytes = (double)feed->layout.bytes / feed->spec.batch,
        .crop_s = whole,
        .full_s = feed->made_decoded_s > part ? feed->made_decoded_s - part : whole,
        .augment_s = part,
        .source_bytes_s = pool->read_s > 0 ? 1 / pool->read_s : 0,
        .remote_found = pays_found(feed),
        .remote_bytes_s = ask_bandwidth(pool),
        .remote_s = pays_fetch_s(feed),
        .remote_decoded = true,
    };
    in->bytes[PSTI_MODEL_ENCODED] = feed->encoded_bytes;
    in->bytes[PSTI_MODEL_DECODED] = feed->decoded ? decoded_bytes(feed) : 0;
}

uint64_t worth_plan_locked(const psti_pool *pool, const group *g, double entry_bytes, double spread)
{
    psti_model_input in;
    psti_model_answer answer;
    int jobs = 0;
    for (const psti_feed *f = pool->feeds; f; f = f->next) {
        if (f->group != g || jobs == PSTI_MODEL_JOBS)
            continue;
        if (jobs == 0)
            worth_input_locked(pool, f, &in);
        in.consumer[jobs++] = DEMAND_TIMES * f->rate;
    }
    if (jobs < 2)
        return 0;
    in.jobs = jobs;
    in.bytes[PSTI_MODEL_AUGMENTED] = entry_bytes;
    in.sharing.spread = spread > SPREAD_LEAST ? spread : SPREAD_LEAST;
    if (psti_model_check(&in))
        return UINT64_MAX; /* nothing is measured yet: what comes may stay */
    psti_model_solve(&in, &answer);
    return (uint64_t)(TARGET_TIMES * answer.split.share[PSTI_MODEL_AUGMENTED] * in.cache_bytes);
}

void worth_update_locked(psti_pool *pool)
{
    const uint64_t now = psti_now_ns();
    if (now - pool->valued_ns < UPDATE_NS)
        return;
    price_reading_locked(pool, now);
    pool->valued_ns = now;
    if (!pool->cache)
        return;
    for (psti_feed *feed = pool->feeds; feed; feed = feed->next) {
        if (!feed->started)
            continue;
        measure_rate_locked(feed, now);
        if (feed->decoded)
            value_decoded_locked(pool, feed);
        if (feed->encoded)
            value_encoded_locked(pool, feed);
        choose_form_locked(pool, feed);
    }
    group_rates_locked(pool);
    psti_cache_target(pool->cache, group_targets_locked(pool));
}
