/* SPDX-License-Identifier: Apache-2.0
 * Which node has what. A single server has everything; a cluster tells, when asked and by
 * redirections, which nodes have which of the 16,384 slots. What servers say about others is
 * believed only for addresses in the networks of the servers that the user named, since whoever is
 * asked next gets the password. On the tier's thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cache/remote_priv.h"
#include "core/log.h"
#include "core/memory.h"

/* CRC16 of the XMODEM kind, four bits at a time. */
uint16_t slot_of(const char *tag, size_t size)
{
    static const uint16_t table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                       0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                       0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    uint16_t crc = 0;
    for (size_t i = 0; i < size; i++) {
        const uint8_t byte = (uint8_t)tag[i];
        crc = (uint16_t)(crc << 4) ^ table[(crc >> 12) ^ (byte >> 4)];
        crc = (uint16_t)(crc << 4) ^ table[(crc >> 12) ^ (byte & 15)];
    }
    return crc % SLOTS;
}

static int index_of(const psti_remote *r, const node *n)
{
    for (int i = 0; i < NODES_MAX; i++)
        if (r->nodes[i] == n)
            return i;
    return NO_NODE;
}

static void set_slots(psti_remote *r, int first, int last, int index)
{
    for (int s = first; s <= last; s++)
        atomic_store_explicit(&r->slot_node[s], (unsigned char)index, memory_order_relaxed);
}

void slots_moved(psti_remote *r, int slot, const node *to)
{
    r->cluster = true;
    set_slots(r, slot, slot, index_of(r, to));
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool allowed(const psti_remote *r, const char *address)
{
    for (int i = 0; i < NODES_MAX; i++)
        if (r->nodes[i] && r->nodes[i]->seed && host_near(address, r->nodes[i]->address))
            return true;
    return false;
}

/* In numbers, or one of the names in the URL. */
static bool address_of(const psti_remote *r, const char *host, char address[HOST_ROOM])
{
    place at = {.port = 0};
    if (strlen(host) >= sizeof at.host)
        return false;
    memcpy(at.host, host, strlen(host) + 1);
    if (host_address(&at, false, address) == 0)
        return true;
    for (int i = 0; i < NODES_MAX; i++)
        if (r->nodes[i] && r->nodes[i]->seed && strcmp(r->nodes[i]->at.host, host) == 0) {
            memcpy(address, r->nodes[i]->address, HOST_ROOM);
            return address[0] != 0;
        }
    return false;
}

static node *add_node(psti_remote *r, const char *address, int port, uint64_t now)
{
    place at = {.port = port};
    memcpy(at.host, address, sizeof at.host);
    for (int i = 0; i < NODES_MAX; i++) {
        if (r->nodes[i])
            continue;
        node *n = psti_malloc(PSTI_MEM_CACHE, sizeof *n);
        if (!n)
            return NULL;
        node_init(r, n, &at);
        r->nodes[i] = n;
        node_connect(n, now);
        return n;
    }
    return NULL;
}

node *slots_node(psti_remote *r, const node *from, const char *host, int port, uint64_t now)
{
    char address[HOST_ROOM];
    if (port <= 0 || port > 65535)
        return NULL;
    if (!host[0]) /* the same host by another port */
        memcpy(address, from->address, sizeof address);
    else if (!address_of(r, host, address))
        return NULL;
    node *found = NULL;
    for (int i = 0; i < NODES_MAX && !found; i++)
        if (r->nodes[i] && r->nodes[i]->at.port == port &&
            strcmp(r->nodes[i]->address, address) == 0)
            found = r->nodes[i];
    if (!found && allowed(r, address))
        found = add_node(r, address, port, now);
    if (found)
        found->listed = true;
    return found;
}

/* ---- topologies ------------------------------------------------------------------------------ */

/* At most once a second, whoever answers. */
void slots_ask(psti_remote *r, uint64_t now)
{
    if (!r->refresh_wanted || r->refreshing || !r->mapped || now < r->refreshed_ns + REFRESH_NS)
        return;
    for (int i = 0; i < NODES_MAX; i++) {
        node *n = r->nodes[i];
        if (!n || n->stalled || n->get.state != LINE_UP || n->get.blocked)
            continue;
        r->refresh_wanted = false;
        r->refreshing = true;
        r->refreshed_ns = now;
        count_one(&r->count.refreshes);
        line_command(&n->get, ASK_SLOTS, NULL, 2, (const char *const[]){"CLUSTER", "SLOTS"}, NULL);
        int done = 0;
        redisBufferWrite(n->get.redis, &done);
        n->get.blocked = !done;
        return;
    }
}

static bool is_integer(const reply *part, long long least, long long most)
{
    return part && part->type == REDIS_REPLY_INTEGER && part->integer >= least &&
           part->integer <= most;
}

/* [first, last, [host, port, ...], replicas ...]; the first node is the one that takes writes. */
static bool take_range(psti_remote *r, const node *from, const reply *range, uint64_t now)
{
    if (!range || range->type != REDIS_REPLY_ARRAY || range->count < 3)
        return false;
    const reply *owner = range->elements[2];
    if (!is_integer(range->elements[0], 0, SLOTS - 1) ||
        !is_integer(range->elements[1], range->elements[0]->integer, SLOTS - 1) || !owner ||
        owner->type != REDIS_REPLY_ARRAY || owner->count < 2 ||
        !is_integer(owner->elements[1], 1, 65535))
        return false;
    const reply *host = owner->elements[0];
    const char *name = host && host->type == REDIS_REPLY_STRING ? host->text : "";
    node *n = slots_node(r, from, name, (int)owner->elements[1]->integer, now);
    set_slots(r, (int)range->elements[0]->integer, (int)range->elements[1]->integer,
              n ? index_of(r, n) : NO_NODE);
    return n != NULL;
}

static void take_single(psti_remote *r, node *from)
{
    r->mapped = true;
    r->cluster = false;
    from->listed = true;
    set_slots(r, 0, SLOTS - 1, index_of(r, from));
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

void slots_taken(psti_remote *r, node *from, const reply *answer, uint64_t now)
{
    const bool first = !r->mapped;
    r->refreshing = false;
    if (answer->type == REDIS_REPLY_ERROR && first &&
        (starts(answer->text, "ERR") || starts(answer->text, "NOPERM"))) {
        take_single(r, from);
        return;
    }
    if (answer->type != REDIS_REPLY_ARRAY) {
        if (first) {
            node_fail(from, now, "it is not ready to serve");
            return;
        }
        r->refresh_wanted |= r->cluster;
        return;
    }
    for (int i = 0; i < NODES_MAX; i++)
        if (r->nodes[i])
            r->nodes[i]->listed = false;
    int ranges = 0;
    for (int i = 0; i < answer->count; i++)
        ranges += take_range(r, from, answer->elements[i], now);
    r->mapped = r->cluster = true;
    r->refreshed_ns = first ? now : r->refreshed_ns;
    if (ranges < answer->count || ranges == 0) { /* nodes that nobody knows: perhaps later */
        r->refresh_wanted = true;
        if (!r->said)
            psti_log(PSTI_LOG_WARN,
                     "remote tier %s: its cluster names nodes without an address in the networks "
                     "of the servers in the URL; they are not asked",
                     r->name);
        r->said = true;
    }
}
