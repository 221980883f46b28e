/* SPDX-License-Identifier: Apache-2.0
 * One sample out of a batch: its id, key, true shapes and packed bytes. */
#ifndef CLI_SLOTS_H
#define CLI_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "penstock.h"

/* -1 where preparations are not shared. */
int64_t slot_preparation(const pst_batch_desc *desc, uint32_t slot);
int64_t slot_id(const pst_batch_desc *desc, uint32_t slot);
bool slot_valid(const pst_batch_desc *desc, uint32_t slot);
/* The key's bytes, not terminated. */
const char *slot_key(const pst_batch_desc *desc, uint32_t slot, size_t *length);
/* The true shape: what the sample has, without padding. */
void slot_shape(const pst_batch_desc *desc, const pst_field *field, uint32_t slot,
                int64_t shape[PST_MAX_RANK]);
/* Size of the slot without padding, and its bytes packed into dst. */
size_t slot_bytes(const pst_batch_desc *desc, const pst_field *field, uint32_t slot);
void slot_pack(const pst_batch_desc *desc, const pst_field *field, uint32_t slot, uint8_t *dst);
/* CRC32C over the packed bytes of every field but id, key and valid, in the descriptor's order.
 * Padding does not count, so that it does not matter which other samples share the batch. */
uint32_t slot_crc(const pst_batch_desc *desc, uint32_t slot);

#endif
