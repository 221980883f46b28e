/* SPDX-License-Identifier: Apache-2.0
 * The cache's memory: a stretch of address space several times as long as the budget, of which only
 * the pages in use are held. Blocks are cut to size, neighbours that are free become one, and pages
 * inside free blocks go back when they are needed elsewhere: so what is charged never drifts away
 * from what is used, whatever sizes come and go. Under the cache's lock. */
#include <errno.h>
#include <string.h>

#include "cache/cache_priv.h"
#include "core/memory.h"

enum {
    SPACE_TIMES = 4,   /* address space to budget */
    SPLIT_LEAST = 512, /* a shorter rest stays with its block */
    LOOKS = 16         /* at blocks of a bin that may be too short */
};
static const size_t SPACE_LEAST = (size_t)64 << 20;

/* ---- bins ------------------------------------------------------------------------------------ */

static int bin_of(size_t bytes)
{
    const size_t units = bytes / ALIGN;
    const int level = 63 - __builtin_clzll(units | 1);
    const int step = level < 3 ? (int)(units << (3 - level)) & 7 : (int)(units >> (level - 3)) & 7;
    const int bin = level * BIN_STEPS + step;
    return bin < BINS ? bin : BINS - 1;
}

static void bin_add(arena *a, block *b)
{
    free_block *f = (free_block *)b;
    const int bin = bin_of(b->bytes);
    f->prev = NULL;
    f->next = a->bin[bin];
    if (f->next)
        f->next->prev = f;
    a->bin[bin] = f;
    a->bin_some[bin / 64] |= (uint64_t)1 << (bin % 64);
    b->free = true;
}

static void bin_remove(arena *a, block *b)
{
    free_block *f = (free_block *)b;
    const int bin = bin_of(b->bytes);
    if (f->next)
        f->next->prev = f->prev;
    if (f->prev)
        f->prev->next = f->next;
    else if (!(a->bin[bin] = f->next))
        a->bin_some[bin / 64] &= ~((uint64_t)1 << (bin % 64));
    b->free = false;
}

static int bin_from(const arena *a, int bin)
{
    for (int word = bin / 64; word < (BINS + 63) / 64; word++) {
        uint64_t some = a->bin_some[word];
        if (word == bin / 64)
            some &= ~(uint64_t)0 << (bin % 64);
        if (some)
            return word * 64 + __builtin_ctzll(some);
    }
    return -1;
}

