/* SPDX-License-Identifier: Apache-2.0
 * The deal: which positions of an epoch a rank gets, and how its last steps end. What was consumed
 * before is a prefix, or a bitmap that is kept with a small directory so that the j-th position
 * left is found by counting. Made by the engine for each epoch and by state_merge.c; not changed
 * afterwards, read by any thread. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/status.h"
#include "sample/sample_priv.h"

enum {
    BLOCK_BITS = 4096, /* positions a directory entry stands for */
    BLOCK_WORDS = BLOCK_BITS / 64,
    BATCH_MAX = 1 << 20,
    WORLD_MAX = 1 << 16
};

struct psti_deal {
    int64_t batch, rank, world;
    int ends;
    int64_t length;
    int64_t left;  /* positions of the whole epoch that are left */
    int64_t share; /* of them, this rank's */
    int64_t steps;
    int64_t prefix;
    uint64_t *open;  /* bitmap of the positions left, or NULL: all from prefix on */
    int64_t *before; /* positions left before each block, and at the end all of them */
    int64_t blocks;
};

static int check_spec(const psti_deal_spec *s, pst_error *err)
{
    if (s->batch < 1 || s->batch > BATCH_MAX)
        return psti_fail(err, -EINVAL, "deal", NULL, "the batch is %d samples; it must be 1..%d",
                         s->batch, BATCH_MAX);
    if (s->world < 1 || s->world > WORLD_MAX)
        return psti_fail(err, -EINVAL, "deal", NULL, "the world is %d ranks; it must be 1..%d",
                         s->world, WORLD_MAX);
    if (s->rank < 0 || s->rank >= s->world)
        return psti_fail(err, -EINVAL, "deal", NULL, "rank %d is not one of 0..%d", s->rank,
                         s->world - 1);
    if (s->ends < PST_ENDS_DEFAULT || s->ends > PST_ENDS_SHORT)
        return psti_fail(err, -EINVAL, "deal", NULL, "ends is %d; it must be 0..%d", s->ends,
                         PST_ENDS_SHORT);
    if (s->length < 0 || s->length > INT64_MAX / 2)
        return psti_fail(err, -EINVAL, "deal", NULL, "an epoch of %lld positions cannot be dealt",
                         (long long)s->length);
    if (!s->used && (s->prefix < 0 || s->prefix > s->length))
        return psti_fail(err, -EINVAL, "deal", NULL,
                         "%lld positions are said to be consumed, but the epoch has %lld",
                         (long long)s->prefix, (long long)s->length);
    return 0;
}

/* The bitmap turned round, so that bits past the end are simply not left. */
static void turn_round(psti_deal *deal, const psti_deal_spec *s)
{
    for (int64_t byte = 0; byte < (s->length + 7) / 8; byte++) {
        const int64_t bits = s->length - byte * 8;
        const uint8_t inside = bits >= 8 ? 0xff : (uint8_t)((1u << bits) - 1);
        const uint64_t open = (uint8_t)~s->used[byte] & inside;
        deal->open[byte / 8] |= open << (byte % 8 * 8);
    }
    int64_t left = 0;
    for (int64_t block = 0; block < deal->blocks; block++) {
        deal->before[block] = left;
        for (int64_t w = 0; w < BLOCK_WORDS; w++)
            left += __builtin_popcountll(deal->open[block * BLOCK_WORDS + w]);
    }
    deal->before[deal->blocks] = left;
    deal->left = left;
}

static int take_bitmap(psti_deal *deal, const psti_deal_spec *s, pst_error *err)
{
    deal->blocks = (s->length + BLOCK_BITS - 1) / BLOCK_BITS;
    deal->open = psti_calloc(PSTI_MEM_SAMPLE, (size_t)deal->blocks * BLOCK_WORDS, sizeof(uint64_t));
    deal->before = psti_calloc(PSTI_MEM_SAMPLE, (size_t)deal->blocks + 1, sizeof(int64_t));
    if (!deal->open || !deal->before)
        return psti_fail(err, -ENOMEM, "deal", NULL, "out of memory for a bitmap of %lld positions",
                         (long long)s->length);
    turn_round(deal, s);
    return 0;
}

