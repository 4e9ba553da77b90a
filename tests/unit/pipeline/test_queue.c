/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>

#include "base/mem.h"
#include "pipeline/exporter.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

#define OF_TRACES "exporter=\"test\",data_type=\"traces\""

struct bed {
    struct fake_bed fake;
    /* initially the Collector's defaults, except for a size of 3 requests */
    struct br_queue_config config;
    struct br_queue_batch_config batch;
    struct br_queue *queue;
    unsigned n_empty;
};

static int setup(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    fake_bed_begin(&b->fake);
    b->config = (struct br_queue_config){.enabled = true, .num_consumers = 10, .queue_size = 3};
    b->batch = (struct br_queue_batch_config){
        .flush_timeout = 200000000, .min_size = 10, .partition.cache_size = 10000};
    *state = b;
    return 0;
}

static void make(struct bed *b)
{
    b->queue = br_queue_new(&b->fake.node, &b->config, &b->fake.sink.consumer);
}

static int teardown(void **state)
{
    struct bed *b = *state;
    /* Ends the components in the order in which a graph ends them: downstream components first. */
    if (b->queue)
        br_queue_close(b->queue);
    fake_sink_release(&b->fake.sink, FAKE_RETRY);
    fake_host_iterate(b->fake.h);
    br_queue_free(b->queue);
    fake_bed_end(&b->fake);
    free(b);
    return 0;
}

static void send(struct bed *b, enum br_signal signal, uint64_t first, uint32_t n)
{
    br_consume(br_queue_input(b->queue),
               fake_tally_item(&b->fake.tally, &b->fake.h->host, signal, first, n));
    fake_host_iterate(b->fake.h);
}

static void on_empty(void *arg)
{
    struct bed *b = arg;
    b->n_empty++;
}

/* --- Answers ---------------------------------------------------------------------------------- */

static void senders_are_answered_early(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    send(b, BR_TRACES, 0, 5);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_int_equal(b->fake.sink.n_held, 1);
    /* the queue must report them to the ledger now */
    assert_true(*b->fake.h->host.ledger.held[BR_TRACES] == 5);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == 5);
}

static void failed_items_are_dropped_and_counted(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_REJECT;
    send(b, BR_TRACES, 0, 5);
    b->fake.sink.verdict = FAKE_RETRY;
    send(b, BR_TRACES, 5, 7);
    assert_int_equal(b->fake.tally.n_done, 2);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "rejected") == 5);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "retries_exhausted") == 7);
    assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_send_failed_spans",
                                 "exporter=\"test\"") == 12);
}

static void with_wait_for_result_senders_get_the_exporters_result(void **state)
{
    struct bed *b = *state;
    b->config.wait_for_result = true;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (int i = 0; i < 3; i++)
        send(b, BR_TRACES, (uint64_t)i * 5, 5);
    assert_int_equal(b->fake.tally.n, 0);
    fake_sink_release_one(&b->fake.sink, FAKE_DONE);
    fake_sink_release_one(&b->fake.sink, FAKE_RETRY);
    fake_sink_release_one(&b->fake.sink, FAKE_REJECT);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_int_equal(b->fake.tally.n_retry, 1);
    assert_int_equal(b->fake.tally.n_reject, 1);
    assert_true(*b->fake.h->host.ledger.rejected[BR_TRACES] == 10);
}

static void a_disabled_queue_passes_items_and_results_through(void **state)
{
    struct bed *b = *state;
    b->config.enabled = false;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (int i = 0; i < 20; i++) /* only the number of senders limits the number of items */
        send(b, BR_TRACES, 0, 1);
    assert_int_equal(b->fake.sink.n_held, 20);
    assert_int_equal(b->fake.tally.n, 0);
    fake_sink_release(&b->fake.sink, FAKE_RETRY);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_retry, 20);
}

static void waiting_senders_learn_of_partial_success(void **state)
{
    struct bed *b = *state;
    b->config.wait_for_result = true;
    make(b);
    b->fake.sink.n_rejected = 2;
    send(b, BR_TRACES, 0, 5);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_int_equal(b->fake.tally.last.n_rejected, 2);
    assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == 3);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "partial_success") == 2);
    assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_sent_spans", "exporter=\"test\"") ==
                3);
}

/* An exporter that sends an item in pieces. Only some of the pieces arrive. */
static void on_pieces(struct br_consumer *self, struct br_item *item)
{
    (void)self;
    br_item_report(item, BR_RESULT_SENT, NULL, 4);
    br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "the other half");
}

