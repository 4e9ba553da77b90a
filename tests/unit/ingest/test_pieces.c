/* SPDX-License-Identifier: Apache-2.0 */
/* Large items in pieces (ingest/pieces.h). */
#include "base/mem.h"
#include "ingest/pieces.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

struct bench {
    struct fake_bed fake;
    struct br_reading r;
    struct br_list sendings;
    unsigned n_ended;
    struct br_outcome outcome; /* of the whole */
    uint32_t n_items;
};

static void on_whole(struct br_item *item, void *arg)
{
    struct bench *b = arg;
    b->n_ended++;
    b->outcome = item->outcome;
}

/* So many that they take between 3 and 4 MiB. */
static uint32_t many(enum br_signal signal)
{
    struct wire w = {0};
    items_request(&w, signal, 1, 1000, 1);
    uint32_t n = (uint32_t)(3500000 / (w.len / 1000));
    wire_free(&w);
    assert_in_range(n, 1000, FAKE_SINK_NUMBERS - 1);
    return n;
}

/* A reading that has made an item of large messages, cut. */
static void cut(struct bench *b, enum br_signal signal, bool spans)
{
    const struct br_walk_options options = {.spans = spans};
    struct wire w = {0};
    b->n_items = many(signal);
    items_request(&w, signal, 1, b->n_items, 2);
    b->r = (struct br_reading){.host = &b->fake.h->host};
    br_list_init(&b->r.pieces);
    b->r.item = items_walk(&b->fake.h->host, signal, w.data, w.len);
    wire_free(&w);
    assert_int_equal(br_pieces_cut(&b->r, &options), 0);
}

static void begin(struct bench *b)
{
    *b = (struct bench){.n_ended = 0};
    fake_bed_begin(&b->fake);
    b->fake.node.next[BR_TRACES] = b->fake.node.next[BR_PROFILES] = &b->fake.sink.consumer;
    br_list_init(&b->sendings);
}

static void send(struct bench *b)
{
    br_item_received(b->r.item);
    b->r.item->done = on_whole;
    b->r.item->done_arg = b;
    br_pieces_send(&b->fake.node, b->r.item, &b->r.pieces, &b->sendings);
}

static void end(struct bench *b)
{
    fake_host_turn(b->fake.h);
    assert_int_equal(b->n_ended, 1);
    assert_true(br_list_empty(&b->sendings));
    fake_bed_end(&b->fake);
}

static unsigned count(const struct br_list *list)
{
    unsigned n = 0;
    for (const struct br_list *l = list->next; l != list; l = l->next)
        n++;
    return n;
}

/* Several turns, as a loop has them: of more than one round, by one reading of the clock. */
static void turns(struct bench *b, unsigned n)
{
    while (n-- > 0) {
        (void)br_host_turn(&b->fake.h->host);
        (void)br_host_turn(&b->fake.h->host);
        b->fake.h->now_ms++;
    }
}

static void small_items_stay_whole(void **state)
{
    (void)state;
    struct bench b;
    struct wire w = {0};
    begin(&b);
    b.r = (struct br_reading){.host = &b.fake.h->host};
    br_list_init(&b.r.pieces);
    items_request(&w, BR_TRACES, 1, 1000, 2);
    b.r.item = items_walk(&b.fake.h->host, BR_TRACES, w.data, w.len);
    assert_int_equal(br_pieces_cut(&b.r, NULL), 0);
    assert_true(br_list_empty(&b.r.pieces));
    assert_int_equal(b.r.item->n_parts, 2);
    br_item_free(b.r.item);
    wire_free(&w);
    fake_bed_end(&b.fake);
}

/* The pieces of 3.5 MB, in which a span or a sample counts 256 bytes at least. */
static unsigned pieces_of(uint32_t n_items)
{
    uint32_t weight = n_items * 256;
    return (weight > 3500000 ? weight : 3500000) / (256u << 10);
}