/* A free block of that length. Those of its own bin may be too short; those above are not. */
static block *bin_search(arena *a, size_t bytes)
{
    const int bin = bin_of(bytes);
    int looks = 0;
    for (free_block *f = a->bin[bin]; f && looks < LOOKS; f = f->next, looks++)
        if (f->head.bytes >= bytes)
            return &f->head;
    const int larger = bin + 1 < BINS ? bin_from(a, bin + 1) : -1;
    return larger < 0 ? NULL : &a->bin[larger]->head;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static bool page_held(const arena *a, size_t page)
{
    return a->held[page / 64] >> (page % 64) & 1;
}

/* Charges the pages of a stretch that are not held yet. */
static bool pages_take(arena *a, size_t from, size_t to)
{
    size_t missing = 0;
    const size_t first = from / PAGE, last = (to - 1) / PAGE;
    for (size_t page = first; page <= last; page++)
        missing += !page_held(a, page);
    if (missing && !a->spec->take(a->spec->user, missing * PAGE))
        return false;
    for (size_t page = first; missing && page <= last; page++)
        a->held[page / 64] |= (uint64_t)1 << (page % 64);
    a->taken += missing * PAGE;
    return true;
}

static uint64_t pages_give(arena *a, size_t from, size_t to)
{
    uint64_t given = 0;
    for (size_t page = from / PAGE; page < to / PAGE; page++) {
        given += page_held(a, page) ? PAGE : 0;
        a->held[page / 64] &= ~((uint64_t)1 << (page % 64));
    }
    if (!given)
        return 0;
    psti_space_drop(a->base + from, to - from);
    a->taken -= given;
    a->spec->give(a->spec->user, given);
    return given;
}

/* Whole pages inside a free block: not those of its head and of its neighbours. */
static bool inside(const arena *a, const block *b, size_t *from, size_t *to)
{
    const size_t at = (size_t)((const uint8_t *)b - a->base);
    *from = (at + sizeof(free_block) + PAGE - 1) & ~(size_t)(PAGE - 1);
    *to = (at + b->bytes) & ~(size_t)(PAGE - 1);
    return *from < *to;
}

static uint64_t purge_block(arena *a, block *b)
{
    size_t from, to;
    b->clean = true;
    return inside(a, b, &from, &to) ? pages_give(a, from, to) : 0;
}

uint64_t arena_purge(arena *a, uint64_t wanted)
{
    uint64_t given = 0;
    for (int bin = BINS - 1; bin >= 0 && given < wanted; bin--)
        for (free_block *f = a->bin[bin]; f && given < wanted; f = f->next)
            if (!f->head.clean)
                given += purge_block(a, &f->head);
    a->dirty = given < wanted ? 0 : a->dirty > given ? a->dirty - given : 0;
    return given;
}

/* Pages for a stretch; other free blocks' if no more are granted. */
static bool pages_get(arena *a, size_t from, size_t to)
{
    if (pages_take(a, from, to))
        return true;
    return a->dirty && arena_purge(a, to - from + 2 * PAGE) && pages_take(a, from, to);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static size_t offset_of(const arena *a, const block *b)
{
    return (size_t)((const uint8_t *)b - a->base);
}

static block *after(const arena *a, const block *b)
{
    const size_t end = offset_of(a, b) + b->bytes;
    return end < a->top ? (block *)(a->base + end) : NULL;
}

static void tell_next(arena *a, const block *b)
{
    block *next = after(a, b);
    if (next)
        next->before = b->bytes;
    else
        a->last = b->bytes;
}

/* Cuts what is beyond `bytes` off a used block. The rest's head needs its page. */
static void split(arena *a, block *b, size_t bytes, bool clean)
{
    const size_t at = offset_of(a, b) + bytes;
    if (b->bytes < bytes + SPLIT_LEAST || !pages_take(a, at, at + sizeof(free_block)))
        return;
    block *rest = (block *)(a->base + at);
    *rest = (block){.bytes = b->bytes - bytes, .before = bytes, .clean = clean};
    b->bytes = bytes;
    tell_next(a, rest);
    if (!clean)
        a->dirty += rest->bytes;
    bin_add(a, rest);
}

static block *grow_top(arena *a, size_t bytes)
{
    if (bytes > a->space - a->top || !pages_get(a, a->top, a->top + bytes))
        return NULL;
    block *b = (block *)(a->base + a->top);
    *b = (block){.bytes = bytes, .before = a->last};
    a->last = bytes;
    a->top += bytes;
    return b;
}

block *arena_alloc(arena *a, size_t bytes)
{
    bytes = cache_align(bytes < sizeof(free_block) ? sizeof(free_block) : bytes);
    block *b = bin_search(a, bytes);
    if (!b)
        return grow_top(a, bytes);
    bin_remove(a, b); /* so that its pages are not given back while it asks for more */
    const size_t at = offset_of(a, b);
    if (!pages_get(a, at, at + bytes)) {
        bin_add(a, b);
        return NULL;
    }
    const bool clean = b->clean;
    b->clean = false;
    split(a, b, bytes, clean);
    if (b->bytes > bytes && !pages_take(a, at, at + b->bytes)) {
        /* A rest that could not be cut off belongs to the block; its pages must be charged. */
        b->clean = clean;
        bin_add(a, b);
        return NULL;
    }
    return b;
}

void arena_free(arena *a, block *b)
{
    block *next = after(a, b);
    a->dirty += b->bytes;
    b->clean = false;
    if (next && next->free) {
        bin_remove(a, next);
        b->bytes += next->bytes;
    }
    if (b->before) {
        block *front = (block *)((uint8_t *)b - b->before);
        if (front->free) {
            bin_remove(a, front);
            front->bytes += b->bytes;
            front->clean = false;
            b = front;
        }
    }
    tell_next(a, b);
    bin_add(a, b);
}

void arena_trim(arena *a, block *b, size_t bytes)
{
    bytes = cache_align(bytes < sizeof(free_block) ? sizeof(free_block) : bytes);
    if (b->bytes < bytes + SPLIT_LEAST)
        return;
    block *rest = (block *)((uint8_t *)b + bytes);
    *rest = (block){.bytes = b->bytes - bytes, .before = bytes};
    b->bytes = bytes;
    tell_next(a, rest);
    arena_free(a, rest);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

int arena_init(arena *a, const psti_cache_spec *spec)
{
    *a = (arena){.spec = spec};
    size_t most = spec->most > SIZE_MAX / 16 ? SIZE_MAX / 16 : (size_t)spec->most;
    most = most < SPACE_LEAST ? SPACE_LEAST : (most + PAGE - 1) & ~(size_t)(PAGE - 1);
    for (int times = SPACE_TIMES; times >= 1 && !a->base; times--) {
        a->space = (size_t)times * most; /* a limit on address space may allow less of it */
        a->base = psti_space_reserve(PSTI_MEM_CACHE, a->space);
    }
    if (!a->base)
        return -ENOMEM;
    a->held_bytes = (a->space / PAGE / 64 + 1) * sizeof *a->held;
    a->held = psti_pages_alloc(PSTI_MEM_CACHE, a->held_bytes);
    return a->held ? 0 : -ENOMEM;
}

void arena_fini(arena *a)
{
    if (a->taken)
        a->spec->give(a->spec->user, a->taken);
    psti_pages_free(PSTI_MEM_CACHE, a->held, a->held_bytes);
    psti_space_release(PSTI_MEM_CACHE, a->base, a->space);
}

/* ---- checking -------------------------------------------------------------------------------- */

static int complain(FILE *out, const char *what, size_t at)
{
    if (out)
        fprintf(out, "cache: memory at offset %zu: %s\n", at, what);
    return 1;
}

static int check_block(const arena *a, const block *b, size_t before, bool front_free, FILE *out)
{
    const size_t at = offset_of(a, b);
    int wrong = 0;
    if (b->before != before)
        wrong += complain(out, "the block in front has another length", at);
    if (b->bytes % ALIGN || b->bytes < ALIGN || b->bytes > a->top - at)
        return wrong + complain(out, "a length that cannot be", at);
    if (b->free && front_free)
        wrong += complain(out, "two free blocks side by side", at);
    size_t from = at, to = at + b->bytes, lost = 0;
    if (b->free)
        to = at + sizeof(free_block);
    for (size_t page = from / PAGE; page <= (to - 1) / PAGE; page++)
        lost += !page_held(a, page);
    return wrong + (lost ? complain(out, "pages in use that are not charged", at) : 0);
}

int arena_check(const arena *a, FILE *out, size_t *used_blocks)
{
    size_t frees = 0, binned = 0, before = 0, pages = 0;
    bool front_free = false;
    int wrong = 0;
    *used_blocks = 0;
    for (const block *b = a->top ? (const block *)a->base : NULL; b && !wrong; b = after(a, b)) {
        wrong += check_block(a, b, before, front_free, out);
        before = b->bytes;
        front_free = b->free;
        frees += b->free;
        *used_blocks += !b->free;
    }
    for (int bin = 0; bin < BINS; bin++)
        for (const free_block *f = a->bin[bin]; f; f = f->next, binned++)
            if (bin_of(f->head.bytes) != bin || !f->head.free)
                wrong += complain(out, "in the wrong bin", offset_of(a, &f->head));
    if (!wrong && (frees != binned || before != a->last))
        wrong += complain(out, "free blocks and their lists do not agree", a->top);
    for (size_t i = 0; i < a->held_bytes / sizeof *a->held; i++)
        pages += (size_t)__builtin_popcountll(a->held[i]);
    if (pages * PAGE != a->taken)
        wrong += complain(out, "pages and bytes charged do not agree", a->top);
    return wrong;
}