static void pieces_are_counted_by_the_ledger(void **state)
{
    struct bed *b = *state;
    struct br_consumer pieces = {on_pieces};
    for (unsigned i = 0; i < 2; i++) {
        b->config.wait_for_result = i;
        b->queue = br_queue_new(&b->fake.node, &b->config, &pieces);
        send(b, BR_TRACES, 0, 10);
        assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_sent_spans",
                                     "exporter=\"test\"") == 4 * (i + 1));
        assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_send_failed_spans",
                                     "exporter=\"test\"") == 6 * (i + 1));
        assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == 4 * (i + 1));
        br_queue_close(b->queue);
        br_queue_free(b->queue);
        b->queue = NULL;
    }
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "rejected") == 6);
    assert_true(*b->fake.h->host.ledger.rejected[BR_TRACES] == 6);
}

/* --- Size ------------------------------------------------------------------------------------- */

static void a_full_queue_rejects_items(void **state)
{
    struct bed *b = *state;
    b->config.num_consumers = 1;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (int i = 0; i < 5; i++)
        send(b, BR_TRACES, (uint64_t)i, 1);
    assert_int_equal(b->fake.tally.n_done,
                     3); /* items in progress count, too, as in the Collector */
    assert_int_equal(b->fake.tally.n_retry, 2);
    assert_string_equal(b->fake.tally.last.text, "sending_queue is full");
    assert_int_equal(br_outcome_http(&b->fake.tally.last), 503);
    assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_enqueue_failed_spans",
                                 "exporter=\"test\"") == 2);
    assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_queue_size", OF_TRACES) == 3);
    fake_sink_release_one(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    send(b, BR_TRACES, 9, 1);
    assert_int_equal(b->fake.tally.n_done, 4);
    while (b->fake.sink.n_held) {
        fake_sink_release_one(&b->fake.sink, FAKE_DONE);
        fake_host_iterate(b->fake.h);
    }
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 0, 3), 3);
    assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_queue_size", OF_TRACES) == 0);
}

/* Three workers share a queue for eight items: three, three and two. */
static void workers_share_the_size_of_the_queue(void **state)
{
    struct bed *b = *state;
    b->config.queue_size = 8;
    b->fake.h->host.n_workers = 3;
    b->fake.h->host.worker = 2;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (int i = 0; i < 4; i++)
        send(b, BR_TRACES, (uint64_t)i, 1);
    assert_int_equal(b->fake.tally.n_done, 2);
    assert_int_equal(b->fake.tally.n_retry, 2);
    assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_queue_capacity", OF_TRACES) == 2);
}

static void sizes_may_be_items(void **state)
{
    struct bed *b = *state;
    b->config.sizer = BR_SIZER_ITEMS;
    b->config.queue_size = 10;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    send(b, BR_PROFILES, 0, 6);
    send(b, BR_PROFILES, 6, 4); /* together 10 records, which is within the limit */
    assert_int_equal(b->fake.tally.n_done, 2);
    send(b, BR_PROFILES, 10, 1);
    assert_int_equal(b->fake.tally.n_retry, 1);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    send(b, BR_PROFILES, 10, 50); /* a single request may be larger than the queue */
    assert_int_equal(b->fake.tally.n_done, 3);
    send(b, BR_PROFILES, 60, 1);
    assert_int_equal(b->fake.tally.n_retry, 2);
}

static void sizes_may_be_bytes(void **state)
{
    struct bed *b = *state;
    struct wire w = {0};
    items_traces(&w, 0, 1, 1);
    b->config.sizer = BR_SIZER_BYTES;
    b->config.queue_size = (int64_t)(2 * w.len);
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (uint64_t i = 0; i < 3; i++)
        /* the numbers are chosen so that the spans have equal sizes */
        send(b, BR_TRACES, i * 12, 1);
    assert_int_equal(b->fake.tally.n_done, 2);
    assert_int_equal(b->fake.tally.n_retry, 1);
    assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_queue_size", OF_TRACES) ==
                (double)(2 * w.len));
    wire_free(&w);
}