/* Each piece has at most 256 KiB, its spans, and leaves in a turn of its own. */
static void a_piece_leaves_each_turn(void **state)
{
    (void)state;
    for (int s = 0; s < BR_SIGNALS; s++) {
        struct bench b;
        begin(&b);
        cut(&b, (enum br_signal)s, true);
        unsigned n = count(&b.r.pieces);
        unsigned least = pieces_of(b.n_items);
        assert_in_range(n, least, least + least / 2);
        assert_int_equal(b.r.item->n_parts, 0);
        assert_int_equal(b.r.item->n_items, b.n_items);
        const struct br_item *first = br_container_of(b.r.pieces.next, struct br_item, link);
        assert_int_equal(first->spans != NULL, s == BR_TRACES);
        send(&b);
        for (unsigned i = 1; i <= n; i++) {
            assert_int_equal(b.n_ended, 0);
            turns(&b, 1);
            assert_int_equal(b.fake.sink.n_items, i);
        }
        assert_int_equal(b.n_ended, 1);
        assert_int_equal(b.outcome.verdict, BR_DONE);
        assert_true(b.fake.sink.largest_size <= 256u << 10);
        assert_int_equal(fake_sink_once(&b.fake.sink, (enum br_signal)s, 1, b.n_items), b.n_items);
        end(&b);
    }
}

/* One profile, whose samples have the stacks 1 to n_stacks in turn. */
static void put_samples(struct wire *w, uint32_t n_samples, uint32_t n_stacks)
{
    size_t part = wire_open(w, 1), scope = wire_open(w, 2), profile = wire_open(w, 2);
    for (uint32_t i = 0; i < n_samples; i++) {
        size_t sample = wire_open(w, 2);
        wire_varint(w, 1, i % n_stacks + 1);
        wire_varint(w, 4, i + 1);
        wire_close(w, sample);
    }
    wire_close(w, profile);
    wire_close(w, scope);
    wire_close(w, part);
}

/* One profile with a stack of so many frames that it alone is half of a piece, again and again in
 * every piece. */
static void put_deep(struct wire *w, uint32_t n_samples)
{
    put_samples(w, n_samples, 1);
    size_t dictionary = wire_open(w, 2);
    wire_len(w, 1, NULL, 0);
    wire_len(w, 2, NULL, 0);
    size_t location = wire_open(w, 2);
    wire_varint(w, 2, 0x1000);
    wire_close(w, location);
    wire_len(w, 3, NULL, 0);
    wire_len(w, 4, NULL, 0);
    wire_str(w, 5, "");
    wire_len(w, 6, NULL, 0);
    wire_len(w, 7, NULL, 0);
    size_t stack = wire_open(w, 7), list = wire_open(w, 1);
    for (unsigned i = 0; i < 1000000; i++)
        wire_number(w, 1);
    wire_close(w, list);
    wire_close(w, stack);
    wire_close(w, dictionary);
}

#define SCATTERED_DEPTH 20u

/* Samples of stacks that have frames from all over `n_functions` functions: pieces have most of
 * these each. */
static void put_scattered(struct wire *w, uint32_t n_samples, uint32_t n_functions)
{
    put_samples(w, n_samples, n_samples);
    size_t dictionary = wire_open(w, 2);
    wire_len(w, 1, NULL, 0);
    for (uint32_t i = 0; i <= n_functions; i++) {
        size_t location = wire_open(w, 2);
        if (i > 0) {
            size_t line = wire_open(w, 3);
            wire_varint(w, 1, i);
            wire_close(w, line);
        }
        wire_close(w, location);
    }
    for (uint32_t i = 0; i <= n_functions; i++) {
        size_t function = wire_open(w, 3);
        if (i > 0)
            wire_varint(w, 1, i);
        wire_close(w, function);
    }
    wire_len(w, 4, NULL, 0);
    wire_str(w, 5, "");
    for (uint32_t i = 1; i <= n_functions; i++) {
        char name[48];
        (void)snprintf(name, sizeof name, "com.example.shop.Service%u.handle", i);
        wire_str(w, 5, name);
    }
    wire_len(w, 6, NULL, 0);
    wire_len(w, 7, NULL, 0);
    for (uint32_t i = 1; i <= n_samples; i++) {
        size_t stack = wire_open(w, 7), list = wire_open(w, 1);
        for (uint32_t k = 0; k < SCATTERED_DEPTH; k++)
            wire_number(w, (i * 31 + k * k * 7 + k) % n_functions + 1);
        wire_close(w, list);
        wire_close(w, stack);
    }
    wire_close(w, dictionary);
}

/* What cannot end well is given up soon, for as many sizes as there are: all tries together take
 * no more buffers than a few times the item. */
