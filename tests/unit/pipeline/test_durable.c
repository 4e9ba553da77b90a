/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/durable.h"

#include "core/shared.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_root.h"
#include "tests/support/fake_sink.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

/* A durable queue, a queue in memory, and a sink. The host has no threads, so a request is stored
 * before the call returns. */
struct bed {
    struct fake_bed fake;
    struct fake_root root;
    char directory[64];
    struct br_queue_config config, behind;
    struct br_storage_config storage_config;
    struct br_storage *storage;
    struct br_queue *queue;
    struct br_durable *durable;
    unsigned n_empty;
};

static int setup(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    fake_bed_begin(&b->fake);
    b->fake.h->host.shared = br_shared_new();
    b->root = fake_root_new();
    (void)snprintf(b->directory, sizeof b->directory, "%s/queue", b->root.path);
    b->storage_config.wal = (struct br_wal_config){.directory = b->directory,
                                                   .create_directory = true,
                                                   .directory_mode = 0700,
                                                   .max_size = 16 << 20,
                                                   .segment_size = 4 << 20,
                                                   .sync = BR_WAL_OFF};
    b->config = (struct br_queue_config){
        .enabled = true, .storage = "file_storage", .num_consumers = 10, .queue_size = 1000};
    b->behind = (struct br_queue_config){.enabled = true,
                                         .num_consumers = 10,
                                         .queue_size = INT64_MAX,
                                         .wait_for_result = true,
                                         .behind_storage = true};
    *state = b;
    return 0;
}

static void start(struct bed *b)
{
    struct br_host *host = &b->fake.h->host;
    struct br_err err = {0};
    b->storage = br_storage_get(host, "file_storage");
    assert_int_equal(br_storage_open(b->storage, &b->storage_config, &err), 0);
    b->queue = br_queue_new(&b->fake.node, &b->behind, &b->fake.sink.consumer);
    b->durable = br_durable_new(&b->fake.node, &b->config, b->queue);
    assert_non_null(b->durable);
    assert_int_equal(br_durable_start(b->durable, &err), 0);
    fake_host_iterate(b->fake.h);
}

/* Ends the components in the order in which a graph ends them. */
static void stop(struct bed *b)
{
    if (!b->durable)
        return;
    br_durable_close(b->durable);
    br_queue_close(b->queue);
    fake_sink_release(&b->fake.sink, FAKE_RETRY);
    fake_host_iterate(b->fake.h);
    br_queue_drop(b->queue);
    fake_host_iterate(b->fake.h);
    br_durable_free(b->durable);
    br_queue_free(b->queue);
    br_storage_put(&b->fake.h->host, b->storage);
    b->durable = NULL;
}

static int teardown(void **state)
{
    struct bed *b = *state;
    struct br_shared *shared = b->fake.h->host.shared;
    stop(b);
    fake_host_check_ledger(b->fake.h);
    fake_bed_end(&b->fake);
    br_shared_free(shared);
    fake_root_free(&b->root);
    free(b);
    return 0;
}

static void send(struct bed *b, enum br_signal signal, uint64_t first, uint32_t n)
{
    br_consume(br_durable_input(b->durable),
               fake_tally_item(&b->fake.tally, &b->fake.h->host, signal, first, n));
    fake_host_iterate(b->fake.h);
}

static void on_empty(void *arg)
{
    struct bed *b = arg;
    b->n_empty++;
}

static double stored(const struct bed *b)
{
    return *b->fake.h->host.ledger.stored[BR_TRACES];
}

static double restored(const struct bed *b)
{
    return *b->fake.h->host.ledger.restored[BR_TRACES];
}

static double sent(const struct bed *b)
{
    return *b->fake.h->host.ledger.sent[BR_TRACES];
}

/* --- Tests ----------------------------------------------------------------------------------- */

static void senders_are_answered_when_the_request_is_stored(void **state)
{
    struct bed *b = *state;
    b->fake.sink.verdict = FAKE_HOLD;
    start(b);
    send(b, BR_TRACES, 0, 5);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_int_equal(b->fake.sink.n_held, 1);
    assert_true(stored(b) == 5 && restored(b) == 5 && sent(b) == 0);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    assert_true(sent(b) == 5);
}