static void num_consumers_limits_concurrent_requests(void **state)
{
    struct bed *b = *state;
    b->config.num_consumers = 2;
    b->config.queue_size = 10;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (uint64_t i = 0; i < 8; i++)
        send(b, BR_TRACES, i, 1);
    for (unsigned done = 0; done < 8; done++) {
        unsigned n_open = 8 - done;
        assert_int_equal(b->fake.sink.n_held, n_open < 2 ? n_open : 2);
        fake_sink_release_one(&b->fake.sink, FAKE_DONE);
        fake_host_iterate(b->fake.h);
    }
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 0, 8), 8);
}

static void with_block_on_overflow_senders_wait(void **state)
{
    struct bed *b = *state;
    b->config.num_consumers = 1;
    b->config.block_on_overflow = true;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (uint64_t i = 0; i < 6; i++)
        send(b, BR_TRACES, i, 1);
    assert_int_equal(b->fake.tally.n_done, 3);
    assert_int_equal(b->fake.tally.n, 3); /* the other senders do not have an answer yet */
    for (unsigned i = 1; i <= 6; i++) {
        fake_sink_release_one(&b->fake.sink, FAKE_DONE);
        fake_host_iterate(b->fake.h);
        assert_int_equal(b->fake.tally.n_done, 3 + i < 6 ? 3 + i : 6);
    }
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 0, 6), 6);
}

/* New items do not overtake waiting ones. */
static void waiting_items_are_not_overtaken(void **state)
{
    struct bed *b = *state;
    b->config.sizer = BR_SIZER_ITEMS;
    b->config.queue_size = 10;
    b->config.num_consumers = 1;
    b->config.block_on_overflow = true;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    send(b, BR_TRACES, 0, 8);
    send(b, BR_TRACES, 8, 8);  /* waits */
    send(b, BR_TRACES, 16, 1); /* this item alone would be within the limit */
    assert_int_equal(b->fake.tally.n_done, 1);
    fake_sink_release_one(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    fake_sink_release_one(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 8, 8), 8);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
}

/* --- Shutdown --------------------------------------------------------------------------------- */

static void draining_waits_until_everything_is_sent(void **state)
{
    struct bed *b = *state;
    b->config.num_consumers = 1;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (uint64_t i = 0; i < 3; i++)
        send(b, BR_TRACES, i, 1);
    br_queue_drain(b->queue, on_empty, b);
    for (int i = 0; i < 3; i++) {
        fake_host_iterate(b->fake.h);
        assert_int_equal(b->n_empty, 0);
        fake_sink_release_one(&b->fake.sink, FAKE_DONE);
    }
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->n_empty, 1);
}

static void draining_an_empty_queue_ends_at_once(void **state)
{
    struct bed *b = *state;
    make(b);
    br_queue_drain(b->queue, on_empty, b);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->n_empty, 1);
}

static void queued_items_are_dropped_for_shutdown(void **state)
{
    struct bed *b = *state;
    b->config.num_consumers = 1;
    b->config.block_on_overflow = true;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (uint64_t i = 0; i < 5; i++)
        send(b, BR_TRACES, i * 4, 4);
    br_queue_close(b->queue);
    fake_sink_release_one(&b->fake.sink, FAKE_RETRY);
    fake_host_iterate(b->fake.h);
    /* the queue is closed and does not send any more items */
    assert_int_equal(b->fake.sink.n_items, 1);
    send(b, BR_TRACES, 0, 1);
    assert_int_equal(b->fake.tally.n_retry, 1);
    br_queue_drop(b->queue);
    fake_host_iterate(b->fake.h);
    /* At the end, one item had failed in the exporter, two were queued, and two still waited with
     * their senders. */
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "shutdown") == 12);
    assert_int_equal(b->fake.tally.n_retry, 3);
    br_queue_drop(b->queue);
}

static void requests_without_anything_are_done(void **state)
{
    struct bed *b = *state;
    make(b);
    struct br_item *item = items_walk(&b->fake.h->host, BR_TRACES, NULL, 0);
    br_consume(br_queue_input(b->queue), item);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.sink.n_items, 0);
}

/* --- With a batcher --------------------------------------------------------------------------- */

static void batches_are_sent_by_size_and_by_time(void **state)
{
    struct bed *b = *state;
    b->config.batch = &b->batch;
    b->config.queue_size = 5;
    make(b);
    for (uint64_t i = 0; i < 5; i++)
        send(b, BR_TRACES, i * 3, 3);
    /* the batch was sent when it had 12 records, which is over its size of 10 */
    assert_int_equal(b->fake.sink.n_items, 1);
    assert_int_equal(b->fake.sink.largest, 12);
    fake_host_advance(b->fake.h, 199);
    assert_int_equal(b->fake.sink.n_items, 1);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 2);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 0, 15), 15);
    assert_int_equal(b->fake.tally.n_done, 5);
}