static void trying_takes_a_few_times_the_item(void **state)
{
    (void)state;
    struct bench b;
    struct wire w = {0};
    uint32_t n = 0;
    begin(&b);
    put_scattered(&w, 160000, 40000);
    b.r = (struct br_reading){.host = &b.fake.h->host};
    br_list_init(&b.r.pieces);
    b.r.item = items_walk(&b.fake.h->host, BR_PROFILES, w.data, w.len);
    uint64_t before = br_pool_taken(b.fake.h->host.pool);
    br_mem_scope_begin(&b.r.scope, w.len * 3, b.fake.h->host.memory);
    assert_int_equal(br_pieces_cut(&b.r, NULL), 0);
    br_mem_scope_end(&b.r.scope);
    assert_true(br_pool_taken(b.fake.h->host.pool) - before < 12 * w.len);
    for (struct br_list *l = b.r.pieces.next; l != &b.r.pieces; l = l->next)
        n += br_container_of(l, struct br_item, link)->n_items;
    assert_int_equal(n, 160000);
    br_pieces_free(&b.r.pieces);
    br_item_free(b.r.item);
    wire_free(&w);
    fake_bed_end(&b.fake);
}

/* A Resource with a long attribute. */
static void put_long_resource(struct wire *w, size_t len)
{
    char *text = calloc(1, len + 1);
    assert_non_null(text);
    memset(text, 'x', len);
    size_t head = wire_open(w, 1), attribute = wire_open(w, 1);
    wire_str(w, 1, text);
    wire_close(w, attribute);
    wire_close(w, head);
    free(text);
}

/* A scope with a long name. */
static void put_long_scope(struct wire *w, size_t len)
{
    char *text = calloc(1, len + 1);
    assert_non_null(text);
    memset(text, 'x', len);
    size_t head = wire_open(w, 1);
    wire_str(w, 1, text);
    wire_close(w, head);
    free(text);
}

/* Spans that have their ids and a name, in one message. */
static void put_spans_of(struct wire *w, uint32_t n_spans, size_t resource, size_t scope_name)
{
    uint8_t id[16] = {1};
    size_t part = wire_open(w, 1);
    if (resource)
        put_long_resource(w, resource);
    size_t scope = wire_open(w, 2);
    if (scope_name)
        put_long_scope(w, scope_name);
    for (uint32_t i = 0; i < n_spans; i++) {
        size_t span = wire_open(w, 2);
        wire_len(w, 1, id, 16);
        memcpy(id + 8, &i, sizeof i);
        wire_len(w, 2, id + 8, 8);
        wire_str(w, 5, "GET /carts/summary");
        wire_close(w, span);
    }
    wire_close(w, scope);
    wire_close(w, part);
}

static void put_small_spans(struct wire *w, uint32_t n_spans)
{
    put_spans_of(w, n_spans, 0, 0);
}

