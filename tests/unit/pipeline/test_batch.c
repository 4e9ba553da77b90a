/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <inttypes.h>

#include "base/mem.h"
#include "pipeline/batch.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/otlp_text.h"
#include "tests/support/test.h"

struct bed {
    struct fake_bed fake;
    struct br_batch_config config; /* initially a timeout of 200 ms and batches of 10 records */
    struct br_batcher *batcher;
    enum br_signal signal;
    unsigned n_ended;
};

static const struct br_batch_metrics metrics = {
    .sizes = "sizes", .sizes_bytes = "bytes", .by_size = "by_size", .by_timeout = "by_timeout"};

static int setup(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    fake_bed_begin(&b->fake);
    b->config = (struct br_batch_config){.timeout_ms = 200, .min_size = 10, .metrics = &metrics};
    *state = b;
    return 0;
}

static void on_end(void *arg)
{
    struct bed *b = arg;
    b->n_ended++;
}

static void make(struct bed *b, enum br_signal signal)
{
    b->signal = signal;
    b->batcher = br_batcher_new(&b->fake.node, signal, &b->config, &b->fake.sink.consumer);
    if (b->batcher)
        br_batcher_on_end(b->batcher, on_end, b);
}

/* Ends the components in the order in which a graph ends them: downstream components first. */
static void end(struct bed *b)
{
    fake_sink_release(&b->fake.sink, FAKE_RETRY);
    br_batcher_free(b->batcher);
    b->batcher = NULL;
    fake_host_iterate(b->fake.h);
    fake_sink_release(&b->fake.sink, FAKE_RETRY);
    fake_host_iterate(b->fake.h);
    fake_host_check_ledger(b->fake.h);
}

static int teardown(void **state)
{
    struct bed *b = *state;
    end(b);
    fake_bed_end(&b->fake);
    free(b);
    return 0;
}

static void add(struct bed *b, uint64_t first, uint32_t n)
{
    br_batcher_add(b->batcher,
                   fake_tally_item(&b->fake.tally, &b->fake.h->host, b->signal, first, n));
    fake_host_iterate(b->fake.h);
}

static size_t once(const struct bed *b, uint64_t first, size_t n)
{
    return fake_sink_once(&b->fake.sink, b->signal, first, n);
}

/* --- Accounting of memory --------------------------------------------------------------------- */

/* After many batches, the accounted memory still equals the memory that the batcher holds. */
static void sent_batches_are_not_counted(void **state)
{
    struct bed *b = *state;
    for (enum br_signal s = BR_TRACES; s <= BR_PROFILES; s++) {
        size_t before[BR_HOLDERS];
        for (int i = 0; i < BR_HOLDERS; i++)
            before[i] = br_mem_held((enum br_holder)i);
        make(b, s);
        for (uint32_t n = 0; n < 1000; n++)
            add(b, n * 10, 10);
        end(b);
        for (int i = BR_HOLDER_PROCESS + 1; i < BR_HOLDERS; i++)
            if (before[i] != br_mem_held((enum br_holder)i))
                fail_msg("%s: %zu bytes, then %zu", br_holder_name((enum br_holder)i), before[i],
                         br_mem_held((enum br_holder)i));
    }
    assert_int_equal(b->fake.sink.n_items, 2000);
}

/* --- When a batch is sent --------------------------------------------------------------------- */

static void batches_are_sent_by_size(void **state)
{
    struct bed *b = *state;
    for (enum br_signal s = BR_TRACES; s <= BR_PROFILES; s++) {
        make(b, s);
        unsigned before = b->fake.sink.n_items;
        add(b, 0, 4);
        add(b, 4, 5);
        assert_int_equal(b->fake.sink.n_items, before);
        add(b, 9, 1);
        assert_int_equal(b->fake.sink.n_items, before + 1);
        assert_int_equal(b->fake.sink.largest, 10);
        assert_int_equal(once(b, 0, 10), 10);
        assert_true(br_batcher_idle(b->batcher));
        end(b);
    }
    assert_int_equal(b->fake.tally.n_done, 6);
    assert_true(fake_host_metric(b->fake.h, "by_size", "exporter=\"test\"") == 2);
    assert_true(fake_host_metric(b->fake.h, "by_timeout", "exporter=\"test\"") == 0);
    assert_true(fake_host_metric(b->fake.h, "sizes_count", "exporter=\"test\"") ==
                fake_host_metric(b->fake.h, "bytes_count", "exporter=\"test\""));
}

static void the_timeout_starts_with_the_first_item(void **state)
{
    struct bed *b = *state;
    make(b, BR_TRACES);
    fake_host_advance(b->fake.h, 1000);
    uint64_t start = b->fake.h->now_ms;
    add(b, 0, 1);
    fake_host_advance(b->fake.h, 150);
    add(b, 1, 1);
    fake_host_advance(b->fake.h, 49);
    assert_int_equal(b->fake.sink.n_items, 0);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 1);
    assert_int_equal(b->fake.sink.last_ms, start + 200);
    assert_int_equal(once(b, 0, 2), 2);
    fake_host_advance(b->fake.h, 100);
    add(b, 2, 1); /* the timeout of the next batch starts with its first item */
    fake_host_advance(b->fake.h, 199);
    assert_int_equal(b->fake.sink.n_items, 1);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 2);
    fake_host_advance(b->fake.h, 10000);
    assert_int_equal(b->fake.sink.n_items, 2);
}