static void batches_are_cut_at_their_maximum(void **state)
{
    struct bed *b = *state;
    b->config.batch = &b->batch;
    b->batch.max_size = 10;
    b->config.queue_size = 100;
    make(b);
    for (int s = 0; s < BR_SIGNALS; s++)
        send(b, (enum br_signal)s, 0, 37);
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.sink.largest, 10);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 0, 37), 37);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_PROFILES, 0, 37), 37);
}

static void a_queue_full_of_batches_rejects_items(void **state)
{
    struct bed *b = *state;
    b->config.batch = &b->batch;
    b->config.num_consumers = 1;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (uint64_t i = 0; i < 6; i++)
        send(b, BR_TRACES, i * 10, 10);
    assert_int_equal(b->fake.tally.n_done, 3);
    assert_int_equal(b->fake.tally.n_retry, 3);
}

/* The size counts requests of two spans as they were received, also while they are gathered into a
 * batch and after a batch was split. */
static void with_batches_the_size_counts_received_records(void **state)
{
    (void)state;
    static const struct {
        int sizer;
        int64_t size; /* size of 30 requests */
    } cases[] = {{BR_SIZER_REQUESTS, 30}, {BR_SIZER_ITEMS, 60}, {BR_SIZER_BYTES, 0}};
    struct wire w = {0};
    items_traces(&w, 0, 2, 1);
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct bed *b;
        setup((void **)&b);
        b->batch.min_size = 25;
        b->batch.max_size = 30;
        b->config.batch = &b->batch;
        b->config.sizer = cases[i].sizer;
        b->config.queue_size = cases[i].size ? cases[i].size : (int64_t)(30 * w.len);
        make(b);
        b->fake.sink.verdict = FAKE_HOLD;
        for (uint64_t k = 0; k < 100; k++)
            /* the numbers are chosen so that the spans have equal sizes */
            send(b, BR_TRACES, k * 12, 2);
        assert_int_equal(b->fake.tally.n_done, 30);
        assert_int_equal(b->fake.tally.n_retry, 70);
        assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_queue_size", OF_TRACES) ==
                    (double)b->config.queue_size);
        fake_sink_release(&b->fake.sink, FAKE_DONE);
        b->fake.sink.verdict = FAKE_DONE;
        fake_host_advance(b->fake.h, 1000);
        assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_queue_size", OF_TRACES) == 0);
        teardown((void **)&b);
    }
    wire_free(&w);
}

/* Items that wait for room enter the queue when a batch has finished. */
static void with_batches_senders_wait_for_room(void **state)
{
    struct bed *b = *state;
    b->config.batch = &b->batch;
    b->config.block_on_overflow = true;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (uint64_t i = 0; i < 9; i++)
        send(b, BR_TRACES, i * 10, 10);
    assert_int_equal(b->fake.tally.n_done, 3);
    for (unsigned i = 0; i < 9; i++) {
        fake_sink_release_one(&b->fake.sink, FAKE_DONE);
        fake_host_iterate(b->fake.h);
    }
    assert_int_equal(b->fake.tally.n_done, 9);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 0, 90), 90);
}

/* --- Tenants ---------------------------------------------------------------------------------- */

struct tenants {
    struct br_consumer consumer;
    struct fake_sink *sink;
    unsigned n_blue, n_red, n_none;
};

static void on_tenant(struct br_consumer *self, struct br_item *item)
{
    struct tenants *t = br_container_of(self, struct tenants, consumer);
    const char *tenant = br_item_metadata(item, "x-tenant");
    assert_null(br_item_metadata(item, "x-other"));
    unsigned *n = &t->n_none;
    if (tenant)
        n = strcmp(tenant, "blue") == 0 ? &t->n_blue : &t->n_red;
    *n += item->n_records;
    br_consume(&t->sink->consumer, item);
}