/* Each piece repeats the resource and the scope of its spans: there are fewer pieces then. */
static void what_pieces_repeat_is_bounded(void **state)
{
    (void)state;
    const struct br_walk_options options = {.spans = false};
    const size_t long_one = 400000, sizes[][2] = {{long_one, 0}, {0, long_one}, {1 << 20, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct bench b;
        struct wire w = {0};
        uint32_t n = 0;
        size_t bytes = 0;
        begin(&b);
        put_spans_of(&w, 30000, sizes[i][0], sizes[i][1]);
        b.r = (struct br_reading){.host = &b.fake.h->host};
        br_list_init(&b.r.pieces);
        b.r.item = items_walk(&b.fake.h->host, BR_TRACES, w.data, w.len);
        uint64_t before = br_pool_taken(b.fake.h->host.pool);
        br_mem_scope_begin(&b.r.scope, w.len * 3 + BR_READING_ROOM, b.fake.h->host.memory);
        assert_int_equal(br_pieces_cut(&b.r, &options), 0);
        br_mem_scope_end(&b.r.scope);
        assert_in_range(count(&b.r.pieces), 2, 16);
        for (struct br_list *l = b.r.pieces.next; l != &b.r.pieces; l = l->next) {
            const struct br_item *piece = br_container_of(l, struct br_item, link);
            n += piece->n_items;
            bytes += piece->size;
        }
        assert_int_equal(n, 30000);
        assert_true(bytes <= 2 * w.len);
        if (sizes[i][0]) /* its size is known before anything is cut */
            assert_true(br_pool_taken(b.fake.h->host.pool) - before <= 4 * w.len);
        br_pieces_free(&b.r.pieces);
        br_item_free(b.r.item);
        wire_free(&w);
        fake_bed_end(&b.fake);
    }
}

/* Cuts what `w` holds, spans of no more than 1,024 a piece. Returns how many pieces there are, and
 * adds up their spans in *n. */
static uint32_t cut_spans(const struct wire *w, uint32_t *n)
{
    struct bench b;
    const struct br_walk_options options = {.spans = true};
    uint32_t n_pieces = 0;
    begin(&b);
    b.r = (struct br_reading){.host = &b.fake.h->host};
    br_list_init(&b.r.pieces);
    b.r.item = items_walk(&b.fake.h->host, BR_TRACES, w->data, w->len);
    assert_int_equal(br_pieces_cut(&b.r, &options), 0);
    *n = 0;
    for (struct br_list *l = b.r.pieces.next; l != &b.r.pieces; l = l->next) {
        const struct br_item *piece = br_container_of(l, struct br_item, link);
        assert_in_range(piece->n_items, 1, 1024);
        *n += piece->n_items;
        n_pieces++;
    }
    br_pieces_free(&b.r.pieces);
    br_item_free(b.r.item);
    fake_bed_end(&b.fake);
    return n_pieces;
}

/* The list of such spans is twice as large as they are: without room for lists there are pieces
 * all the same. */
static void without_room_for_lists_pieces_have_none(void **state)
{
    (void)state;
    const struct br_walk_options options = {.spans = true};
    for (unsigned tenths = 20; tenths <= 80; tenths += 60) {
        struct bench b;
        struct wire w = {0};
        uint32_t n = 0;
        begin(&b);
        put_small_spans(&w, 50000);
        b.r = (struct br_reading){.host = &b.fake.h->host};
        br_list_init(&b.r.pieces);
        b.r.item = items_walk(&b.fake.h->host, BR_TRACES, w.data, w.len);
        br_mem_scope_begin(&b.r.scope, w.len / 10 * tenths, b.fake.h->host.memory);
        assert_int_equal(br_pieces_cut(&b.r, &options), 0);
        br_mem_scope_end(&b.r.scope);
        for (struct br_list *l = b.r.pieces.next; l != &b.r.pieces; l = l->next) {
            const struct br_item *piece = br_container_of(l, struct br_item, link);
            assert_int_equal(piece->spans != NULL, tenths == 80);
            assert_in_range(piece->n_items, 1, 1024);
            n += piece->n_items;
        }
        assert_int_equal(n, 50000);
        br_pieces_free(&b.r.pieces);
        br_item_free(b.r.item);
        wire_free(&w);
        fake_bed_end(&b.fake);
    }
}

/* Spans of little more than their ids cost as much work as others: a piece has 1,024 at most, also
 * of a body that is small. */
static void small_spans_count_as_larger(void **state)
{
    (void)state;
    for (uint32_t messages = 1; messages <= 100; messages *= 100) {
        struct wire w = {0};
        uint32_t n;
        items_request(&w, BR_TRACES, 1, 5000, messages);
        assert_true(w.len < 512u << 10);
        assert_int_equal(cut_spans(&w, &n), 5);
        assert_int_equal(n, 5000);
        wire_free(&w);
    }
}

/* Spans of 48 bytes, as many for their bytes as a walk lists, in one ScopeSpans. */
static void put_smallest(struct wire *w, uint64_t n_spans)
{
    size_t part = wire_open(w, 1), scope = wire_open(w, 2);
    for (uint64_t i = 1; i <= n_spans; i++) {
        uint8_t id[16] = {1};
        memcpy(id + 8, &i, 8);
        size_t span = wire_open(w, 2);
        wire_len(w, 1, id, 16);
        wire_len(w, 2, id + 8, 8);
        wire_i64(w, 7, 1);
        wire_i64(w, 8, 1);
        wire_close(w, span);
    }
    wire_close(w, scope);
    wire_close(w, part);
}

/* The list of its spans takes more than twice the bytes of such a piece, and yet no piece is larger
 * for that: all of them are within four times the item. */
static void the_smallest_spans_are_pieces_too(void **state)
{
    (void)state;
    struct wire w = {0};
    uint32_t n;
    put_smallest(&w, 200000);
    (void)cut_spans(&w, &n);
    assert_int_equal(n, 200000);
    wire_free(&w);
}

/* Pieces of 32,768 samples would be hardly more than their dictionaries; those of twice as many
 * are. */
static void pieces_are_larger_where_dictionaries_are(void **state)
{
    (void)state;
    struct bench b;
    struct wire w = {0};
    begin(&b);
    b.n_items = 1200000;
    put_deep(&w, b.n_items);
    size_t size = w.len;
    b.r = (struct br_reading){.host = &b.fake.h->host};
    br_list_init(&b.r.pieces);
    b.r.item = items_walk(&b.fake.h->host, BR_PROFILES, w.data, w.len);
    wire_free(&w);
    assert_true(size > 8u << 20);
    assert_int_equal(br_pieces_cut(&b.r, NULL), 0);
    assert_int_equal(count(&b.r.pieces), (1200000 + 65535) / 65536);
    uint32_t n = 0;
    for (struct br_list *l = b.r.pieces.next; l != &b.r.pieces; l = l->next) {
        const struct br_item *piece = br_container_of(l, struct br_item, link);
        assert_true(piece->size <= 4u << 20);
        n += piece->n_items;
    }
    assert_int_equal(n, b.n_items);
    br_pieces_free(&b.r.pieces);
    br_item_free(b.r.item);
    fake_bed_end(&b.fake);
}

/* Nothing was taken: the client can send all of it again. */
static void the_first_refusal_is_that_of_the_whole(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, true);
    b.fake.sink.verdict = FAKE_RETRY;
    send(&b);
    turns(&b, 3);
    assert_int_equal(b.fake.sink.n_items, 1);
    assert_int_equal(b.outcome.verdict, BR_RETRY);
    end(&b);
}