static void a_full_batch_restarts_the_timeout(void **state)
{
    struct bed *b = *state;
    make(b, BR_TRACES);
    add(b, 0, 5);
    fake_host_advance(b->fake.h, 190);
    add(b, 5, 5);
    assert_int_equal(b->fake.sink.n_items, 1);
    add(b, 10, 1);
    fake_host_advance(b->fake.h, 199);
    assert_int_equal(b->fake.sink.n_items, 1);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 2);
}

static void at_once_without_a_timeout(void **state)
{
    struct bed *b = *state;
    b->config.timeout_ms = 0;
    make(b, BR_PROFILES);
    add(b, 0, 1);
    add(b, 1, 1);
    assert_int_equal(b->fake.sink.n_items, 2);
}

struct named {
    struct br_consumer consumer;
    struct fake_sink *sink;
    unsigned n;
};

static void on_named(struct br_consumer *self, struct br_item *item)
{
    struct named *named = br_container_of(self, struct named, consumer);
    const char *tenant = br_item_metadata(item, "X-Scope-OrgID");
    assert_non_null(tenant);
    assert_string_equal(tenant, "blue");
    named->n++;
    br_consume(&named->sink->consumer, item);
}

/* Each batch and each of its pieces has the metadata of its sender. */
static void batches_keep_the_metadata(void **state)
{
    struct bed *b = *state;
    b->config.metadata = "x-scope-orgid\0blue";
    b->config.metadata_len = sizeof "x-scope-orgid\0blue";
    b->config.max_size = 10;
    for (unsigned i = 0; i < 4; i++) {
        struct named named = {{on_named}, &b->fake.sink, 0};
        b->config.late = i / 2;
        b->signal = i % 2 ? BR_PROFILES : BR_TRACES;
        b->batcher = br_batcher_new(&b->fake.node, b->signal, &b->config, &named.consumer);
        add(b, 0, 25);
        add(b, 25, 10);
        fake_host_advance(b->fake.h, 200);
        assert_int_equal(named.n, 4);
        end(b);
    }
}

/* The Collector's README: "If this is set to 0, batch size is ignored and data will be sent
 * immediately, subject to only send_batch_max_size". */
static void at_once_without_a_size(void **state)
{
    struct bed *b = *state;
    b->config.min_size = 0;
    b->config.max_size = 5;
    for (enum br_signal s = BR_TRACES; s <= BR_PROFILES; s++) {
        make(b, s);
        unsigned before = b->fake.sink.n_items;
        b->fake.sink.largest = 0;
        for (uint64_t i = 0; i < 100; i++)
            add(b, i * 7, 7);
        assert_int_equal(b->fake.sink.n_items - before, 200);
        assert_int_equal(b->fake.sink.largest, 5);
        assert_int_equal(once(b, 0, 700), 700);
        assert_true(br_batcher_idle(b->batcher));
        end(b);
    }
}

/* The Collector's batch_processor.go, processItem: batches are sent while there are
 * send_batch_size records. The remaining records have the whole timeout. */
static void remainders_wait_for_the_timeout(void **state)
{
    struct bed *b = *state;
    b->config.max_size = 12;
    for (enum br_signal s = BR_TRACES; s <= BR_PROFILES; s++) {
        make(b, s);
        unsigned before = b->fake.sink.n_items;
        add(b, 0, 5);
        fake_host_advance(b->fake.h, 150);
        add(b, 5, 9); /* of 14 records, 12 are sent and 2 remain */
        assert_int_equal(b->fake.sink.n_items - before, 1);
        fake_host_advance(b->fake.h, 199);
        assert_int_equal(b->fake.sink.n_items - before, 1);
        fake_host_advance(b->fake.h, 1);
        assert_int_equal(b->fake.sink.n_items - before, 2);
        assert_int_equal(once(b, 0, 14), 14);
        add(b, 100, 15); /* 12 are sent, and 3 remain for the next batch */
        add(b, 115, 9);
        assert_int_equal(b->fake.sink.n_items - before, 4);
        assert_int_equal(once(b, 100, 24), 24);
        assert_true(br_batcher_idle(b->batcher));
        end(b);
    }
}

static void flush_sends_the_batch(void **state)
{
    struct bed *b = *state;
    make(b, BR_PROFILES);
    br_batcher_flush(b->batcher); /* the batcher is empty, so this has no effect */
    add(b, 0, 3);
    br_batcher_flush(b->batcher);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.sink.n_items, 1);
    assert_int_equal(b->n_ended, 1);
    assert_true(br_batcher_idle(b->batcher));
}

