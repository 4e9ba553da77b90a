/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "core/pending.h"
#include "tests/support/fake_host.h"
#include "tests/support/items.h"
#include "tests/support/test.h"
#include "wire/protobuf.h"

static int setup(void **state)
{
    *state = fake_host_new();
    return 0;
}

static int teardown(void **state)
{
    fake_host_check_ledger(*state);
    fake_host_free(*state);
    return 0;
}

struct end {
    unsigned n;
    struct br_outcome outcome;
};

static void on_end(struct br_item *item, void *arg)
{
    struct end *e = arg;
    e->n++;
    e->outcome = item->outcome;
}

static struct br_item *received(struct fake_host *h, uint32_t n, struct end *e)
{
    struct br_item *item = items_new(&h->host, BR_TRACES, 1, n);
    item->done = on_end;
    item->done_arg = e;
    return item;
}

static double sent(struct fake_host *h)
{
    return *h->host.ledger.sent[BR_TRACES];
}

static double rejected(struct fake_host *h)
{
    return *h->host.ledger.rejected[BR_TRACES];
}

static double held(struct fake_host *h)
{
    return *h->host.ledger.held[BR_TRACES];
}

/* --- One item --------------------------------------------------------------------------------- */

static void done_counts_as_sent(void **state)
{
    struct fake_host *h = *state;
    struct end e = {0};
    struct br_item *item = received(h, 7, &e);
    assert_true(held(h) == 7);
    br_item_done(item);
    assert_true(held(h) == 0);
    assert_true(sent(h) == 7);
    assert_int_equal(e.n, 0);
    fake_host_iterate(h);
    assert_int_equal(e.n, 1);
    assert_int_equal(e.outcome.verdict, BR_DONE);
}

static void failed_items_count_as_rejected(void **state)
{
    struct fake_host *h = *state;
    struct end e = {0};
    br_item_retry(received(h, 3, &e), BR_STATUS_UNAVAILABLE, 250, "later");
    fake_host_iterate(h);
    assert_int_equal(e.outcome.verdict, BR_RETRY);
    assert_int_equal(e.outcome.delay_ms, 250);
    assert_string_equal(e.outcome.text, "later");
    br_item_reject(received(h, 2, &e), BR_STATUS_INVALID_ARGUMENT, "never");
    fake_host_iterate(h);
    assert_int_equal(e.outcome.verdict, BR_REJECT);
    assert_int_equal(e.n, 2);
    assert_true(rejected(h) == 5);
}

static void partial_success_counts_lost_records_as_dropped(void **state)
{
    struct fake_host *h = *state;
    struct end e = {0};
    br_item_finish(received(h, 10, &e), &(struct br_outcome){.verdict = BR_DONE, .n_rejected = 4});
    fake_host_iterate(h);
    assert_true(sent(h) == 6);
    assert_true(fake_host_dropped(h, BR_TRACES, "partial_success") == 4);
    /* A peer that reports more rejected records than were sent cannot make the ledger wrong. */
    br_item_finish(received(h, 10, &e),
                   &(struct br_outcome){.verdict = BR_DONE, .n_rejected = UINT32_MAX});
    fake_host_iterate(h);
    assert_true(sent(h) == 6);
    assert_true(fake_host_dropped(h, BR_TRACES, "partial_success") == 14);
}

static void partial_reports_stop_at_the_pending_records(void **state)
{
    struct fake_host *h = *state;
    struct end e = {0};
    struct br_item *item = received(h, 5, &e);
    br_item_report(item, BR_RESULT_DROPPED, "filtered", 2);
    br_item_report(item, BR_RESULT_SENT, NULL, 100);
    assert_true(held(h) == 0);
    assert_true(sent(h) == 3);
    assert_true(fake_host_dropped(h, BR_TRACES, "filtered") == 2);
    br_item_done(item);
    fake_host_iterate(h);
    assert_true(sent(h) == 3);
}

static void an_item_that_was_never_consumed_counts_as_rejected(void **state)
{
    struct fake_host *h = *state;
    br_item_free(items_new(&h->host, BR_TRACES, 1, 4));
    br_item_free(NULL);
    assert_true(rejected(h) == 4);
}