/* What was taken is not sent again, what was refused is. */
static void a_later_refusal_is_mended(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_PROFILES, false);
    unsigned n = count(&b.r.pieces);
    send(&b);
    turns(&b, 1);
    b.fake.sink.verdict = FAKE_RETRY;
    turns(&b, 2);
    assert_int_equal(b.n_ended, 0);
    b.fake.sink.verdict = FAKE_DONE;
    fake_host_advance(b.fake.h, 2000);
    assert_int_equal(b.n_ended, 1);
    assert_int_equal(b.outcome.verdict, BR_DONE);
    assert_true(b.fake.sink.n_items > n);
    assert_int_equal(fake_sink_once(&b.fake.sink, BR_PROFILES, 1, b.n_items), b.n_items);
    end(&b);
}

/* The client hears how much was refused for good, and does not send what was taken again. */
static void a_piece_that_is_refused_for_good_is_a_part(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    unsigned n = count(&b.r.pieces);
    b.fake.sink.verdict = FAKE_REJECT;
    send(&b);
    turns(&b, 1);
    b.fake.sink.verdict = FAKE_DONE;
    turns(&b, n + 1);
    assert_int_equal(b.n_ended, 1);
    assert_int_equal(b.outcome.verdict, BR_DONE);
    size_t once = fake_sink_once(&b.fake.sink, BR_TRACES, 1, b.n_items);
    assert_true(once > 0 && b.outcome.n_rejected > 0);
    assert_int_equal(once + b.outcome.n_rejected, b.n_items);
    end(&b);
}

/* What is to be sent again wins over what is not. */
static void a_refusal_for_now_wins(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    b.fake.sink.verdict = FAKE_REJECT;
    send(&b);
    turns(&b, 1);
    b.fake.sink.verdict = FAKE_RETRY;
    fake_host_advance(b.fake.h, BR_PIECES_PATIENCE_MS + 2000);
    assert_int_equal(b.outcome.verdict, BR_RETRY);
    end(&b);
}

/* OTLP, "Partial Success": the server accepts a part and rejects the rest, and the client does not
 * send it again, so that nothing of what was taken comes twice. */