static void sizes_in_bytes(void **state)
{
    struct bed *b = *state;
    struct wire w = {0};
    items_traces(&w, 0, 1, 1);
    b->config.bytes = true;
    b->config.min_size = 3 * w.len;
    b->config.max_size = 3 * w.len;
    make(b, BR_TRACES);
    add(b, 0, 1);
    add(b, 12, 1); /* spans with the numbers from 12 on, which have equal sizes in bytes */
    assert_int_equal(b->fake.sink.n_items, 0);
    add(b, 24, 1);
    assert_int_equal(b->fake.sink.n_items, 1);
    add(b, 100, 40);
    fake_host_advance(b->fake.h, 200);
    assert_in_range(b->fake.sink.largest_size, 1, 3 * w.len);
    assert_int_equal(once(b, 100, 40), 40);
    wire_free(&w);
}

static void cut_at_the_maximum(void **state)
{
    struct bed *b = *state;
    b->config.max_size = 10;
    for (enum br_signal s = BR_TRACES; s <= BR_PROFILES; s++) {
        make(b, s);
        unsigned before = b->fake.sink.n_items;
        b->fake.sink.largest = 0;
        add(b, 0, 9);
        add(b, 9, 28);
        fake_host_advance(b->fake.h, 200);
        assert_int_equal(b->fake.sink.largest, 10);
        assert_in_range(b->fake.sink.n_items - before, 4, 6);
        assert_int_equal(once(b, 0, 37), 37);
        end(b);
    }
}

static void requests_without_anything_are_done(void **state)
{
    struct bed *b = *state;
    make(b, BR_TRACES);
    br_batcher_add(b->batcher, items_walk(&b->fake.h->host, BR_TRACES, NULL, 0));
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.sink.n_items, 0);
    add(b, 0, 0); /* a resource without spans is kept */
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.sink.n_items, 1);
    assert_int_equal(b->fake.tally.n_done, 1);
}

/* --- Early and late acknowledgement ----------------------------------------------------------- */

static void early_failed_batches_are_retried(void **state)
{
    struct bed *b = *state;
    make(b, BR_TRACES);
    b->fake.sink.first_fail = 3;
    add(b, 0, 10);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_int_equal(b->fake.sink.n_items, 1);
    assert_true(*b->fake.h->host.ledger.held[BR_TRACES] == 10);
    fake_host_advance(b->fake.h, 200 + 400 + 800);
    assert_int_equal(b->fake.sink.n_items, 4);
    assert_int_equal(once(b, 0, 10), 10);
    assert_true(br_batcher_idle(b->batcher));
}

static void early_the_retry_hint_is_used(void **state)
{
    struct bed *b = *state;
    make(b, BR_TRACES);
    b->fake.sink.first_fail = 1;
    b->fake.sink.delay_ms = 5000;
    add(b, 0, 10);
    fake_host_advance(b->fake.h, 4999);
    assert_int_equal(b->fake.sink.n_items, 1);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 2);
}

static void early_rejected_batches_are_dropped_and_counted(void **state)
{
    struct bed *b = *state;
    make(b, BR_PROFILES);
    b->fake.sink.verdict = FAKE_REJECT;
    add(b, 0, 10);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_true(fake_host_dropped(b->fake.h, BR_PROFILES, "rejected") == 10);
    assert_true(br_batcher_idle(b->batcher));
}

static void early_final_failures_are_not_retried(void **state)
{
    struct bed *b = *state;
    b->config.final = true;
    make(b, BR_TRACES);
    b->fake.sink.verdict = FAKE_RETRY;
    add(b, 0, 10);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "retries_exhausted") == 10);
    assert_int_equal(b->fake.sink.n_items, 1);
}

static void late_items_get_the_result_of_their_batch(void **state)
{
    struct bed *b = *state;
    b->config.late = true;
    make(b, BR_TRACES);
    b->fake.sink.verdict = FAKE_HOLD;
    static const enum fake_verdict verdicts[] = {FAKE_DONE, FAKE_RETRY, FAKE_REJECT};
    for (unsigned i = 0; i < 3; i++) {
        add(b, i * 10, 5);
        add(b, i * 10 + 5, 5);
        assert_int_equal(b->fake.tally.n, 2 * i);
        fake_sink_release(&b->fake.sink, verdicts[i]);
        fake_host_iterate(b->fake.h);
        assert_int_equal(b->fake.tally.n, 2 * (i + 1));
    }
    assert_int_equal(b->fake.tally.n_done, 2);
    assert_int_equal(b->fake.tally.n_retry, 2);
    assert_int_equal(b->fake.tally.n_reject, 2);
    assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == 10);
    assert_true(*b->fake.h->host.ledger.rejected[BR_TRACES] == 20);
}

/* Sends two items as three or more pieces, all in progress. Returns the number of pieces. */
static unsigned late_pieces(struct bed *b)
{
    b->config.late = b->config.again = true;
    b->config.max_size = 10;
    make(b, BR_TRACES);
    b->fake.sink.verdict = FAKE_HOLD;
    add(b, 0, 9);
    add(b, 9, 21);
    assert_in_range(b->fake.sink.n_held, 3, 4);
    return b->fake.sink.n_held;
}