static void what_was_not_delivered_is_delivered_after_a_restart(void **state)
{
    struct bed *b = *state;
    b->fake.sink.verdict = FAKE_HOLD;
    start(b);
    for (uint64_t i = 0; i < 3; i++)
        send(b, BR_TRACES, i * 5, 5);
    fake_sink_release_one(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    stop(b);
    /* once when they arrived, and the two remaining items again */
    assert_true(stored(b) == 15 + 10);
    b->fake.sink.verdict = FAKE_DONE;
    start(b);
    assert_true(restored(b) == 15 + 10);
    assert_true(sent(b) == 15);
    stop(b);
    start(b);
    assert_true(restored(b) == 15 + 10);
}

static void refused_requests_are_offered_again(void **state)
{
    struct bed *b = *state;
    b->fake.sink.verdict = FAKE_RETRY;
    start(b);
    send(b, BR_TRACES, 0, 5);
    assert_true(sent(b) == 0);
    b->fake.sink.verdict = FAKE_DONE;
    fake_host_advance(b->fake.h, 1000);
    assert_true(sent(b) == 5);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "retries_exhausted") == 0);
}

static void rejected_requests_are_dropped_and_do_not_come_back(void **state)
{
    struct bed *b = *state;
    b->fake.sink.verdict = FAKE_REJECT;
    start(b);
    send(b, BR_TRACES, 0, 5);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "rejected") == 5);
    stop(b);
    b->fake.sink.verdict = FAKE_DONE;
    start(b);
    assert_true(sent(b) == 0);
}

static void a_request_older_than_max_age_is_given_up(void **state)
{
    struct bed *b = *state;
    b->storage_config.max_age_ms = 60000;
    b->fake.sink.verdict = FAKE_RETRY;
    start(b);
    send(b, BR_TRACES, 0, 5);
    fake_host_advance(b->fake.h, 40000);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "retries_exhausted") == 0);
    fake_host_advance(b->fake.h, 60000);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "retries_exhausted") == 5);
    stop(b);
    b->fake.sink.verdict = FAKE_DONE;
    start(b);
    assert_true(sent(b) == 0);
}

static void a_full_queue_refuses(void **state)
{
    struct bed *b = *state;
    b->config.queue_size = 2;
    b->fake.sink.verdict = FAKE_HOLD;
    start(b);
    for (uint64_t i = 0; i < 3; i++)
        send(b, BR_TRACES, i * 5, 5);
    assert_int_equal(b->fake.tally.n_done, 2);
    assert_int_equal(b->fake.tally.n_retry, 1);
    assert_true(fake_host_metric(b->fake.h, "otelcol_exporter_enqueue_failed_spans",
                                 "exporter=\"test\"") == 5);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    send(b, BR_TRACES, 50, 5);
    assert_int_equal(b->fake.tally.n_done, 3);
}

static void with_block_on_overflow_requests_wait_for_room(void **state)
{
    struct bed *b = *state;
    b->config.queue_size = 2;
    b->config.block_on_overflow = true;
    b->fake.sink.verdict = FAKE_HOLD;
    start(b);
    for (uint64_t i = 0; i < 4; i++)
        send(b, BR_TRACES, i * 5, 5);
    assert_int_equal(b->fake.tally.n, 2);
    fake_sink_release_one(&b->fake.sink, FAKE_DONE);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_done, 3);
    br_durable_drain(b->durable, on_empty, b);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_retry, 1); /* nothing that waits is stored at shutdown */
}

/* An item made by a processor has the age of its data, or none; it must not seem old. */
static void items_of_unknown_age_are_new(void **state)
{
    struct bed *b = *state;
    b->storage_config.max_age_ms = 60000;
    fake_host_advance(b->fake.h, 1000000);
    b->fake.sink.verdict = FAKE_RETRY;
    start(b);
    struct br_item *item = fake_tally_item(&b->fake.tally, &b->fake.h->host, BR_TRACES, 0, 5);
    item->received_ms = 0;
    br_consume(br_durable_input(b->durable), item);
    fake_host_iterate(b->fake.h);
    stop(b);
    b->fake.sink.verdict = FAKE_DONE;
    start(b);
    assert_true(sent(b) == 5);
}

