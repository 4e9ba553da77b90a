/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/items.h"

#include "otlp/walk/walk.h"
#include "tests/support/test.h"
#include "wire/protobuf.h"

/* number of entries in each table of the dictionary of a profiles request, without the empty
 * first entry */
#define STRINGS 8

static void big_endian(uint8_t out[8], uint64_t v)
{
    for (int i = 7; i >= 0; i--, v >>= 8)
        out[i] = (uint8_t)v;
}

static void put_resource(struct wire *w, uint32_t r)
{
    char name[32];
    (void)snprintf(name, sizeof name, "service-%u", r);
    size_t resource = wire_open(w, 1);
    wire_attribute(w, 1, "service.name", name);
    wire_close(w, resource);
}

static void put_span(struct wire *w, uint64_t n)
{
    uint8_t trace[16] = {1}, span[8];
    big_endian(trace + 8, n / 4);
    big_endian(span, n);
    size_t at = wire_open(w, 2);
    wire_len(w, 1, trace, 16);
    wire_len(w, 2, span, 8);
    wire_str(w, 5, n % 3 ? "GET /" : "POST /checkout");
    wire_varint(w, 6, n % 6);
    wire_i64(w, 7, 1767225600000000000u + n);
    wire_i64(w, 8, 1767225600000000000u + n + 1000);
    wire_attribute(w, 9, "http.route", n % 2 ? "/a" : "/b");
    wire_close(w, at);
}

/* Returns the number of records, out of `n`, that resource `r` of `resources` gets. */
static uint32_t share(uint32_t n, uint32_t r, uint32_t resources)
{
    return n / resources + (r < n % resources);
}

void items_traces(struct wire *w, uint64_t first, uint32_t n, uint32_t resources)
{
    for (uint32_t r = 0; r < resources; r++) {
        size_t rs = wire_open(w, 1);
        put_resource(w, r);
        size_t scope = wire_open(w, 2);
        for (uint32_t k = share(n, r, resources); k > 0; k--)
            put_span(w, first++);
        wire_close(w, scope);
        wire_close(w, rs);
    }
}

static void put_sample(struct wire *w, uint64_t n)
{
    size_t at = wire_open(w, 2);
    wire_varint(w, 1, 1 + n % 2);
    wire_varint(w, 3, n % 3);
    size_t attributes = wire_open(w, 2);
    wire_number(w, 1);
    wire_close(w, attributes);
    size_t values = wire_open(w, 4);
    wire_number(w, n);
    wire_close(w, values);
    wire_close(w, at);
}

/* Writes mappings 0 and 1, locations 0 to 2, functions 0 to 2, links 0 to 2, attributes 0 and 1,
 * and stacks 0 to 2. String 3 is the name of a function and depends on `base`, so requests have
 * only some entries in common. */
static void put_dictionary(struct wire *w, uint64_t base)
{
    size_t d = wire_open(w, 2);
    wire_len(w, 1, NULL, 0);
    size_t at = wire_open(w, 1);
    wire_varint(w, 1, 0x1000);
    wire_varint(w, 4, 1);
    wire_close(w, at);
    wire_len(w, 2, NULL, 0);
    for (unsigned i = 1; i <= 2; i++) {
        at = wire_open(w, 2);
        wire_varint(w, 1, 1);
        wire_varint(w, 2, 0x1000 + i);
        size_t line = wire_open(w, 3);
        wire_varint(w, 1, i);
        wire_varint(w, 2, 10 * i);
        wire_close(w, line);
        wire_close(w, at);
    }
    wire_len(w, 3, NULL, 0);
    for (unsigned i = 1; i <= 2; i++) {
        at = wire_open(w, 3);
        wire_varint(w, 1, 1 + i);
        wire_close(w, at);
    }
    wire_len(w, 4, NULL, 0);
    for (unsigned i = 1; i <= 2; i++) {
        uint8_t id[16] = {1};
        big_endian(id + 8, base + i);
        at = wire_open(w, 4);
        wire_len(w, 1, id, 16);
        wire_len(w, 2, id + 8, 8);
        wire_close(w, at);
    }
    wire_str(w, 5, "");
    for (unsigned i = 1; i <= STRINGS; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "string-%llu",
                       i == 3 ? 1000 + (unsigned long long)base : i);
        wire_str(w, 5, text);
    }
    wire_len(w, 6, NULL, 0);
    at = wire_open(w, 6);
    wire_varint(w, 1, 4);
    size_t any = wire_open(w, 2);
    wire_str(w, 1, "worker");
    wire_close(w, any);
    wire_close(w, at);
    wire_len(w, 7, NULL, 0);
    for (unsigned i = 1; i <= 2; i++) {
        at = wire_open(w, 7);
        size_t list = wire_open(w, 1);
        wire_number(w, i);
        wire_number(w, 3 - i);
        wire_close(w, list);
        wire_close(w, at);
    }
    wire_close(w, d);
}

