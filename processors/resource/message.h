/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Resource message as a list of pieces, of which the attributes can be changed. What is not
 * changed is written byte for byte as it came, in its place. Source:
 * opentelemetry/proto/resource/v1.
 */
#pragma once

#include "processors/resource/value.h"

#define RESOURCE_PIECES_MAX 65536

struct resource_piece {
    const uint8_t *raw; /* as it came */
    size_t raw_len;
    const uint8_t *key;
    size_t key_len;
    struct resource_value value;
    bool attribute, edited, deleted; /* what is new is edited too */
};

struct resource_message {
    struct resource_piece *pieces;
    uint32_t n, cap;
    struct br_arena *arena;            /* for whatever the actions make */
    bool no_memory, too_many, gave_up; /* gave_up, which only its reader resets: a
                                           pattern took too many steps */
};

/* Reads a Resource that a walk has accepted, dropping what `m` held. It points into the bytes.
 * False when there is no memory or there are too many attributes (then `m` says which). */
bool resource_message_read(struct resource_message *m, const uint8_t *data, size_t len);
void resource_message_release(struct resource_message *m);

/* The first attribute of the key, or NULL. */
struct resource_piece *resource_message_find(const struct resource_message *m, const void *key,
                                             size_t len);

/* Changes an attribute, or appends one. */
void resource_piece_set(struct resource_piece *p, struct resource_value v);
void resource_message_put(struct resource_message *m, const void *key, size_t key_len,
                          struct resource_value v);

/* Bytes that the message takes now, and writing them. */
size_t resource_message_size(const struct resource_message *m);
uint8_t *resource_message_write(const struct resource_message *m, uint8_t *p);