/* If one piece of a batch must be sent again, the accepted pieces are not. */
static void late_failed_pieces_are_retried(void **state)
{
    struct bed *b = *state;
    unsigned n = late_pieces(b);
    fake_sink_release_one(&b->fake.sink, FAKE_RETRY);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n, 0);
    b->fake.sink.verdict = FAKE_DONE;
    fake_host_advance(b->fake.h, 2000);
    assert_int_equal(b->fake.tally.n_done, 2);
    assert_int_equal(b->fake.tally.last.n_rejected, 0);
    assert_int_equal(b->fake.sink.n_items, n + 1);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 0, 30), 30);
    assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == 30);
}

/* OTLP, "Partial Success": the senders learn how many records were rejected, and do not retry
 * them. */
static void late_retries_have_a_time_limit(void **state)
{
    struct bed *b = *state;
    (void)late_pieces(b);
    fake_sink_release_one(&b->fake.sink, FAKE_RETRY);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    b->fake.sink.verdict = FAKE_RETRY;
    fake_host_advance(b->fake.h, BR_BATCH_RETRY_MS - 1000);
    assert_int_equal(b->fake.tally.n, 0);
    fake_host_advance(b->fake.h, 3000);
    assert_int_equal(b->fake.tally.n_done, 2);
    size_t once = fake_sink_once(&b->fake.sink, BR_TRACES, 0, 30);
    assert_in_range(once, 20, 29);
    assert_true(b->fake.tally.last.n_rejected > 0 && b->fake.tally.last.text[0]);
    assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == (double)once);
}

/* All pieces failed: the senders are notified at once, and can send everything again. */
static void late_pieces_that_all_fail_return_to_the_senders(void **state)
{
    struct bed *b = *state;
    unsigned n = late_pieces(b);
    fake_sink_release(&b->fake.sink, FAKE_RETRY);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_retry, 2);
    assert_int_equal(b->fake.sink.n_items, n);
}

/* At shutdown, the batcher returns the items to their senders as retryable, including records that
 * were accepted. These records are duplicated once. */
static void late_freed_before_the_retry_of_a_piece(void **state)
{
    struct bed *b = *state;
    (void)late_pieces(b);
    fake_sink_release_one(&b->fake.sink, FAKE_RETRY);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    br_batcher_free(b->batcher);
    b->batcher = NULL;
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_retry, 2);
}

struct watch {
    struct br_consumer consumer;
    struct fake_sink *sink;
    unsigned n_waiting;
};

static void on_watch(struct br_consumer *self, struct br_item *item)
{
    struct watch *w = br_container_of(self, struct watch, consumer);
    w->n_waiting += item->sender == BR_SENDER_WAITS;
    br_consume(&w->sink->consumer, item);
}

/* A component that takes an item's data, and then fails the item as retryable, as a merging
 * component does. It accepts all later items. */
struct capture {
    struct br_consumer consumer;
    struct fake_sink *sink;
    unsigned n_refusals;
};

static void on_take(struct br_consumer *self, struct br_item *item)
{
    struct capture *t = br_container_of(self, struct capture, consumer);
    if (!t->n_refusals) {
        br_consume(&t->sink->consumer, item);
        return;
    }
    t->n_refusals--;
    br_item_clear_parts(item);
    br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "not now");
}

/* A retry sends the data again. Failed records do not count as done, even if the downstream
 * component took the item's data. */
static void late_data_taken_by_a_failing_component_is_kept(void **state)
{
    struct bed *b = *state;
    b->config.late = b->config.again = true;
    for (unsigned cut = 0; cut < 2; cut++) {
        struct capture t = {{on_take}, &b->fake.sink, 1};
        b->config.max_size = cut ? 10 : 0;
        struct br_batcher *late = br_batcher_new(&b->fake.node, BR_TRACES, &b->config, &t.consumer);
        br_batcher_add(late,
                       fake_tally_item(&b->fake.tally, &b->fake.h->host, BR_TRACES, cut * 100, 25));
        br_batcher_flush(late);
        fake_host_advance(b->fake.h, 2000);
        assert_int_equal(b->fake.tally.n_retry, 1);
        assert_int_equal(b->fake.tally.n_done, cut);
        br_batcher_free(late);
    }
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 100, 25), 25);
}

/* A downstream component can see whether a sender waits for the delivery of the batch. */
static void late_batches_are_marked_as_waiting(void **state)
{
    struct bed *b = *state;
    for (unsigned late = 0; late < 2; late++) {
        struct watch w = {{on_watch}, &b->fake.sink, 0};
        b->config.late = late;
        b->signal = BR_TRACES;
        b->config.max_size = 10;
        b->batcher = br_batcher_new(&b->fake.node, b->signal, &b->config, &w.consumer);
        add(b, late * 100, 25);
        assert_int_equal(w.n_waiting, late * 3);
        end(b);
    }
}

struct share {
    uint32_t n_rejected;
    enum br_verdict verdict;
};

static void on_share(struct br_item *item, void *arg)
{
    struct share *s = arg;
    *s = (struct share){item->outcome.n_rejected, item->outcome.verdict};
}

