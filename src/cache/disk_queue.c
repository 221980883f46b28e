/* SPDX-License-Identifier: Apache-2.0
 * The ring of memory in which entries wait for the disk. Items follow each other; where the end of
 * the ring is too short for one, what is left of it is skipped. When the last one leaves, the ring
 * starts over, so that little memory is touched as long as the disk keeps up. */
#include <errno.h>
#include <string.h>

#include "cache/disk_priv.h"
#include "core/memory.h"

enum { UNIT = 64 };

static size_t units(size_t n)
{
    return (n + UNIT - 1) & ~(size_t)(UNIT - 1);
}

int queue_init(disk_queue *queue, size_t bytes)
{
    queue->bytes = bytes & ~(size_t)(UNIT - 1);
    queue->base = psti_pages_alloc(PSTI_MEM_CACHE, queue->bytes);
    return queue->base ? 0 : -ENOMEM;
}

void queue_fini(disk_queue *queue)
{
    if (queue->base)
        psti_pages_free(PSTI_MEM_CACHE, queue->base, queue->bytes);
    memset(queue, 0, sizeof *queue);
}

static size_t room_for(size_t bytes)
{
    return units(sizeof(disk_item)) + units(bytes);
}

bool queue_fits(const disk_queue *queue, size_t bytes)
{
    return bytes <= queue->bytes && room_for(bytes) <= queue->bytes;
}

static disk_item *item_at(disk_queue *queue, size_t at)
{
    return (disk_item *)(queue->base + at);
}

static disk_item *place(disk_queue *queue, size_t room)
{
    disk_item *item = item_at(queue, queue->tail);
    *item = (disk_item){.room = room};
    queue->tail = (queue->tail + room) % queue->bytes;
    queue->count++;
    return item;
}

disk_item *queue_push(disk_queue *queue, size_t bytes)
{
    const size_t room = room_for(bytes);
    if (!queue->count)
        queue->head = queue->tail = 0;
    else if (queue->head == queue->tail)
        return NULL; /* full */
    if (queue->tail < queue->head)
        return room <= queue->head - queue->tail ? place(queue, room) : NULL;
    if (room <= queue->bytes - queue->tail)
        return place(queue, room);
    if (room > queue->head)
        return NULL;
    place(queue, queue->bytes - queue->tail)->skip = true;
    return place(queue, room);
}

size_t queue_used(const disk_queue *queue)
{
    if (!queue->count)
        return 0;
    return queue->tail > queue->head ? queue->tail - queue->head
                                     : queue->bytes - queue->head + queue->tail;
}

uint8_t *queue_bytes(disk_item *item)
{
    return (uint8_t *)item + units(sizeof *item);
}

static void pop(disk_queue *queue)
{
    queue->head = (queue->head + item_at(queue, queue->head)->room) % queue->bytes;
    queue->count--;
}

disk_item *queue_first(disk_queue *queue)
{
    while (queue->count && item_at(queue, queue->head)->skip)
        pop(queue);
    return queue->count ? item_at(queue, queue->head) : NULL;
}

void queue_pop(disk_queue *queue)
{
    pop(queue);
    queue_first(queue);
}