/* --- Parts ------------------------------------------------------------------------------------ */

static void write_into(const struct br_item *item, struct wire *out)
{
    struct br_rope rope = {0};
    assert_int_equal(br_item_write(item, &rope), 0);
    assert_int_equal(rope.len, item->size);
    for (uint32_t i = 0; i < rope.count; i++)
        wire_raw(out, rope.slices[i].data, rope.slices[i].len);
    br_rope_release(&rope);
}

static void assert_written(const struct br_item *item, const struct wire *expected)
{
    struct wire got = {0};
    write_into(item, &got);
    assert_int_equal(got.len, expected->len);
    assert_memory_equal(got.data, expected->data, expected->len);
    wire_free(&got);
}

static void add_dictionary(struct br_item *item, bool additions, size_t len)
{
    struct br_buf *buf = br_buf_new(item->host->pool, len + 8);
    assert_non_null(buf);
    uint8_t *body = br_put_varint(br_put_varint(buf->data, BR_TAG(2, BR_WIRE_LEN)), len);
    memset(body, 0, len);
    const struct br_part part = {.kind = BR_PART_DICTIONARY,
                                 .additions = additions,
                                 .buf = buf,
                                 .raw = buf->data,
                                 .raw_len = (uint32_t)((size_t)(body - buf->data) + len),
                                 .body_at = (uint32_t)(body - buf->data)};
    assert_int_equal(br_item_add_part(item, &part), 0);
    br_buf_unref(buf);
}

/* Two fields of 127 and 20 bytes become one field of 147 bytes, whose length takes one more
 * byte. */
static void the_size_is_an_upper_bound_of_the_written_bytes(void **state)
{
    struct fake_host *h = *state;
    static const size_t lens[] = {0, 1, 20, 107, 108, 126, 127, 128, 16363, 16364, 16383, 16384};
    for (size_t i = 0; i < BR_COUNT(lens); i++) {
        for (size_t k = 0; k < BR_COUNT(lens); k++) {
            struct br_item *item = br_item_new(&h->host, BR_PROFILES);
            struct br_rope rope = {0};
            add_dictionary(item, false, lens[i]);
            assert_int_equal(item->size, br_len_size(2, lens[i]));
            add_dictionary(item, true, lens[k]);
            assert_int_equal(br_item_write(item, &rope), 0);
            assert_int_equal(rope.len, br_len_size(2, lens[i] + lens[k]));
            assert_in_range(item->size, rope.len, rope.len + item->parts[1].body_at);
            br_rope_release(&rope);
            br_item_free(item);
        }
    }
}

static void unchanged_parts_keep_their_bytes(void **state)
{
    struct fake_host *h = *state;
    for (int s = 0; s < BR_SIGNALS; s++) {
        struct wire w = {0};
        items_request(&w, (enum br_signal)s, 1, 20, 3);
        wire_str(&w, 99, "a field of the future");
        struct br_item *item = items_walk(&h->host, (enum br_signal)s, w.data, w.len);
        assert_int_equal(item->n_records, 20);
        assert_written(item, &w);
        br_item_free(item);
        wire_free(&w);
    }
}

/* Writes the expected request by hand: the Resource of each ResourceSpans is replaced. */
static void replaced(struct wire *out, const char *schema_first, bool had_resource,
                     const char *new_name)
{
    size_t rs = wire_open(out, 1);
    /* The new Resource is first. The fields before and after the old one follow. */
    if (new_name) {
        size_t resource = wire_open(out, 1);
        if (new_name[0])
            wire_attribute(out, 1, "service.name", new_name);
        wire_close(out, resource);
    }
    if (schema_first)
        wire_str(out, 3, schema_first);
    if (!new_name && had_resource) {
        size_t resource = wire_open(out, 1);
        wire_attribute(out, 1, "service.name", "old");
        wire_close(out, resource);
    }
    size_t scope = wire_open(out, 2);
    size_t span = wire_open(out, 2);
    wire_len(out, 2, "12345678", 8);
    wire_close(out, span);
    wire_close(out, scope);
    wire_close(out, rs);
}