static void add_three(struct bed *b, struct share *shares)
{
    static const uint32_t n[] = {1, 3, 6};
    for (unsigned i = 0, first = 0; i < 3; first += n[i], i++) {
        struct br_item *item = items_new(&b->fake.h->host, b->signal, first, n[i]);
        item->done = on_share;
        item->done_arg = &shares[i];
        br_batcher_add(b->batcher, item);
    }
    fake_host_iterate(b->fake.h);
}

/* Five of ten records were rejected: the items of 1, 3 and 6 records report 0, 2 and 3, not five
 * each. */
static void late_partial_rejections_are_divided_among_items(void **state)
{
    struct bed *b = *state;
    struct share shares[3];
    b->config.late = true;
    b->fake.sink.n_rejected = 5;
    make(b, BR_TRACES);
    add_three(b, shares);
    assert_int_equal(shares[0].n_rejected, 0);
    assert_int_equal(shares[1].n_rejected, 2);
    assert_int_equal(shares[2].n_rejected, 3);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "partial_success") == 5);
}

/* One of two pieces was rejected: half of the item has arrived, and must not be sent again. */
static void late_rejected_pieces_are_a_partial_success(void **state)
{
    struct bed *b = *state;
    struct share shares[3];
    b->config.late = true;
    b->config.max_size = 5;
    make(b, BR_TRACES);
    b->fake.sink.verdict = FAKE_HOLD;
    add_three(b, shares);
    assert_int_equal(b->fake.sink.n_held, 2);
    fake_sink_release_one(&b->fake.sink, FAKE_REJECT);
    fake_sink_release_one(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    for (int i = 0; i < 3; i++)
        assert_int_equal(shares[i].verdict, BR_DONE);
    assert_int_equal(shares[0].n_rejected + shares[1].n_rejected + shares[2].n_rejected, 5);
    assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == 5);
    assert_true(*b->fake.h->host.ledger.rejected[BR_TRACES] +
                    fake_host_dropped(b->fake.h, BR_TRACES, NULL) ==
                5);
}

/* --- Limits of held data ---------------------------------------------------------------------- */

static double held(struct bed *b)
{
    return *b->fake.h->host.ledger.held[b->signal];
}

/* While the next component fails, the amount of held data stays bounded. Afterwards all of it is
 * delivered. */
static void check_bound(struct bed *b, uint32_t n, double most, bool slow)
{
    b->fake.sink.verdict = slow ? FAKE_HOLD : FAKE_RETRY;
    b->fake.sink.delay_ms = 1000;
    uint64_t first = 0;
    for (int i = 0; i < 400; i++, first += n) {
        add(b, first % 90000, n);
        fake_host_advance(b->fake.h, 300);
        assert_true(held(b) <= most);
    }
    assert_true(b->fake.tally.n_retry > 0);
    assert_int_equal(b->fake.tally.n_done + b->fake.tally.n_retry, 400);
    b->fake.sink.verdict = FAKE_DONE;
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    br_batcher_flush(b->batcher);
    fake_host_advance(b->fake.h, 30000);
    assert_true(held(b) == 0);
    assert_true(br_batcher_idle(b->batcher));
    assert_true(*b->fake.h->host.ledger.sent[b->signal] == (double)b->fake.tally.n_done * n);
}

#define WAITING (BR_BATCH_WAIT_RECORDS + 200.0)

static void a_failing_next_component_causes_backpressure(void **state)
{
    struct bed *b = *state;
    b->config.min_size = 200;
    make(b, BR_TRACES);
    check_bound(b, 200, BR_BATCH_KEPT_MAX * 200 + WAITING, false);
}

/* The bound also applies to batches that are smaller than the configured size and are sent because
 * of the timeout. */
static void small_batches_are_bounded(void **state)
{
    struct bed *b = *state;
    b->config.min_size = 30000;
    make(b, BR_PROFILES);
    check_bound(b, 200, BR_BATCH_KEPT_MAX * 200 + 30000 + 200, false);
}

static void memory_is_bounded_without_a_size(void **state)
{
    struct bed *b = *state;
    b->config.min_size = 0;
    make(b, BR_TRACES);
    check_bound(b, 200, BR_BATCH_KEPT_MAX * 200 + WAITING, false);
}

static void memory_is_bounded_without_a_timeout(void **state)
{
    struct bed *b = *state;
    b->config.timeout_ms = 0;
    make(b, BR_TRACES);
    check_bound(b, 200, BR_BATCH_KEPT_MAX * 200 + WAITING, false);
}

static void a_silent_next_component_causes_backpressure(void **state)
{
    struct bed *b = *state;
    b->config.min_size = 200;
    make(b, BR_TRACES);
    check_bound(b, 200, BR_BATCH_OUT_MAX * 200 + WAITING, true);
}

static void many_small_batches_in_one_iteration_are_accepted(void **state)
{
    struct bed *b = *state;
    b->config.min_size = 1;
    make(b, BR_TRACES);
    for (uint64_t i = 0; i < 100; i++) /* all of these items arrive in one loop iteration */
        br_batcher_add(b->batcher,
                       fake_tally_item(&b->fake.tally, &b->fake.h->host, BR_TRACES, i, 1));
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.tally.n_done, 100);
    assert_int_equal(once(b, 0, 100), 100);
}

