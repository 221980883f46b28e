/* SPDX-License-Identifier: Apache-2.0
 * When a request may go, and when again: full jitter, and a budget per bucket. A retry costs five
 * tokens of 500, a success brings ten, so two failures in three are borne for ever. Without any
 * success they are soon spent: the gate is shut, and what goes then are probes, at most a tenth of
 * the usual rate. The first success opens it; for two seconds the way back is held to the usual
 * rate. Pure functions of the caller's state, time and random bits. */
#include "net/net_priv.h"

enum { BACK_S = 2 };

void retry_gate_init(retry_gate *gate)
{
    *gate = (retry_gate){.tokens = RETRY_TOKENS};
}

/* Uniform in [0, span). */
static uint64_t share_of(uint64_t span, uint64_t random)
{
    return (uint64_t)(((unsigned __int128)span * random) >> 64);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t probe_pause(const retry_gate *gate, uint64_t random)
{
    const double usual = gate->rate > 0 ? 10e9 / gate->rate : 1e9;
    const double held = usual < 0.25e9 ? 0.25e9 : usual > 2e9 ? 2e9 : usual;
    const uint64_t pause = (uint64_t)held;
    return pause - pause / 8 + share_of(pause / 4, random);
}

static void note_rate(retry_gate *gate, uint64_t now_ns)
{
    const uint64_t span = now_ns - gate->rate_from_ns;
    gate->rate_count++;
    if (span < RETRY_S)
        return;
    if (gate->rate_from_ns && span < 3 * RETRY_S) { /* an idle stretch says nothing */
        const double seen = (double)gate->rate_count * 1e9 / (double)span;
        gate->rate = gate->rate > 0 ? gate->rate + (seen - gate->rate) / 4 : seen;
    }
    gate->rate_from_ns = now_ns;
    gate->rate_count = 0;
}

bool retry_success(retry_gate *gate, uint64_t now_ns)
{
    const bool ends = gate->shut;
    gate->tokens += RETRY_REFILL;
    if (gate->tokens > RETRY_TOKENS)
        gate->tokens = RETRY_TOKENS;
    if (ends) {
        gate->shut = false;
        gate->opened_ns = now_ns;
        gate->started = 0;
        gate->rate_from_ns = 0; /* the outage is no part of the usual rate */
    }
    if (!gate->opened_ns || now_ns - gate->opened_ns > BACK_S * RETRY_S)
        note_rate(gate, now_ns);
    gate->success_ns = now_ns;
    return ends;
}

/* Behind an outage: 0, or how long until the usual rate allows one more. */
static uint64_t way_back(retry_gate *gate, uint64_t now_ns)
{
    if (!gate->opened_ns || now_ns - gate->opened_ns >= BACK_S * RETRY_S)
        return 0;
    const double rate = gate->rate > 20 ? gate->rate : 20;
    const double allowed = 4 + (double)(now_ns - gate->opened_ns) * rate / 1e9;
    if ((double)gate->started < allowed) {
        gate->started++;
        return 0;
    }
    return (uint64_t)(((double)gate->started + 1 - allowed) * 1e9 / rate) + RETRY_MS;
}

static uint64_t probe(retry_gate *gate, uint64_t now_ns, uint64_t random)
{
    if (now_ns < gate->probe_ns)
        return gate->probe_ns - now_ns + share_of(20 * RETRY_MS, random);
    gate->probe_ns = now_ns + probe_pause(gate, random);
    return 0;
}

uint64_t retry_may(retry_gate *gate, uint64_t now_ns, bool again, uint64_t random)
{
    if (gate->shut)
        return probe(gate, now_ns, random);
    if (again && gate->tokens < RETRY_COST) {
        gate->shut = true;
        gate->probe_ns = now_ns + probe_pause(gate, random);
        return probe(gate, now_ns, random);
    }
    const uint64_t wait = way_back(gate, now_ns);
    if (wait)
        return wait;
    if (again)
        gate->tokens -= RETRY_COST;
    return 0;
}

uint64_t retry_pause(uint32_t attempt, bool throttled, uint64_t random)
{
    const uint64_t base = throttled ? RETRY_S : 50 * RETRY_MS;
    const uint64_t most = (throttled ? 20 : 5) * RETRY_S;
    const uint32_t doublings = attempt > 16 ? 15 : attempt - 1;
    return share_of(least(base << doublings, most), random) + 1;
}