static void tenants_do_not_mix(void **state)
{
    struct bed *b = *state;
    static const char *const metadata[] = {"x-tenant\0blue\0x-other\0"
                                           "1\0",
                                           "X-Tenant\0red\0x-other\0"
                                           "2\0",
                                           NULL};
    const char *keys[] = {"x-tenant"};
    struct tenants t = {{on_tenant}, &b->fake.sink, 0, 0, 0};
    b->batch.partition.metadata_keys = (struct br_strings){keys, 1};
    b->config.batch = &b->batch;
    b->config.queue_size = 100;
    b->queue = br_queue_new(&b->fake.node, &b->config, &t.consumer);
    for (uint64_t i = 0; i < 30; i++) {
        struct br_item *item = fake_tally_item(&b->fake.tally, &b->fake.h->host, BR_TRACES, i, 1);
        item->metadata = metadata[i % 3];
        br_consume(br_queue_input(b->queue), item);
        fake_host_iterate(b->fake.h);
    }
    assert_int_equal(b->fake.sink.n_items, 3); /* three batches of ten spans each */
    assert_int_equal(b->fake.sink.largest, 10);
    assert_int_equal(t.n_blue, 10);
    assert_int_equal(t.n_red, 10);
    assert_int_equal(t.n_none, 10);
}

/* --- Senders that wait for delivery ----------------------------------------------------------- */

static void send_waiting(struct bed *b, uint64_t first, uint32_t n)
{
    struct br_item *item = fake_tally_item(&b->fake.tally, &b->fake.h->host, BR_TRACES, first, n);
    item->sender = BR_SENDER_WAITS;
    br_consume(br_queue_input(b->queue), item);
    fake_host_iterate(b->fake.h);
}

static void waiting_senders_are_not_answered_early(void **state)
{
    (void)state;
    static const enum fake_verdict verdicts[] = {FAKE_DONE, FAKE_RETRY, FAKE_REJECT};
    for (unsigned i = 0; i < 6; i++) {
        struct bed *b;
        setup((void **)&b);
        b->config.batch = i & 1 ? &b->batch : NULL;
        make(b);
        b->fake.sink.verdict = FAKE_HOLD;
        send(b, BR_TRACES, 50, 10); /* an item whose sender does not wait */
        assert_int_equal(b->fake.tally.n_done, 1);
        send_waiting(b, 0, 10);
        assert_int_equal(b->fake.tally.n, 1);
        assert_int_equal(b->fake.sink.n_held, 2);
        fake_sink_release(&b->fake.sink, verdicts[i / 2]);
        fake_host_iterate(b->fake.h);
        assert_int_equal(b->fake.tally.n, 2);
        assert_int_equal(b->fake.tally.last.verdict, i / 2);
        teardown((void **)&b);
    }
}

/* An item occupies the queue until it is delivered. A full queue reports that to its senders, so
 * that none of them waits forever. */
static void a_queue_full_of_waiting_items_rejects_items(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    for (uint64_t i = 0; i < 5; i++)
        send_waiting(b, i, 1);
    assert_int_equal(b->fake.tally.n, 2);
    assert_int_equal(b->fake.tally.n_retry, 2);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_done, 3);
}

static void failed_batches_are_dropped_once(void **state)
{
    struct bed *b = *state;
    b->config.batch = &b->batch;
    make(b);
    b->fake.sink.verdict = FAKE_RETRY;
    send(b, BR_TRACES, 0, 10);
    fake_host_advance(b->fake.h, 60000);
    assert_int_equal(b->fake.sink.n_items,
                     1); /* the retry before the exporter has already given up */
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "retries_exhausted") == 10);
}

static void batches_with_wait_for_result_answer_all_in_them(void **state)
{
    struct bed *b = *state;
    b->config.batch = &b->batch;
    b->config.wait_for_result = true;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    send(b, BR_TRACES, 0, 5);
    send(b, BR_TRACES, 5, 5);
    assert_int_equal(b->fake.tally.n, 0);
    fake_sink_release(&b->fake.sink, FAKE_REJECT);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_reject, 2);
    send(b, BR_TRACES, 10, 10);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_done, 1);
}

static void draining_sends_incomplete_batches(void **state)
{
    struct bed *b = *state;
    b->config.batch = &b->batch;
    make(b);
    b->fake.sink.verdict = FAKE_LATE;
    send(b, BR_TRACES, 0, 3);
    send(b, BR_PROFILES, 0, 3);
    br_queue_drain(b->queue, on_empty, b);
    assert_int_equal(b->n_empty, 0);
    fake_host_advance(b->fake.h, 60);
    assert_int_equal(b->n_empty, 1);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 0, 3), 3);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_PROFILES, 0, 3), 3);
}