/* --- Shutdown --------------------------------------------------------------------------------- */

static void freed_early_batches_are_dropped_for_shutdown(void **state)
{
    struct bed *b = *state;
    make(b, BR_TRACES);
    b->fake.sink.first_fail = 1;
    b->fake.sink.delay_ms = 60000;
    add(b, 0, 10);
    add(b, 10, 3);
    br_batcher_free(b->batcher);
    b->batcher = NULL;
    fake_host_iterate(b->fake.h);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "shutdown") == 13);
    br_batcher_free(NULL);
}

/* If batches are in progress when the batcher is freed, each later finishes with its own result. */
static void freed_early_batches_in_progress_may_finish(void **state)
{
    struct bed *b = *state;
    make(b, BR_TRACES);
    b->fake.sink.verdict = FAKE_HOLD;
    add(b, 0, 10);
    add(b, 10, 10);
    br_batcher_free(b->batcher);
    b->batcher = NULL;
    fake_host_iterate(b->fake.h);
    fake_sink_release_one(&b->fake.sink, FAKE_DONE);
    fake_sink_release_one(&b->fake.sink, FAKE_RETRY);
    fake_host_iterate(b->fake.h);
    assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == 10);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "shutdown") == 10);
}

static void freed_late_items_return_to_their_senders(void **state)
{
    struct bed *b = *state;
    b->config.late = true;
    make(b, BR_TRACES);
    b->fake.sink.verdict = FAKE_HOLD;
    add(b, 0, 10);
    add(b, 10, 3);
    br_batcher_free(b->batcher);
    b->batcher = NULL;
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_retry, 2);
}

/* --- Random arrivals and answers -------------------------------------------------------------- */

/* Every record is delivered exactly once, or its sender receives an error, or its batch is
 * rejected. This holds for all sizes, times and answers. */
static void one_run(uint64_t seed)
{
    struct bed *b;
    setup((void **)&b);
    uint64_t r = fake_random(&seed), first = 0, n_taken = 0;
    b->config.late = r & 1;
    b->config.timeout_ms = (r >> 1 & 3) * 60;
    b->config.min_size = (r >> 3 & 3) * 25;
    b->config.max_size = r >> 5 & 1 ? b->config.min_size + (r >> 6 & 31) : 0;
    b->config.bytes = (r >> 11 & 7) == 0;
    if (b->config.bytes) {
        b->config.min_size *= 120;
        b->config.max_size *= 120;
    }
    b->fake.sink.late_ms = (uint32_t)(r >> 14 & 127) + 1;
    make(b, r >> 13 & 1 ? BR_PROFILES : BR_TRACES);
    b->fake.sink.verdict = FAKE_RANDOM;
    b->fake.sink.seed = seed;
    for (int i = 0; i < 60; i++) {
        uint32_t n = (uint32_t)(fake_random(&seed) % 30);
        add(b, first, n);
        first += n;
        n_taken++;
        fake_host_advance(b->fake.h, fake_random(&seed) % 50);
    }
    br_batcher_flush(b->batcher);
    fake_host_advance(b->fake.h, 600000);
    assert_int_equal(b->fake.tally.n, n_taken);
    if (!br_batcher_idle(b->batcher))
        fail_msg("seed %llu: not idle", (unsigned long long)seed);
    double delivered = (double)once(b, 0, first);
    if (fake_sink_twice(&b->fake.sink, b->signal))
        fail_msg("seed %llu: delivered twice", (unsigned long long)seed);
    const struct br_ledger *l = &b->fake.h->host.ledger;
    assert_true(*l->sent[b->signal] == delivered);
    assert_true(*l->held[b->signal] == 0);
    assert_true(*l->received[b->signal] == (double)first);
    teardown((void **)&b);
}

static void records_arrive_once_or_the_sender_learns_of_it(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++)
        one_run(seed * 7919);
}

/* --- Memory ----------------------------------------------------------------------------------- */

struct plan {
    enum br_signal signal;
    bool late, cut;
};

static void scenario(void *arg)
{
    const struct plan *plan = arg;
    struct bed *b;
    unsigned n = 0;
    setup((void **)&b);
    b->config.late = plan->late;
    b->config.metadata = "tenant\0blue";
    b->config.metadata_len = sizeof "tenant\0blue";
    b->config.max_size = plan->cut ? 10 : 0;
    b->fake.sink.first_fail = 1;
    fault_start();
    make(b, plan->signal);
    for (uint64_t i = 0; b->batcher && i < 3; i++) {
        struct br_item *item =
            fake_tally_item(&b->fake.tally, &b->fake.h->host, plan->signal, i * 6, 6);
        n += item != NULL;
        if (item)
            br_batcher_add(b->batcher, item);
    }
    fake_host_advance(b->fake.h, 150);
    fake_host_advance(b->fake.h, 1000);
    fault_stop();
    fake_host_advance(b->fake.h, 20000); /* memory is available again: all held items must leave */
    assert_int_equal(b->fake.tally.n, n);
    assert_true(!b->batcher || br_batcher_idle(b->batcher));
    assert_int_equal(fake_sink_twice(&b->fake.sink, plan->signal), 0);
    assert_int_equal(b->fake.tally.n_reject, 0);
    double sent = (double)once(b, 0, 18);
    assert_true(*b->fake.h->host.ledger.sent[plan->signal] == sent);
    assert_true(fault_failed() || plan->late || sent == 18);
    teardown((void **)&b);
}

