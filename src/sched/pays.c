/* SPDX-License-Identifier: Apache-2.0
 * Whether the remote tier pays for a feed: what it costs to get a decoded form, or stored bytes,
 * beside what that spares. Both are measured while running, in seconds per byte of the form, which
 * differ less from sample to sample than seconds; of the last samples the middle one counts, so
 * that a sample whose worker did not get to run says nothing.
 *
 * Engines decode a sample once between them only while each asks from its first sample on, so that
 * is how a feed begins. A form is dearer to make as a whole than the part that a crop needs, and
 * only the whole is made for the tier: where it is not plain that the tier pays, a few samples are
 * made as if there were none. Where it does not pay, few samples go through it all the same, the
 * same ones in every engine, and as many are asked for, so that it is known when things change.
 *
 * Under pool->lock; the verdicts are read without it, as hints. */
#include <sys/resource.h>

#include "core/clock.h"
#include "sched/sched_priv.h"

enum {
    MADE_LEAST = 3,    /* forms made until anything is decided */
    MADE_SETTLED = 24, /* until that is not turned lightly */
    PLAIN_LEAST = 4,   /* samples made as without tiers until they say what that takes */
    PROBED = 128,      /* one of so many goes through the tier where that does not pay */
    OFF_AFTER = 32,    /* samples in a row that speak against a verdict, until it is turned */
    ON_AFTER = 8
};
static const double FROM_DECODED = 0.1; /* of a sample's time, until it is measured */
static const double CLEARLY = 1.25;     /* times the part that a crop needs is the whole, mostly */
static const double AGAIN = 0.3;      /* of what getting it costs is to be gained, to begin again */
static const double EPOCHS_MOST = 16; /* that are looked ahead to */
static const double ASKED_S = 30e-6;  /* a question and its answer, whatever their size */
static const double FOUND_FIRST = 0.5; /* two engines, until it is known */
static const double FOUND_MOST = 0.99;
static const double NET_S = 1e-9;      /* CPU time of a byte from a bucket */
static const double MEMBERS_TIMES = 2; /* what getting stored bytes may cost of reading them */
static const double PRICE_FIRST = 0.25;
static const uint64_t PRICED_NS = 100000000, PRICED_BYTES = 1 << 20;

/* ---- figures --------------------------------------------------------------------------------- */

static void add(lately *l, double value)
{
    l->last[l->count++ % LATELY] = value;
}

static double middle(const lately *l)
{
    double sorted[LATELY];
    const int count = l->count < LATELY ? (int)l->count : LATELY;
    for (int i = 0; i < count; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > l->last[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = l->last[i];
    }
    return count ? sorted[(count - 1) / 2] : 0;
}

pays_clock pays_now(const psti_feed *feed)
{
    struct rusage use;
    if (!feed->pool->asker || !feed->tiered || getrusage(RUSAGE_THREAD, &use) < 0)
        return (pays_clock){0};
    return (pays_clock){.s = 1e-9 * (double)psti_now_ns(),
                        .cpu_s = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                                 1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec),
                        .pushed = use.ru_nivcsw};
}

pays_clock pays_since(const psti_feed *feed, const pays_clock *then)
{
    const pays_clock now = pays_now(feed);
    return (pays_clock){now.s - then->s, now.cpu_s - then->cpu_s, now.pushed - then->pushed};
}

/* Seconds that a sample took of its worker, with what it waited for by itself and without what the
 * worker was kept from its core. 0: that cannot be told apart yet. */
static double own_s(pays *p, const task *t)
{
    const double cpu_s = t->clock.cpu_s - t->kept.cpu_s;
    if (t->clock.pushed)
        return p->rested ? cpu_s + p->slept : cpu_s > t->clock.s / 2 ? cpu_s : 0;
    const double slept = t->clock.s - t->kept.s - cpu_s, own = slept > 0 ? slept : 0;
    p->slept = p->rested ? p->slept + (own - p->slept) / 8 : own;
    p->rested = true;
    return cpu_s + own;
}

/* Which of PROBED equal parts of the data a sample belongs to, the same in every engine. */
enum { KEPT, LOOKED_FOR };
static int part_of(const task *t)
{
    return (int)(t->form.sample.lo % PROBED);
}

/* A second of the way counts as far as workers have nothing else to do; the way is one for all of
 * them. */
static double fetch_s(const psti_feed *feed)
{
    const psti_pool *pool = feed->pool;
    const double rate = ask_bandwidth(pool);
    const double on_way = rate > 0 ? pool->ask_price * pool->worker_count / rate : 0;
    return ask_handling(pool) + feed->pays.opened_s + on_way;
}