static void remaining_batches_are_dropped_for_shutdown(void **state)
{
    struct bed *b = *state;
    b->config.batch = &b->batch;
    b->config.num_consumers = 1;
    make(b);
    b->fake.sink.verdict = FAKE_HOLD;
    send(b, BR_TRACES, 0, 10);  /* in progress */
    send(b, BR_TRACES, 10, 10); /* queued */
    send(b, BR_TRACES, 20, 4);  /* gathered */
    br_queue_close(b->queue);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    br_queue_drop(b->queue);
    fake_host_iterate(b->fake.h);
    assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == 10);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "shutdown") == 14);
}

/* --- Memory ----------------------------------------------------------------------------------- */

struct plan {
    enum br_signal signal;
    bool batch, late;
};

static void scenario(void *arg)
{
    const struct plan *plan = arg;
    struct bed *b;
    setup((void **)&b);
    b->config.batch = plan->batch ? &b->batch : NULL;
    b->config.wait_for_result = plan->late;
    b->config.num_consumers = 1;
    b->fake.sink.verdict = FAKE_LATE;
    fault_start();
    make(b);
    unsigned n = 0;
    for (uint64_t i = 0; b->queue && i < 3; i++) {
        struct br_item *item =
            fake_tally_item(&b->fake.tally, &b->fake.h->host, plan->signal, i * 6, 6);
        n += item != NULL;
        if (item)
            br_consume(br_queue_input(b->queue), item);
    }
    fake_host_advance(b->fake.h, 100);
    fake_host_advance(b->fake.h, 1000);
    fault_stop();
    if (b->queue)
        br_queue_drain(b->queue, on_empty, b);
    fake_host_advance(b->fake.h, 20000); /* memory is available again: all held items must leave */
    assert_int_equal(b->fake.tally.n, n);
    assert_int_equal(b->n_empty, b->queue ? 1 : 0);
    assert_int_equal(fake_sink_twice(&b->fake.sink, plan->signal), 0);
    assert_int_equal(b->fake.tally.n_reject, 0);
    double once = (double)fake_sink_once(&b->fake.sink, plan->signal, 0, 18);
    assert_true(*b->fake.h->host.ledger.sent[plan->signal] == once);
    if (!fault_failed())
        assert_true(once == 18);
    teardown((void **)&b);
}

static void nothing_is_kept_without_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct plan plan = {i & 1 ? BR_PROFILES : BR_TRACES, i & 2, i & 4};
        fault_each("queue", scenario, &plan);
    }
}

SUITE(queue)
{
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    const struct CMUnitTest tests[] = {
        TEST(senders_are_answered_early),
        TEST(failed_items_are_dropped_and_counted),
        TEST(with_wait_for_result_senders_get_the_exporters_result),
        TEST(a_disabled_queue_passes_items_and_results_through),
        TEST(waiting_senders_learn_of_partial_success),
        TEST(pieces_are_counted_by_the_ledger),
        TEST(a_full_queue_rejects_items),
        TEST(workers_share_the_size_of_the_queue),
        TEST(sizes_may_be_items),
        TEST(sizes_may_be_bytes),
        TEST(num_consumers_limits_concurrent_requests),
        TEST(with_block_on_overflow_senders_wait),
        TEST(waiting_items_are_not_overtaken),
        TEST(draining_waits_until_everything_is_sent),
        TEST(draining_an_empty_queue_ends_at_once),
        TEST(queued_items_are_dropped_for_shutdown),
        TEST(requests_without_anything_are_done),
        TEST(batches_are_sent_by_size_and_by_time),
        TEST(batches_are_cut_at_their_maximum),
        TEST(a_queue_full_of_batches_rejects_items),
        TEST(with_batches_the_size_counts_received_records),
        TEST(with_batches_senders_wait_for_room),
        TEST(tenants_do_not_mix),
        TEST(waiting_senders_are_not_answered_early),
        TEST(a_queue_full_of_waiting_items_rejects_items),
        TEST(failed_batches_are_dropped_once),
        TEST(batches_with_wait_for_result_answer_all_in_them),
        TEST(draining_sends_incomplete_batches),
        TEST(remaining_batches_are_dropped_for_shutdown),
        cmocka_unit_test(nothing_is_kept_without_memory),
    };
    return RUN(tests, NULL, NULL);
}
