/* SPDX-License-Identifier: Apache-2.0
 * Memory that is left out of core files: for credentials, and for all that curl allocates, since
 * its requests carry session tokens. curl's blocks come in sizes of powers of two from pages that
 * are never given back; what curl asks for again and again is therefore found at once. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/memory.h"
#include "net/net_priv.h"

static size_t whole_pages(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

static void *hidden_pages(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    madvise(at, bytes, MADV_DONTDUMP);
    return at;
}

void *secret_alloc(size_t bytes)
{
    return hidden_pages(whole_pages(bytes));
}

void secret_wipe(void *memory, size_t bytes)
{
    explicit_bzero(memory, bytes);
}

void secret_free(void *memory, size_t bytes)
{
    if (!memory)
        return;
    secret_wipe(memory, bytes);
    munmap(memory, whole_pages(bytes));
}

/* Whole pages, and so with what lies beside it: better a core file with a hole. */
void secret_hide(const void *memory, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)memory & ~(page - 1);
    const uintptr_t end = ((uintptr_t)memory + bytes + page - 1) & ~(page - 1);
    madvise((void *)begin, end - begin, MADV_DONTDUMP);
}

/* ---- curl's memory -----------------------------------------------------------------------------
 */

enum { SMALLEST = 5, LARGEST = 20, SLAB = 1 << 18 }; /* powers of two; bytes of a slab */

/* Before each block; keeps blocks aligned to 16 bytes. */
typedef struct block {
    struct block *next; /* while it is free */
    size_t power;       /* of two; above LARGEST: bytes of its own pages */
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *free_blocks[LARGEST + 1]; /* guarded by lock, as what follows */
static uint8_t *slab;
static size_t slab_left;
static psti_fork_guard forks;

static block *carve_locked(size_t power)
{
    const size_t bytes = ((size_t)1 << power) + sizeof(block);
    if (bytes > SLAB / 2)
        return hidden_pages(whole_pages(bytes));
    if (slab_left < bytes) { /* what is left of the old one is lost: less than half a slab */
        uint8_t *pages = hidden_pages(SLAB);
        if (!pages)
            return NULL;
        slab = pages;
        slab_left = SLAB;
    }
    block *b = (block *)slab;
    slab += bytes;
    slab_left -= bytes;
    return b;
}

static void *curl_alloc(size_t bytes)
{
    size_t power = SMALLEST;
    while (power <= LARGEST && (size_t)1 << power < bytes)
        power++;
    block *b;
    if (power > LARGEST) {
        size_t all;
        if (!psti_add(bytes, sizeof *b + 4095, &all))
            return NULL;
        all &= ~(size_t)4095;
        b = hidden_pages(all);
        power = all;
    } else {
        pthread_mutex_lock(&lock);
        b = free_blocks[power];
        if (b)
            free_blocks[power] = b->next;
        else
            b = carve_locked(power);
        pthread_mutex_unlock(&lock);
    }
    if (!b)
        return NULL;
    b->power = power;
    return b + 1;
}

static void curl_release(void *memory)
{
    if (!memory)
        return;
    block *b = (block *)memory - 1;
    if (b->power > LARGEST) {
        munmap(b, b->power);
        return;
    }
    pthread_mutex_lock(&lock);
    b->next = free_blocks[b->power];
    free_blocks[b->power] = b;
    pthread_mutex_unlock(&lock);
}

static size_t usable(const void *memory)
{
    const block *b = (const block *)memory - 1;
    return b->power > LARGEST ? b->power - sizeof *b : (size_t)1 << b->power;
}

static void *curl_resize(void *memory, size_t bytes)
{
    if (memory && bytes <= usable(memory))
        return memory;
    void *larger = curl_alloc(bytes);
    if (!larger || !memory)
        return larger;
    memcpy(larger, memory, usable(memory));
    curl_release(memory);
    return larger;
}

static char *curl_copy(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = curl_alloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static void *curl_zeroed(size_t count, size_t size)
{
    size_t bytes;
    if (!psti_mul(count, size, &bytes))
        return NULL;
    void *memory = curl_alloc(bytes);
    return memory ? memset(memory, 0, bytes) : NULL;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int begun;

static void begin(void)
{
    psti_fork_guard_add(&forks, &lock, NULL, NULL);
    begun = curl_global_init_mem(CURL_GLOBAL_DEFAULT, curl_alloc, curl_release, curl_resize,
                                 curl_copy, curl_zeroed) == CURLE_OK
                ? 0
                : -ENOMEM;
}

int secret_curl_begin(void)
{
    pthread_once(&once, begin);
    return begun;
}