static void a_queue_that_was_not_started_drains(void **state)
{
    struct bed *b = *state;
    b->storage = br_storage_get(&b->fake.h->host, "file_storage");
    b->queue = br_queue_new(&b->fake.node, &b->behind, &b->fake.sink.consumer);
    b->durable = br_durable_new(&b->fake.node, &b->config, b->queue);
    br_durable_drain(b->durable, on_empty, b);
    assert_int_equal(b->n_empty, 1);
}

static void a_full_log_refuses(void **state)
{
    struct bed *b = *state;
    b->storage_config.wal.max_size = 1; /* less than the size of any record */
    start(b);
    send(b, BR_TRACES, 0, 5);
    assert_int_equal(b->fake.tally.n_reject, 1);
    assert_true(stored(b) == 0);
}

static void senders_that_wait_bypass_the_log(void **state)
{
    struct bed *b = *state;
    b->fake.sink.verdict = FAKE_HOLD;
    start(b);
    struct br_item *item = fake_tally_item(&b->fake.tally, &b->fake.h->host, BR_TRACES, 0, 5);
    item->sender = BR_SENDER_WAITS;
    br_consume(br_durable_input(b->durable), item);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n, 0);
    assert_true(stored(b) == 0);
    fake_sink_release(&b->fake.sink, FAKE_RETRY);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_retry, 1);
}

static void draining_leaves_the_rest_in_the_log(void **state)
{
    struct bed *b = *state;
    b->fake.sink.verdict = FAKE_HOLD;
    start(b);
    for (uint64_t i = 0; i < 12; i++) /* ten items are sent at the same time */
        send(b, BR_TRACES, i * 5, 5);
    br_durable_drain(b->durable, on_empty, b);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->n_empty, 0);
    b->fake.sink.verdict = FAKE_RETRY;
    fake_sink_release(&b->fake.sink, FAKE_RETRY);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->n_empty, 1);
    assert_true(*b->fake.h->host.ledger.held[BR_TRACES] == 0);
    stop(b);
    b->fake.sink.verdict = FAKE_DONE;
    start(b);
    assert_true(sent(b) == 60);
}

/* --- Requests that are delivered before they are written ---------------------------------------
 */

#define WRITE_AFTER_MS 20

static void start_early(struct bed *b, enum fake_verdict verdict)
{
    b->storage_config.write_after_ms = WRITE_AFTER_MS;
    b->fake.sink.verdict = verdict;
    start(b);
}

static void release(struct bed *b, enum fake_verdict verdict)
{
    fake_sink_release(&b->fake.sink, verdict);
    fake_host_iterate(b->fake.h);
}

/* Asserts that the log delivers `n` records after a restart. */
static void assert_left(struct bed *b, double n)
{
    double before = restored(b);
    stop(b);
    b->fake.sink.verdict = FAKE_DONE;
    start(b);
    assert_true(restored(b) == before + n);
}

static void what_is_delivered_in_time_is_not_written(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    fake_host_advance(b->fake.h, WRITE_AFTER_MS - 1);
    assert_int_equal(b->fake.tally.n, 0);
    release(b, FAKE_DONE);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_true(sent(b) == 5 && stored(b) == 0 && restored(b) == 0);
    assert_left(b, 0);
}

static void what_is_delivered_late_is_written_once(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    fake_host_advance(b->fake.h, WRITE_AFTER_MS);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_true(sent(b) == 0 && stored(b) == 5 && restored(b) == 5);
    assert_int_equal(b->fake.sink.n_held, 1);
    release(b, FAKE_DONE);
    assert_true(sent(b) == 5 && stored(b) == 5);
    assert_left(b, 0);
}

static void what_was_being_sent_is_in_the_log(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    fake_host_advance(b->fake.h, WRITE_AFTER_MS);
    assert_left(b, 5);
    assert_true(sent(b) == 5);
}

static void a_refusal_before_the_write_is_tried_again_after_it(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    release(b, FAKE_RETRY);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_true(sent(b) == 0 && stored(b) == 5);
    b->fake.sink.verdict = FAKE_DONE;
    release(b, FAKE_DONE);
    fake_host_advance(b->fake.h, 1000);
    assert_true(sent(b) == 5);
    assert_left(b, 0);
}