static void patience_ends(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    send(&b);
    turns(&b, 1);
    uint32_t n_taken = (uint32_t)fake_sink_once(&b.fake.sink, BR_TRACES, 1, b.n_items);
    assert_in_range(n_taken, 1, b.n_items - 1);
    b.fake.sink.verdict = FAKE_RETRY;
    fake_host_advance(b.fake.h, BR_PIECES_PATIENCE_MS - 2000);
    assert_int_equal(b.n_ended, 0);
    fake_host_advance(b.fake.h, 4000);
    assert_int_equal(b.n_ended, 1);
    assert_int_equal(b.outcome.verdict, BR_DONE);
    assert_int_equal(b.outcome.n_rejected, b.n_items - n_taken);
    assert_true(b.outcome.text[0]);
    end(&b);
}

/* A destination that answers late does not hold up the others. */
static void pieces_do_not_wait_for_each_other(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    unsigned n = count(&b.r.pieces);
    b.fake.sink.verdict = FAKE_HOLD;
    send(&b);
    turns(&b, n);
    assert_int_equal(b.fake.sink.n_held, n);
    assert_int_equal(b.n_ended, 0);
    fake_sink_release(&b.fake.sink, FAKE_DONE);
    end(&b);
}

static void the_end_refuses_what_waits(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    send(&b);
    turns(&b, 2);
    br_pieces_stop(&b.sendings);
    turns(&b, 1);
    assert_int_equal(b.fake.sink.n_items, 2);
    assert_int_equal(b.outcome.verdict, BR_RETRY);
    end(&b);
}

static void run(void *arg)
{
    struct bench b;
    (void)arg;
    begin(&b);
    b.n_items = many(BR_TRACES);
    struct wire w = {0};
    items_request(&w, BR_TRACES, 1, b.n_items, 2);
    b.r = (struct br_reading){.host = &b.fake.h->host};
    br_list_init(&b.r.pieces);
    b.r.item = items_walk(&b.fake.h->host, BR_TRACES, w.data, w.len);
    wire_free(&w);
    const struct br_walk_options options = {.spans = true};
    fault_start();
    int rc = br_pieces_cut(&b.r, &options);
    if (rc == 0 && !br_list_empty(&b.r.pieces)) {
        send(&b);
        for (int i = 0; i < 20; i++)
            turns(&b, 1);
        fault_stop();
        fake_host_advance(b.fake.h, 2 * BR_PIECES_PATIENCE_MS);
        end(&b);
        return;
    }
    fault_stop();
    assert_true(rc == 0 || (rc == BR_ENOMEM && fault_failed()));
    br_pieces_free(&b.r.pieces);
    br_item_free(b.r.item);
    fake_bed_end(&b.fake);
}

static void memory_runs_out(void **state)
{
    (void)state;
    fault_some("pieces", run, NULL, 3);
}

/* Cutting is for the others' sake: without room for it the request is taken as it is. */
static void what_there_is_no_room_to_cut_stays_whole(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    br_memory_limit(&b.fake.h->memory, 0, (br_mem_live() + (6u << 20)) / 7 * 8);
    cut(&b, BR_TRACES, false);
    assert_true(br_list_empty(&b.r.pieces));
    assert_int_equal(b.r.item->n_items, b.n_items);
    assert_true(b.r.item->n_parts > 0);
    assert_false(b.r.scope.refused);
    br_item_free(b.r.item);
    fake_bed_end(&b.fake);
}

SUITE(pieces)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_items_stay_whole),
        cmocka_unit_test(trying_takes_a_few_times_the_item),
        cmocka_unit_test(what_pieces_repeat_is_bounded),
        cmocka_unit_test(without_room_for_lists_pieces_have_none),
        cmocka_unit_test(small_spans_count_as_larger),
        cmocka_unit_test(the_smallest_spans_are_pieces_too),
        cmocka_unit_test(a_piece_leaves_each_turn),
        cmocka_unit_test(pieces_are_larger_where_dictionaries_are),
        cmocka_unit_test(the_first_refusal_is_that_of_the_whole),
        cmocka_unit_test(a_later_refusal_is_mended),
        cmocka_unit_test(a_piece_that_is_refused_for_good_is_a_part),
        cmocka_unit_test(a_refusal_for_now_wins),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(pieces_do_not_wait_for_each_other),
        cmocka_unit_test(the_end_refuses_what_waits),
        cmocka_unit_test(what_there_is_no_room_to_cut_stays_whole),
        cmocka_unit_test(memory_runs_out),
    };
    return RUN(tests, NULL, NULL);
}