static void cut(psti_deal *deal)
{
    const int64_t round = deal->batch * deal->world;
    const int64_t whole = deal->left / round, rest = deal->left % round;
    int64_t mine = rest - deal->rank * deal->batch;
    mine = mine < 0 ? 0 : mine > deal->batch ? deal->batch : mine;
    if (deal->ends == PST_ENDS_DROP)
        mine = 0;
    deal->share = whole * deal->batch + mine;
    if (deal->ends == PST_ENDS_PAD)
        deal->steps = whole + (rest > 0);
    else
        deal->steps = whole + (mine > 0);
}

int psti_deal_new(const psti_deal_spec *spec, psti_deal **out, pst_error *err)
{
    *out = NULL;
    int rc = check_spec(spec, err);
    if (rc < 0)
        return rc;
    psti_deal *deal = psti_calloc(PSTI_MEM_SAMPLE, 1, sizeof *deal);
    if (!deal)
        return psti_fail(err, -ENOMEM, "deal", NULL, "out of memory");
    deal->batch = spec->batch;
    deal->rank = spec->rank;
    deal->world = spec->world;
    deal->ends = spec->ends;
    if (deal->ends == PST_ENDS_DEFAULT)
        deal->ends = spec->world == 1 ? PST_ENDS_SHORT : PST_ENDS_PAD;
    deal->length = spec->length;
    deal->prefix = spec->used ? 0 : spec->prefix;
    deal->left = spec->length - deal->prefix;
    rc = spec->used ? take_bitmap(deal, spec, err) : 0;
    if (rc < 0) {
        psti_deal_free(deal);
        return rc;
    }
    cut(deal);
    *out = deal;
    return 0;
}

void psti_deal_free(psti_deal *deal)
{
    if (!deal)
        return;
    psti_free(deal->open);
    psti_free(deal->before);
    psti_free(deal);
}

int64_t psti_deal_steps(const psti_deal *deal)
{
    return deal->steps;
}

int64_t psti_deal_share(const psti_deal *deal)
{
    return deal->share;
}

int psti_deal_slots(const psti_deal *deal, int64_t step)
{
    assert(step >= 0 && step < deal->steps);
    const int64_t own = deal->share - step * deal->batch;
    return (int)(deal->ends == PST_ENDS_SHORT && own < deal->batch ? own : deal->batch);
}

/* The n-th set bit of a word, n counted from 0. */
static int nth_bit(uint64_t word, int64_t n)
{
    while (n--)
        word &= word - 1;
    return __builtin_ctzll(word);
}

/* The j-th position left of a bitmap: the block by bisection, the word by counting. */
static int64_t nth_left(const psti_deal *deal, int64_t j)
{
    int64_t low = 0, high = deal->blocks;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (deal->before[middle] <= j)
            low = middle;
        else
            high = middle;
    }
    int64_t word = low * BLOCK_WORDS;
    for (j -= deal->before[low];; word++) {
        const int64_t here = __builtin_popcountll(deal->open[word]);
        if (j < here)
            return word * 64 + nth_bit(deal->open[word], j);
        j -= here;
    }
}

int64_t psti_deal_position(const psti_deal *deal, int64_t share_index, bool *valid)
{
    assert(share_index >= 0);
    *valid = share_index < deal->share;
    if (deal->left == 0)
        return 0;
    const int64_t step = share_index / deal->batch, slot = share_index % deal->batch;
    const int64_t j = (step * deal->world + deal->rank) * deal->batch + slot;
    if (!deal->open) /* padding repeats the epoch's first positions, with a resume and without */
        return (deal->prefix + j) % deal->length;
    return nth_left(deal, j % deal->left);
}