static void nothing_is_kept_without_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct plan plan = {i & 1 ? BR_PROFILES : BR_TRACES, i & 2, i & 4};
        fault_each("batch", scenario, &plan);
    }
}

/* --- Large requests --------------------------------------------------------------------------- */

static void on_large_done(struct br_item *item, void *arg)
{
    struct fake_tally *t = arg;
    t->n++;
    t->n_done += item->outcome.verdict == BR_DONE;
    t->n_retry += item->outcome.verdict == BR_RETRY;
    t->n_reject += item->outcome.verdict == BR_REJECT;
}

static struct br_item *watch(struct bed *b, struct br_item *item)
{
    br_item_received(item);
    item->done = on_large_done;
    item->done_arg = &b->fake.tally;
    return item;
}

/* Returns a request of `n` records. The name of the profile's type is a text of `len` bytes. */
static struct br_item *large_item(struct bed *b, uint64_t first, uint32_t n, size_t len)
{
    struct br_str json = {0};
    char *text = malloc(len + 1);
    assert_non_null(text);
    memset(text, 'x', len);
    text[0] = (char)('a' + first % 26);
    text[len] = 0;
    br_str_puts(&json, "{'resourceProfiles':[{'scopeProfiles':[{'profiles':[{'sampleType':"
                       "{'typeStrindex':1},'samples':[");
    for (uint32_t i = 0; i < n; i++)
        br_str_printf(&json, "%s{'values':[%" PRIu64 "]}", i ? "," : "", first + i);
    br_str_printf(&json, "]}]}]}],'dictionary':{'stringTable':['','%s']}}", text);
    assert_false(json.failed);
    struct br_item *item = otlp_text_item(&b->fake.h->host, BR_PROFILES, json.data);
    br_str_release(&json);
    free(text);
    return watch(b, item);
}

/* The memory of a large batch is released after it was sent. */
static void memory_of_large_batches_is_released(void **state)
{
    struct bed *b = *state;
    b->config.min_size = 3;
    make(b, BR_PROFILES);
    size_t before = br_mem_live();
    br_batcher_add(b->batcher, large_item(b, 0, 3, 12u << 20));
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.sink.n_items, 1);
    assert_in_range(br_mem_live(), 0, before + (5u << 20));
}

/* A destination that records the addresses of the buffers of its items. */
struct buffer_check {
    struct br_consumer consumer;
    const uint8_t *raw[4];
    uint32_t n_samples[4];
    unsigned n;
};

static void on_buffer_check(struct br_consumer *self, struct br_item *item)
{
    struct buffer_check *l = br_container_of(self, struct buffer_check, consumer);
    assert_in_range(l->n, 0, 3);
    l->n_samples[l->n] = item->n_records;
    l->raw[l->n++] = item->n_parts ? item->parts[0].raw : NULL;
    br_item_done(item);
}

/* Sends one sample, and then an item that fills a batch. The sample is sent first, and the large
 * item follows unchanged. */
static void check_alone(struct bed *b, struct br_item *large, uint32_t n)
{
    struct buffer_check l = {.consumer.consume = on_buffer_check};
    const uint8_t *raw = large->parts[0].raw;
    b->batcher = br_batcher_new(&b->fake.node, BR_PROFILES, &b->config, &l.consumer);
    add(b, 100, 1);
    assert_int_equal(l.n, 0);
    br_batcher_add(b->batcher, large);
    fake_host_iterate(b->fake.h);
    assert_int_equal(l.n, 2);
    assert_int_equal(l.n_samples[0], 1);
    assert_ptr_not_equal(l.raw[0], raw);
    assert_int_equal(l.n_samples[1], n);
    assert_ptr_equal(l.raw[1], raw);
    add(b, 101, 1); /* later items are merged again */
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(l.n, 3);
    assert_int_equal(l.n_samples[2], 1);
    assert_int_equal(b->fake.tally.n_done, 3);
    end(b);
    b->fake.tally = (struct fake_tally){0};
}

/* An item that fills a batch by itself is not merged, because merging would only cost CPU time. */
static void profiles_that_fill_a_batch_are_not_merged(void **state)
{
    struct bed *b = *state;
    b->signal = BR_PROFILES;
    for (int late = 0; late < 2; late++) {
        b->config.late = late;
        check_alone(b, fake_tally_item(&b->fake.tally, &b->fake.h->host, BR_PROFILES, 0, 10), 10);
        check_alone(b, large_item(b, 0, 3, 2u << 20), 3);
    }
}

