/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how large items are divided into pieces (ingest/pieces.h). */
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
    struct br_outcome outcome; /* the result of the whole item */
    uint32_t n_records;
};

static void on_whole(struct br_item *item, void *arg)
{
    struct bench *b = arg;
    b->n_ended++;
    b->outcome = item->outcome;
}

/* Returns a number of records that take between 3 and 4 MiB. */
static uint32_t many(enum br_signal signal)
{
    struct wire w = {0};
    items_request(&w, signal, 1, 1000, 1);
    uint32_t n = (uint32_t)(3500000 / (w.len / 1000));
    wire_free(&w);
    assert_in_range(n, 1000, FAKE_SINK_NUMBERS - 1);
    return n;
}

/* Makes an item of large messages and divides it into pieces. */
static void cut(struct bench *b, enum br_signal signal, bool spans)
{
    const struct br_walk_options options = {.spans = spans};
    struct wire w = {0};
    b->n_records = many(signal);
    items_request(&w, signal, 1, b->n_records, 2);
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
    fake_host_iterate(b->fake.h);
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

/* Runs `n` loop iterations. The clock is read once for several of them. */
static void run_iterations(struct bench *b, unsigned n)
{
    while (n-- > 0) {
        (void)br_host_iterate(&b->fake.h->host);
        (void)br_host_iterate(&b->fake.h->host);
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

/* Returns the number of pieces of an item of 3.5 MB. Each of its records counts as at least 256
 * bytes. */
static unsigned pieces_of(uint32_t n_records)
{
    uint32_t weight = n_records * 256;
    return (weight > 3500000 ? weight : 3500000) / (256u << 10);
}

/* Each piece has at most 256 KiB and its own spans, and is sent in its own loop iteration. */
static void one_piece_is_sent_per_iteration(void **state)
{
    (void)state;
    for (int s = 0; s < BR_SIGNALS; s++) {
        struct bench b;
        begin(&b);
        cut(&b, (enum br_signal)s, true);
        unsigned n = count(&b.r.pieces);
        unsigned least = pieces_of(b.n_records);
        assert_in_range(n, least, least + least / 2);
        assert_int_equal(b.r.item->n_parts, 0);
        assert_int_equal(b.r.item->n_records, b.n_records);
        const struct br_item *first = br_container_of(b.r.pieces.next, struct br_item, link);
        assert_int_equal(first->spans != NULL, s == BR_TRACES);
        send(&b);
        for (unsigned i = 1; i <= n; i++) {
            assert_int_equal(b.n_ended, 0);
            run_iterations(&b, 1);
            assert_int_equal(b.fake.sink.n_items, i);
        }
        assert_int_equal(b.n_ended, 1);
        assert_int_equal(b.outcome.verdict, BR_DONE);
        assert_true(b.fake.sink.largest_size <= 256u << 10);
        assert_int_equal(fake_sink_once(&b.fake.sink, (enum br_signal)s, 1, b.n_records),
                         b.n_records);
        end(&b);
    }
}

/* Writes a profile whose samples have the stacks 1 to n_stacks in turn. */
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

/* Writes a profile whose samples share a stack of many frames. This stack takes half of the size of
 * a piece. */
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

/* Writes samples whose frames are spread over `n_functions` functions, so that each piece needs
 * most of the functions. */
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

/* If a size of pieces cannot work, the attempt ends early. All attempts together allocate at most a
 * few times the item's size. */
static void failed_attempts_use_little_memory(void **state)
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
        n += br_container_of(l, struct br_item, link)->n_records;
    assert_int_equal(n, 160000);
    br_pieces_free(&b.r.pieces);
    br_item_free(b.r.item);
    wire_free(&w);
    fake_bed_end(&b.fake);
}

/* Writes a Resource with a long attribute. */
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

/* Writes a scope with a long name. */
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

/* Writes spans that only have ids and a name, in one message. */
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

/* Each piece must repeat the resource and the scope of its spans. If these are large, the item is
 * divided into fewer pieces. */
static void repeated_resources_make_fewer_pieces(void **state)
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
            n += piece->n_records;
            bytes += piece->size;
        }
        assert_int_equal(n, 30000);
        assert_true(bytes <= 2 * w.len);
        if (sizes[i][0]) /* the size is known before the item is divided */
            assert_true(br_pool_taken(b.fake.h->host.pool) - before <= 4 * w.len);
        br_pieces_free(&b.r.pieces);
        br_item_free(b.r.item);
        wire_free(&w);
        fake_bed_end(&b.fake);
    }
}