void items_profiles(struct wire *w, uint64_t first, uint32_t n, uint32_t resources)
{
    uint64_t base = first;
    for (uint32_t r = 0; r < resources; r++) {
        size_t rp = wire_open(w, 1);
        put_resource(w, r);
        size_t scope = wire_open(w, 2);
        size_t profile = wire_open(w, 2);
        size_t type = wire_open(w, 1);
        wire_varint(w, 1, 5);
        wire_varint(w, 2, 6);
        wire_close(w, type);
        wire_i64(w, 3, 1767225600000000000u + first);
        for (uint32_t k = share(n, r, resources); k > 0; k--)
            put_sample(w, first++);
        wire_close(w, profile);
        wire_close(w, scope);
        wire_close(w, rp);
    }
    put_dictionary(w, base);
}

void items_request(struct wire *w, enum br_signal signal, uint64_t first, uint32_t n,
                   uint32_t resources)
{
    if (signal == BR_TRACES)
        items_traces(w, first, n, resources);
    else
        items_profiles(w, first, n, resources);
}

static struct br_item *walk(struct br_host *h, enum br_signal signal, const void *data, size_t len,
                            int *ret_rc)
{
    static const struct br_walk_options options = {.utf8 = BR_UTF8_REJECT, .spans = true};
    struct br_err err = {0};
    uint32_t repaired;
    struct br_buf *buf = br_buf_new(h->pool, len);
    struct br_item *item = br_item_new(h, signal);
    *ret_rc = BR_ENOMEM;
    if (buf && item) {
        if (len)
            memcpy(buf->data, data, len);
        buf->len = (uint32_t)len;
        *ret_rc = br_walk(item, buf, buf->data, len, &options, &repaired, &err);
    }
    br_buf_unref(buf);
    if (*ret_rc) {
        br_item_free(item);
        return NULL;
    }
    return item;
}

struct br_item *items_new(struct br_host *h, enum br_signal signal, uint64_t first, uint32_t n)
{
    struct wire w = {0};
    int rc;
    items_request(&w, signal, first, n, n < 3 ? 1 : 2);
    struct br_item *item = walk(h, signal, w.data, w.len, &rc);
    wire_free(&w);
    assert_true(rc == 0 || rc == BR_ENOMEM);
    if (item) {
        assert_int_equal(item->n_records, n);
        br_item_received(item);
    }
    return item;
}

struct br_item *items_walk(struct br_host *h, enum br_signal signal, const void *data, size_t len)
{
    int rc;
    struct br_item *item = walk(h, signal, data, len, &rc);
    assert_int_equal(rc, 0);
    return item;
}

/* --- Numbers ---------------------------------------------------------------------------------- */

struct numbers {
    enum br_signal signal;
    uint64_t *ret;
    size_t n, max;
};

static void note(struct numbers *o, uint64_t number)
{
    if (o->n < o->max)
        o->ret[o->n] = number;
    o->n++;
}

static uint64_t span_number(const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    uint64_t v = 0;
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number == 2)
            for (size_t i = 0; i < f.value; i++)
                v = v << 8 | f.data[i];
    return v;
}

static uint64_t sample_number(const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    uint64_t v = 0;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 4 && f.wire == BR_WIRE_LEN)
            (void)br_varint(f.data, f.data + f.value, &v);
        else if (f.number == 4)
            v = f.value;
    }
    return v;
}

/* Reads nested messages, each in field 2 of its parent, down to the records. */
static void descend(struct numbers *o, const uint8_t *p, const uint8_t *end, int levels)
{
    struct br_field f;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 2 || f.wire != BR_WIRE_LEN)
            continue;
        if (levels > 1)
            descend(o, f.data, f.data + f.value, levels - 1);
        else
            note(o, o->signal == BR_TRACES ? span_number(f.data, f.data + f.value)
                                           : sample_number(f.data, f.data + f.value));
    }
    assert_non_null(p);
}

size_t items_numbers(enum br_signal signal, const uint8_t *data, size_t len, uint64_t *ret,
                     size_t max)
{
    struct numbers o = {.signal = signal, .ret = ret, .max = max};
    struct br_field f;
    if (!len)
        return 0;
    const uint8_t *p = data, *end = data + len;
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number == 1 && f.wire == BR_WIRE_LEN)
            descend(&o, f.data, f.data + f.value, signal == BR_TRACES ? 2 : 3);
    assert_non_null(p);
    return o.n;
}

struct br_item *items_child(struct br_item *item)
{
    struct br_item *child = br_item_twin(item);
    if (child)
        br_item_adopt(item, child);
    return child;
}