static void set_resource(struct br_item *item, const char *name)
{
    struct wire w = {0};
    if (name[0])
        wire_attribute(&w, 1, "service.name", name);
    struct br_buf *buf = br_buf_new(item->host->pool, w.len);
    if (w.len)
        memcpy(buf->data, w.data, w.len);
    buf->len = (uint32_t)w.len;
    br_item_set_resource(item, &item->parts[0], buf, buf->data, buf->len);
    br_buf_unref(buf);
    wire_free(&w);
}

static void a_new_resource_replaces_the_old_one_at_any_position(void **state)
{
    struct fake_host *h = *state;
    static const struct {
        const char *schema_first;
        bool had;
        const char *name;
    } cases[] = {
        {NULL, true, "new"},  {"schema", true, "new"},
        {NULL, false, "new"}, {"schema", false, "new"},
        {NULL, true, ""},     {"schema", true, "a longer name than it was"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct wire before = {0}, after = {0};
        replaced(&before, cases[i].schema_first, cases[i].had, NULL);
        replaced(&after, cases[i].schema_first, cases[i].had, cases[i].name);
        struct br_item *item = items_walk(&h->host, BR_TRACES, before.data, before.len);
        assert_written(item, &before);
        set_resource(item, "twice replaced");
        set_resource(item, cases[i].name);
        assert_written(item, &after);
        size_t len;
        const uint8_t *resource = br_part_resource(&item->parts[0], &len);
        assert_ptr_equal(resource, item->parts[0].new_resource);
        assert_int_equal(item->size, after.len);
        br_item_free(item);
        wire_free(&before);
        wire_free(&after);
    }
}

static void a_part_without_a_resource_has_an_empty_one(void **state)
{
    struct fake_host *h = *state;
    struct wire w = {0};
    replaced(&w, "schema", false, NULL);
    struct br_item *item = items_walk(&h->host, BR_TRACES, w.data, w.len);
    size_t len = 99;
    (void)br_part_resource(&item->parts[0], &len);
    assert_int_equal(len, 0);
    br_item_free(item);
    wire_free(&w);
}

static void absorbing_moves_parts_and_pending_records(void **state)
{
    struct fake_host *h = *state;
    struct br_item *into = br_item_new(&h->host, BR_TRACES);
    struct wire expected = {0};
    struct end e = {0};
    for (uint32_t i = 0; i < 3; i++) {
        items_traces(&expected, 1, i + 1, i + 1 < 3 ? 1 : 2);
        struct br_item *from = received(h, i + 1, &e);
        from->received_ms = (uint64_t[]){0, 70, 50}[i];
        assert_int_equal(br_item_absorb(into, from), 0);
        assert_int_equal(from->n_parts, 0);
        assert_int_equal(from->n_records, 0);
        assert_int_equal(from->size, 0);
        assert_int_equal(from->n_pending, 0);
        assert_null(from->spans);
        br_item_done(from);
    }
    assert_int_equal(into->received_ms, 50); /* the time of the oldest data */
    assert_int_equal(into->n_records, 6);
    assert_int_equal(into->n_pending, 6);
    assert_null(into->spans);
    assert_written(into, &expected);
    assert_true(held(h) == 6);
    br_item_done(into);
    fake_host_iterate(h);
    assert_int_equal(e.n, 3);
    assert_true(sent(h) == 6);
    wire_free(&expected);
}

static void parts_without_spans_clear_the_list_of_spans(void **state)
{
    struct fake_host *h = *state;
    struct br_item *into = items_new(&h->host, BR_TRACES, 1, 2);
    struct br_item *from = items_new(&h->host, BR_TRACES, 3, 2);
    assert_non_null(into->spans);
    assert_int_equal(br_item_absorb(into, from), 0);
    assert_null(into->spans); /* 2 of 4 spans would be incomplete */
    br_item_done(from);
    br_item_done(into);
    fake_host_iterate(h);
}

static void clearing_parts_keeps_the_pending_records(void **state)
{
    struct fake_host *h = *state;
    struct br_item *item = items_new(&h->host, BR_PROFILES, 1, 9);
    br_item_clear_parts(item);
    assert_int_equal(item->n_records, 0);
    assert_int_equal(item->size, 0);
    assert_int_equal(item->n_pending, 9);
    assert_int_equal(br_pool_live(h->host.pool), 0);
    br_item_done(item);
    fake_host_iterate(h);
}

/* --- Children --------------------------------------------------------------------------------- */

static void a_retryable_child_returns_its_pending_records(void **state)
{
    struct fake_host *h = *state;
    struct end e = {0};
    struct br_item *item = received(h, 5, &e);
    struct br_item *a = items_child(item);
    struct br_item *b = items_child(item);
    struct br_item *c = items_child(item);
    assert_int_equal(a->n_pending, 5); /* the other children have reported all of their records */
    assert_int_equal(b->n_pending + c->n_pending, 0);
    br_item_retry(a, BR_STATUS_UNAVAILABLE, 700, "a");
    br_item_reject(b, BR_STATUS_PERMISSION_DENIED, "b");
    br_item_done(c);
    fake_host_iterate(h);
    assert_int_equal(e.n, 0); /* the parent was not released */
    br_item_release_parent(item);
    fake_host_iterate(h);
    assert_int_equal(e.n, 1);
    assert_int_equal(e.outcome.verdict, BR_RETRY);
    assert_int_equal(e.outcome.status, BR_STATUS_UNAVAILABLE);
    assert_string_equal(e.outcome.text, "a");
    assert_int_equal(e.outcome.delay_ms, 700);
    assert_true(sent(h) == 0);
    assert_true(rejected(h) == 5);
}

static void a_parent_whose_children_ended_first_finishes_when_released(void **state)
{
    struct fake_host *h = *state;
    struct end e = {0};
    struct br_item *item = received(h, 1, &e);
    br_item_done(items_child(item));
    fake_host_iterate(h);
    assert_int_equal(e.n, 0);
    br_item_release_parent(item);
    fake_host_iterate(h);
    assert_int_equal(e.n, 1);
}

static struct br_outcome tried;

static void on_try(struct br_item *child, void *arg)
{
    unsigned *n = arg;
    ++*n;
    tried = child->outcome;
}

static void an_attempt_is_not_folded_and_returns_the_pending_records(void **state)
{
    struct fake_host *h = *state;
    struct end e = {0};
    unsigned n = 0;
    struct br_item *item = received(h, 5, &e);
    struct br_item *first = br_item_attempt(item, on_try, &n);
    assert_int_equal(item->n_pending, 0);
    assert_int_equal(first->n_pending, 5);
    assert_ptr_equal(first->spans, item->spans);
    br_item_retry(first, BR_STATUS_UNAVAILABLE, 0, "not yet");
    fake_host_iterate(h);
    assert_int_equal(n, 1);
    assert_int_equal(tried.verdict, BR_RETRY);
    assert_int_equal(e.n, 0);
    assert_int_equal(item->n_pending, 5);
    br_item_done(br_item_attempt(item, on_try, &n));
    fake_host_iterate(h);
    assert_int_equal(n, 2);
    assert_int_equal(item->n_pending, 0);
    assert_true(sent(h) == 5);
    br_item_done(item);
    fake_host_iterate(h);
    assert_int_equal(e.n, 1);
    assert_int_equal(e.outcome.verdict, BR_DONE);
}

/* Ends two pieces. Three of five records are in the first piece, two in the second. */
static void end_pieces(struct fake_host *h, struct end *e, bool first_accepted)
{
    struct br_item *item = received(h, 5, e);
    struct wire w = {0};
    struct br_item *pieces[2];
    for (uint32_t i = 0; i < 2; i++) {
        wire_clear(&w);
        items_traces(&w, 1 + 3 * i, 3 - i, 1);
        pieces[i] = items_walk(&h->host, BR_TRACES, w.data, w.len);
        br_item_adopt(item, pieces[i]);
        assert_int_equal(pieces[i]->n_pending, 3 - i);
    }
    wire_free(&w);
    br_item_release_parent(item);
    if (first_accepted)
        br_item_done(pieces[0]);
    else
        br_item_reject(pieces[0], BR_STATUS_INTERNAL, "no");
    br_item_reject(pieces[1], BR_STATUS_INTERNAL, "no");
    fake_host_iterate(h);
    assert_int_equal(e->n, 1);
}

static void adopted_pieces_share_the_pending_records(void **state)
{
    struct fake_host *h = *state;
    struct end e = {0};
    end_pieces(h, &e, true);
    assert_int_equal(e.outcome.verdict, BR_DONE);
    assert_int_equal(e.outcome.n_rejected, 2);
    assert_true(sent(h) == 3);
    assert_true(fake_host_dropped(h, BR_TRACES, "partial_success") == 2);
    assert_true(rejected(h) == 0);
}

static void pieces_that_are_all_rejected_are_a_rejection(void **state)
{
    struct fake_host *h = *state;
    struct end e = {0};
    end_pieces(h, &e, false);
    assert_int_equal(e.outcome.verdict, BR_REJECT);
    assert_string_equal(e.outcome.text, "no");
    assert_true(sent(h) == 0);
    assert_true(rejected(h) == 5);
}

/* Once an exporter has returned an item, the exporter's ledger does not change until it receives
 * the item again. */
static void returned_items_do_not_count_for_the_exporter(void **state)
{
    struct fake_host *h = *state;
    struct br_ledger ledger;
    struct end e = {0};
    struct br_item *item = received(h, 5, &e);
    assert_int_equal(br_ledger_init(&ledger, h->host.metrics, "otlp/one"), 0);
    br_pending_enter(&item->pending, BR_TRACES, &ledger);
    br_pending_enter(&item->pending, BR_TRACES, &ledger);
    assert_true(*ledger.received[BR_TRACES] == 5 && *ledger.held[BR_TRACES] == 5);
    br_pending_leave(&item->pending, BR_TRACES);
    br_pending_leave(&item->pending, BR_TRACES);
    assert_true(*ledger.rejected[BR_TRACES] == 5 && *ledger.held[BR_TRACES] == 0);
    assert_true(held(h) == 5 && rejected(h) == 0);
    br_item_report(item, BR_RESULT_SENT, NULL, 2);
    assert_true(*ledger.sent[BR_TRACES] == 0 && *ledger.held[BR_TRACES] == 0);
    br_pending_enter(&item->pending, BR_TRACES, &ledger);
    assert_true(*ledger.received[BR_TRACES] == 8 && *ledger.held[BR_TRACES] == 3);
    br_item_done(item);
    fake_host_iterate(h);
    assert_true(*ledger.sent[BR_TRACES] == 3 && *ledger.held[BR_TRACES] == 0 && sent(h) == 5);
}

static void names_of_signals(void **state)
{
    (void)state;
    assert_string_equal(br_signal_name(BR_TRACES), "traces");
    assert_string_equal(br_signal_name(BR_PROFILES), "profiles");
    assert_string_equal(br_signal_records(BR_TRACES), "spans");
    assert_string_equal(br_signal_records(BR_PROFILES), "samples");
}

SUITE(item)
{
    const struct CMUnitTest tests[] = {
        TEST(done_counts_as_sent),
        TEST(failed_items_count_as_rejected),
        TEST(partial_success_counts_lost_records_as_dropped),
        TEST(partial_reports_stop_at_the_pending_records),
        TEST(an_item_that_was_never_consumed_counts_as_rejected),
        TEST(the_size_is_an_upper_bound_of_the_written_bytes),
        TEST(unchanged_parts_keep_their_bytes),
        TEST(a_new_resource_replaces_the_old_one_at_any_position),
        TEST(a_part_without_a_resource_has_an_empty_one),
        TEST(absorbing_moves_parts_and_pending_records),
        TEST(parts_without_spans_clear_the_list_of_spans),
        TEST(clearing_parts_keeps_the_pending_records),
        TEST(a_retryable_child_returns_its_pending_records),
        TEST(a_parent_whose_children_ended_first_finishes_when_released),
        TEST(an_attempt_is_not_folded_and_returns_the_pending_records),
        TEST(adopted_pieces_share_the_pending_records),
        TEST(pieces_that_are_all_rejected_are_a_rejection),
        TEST(returned_items_do_not_count_for_the_exporter),
        TEST(names_of_signals),
    };
    return RUN(tests, NULL, NULL);
}
