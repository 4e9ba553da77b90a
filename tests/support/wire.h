/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes protobuf field by field, for messages that no encoder would make. Uses memory of the C
 * library, so that tests in which br_malloc fails can still write. Aborts if memory is exhausted.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct wire {
    uint8_t *data;
    size_t len, cap;
};

static inline void wire_raw(struct wire *w, const void *data, size_t len)
{
    if (w->len + len > w->cap) {
        w->cap = (w->len + len) * 2 + 64;
        w->data = realloc(w->data, w->cap);
        if (!w->data)
            abort();
        memset(w->data + w->len, 0, w->cap - w->len);
    }
    if (len)
        memcpy(w->data + w->len, data, len);
    w->len += len;
}

static inline void wire_byte(struct wire *w, unsigned byte)
{
    uint8_t b = (uint8_t)byte;
    wire_raw(w, &b, 1);
}

/* Appends a varint without a tag, as in a packed list. */
static inline void wire_number(struct wire *w, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        wire_byte(w, (unsigned)(v & 0x7f) | 0x80);
    wire_byte(w, (unsigned)v);
}

static inline void wire_tag(struct wire *w, uint32_t field, unsigned type)
{
    wire_number(w, (uint64_t)field << 3 | type);
}

static inline void wire_varint(struct wire *w, uint32_t field, uint64_t v)
{
    wire_tag(w, field, 0);
    wire_number(w, v);
}

static inline void wire_i64(struct wire *w, uint32_t field, uint64_t v)
{
    wire_tag(w, field, 1);
    wire_raw(w, &v, 8);
}

static inline void wire_i32(struct wire *w, uint32_t field, uint32_t v)
{
    wire_tag(w, field, 5);
    wire_raw(w, &v, 4);
}

static inline void wire_len(struct wire *w, uint32_t field, const void *data, size_t len)
{
    wire_tag(w, field, 2);
    wire_number(w, len);
    wire_raw(w, data, len);
}

static inline void wire_str(struct wire *w, uint32_t field, const char *text)
{
    wire_len(w, field, text, strlen(text));
}

/* Begins a message in field `field`. Everything that is written until wire_close is the content of
 * the message. Pass the returned offset to wire_close. */
static inline size_t wire_open(struct wire *w, uint32_t field)
{
    wire_tag(w, field, 2);
    return w->len;
}

static inline void wire_close(struct wire *w, size_t start)
{
    struct wire prefix = {0};
    size_t len = w->len - start;
    wire_number(&prefix, len);
    wire_raw(w, prefix.data, prefix.len); /* makes room */
    memmove(w->data + start + prefix.len, w->data + start, len);
    memcpy(w->data + start, prefix.data, prefix.len);
    free(prefix.data);
}

/* Writes an AnyValue whose last field is a text. Before it, writes fields that this text overrides,
 * until `w` has `size` bytes. */
static inline void wire_value_of_many_fields(struct wire *w, uint32_t field, size_t size)
{
    size_t any = wire_open(w, field);
    while (w->len < size)
        wire_varint(w, 3, 1);
    wire_str(w, 1, "v");
    wire_close(w, any);
}

/* Writes a KeyValue in field `field`, with a string of `len` bytes. */
static inline void wire_attribute_of(struct wire *w, uint32_t field, const char *key,
                                     const char *value, size_t len)
{
    size_t pair = wire_open(w, field);
    wire_str(w, 1, key);
    size_t any = wire_open(w, 2);
    wire_len(w, 1, value, len);
    wire_close(w, any);
    wire_close(w, pair);
}

static inline void wire_attribute(struct wire *w, uint32_t field, const char *key,
                                  const char *value)
{
    wire_attribute_of(w, field, key, value, strlen(value));
}

static inline void wire_clear(struct wire *w)
{
    w->len = 0;
}

static inline void wire_free(struct wire *w)
{
    free(w->data);
    *w = (struct wire){0};
}