static void a_refusal_after_the_write_is_tried_again(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    fake_host_advance(b->fake.h, WRITE_AFTER_MS);
    b->fake.sink.verdict = FAKE_DONE;
    release(b, FAKE_RETRY);
    fake_host_advance(b->fake.h, 1000);
    assert_true(sent(b) == 5);
    assert_left(b, 0);
}

/* The sender of a durable queue is not told that the backend rejects the request: it is stored
 * first, as without `write_after`. */
static void a_rejection_before_the_write_is_stored_and_dropped(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    release(b, FAKE_REJECT);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_true(stored(b) == 5);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "rejected") == 5);
    assert_left(b, 0);
}

static void a_rejection_after_the_write_is_dropped(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    fake_host_advance(b->fake.h, WRITE_AFTER_MS);
    release(b, FAKE_REJECT);
    assert_true(fake_host_dropped(b->fake.h, BR_TRACES, "rejected") == 5);
    assert_left(b, 0);
}

static void a_request_that_cannot_be_written_is_refused(void **state)
{
    struct bed *b = *state;
    b->storage_config.wal.max_size = 1; /* less than the size of any record */
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    fake_host_advance(b->fake.h, WRITE_AFTER_MS);
    assert_int_equal(b->fake.tally.n_reject, 1);
    assert_true(stored(b) == 0);
    release(b, FAKE_DONE); /* items that were already being sent are delivered nevertheless */
    assert_true(sent(b) == 5);
}

static void a_slow_backend_ends_the_wait(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    fake_host_advance(b->fake.h, WRITE_AFTER_MS);
    send(b, BR_TRACES, 5, 5);
    assert_int_equal(b->fake.tally.n_done, 2); /* written at once */
    fake_host_advance(b->fake.h, 1000);
    send(b, BR_TRACES, 10, 5);
    assert_int_equal(b->fake.tally.n_done, 2); /* it waits again */
}

static void draining_writes_what_waits(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    for (uint64_t i = 0; i < 3; i++)
        send(b, BR_TRACES, i * 5, 5);
    br_durable_drain(b->durable, on_empty, b);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_done, 3);
    assert_int_equal(b->n_empty, 0);
    b->fake.sink.verdict = FAKE_RETRY;
    release(b, FAKE_RETRY);
    assert_int_equal(b->n_empty, 1);
    assert_true(*b->fake.h->host.ledger.held[BR_TRACES] == 0);
    assert_left(b, 15);
    assert_true(sent(b) == 15);
}

static void a_stop_in_the_middle_loses_nothing(void **state)
{
    struct bed *b = *state;
    start_early(b, FAKE_HOLD);
    send(b, BR_TRACES, 0, 5);
    fake_host_advance(b->fake.h, WRITE_AFTER_MS);
    send(b, BR_TRACES, 5, 5);
    assert_int_equal(b->fake.tally.n_done, 2);
    assert_left(b, 10);
}

SUITE(durable)
{
    const struct CMUnitTest tests[] = {
        TEST(senders_are_answered_when_the_request_is_stored),
        TEST(what_was_not_delivered_is_delivered_after_a_restart),
        TEST(refused_requests_are_offered_again),
        TEST(rejected_requests_are_dropped_and_do_not_come_back),
        TEST(a_request_older_than_max_age_is_given_up),
        TEST(a_full_queue_refuses),
        TEST(with_block_on_overflow_requests_wait_for_room),
        TEST(items_of_unknown_age_are_new),
        TEST(a_queue_that_was_not_started_drains),
        TEST(a_full_log_refuses),
        TEST(senders_that_wait_bypass_the_log),
        TEST(draining_leaves_the_rest_in_the_log),
        TEST(what_is_delivered_in_time_is_not_written),
        TEST(what_is_delivered_late_is_written_once),
        TEST(what_was_being_sent_is_in_the_log),
        TEST(a_refusal_before_the_write_is_tried_again_after_it),
        TEST(a_refusal_after_the_write_is_tried_again),
        TEST(a_rejection_before_the_write_is_stored_and_dropped),
        TEST(a_rejection_after_the_write_is_dropped),
        TEST(a_request_that_cannot_be_written_is_refused),
        TEST(a_slow_backend_ends_the_wait),
        TEST(draining_writes_what_waits),
        TEST(a_stop_in_the_middle_loses_nothing),
    };
    return RUN(tests, NULL, NULL);
}