/* Divides the request in `w` into pieces of at most 1,024 spans. Returns the number of pieces
 * and adds up their spans in *n. */
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
        assert_in_range(piece->n_records, 1, 1024);
        *n += piece->n_records;
        n_pieces++;
    }
    br_pieces_free(&b.r.pieces);
    br_item_free(b.r.item);
    fake_bed_end(&b.fake);
    return n_pieces;
}

/* The span list of each piece takes twice the memory of its spans. If there is no memory for the
 * lists, the pieces have no lists. */
static void no_span_lists_when_memory_is_short(void **state)
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
            assert_in_range(piece->n_records, 1, 1024);
            n += piece->n_records;
        }
        assert_int_equal(n, 50000);
        br_pieces_free(&b.r.pieces);
        br_item_free(b.r.item);
        wire_free(&w);
        fake_bed_end(&b.fake);
    }
}

/* A very small span causes as much work as a large one. A piece therefore contains at most 1,024
 * spans, even if they take few bytes. */
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

/* Writes spans of 48 bytes in one ScopeSpans. This is the largest number of spans per byte for
 * which a walk makes a span list. */
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

/* The span list takes more than twice the bytes of such a piece. The pieces are not made larger for
 * this reason, because all pieces together stay within four times the item's size. */
static void smallest_spans_are_divided(void **state)
{
    (void)state;
    struct wire w = {0};
    uint32_t n;
    put_smallest(&w, 200000);
    (void)cut_spans(&w, &n);
    assert_int_equal(n, 200000);
    wire_free(&w);
}

/* Pieces of 32,768 samples would mostly consist of their dictionaries. Pieces of 65,536 samples do
 * not. */
static void large_dictionaries_make_larger_pieces(void **state)
{
    (void)state;
    struct bench b;
    struct wire w = {0};
    begin(&b);
    b.n_records = 1200000;
    put_deep(&w, b.n_records);
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
        n += piece->n_records;
    }
    assert_int_equal(n, b.n_records);
    br_pieces_free(&b.r.pieces);
    br_item_free(b.r.item);
    fake_bed_end(&b.fake);
}

/* No piece was accepted, so the client can send the whole request again. */
static void first_rejection_rejects_the_whole(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, true);
    b.fake.sink.verdict = FAKE_RETRY;
    send(&b);
    run_iterations(&b, 3);
    assert_int_equal(b.fake.sink.n_items, 1);
    assert_int_equal(b.outcome.verdict, BR_RETRY);
    end(&b);
}

/* Rejected pieces are sent again, but accepted pieces are not. */
static void later_rejection_is_retried(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_PROFILES, false);
    unsigned n = count(&b.r.pieces);
    send(&b);
    run_iterations(&b, 1);
    b.fake.sink.verdict = FAKE_RETRY;
    run_iterations(&b, 2);
    assert_int_equal(b.n_ended, 0);
    b.fake.sink.verdict = FAKE_DONE;
    fake_host_advance(b.fake.h, 2000);
    assert_int_equal(b.n_ended, 1);
    assert_int_equal(b.outcome.verdict, BR_DONE);
    assert_true(b.fake.sink.n_items > n);
    assert_int_equal(fake_sink_once(&b.fake.sink, BR_PROFILES, 1, b.n_records), b.n_records);
    end(&b);
}

/* The client receives the number of rejected records, and does not send the accepted ones again. */
static void permanent_rejection_is_partial_success(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    unsigned n = count(&b.r.pieces);
    b.fake.sink.verdict = FAKE_REJECT;
    send(&b);
    run_iterations(&b, 1);
    b.fake.sink.verdict = FAKE_DONE;
    run_iterations(&b, n + 1);
    assert_int_equal(b.n_ended, 1);
    assert_int_equal(b.outcome.verdict, BR_DONE);
    size_t once = fake_sink_once(&b.fake.sink, BR_TRACES, 1, b.n_records);
    assert_true(once > 0 && b.outcome.n_rejected > 0);
    assert_int_equal(once + b.outcome.n_rejected, b.n_records);
    end(&b);
}

