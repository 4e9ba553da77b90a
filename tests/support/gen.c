/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gen.h"

#include "tests/support/fake_sink.h"
#include "tests/support/test.h"

unsigned gen_below(struct gen *g, unsigned n)
{
    return (unsigned)(fake_random(&g->random) % n);
}

/* Ends a message. Its length is sometimes encoded in five bytes, as async-profiler does. */
static void close_message(struct gen *g, size_t start)
{
    if (gen_below(g, 3)) {
        wire_close(g->w, start);
        return;
    }
    size_t len = g->w->len - start;
    wire_raw(g->w, "01234", 5);
    memmove(g->w->data + start + 5, g->w->data + start, len);
    for (unsigned i = 0; i < 5; i++)
        g->w->data[start + i] = (uint8_t)((len >> (7 * i) & 0x7f) | (i < 4 ? 0x80 : 0));
}

/* Writes a field that is not in any schema, of a random wire type. */
static void unknown(struct gen *g)
{
    uint32_t field = 500 + gen_below(g, 3);
    switch (gen_below(g, 12)) {
    case 0:
        wire_varint(g->w, field, fake_random(&g->random));
        break;
    case 1:
        wire_i64(g->w, field, fake_random(&g->random));
        break;
    case 2:
        wire_i32(g->w, field, 7);
        break;
    case 3:
        wire_str(g->w, field, "unknown");
        break;
    default:
        break;
    }
}

static void text(struct gen *g, uint32_t field)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    wire_len(g->w, field, letters, gen_below(g, 26));
}

static void span(struct gen *g)
{
    size_t at = wire_open(g->w, 2);
    unknown(g);
    wire_len(g->w, 1, "0123456789abcdef", 16);
    wire_len(g->w, 2, "01234567", 8);
    if (gen_below(g, 2))
        wire_attribute(g->w, 9, "before", "the name");
    text(g, 5);
    for (unsigned n = gen_below(g, 8); n > 0; n--)
        wire_attribute(g->w, 9, "http.route", "/a/long/enough/route/to/need/two/bytes/of/length");
    wire_i64(g->w, 7, fake_random(&g->random));
    unknown(g);
    close_message(g, at);
}

static void sample(struct gen *g)
{
    size_t at = wire_open(g->w, 2);
    unknown(g);
    if (gen_below(g, 2))
        wire_varint(g->w, 3, 0);
    if (gen_below(g, 2)) {
        wire_varint(g->w, 2, 0); /* not packed */
        wire_varint(g->w, 2, 0);
    } else {
        size_t list = wire_open(g->w, 2);
        wire_number(g->w, 0);
        close_message(g, list);
    }
    size_t list = wire_open(g->w, 4);
    for (unsigned n = 1 + gen_below(g, 60); n > 0; n--)
        wire_number(g->w, fake_random(&g->random));
    close_message(g, list);
    unknown(g);
    close_message(g, at);
}

static void profile(struct gen *g)
{
    size_t at = wire_open(g->w, 2);
    wire_i64(g->w, 3, 1);
    for (unsigned n = gen_below(g, 5); n > 0; n--)
        sample(g);
    unknown(g);
    wire_varint(g->w, 6, 1000);
    for (unsigned n = gen_below(g, 3); n > 0; n--)
        sample(g);
    close_message(g, at);
}

static void scope(struct gen *g)
{
    size_t at = wire_open(g->w, 2);
    for (unsigned n = gen_below(g, 4); n > 0; n--) {
        if (g->signal == BR_TRACES)
            span(g);
        else
            profile(g);
    }
    size_t inner = wire_open(g->w, 1);
    text(g, 1);
    close_message(g, inner);
    unknown(g);
    text(g, 3);
    close_message(g, at);
}

static void resource(struct gen *g)
{
    size_t at = wire_open(g->w, 1);
    wire_attribute(g->w, 1, "service.name", "shop");
    unknown(g);
    close_message(g, at);
}

static void resources(struct gen *g)
{
    size_t at = wire_open(g->w, 1);
    /* position of the Resource in this message, chosen at random: first, last, in the middle, or
     * absent */
    unsigned where = gen_below(g, 4);
    unknown(g);
    if (where == 0)
        resource(g);
    for (unsigned n = gen_below(g, 3); n > 0; n--)
        scope(g);
    if (where == 2)
        resource(g);
    for (unsigned n = gen_below(g, 3); n > 0; n--)
        scope(g);
    text(g, 3);
    if (where == 1)
        resource(g);
    close_message(g, at);
}

void gen_request(struct gen *g)
{
    wire_clear(g->w);
    for (unsigned n = 1 + gen_below(g, 3); n > 0; n--)
        resources(g);
    unknown(g);
}

void *gen_decode(const ProtobufCMessageDescriptor *d, const void *data, size_t len)
{
    void *m = protobuf_c_message_unpack(d, NULL, len, data);
    assert_non_null(m);
    return m;
}

struct wire gen_encode(const void *message)
{
    struct wire w = {.len = protobuf_c_message_get_packed_size(message)};
    w.data = malloc(w.len + 1);
    assert_non_null(w.data);
    assert_int_equal(protobuf_c_message_pack(message, w.data), w.len);
    return w;
}

struct wire gen_written(struct br_item *item)
{
    struct br_rope rope = {0};
    struct wire w = {0};
    assert_int_equal(br_item_write(item, &rope), 0);
    /* size of the tags and lengths of dictionary additions, which br_item_write does not write */
    size_t heads = 0;
    for (uint32_t i = 0; i < item->n_parts; i++)
        heads += item->parts[i].additions ? item->parts[i].body_at : 0;
    assert_in_range(rope.len, item->size - heads, item->size);
    for (uint32_t i = 0; i < rope.count; i++)
        wire_raw(&w, rope.slices[i].data, rope.slices[i].len);
    br_rope_release(&rope);
    return w;
}