/* Per stored byte, if it comes from the source. */
static double source_s(const psti_feed *feed)
{
    const psti_pool *pool = feed->pool;
    return (feed->far ? NET_S : 0) + pool->io_price * pool->worker_count * pool->read_s;
}

/* What getting the stored bytes instead spares, per byte of the form. */
static double members_spare(const psti_feed *feed)
{
    const double spares = feed->encoded_bytes * (source_s(feed) - fetch_s(feed)) - ASKED_S;
    return feed->tier_members && spares > 0 ? spares / feed->pays.bytes : 0;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Per byte of the form, seconds from there on. */
static double rest_s(const psti_feed *feed, double whole)
{
    const pays *p = &feed->pays;
    if (p->rest.count)
        return middle(&p->rest);
    return feed->from_decoded_s > 0 ? feed->from_decoded_s / p->bytes : FROM_DECODED * whole;
}

/* Epochs in which this feed will want again what it stores now. */
static double epochs_left(const psti_feed *feed)
{
    const uint64_t next = feed->runs ? feed->runs->number + 1 : feed->next_epoch;
    const uint64_t left = feed->end_epoch > next ? feed->end_epoch - next : 0;
    return left < EPOCHS_MOST ? (double)left : EPOCHS_MOST;
}

/* What storing the form of a sample gains that takes `plain` seconds without tiers: it is made as a
 * whole, for `more` seconds more, packed and sent, once; and found by others, once at least, which
 * is what the tier is for, or as often as this engine finds what others store, and by this feed in
 * later epochs. Less than nothing: it loses. */
static double gain(const psti_feed *feed, double plain, double more)
{
    const pays *p = &feed->pays;
    const double spared = feed->encoded_bytes * source_s(feed) / p->bytes;
    const double each = plain - rest_s(feed, plain) + spared - fetch_s(feed) - ASKED_S / p->bytes -
                        members_spare(feed);
    const double cost = more + middle(&p->kept) + ask_handling(feed->pool);
    if (each < fetch_s(feed)) /* a gain so small may be none: nothing is invested for it */
        return each - cost;
    const double others = p->found > 0.5 ? p->found / (1 - p->found) : 1;
    return (others + epochs_left(feed)) * each - cost;
}

/* What the figures say of today's verdict, which makes it harder to change than to keep. */
static pays_verdict verdict(const psti_feed *feed, pays_verdict now)
{
    const pays *p = &feed->pays;
    const double made = middle(&p->made);
    double plain = middle(&p->plain);
    if (p->plain.count < PLAIN_LEAST) {
        if (gain(feed, made / CLEARLY, 0) > 0)
            return PAYS;
        return gain(feed, made, 0) > 0 ? PAYS_UNKNOWN : PAYS_NOT;
    }
    if (now == PAYS && made < plain)
        plain = made; /* none are met while it pays, so that figure may be old */
    const double least = now == PAYS_NOT ? AGAIN * fetch_s(feed) : 0;
    return gain(feed, plain, made > plain ? made - plain : 0) > least ? PAYS : PAYS_NOT;
}

static void judge_form(psti_feed *feed)
{
    pays *p = &feed->pays;
    const pays_verdict now = atomic_load_explicit(&p->form, memory_order_relaxed);
    if (p->made.count < MADE_LEAST && p->plain.count < PLAIN_LEAST)
        return;
    const double made = middle(&p->made);
    if (now == PAYS && p->plain.count && (made > 2 * p->made_then || made < p->made_then / 2))
        p->plain.count = 0; /* the samples are others now */
    const pays_verdict found = verdict(feed, now);
    p->against = found == now ? 0 : p->against + 1;
    p->settled |= found == now && now == PAYS && p->made.count >= MADE_SETTLED;
    if (found == now || (p->settled && p->against < (found == PAYS ? ON_AFTER : OFF_AFTER)))
        return;
    p->against = 0;
    p->made_then = made;
    p->settled = found != PAYS_UNKNOWN;
    atomic_store_explicit(&p->form, found, memory_order_relaxed);
}

static void judge_members(psti_feed *feed)
{
    pays *p = &feed->pays;
    const bool now = atomic_load_explicit(&p->members, memory_order_relaxed);
    const double source = source_s(feed), most = (now ? MEMBERS_TIMES : 1) * source;
    const bool found = source == 0 || fetch_s(feed) < most;
    p->members_against = found == now ? 0 : p->members_against + 1;
    if (p->members_against < (found ? ON_AFTER : OFF_AFTER))
        return;
    p->members_against = 0;
    atomic_store_explicit(&p->members, found, memory_order_relaxed);
}

/* How much of their time workers have nothing to do but to wait for answers. */
static void price_locked(psti_pool *pool)
{
    const uint64_t now = psti_now_ns(), elapsed = now - pool->ask_priced_ns;
    if (elapsed < PRICED_NS)
        return;
    const double share = (double)(pool->ask_idle_ns - pool->ask_priced_idle) /
                         ((double)elapsed * pool->worker_count);
    if (!pool->ask_priced_ns)
        pool->ask_price = PRICE_FIRST;
    else if (pool->ask_bytes - pool->ask_priced_bytes >= PRICED_BYTES)
        pool->ask_price += ((share > 1 ? 1 : share) - pool->ask_price) / 4;
    else /* it is not known any more; half of it is forgotten in 35 s */
        pool->ask_price += (PRICE_FIRST - pool->ask_price) / 512;
    pool->ask_priced_ns = now;
    pool->ask_priced_idle = pool->ask_idle_ns;
    pool->ask_priced_bytes = pool->ask_bytes;
}

static void note_rest(pays *p, const task *t)
{
    const double bytes = (double)t->load->part[TIER_FORM].size;
    add(&p->rest, (t->clock.pushed ? t->clock.cpu_s : t->clock.s) / bytes);
    running_mean(&p->opened_s, 1e-9 * (double)t->open_ns / bytes);
}

static void note_whole(pays *p, const task *t)
{
    const double bytes = (double)t->form_bytes, took = own_s(p, t);
    running_mean(&p->bytes, bytes);
    if (took > 0)
        add(t->made ? &p->made : &p->plain, took / bytes);
    if (t->tier_kept)
        add(&p->kept, t->kept.cpu_s / bytes);
}

/* How much of what is asked for is found. Where it does not pay, by samples that this engine never
 * stores; those that each engine stores say nothing of the rest. */
static void note_found(psti_feed *feed, const task *t)
{
    pays *p = &feed->pays;
    const bool pays_now = atomic_load_explicit(&p->form, memory_order_relaxed) == PAYS;
    if (!t->answered || task_has_form(t) != (t->form_from == TIER_REMOTE) ||
        (!pays_now && part_of(t) != LOOKED_FOR))
        return;
    p->found += ((t->form_from == TIER_REMOTE) * FOUND_MOST - p->found) / (pays_now ? 64 : 8);
}

/* ---- what the others call -------------------------------------------------------------------- */

void pays_open(psti_feed *feed)
{
    atomic_store_explicit(&feed->pays.form, PAYS, memory_order_relaxed);
    atomic_store_explicit(&feed->pays.members, true, memory_order_relaxed);
    feed->pays.found = FOUND_FIRST;
}

void pays_took_locked(psti_feed *feed, const task *t)
{
    pays *p = &feed->pays;
    if (!feed->pool->asker || !feed->tiered || t->augmented || !(t->clock.s > 0))
        return; /* or it was put aside in between */
    price_locked(feed->pool);
    if (t->form_from == TIER_REMOTE)
        note_rest(p, t);
    else if (!task_has_form(t) && t->form_bytes)
        note_whole(p, t);
    note_found(feed, t);
    if (feed->tier_forms && p->bytes > 0)
        judge_form(feed);
    if (feed->tier_members)
        judge_members(feed);
}

double pays_found(const psti_feed *feed)
{
    const int now = atomic_load_explicit(&feed->pays.form, memory_order_relaxed);
    return feed->pool->asker && feed->tier_forms && now == PAYS && feed->pays.rest.count
               ? feed->pays.found
               : 0;
}

double pays_fetch_s(const psti_feed *feed)
{
    return feed->pays.bytes * (ask_handling(feed->pool) + feed->pays.opened_s) + ASKED_S;
}

double pays_move_s(const psti_pool *pool, double bytes)
{
    return bytes * ask_handling(pool) + ASKED_S;
}

bool pays_asking(const task *t)
{
    const psti_feed *feed = t->feed;
    const int now = atomic_load_explicit(&feed->pays.form, memory_order_relaxed);
    return feed->tier_forms && (now == PAYS || (now == PAYS_NOT && part_of(t) <= LOOKED_FOR));
}

bool pays_keeping(const task *t)
{
    const psti_feed *feed = t->feed;
    const int now = atomic_load_explicit(&feed->pays.form, memory_order_relaxed);
    return feed->tier_forms && (now == PAYS || (now == PAYS_NOT && part_of(t) == KEPT));
}

bool pays_members(const task *t)
{
    return t->feed->tier_members &&
           (atomic_load_explicit(&t->feed->pays.members, memory_order_relaxed) ||
            part_of(t) == KEPT);
}