/* If one piece fails as retryable and another one permanently, the result is retryable. */
static void retryable_failure_wins(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    b.fake.sink.verdict = FAKE_REJECT;
    send(&b);
    run_iterations(&b, 1);
    b.fake.sink.verdict = FAKE_RETRY;
    fake_host_advance(b.fake.h, BR_PIECES_RETRY_MS + 2000);
    assert_int_equal(b.outcome.verdict, BR_RETRY);
    end(&b);
}

/* OTLP, "Partial Success": the server accepts a part and rejects the rest. The client does not
 * send the request again, so accepted records are not duplicated. */
static void retries_end_with_partial_success(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    send(&b);
    run_iterations(&b, 1);
    uint32_t n_taken = (uint32_t)fake_sink_once(&b.fake.sink, BR_TRACES, 1, b.n_records);
    assert_in_range(n_taken, 1, b.n_records - 1);
    b.fake.sink.verdict = FAKE_RETRY;
    fake_host_advance(b.fake.h, BR_PIECES_RETRY_MS - 2000);
    assert_int_equal(b.n_ended, 0);
    fake_host_advance(b.fake.h, 4000);
    assert_int_equal(b.n_ended, 1);
    assert_int_equal(b.outcome.verdict, BR_DONE);
    assert_int_equal(b.outcome.n_rejected, b.n_records - n_taken);
    assert_true(b.outcome.text[0]);
    end(&b);
}

/* A slow destination does not delay the other pieces. */
static void pieces_do_not_wait_for_each_other(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    unsigned n = count(&b.r.pieces);
    b.fake.sink.verdict = FAKE_HOLD;
    send(&b);
    run_iterations(&b, n);
    assert_int_equal(b.fake.sink.n_held, n);
    assert_int_equal(b.n_ended, 0);
    fake_sink_release(&b.fake.sink, FAKE_DONE);
    end(&b);
}

static void stop_rejects_pending_pieces(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    cut(&b, BR_TRACES, false);
    send(&b);
    run_iterations(&b, 2);
    br_pieces_stop(&b.sendings);
    run_iterations(&b, 1);
    assert_int_equal(b.fake.sink.n_items, 2);
    assert_int_equal(b.outcome.verdict, BR_RETRY);
    end(&b);
}

static void run(void *arg)
{
    struct bench b;
    (void)arg;
    begin(&b);
    b.n_records = many(BR_TRACES);
    struct wire w = {0};
    items_request(&w, BR_TRACES, 1, b.n_records, 2);
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
            run_iterations(&b, 1);
        fault_stop();
        fake_host_advance(b.fake.h, 2 * BR_PIECES_RETRY_MS);
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

/* Dividing is optional: if there is no memory for it, the item is sent as a whole. */
static void item_stays_whole_when_memory_is_short(void **state)
{
    (void)state;
    struct bench b;
    begin(&b);
    br_memory_limit(&b.fake.h->memory, 0, (br_mem_live() + (6u << 20)) / 7 * 8);
    cut(&b, BR_TRACES, false);
    assert_true(br_list_empty(&b.r.pieces));
    assert_int_equal(b.r.item->n_records, b.n_records);
    assert_true(b.r.item->n_parts > 0);
    assert_false(b.r.scope.refused);
    br_item_free(b.r.item);
    fake_bed_end(&b.fake);
}

SUITE(pieces)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_items_stay_whole),
        cmocka_unit_test(failed_attempts_use_little_memory),
        cmocka_unit_test(repeated_resources_make_fewer_pieces),
        cmocka_unit_test(no_span_lists_when_memory_is_short),
        cmocka_unit_test(small_spans_count_as_larger),
        cmocka_unit_test(smallest_spans_are_divided),
        cmocka_unit_test(one_piece_is_sent_per_iteration),
        cmocka_unit_test(large_dictionaries_make_larger_pieces),
        cmocka_unit_test(first_rejection_rejects_the_whole),
        cmocka_unit_test(later_rejection_is_retried),
        cmocka_unit_test(permanent_rejection_is_partial_success),
        cmocka_unit_test(retryable_failure_wins),
        cmocka_unit_test(retries_end_with_partial_success),
        cmocka_unit_test(pieces_do_not_wait_for_each_other),
        cmocka_unit_test(stop_rejects_pending_pieces),
        cmocka_unit_test(item_stays_whole_when_memory_is_short),
        cmocka_unit_test(memory_runs_out),
    };
    return RUN(tests, NULL, NULL);
}