static void items_larger_than_any_batch_are_rejected(void **state)
{
    struct bed *b = *state;
    b->config.merge_bytes = 64 << 10;
    make(b, BR_PROFILES);
    br_batcher_add(b->batcher, large_item(b, 0, 3, 100 << 10));
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_reject, 1);
    assert_int_equal(b->fake.tally.n_retry, 0);
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.sink.n_items, 0);
    br_batcher_add(b->batcher, large_item(b, 0, 3, 1 << 10)); /* other items are not affected */
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_int_equal(b->fake.sink.n_items, 1);
}

static void items_beyond_the_batch_send_it(void **state)
{
    struct bed *b = *state;
    b->config.merge_bytes = 64 << 10;
    make(b, BR_PROFILES);
    for (unsigned i = 0; i < 5; i++) {
        br_batcher_add(b->batcher, large_item(b, i, 1, 25 << 10));
        fake_host_iterate(b->fake.h);
    }
    assert_int_equal(b->fake.tally.n_done, 5);
    assert_int_equal(b->fake.tally.n_reject + b->fake.tally.n_retry, 0);
    fake_host_advance(b->fake.h, 1000);
    assert_true(b->fake.sink.n_items > 1);
}

/* A batch of a hundred spans is not split if each piece would contain a copy of a Resource of 64
 * KiB. */
static void a_batch_with_a_large_resource_is_not_split(void **state)
{
    struct bed *b = *state;
    b->config.min_size = b->config.max_size = 1;
    for (unsigned long_resource = 0; long_resource < 2; long_resource++) {
        struct br_str json = {0};
        char *text = calloc(1, (64 << 10) + 1);
        assert_non_null(text);
        memset(text, 'x', long_resource ? 64 << 10 : 1);
        br_str_printf(&json,
                      "{'resourceSpans':[{'resource':{'attributes':[{'key':'k','value':"
                      "{'stringValue':'%s'}}]},'scopeSpans':[{'spans':[{'name':'a'}",
                      text);
        for (int i = 1; i < 100; i++)
            br_str_puts(&json, ",{'name':'a'}");
        br_str_puts(&json, "]}]}]}");
        assert_false(json.failed);
        make(b, BR_TRACES);
        struct br_item *item = otlp_text_item(&b->fake.h->host, BR_TRACES, json.data);
        unsigned before = b->fake.sink.n_items;
        br_batcher_add(b->batcher, watch(b, item));
        fake_host_advance(b->fake.h, 1000);
        assert_int_equal(b->fake.sink.n_items - before, long_resource ? 1 : 100);
        br_str_release(&json);
        free(text);
        end(b);
    }
}

SUITE(batch)
{
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    const struct CMUnitTest tests[] = {
        TEST(sent_batches_are_not_counted),
        TEST(batches_are_sent_by_size),
        TEST(the_timeout_starts_with_the_first_item),
        TEST(a_full_batch_restarts_the_timeout),
        TEST(at_once_without_a_timeout),
        TEST(at_once_without_a_size),
        TEST(remainders_wait_for_the_timeout),
        TEST(batches_keep_the_metadata),
        TEST(flush_sends_the_batch),
        TEST(sizes_in_bytes),
        TEST(cut_at_the_maximum),
        TEST(requests_without_anything_are_done),
        TEST(memory_of_large_batches_is_released),
        TEST(profiles_that_fill_a_batch_are_not_merged),
        TEST(items_larger_than_any_batch_are_rejected),
        TEST(items_beyond_the_batch_send_it),
        TEST(a_batch_with_a_large_resource_is_not_split),
        TEST(early_failed_batches_are_retried),
        TEST(early_the_retry_hint_is_used),
        TEST(early_rejected_batches_are_dropped_and_counted),
        TEST(early_final_failures_are_not_retried),
        TEST(late_items_get_the_result_of_their_batch),
        TEST(late_failed_pieces_are_retried),
        TEST(late_data_taken_by_a_failing_component_is_kept),
        TEST(late_retries_have_a_time_limit),
        TEST(late_pieces_that_all_fail_return_to_the_senders),
        TEST(late_freed_before_the_retry_of_a_piece),
        TEST(late_batches_are_marked_as_waiting),
        TEST(late_partial_rejections_are_divided_among_items),
        TEST(late_rejected_pieces_are_a_partial_success),
        TEST(a_failing_next_component_causes_backpressure),
        TEST(small_batches_are_bounded),
        TEST(memory_is_bounded_without_a_size),
        TEST(memory_is_bounded_without_a_timeout),
        TEST(a_silent_next_component_causes_backpressure),
        TEST(many_small_batches_in_one_iteration_are_accepted),
        TEST(freed_early_batches_are_dropped_for_shutdown),
        TEST(freed_early_batches_in_progress_may_finish),
        TEST(freed_late_items_return_to_their_senders),
        cmocka_unit_test(records_arrive_once_or_the_sender_learns_of_it),
        cmocka_unit_test(nothing_is_kept_without_memory),
    };
    return RUN(tests, NULL, NULL);
}
