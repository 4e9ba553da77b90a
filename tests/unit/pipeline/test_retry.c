/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "pipeline/exporter.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

#define S 1000000000ull /* ns */

struct bed {
    struct fake_bed fake;
    /* initially the Collector's defaults, without jitter and without a time limit */
    struct br_retry_config config;
    struct br_retry *retry;
};

static int setup(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    fake_bed_begin(&b->fake);
    b->config = (struct br_retry_config){
        .enabled = true, .initial_interval = 5 * S, .max_interval = 30 * S, .multiplier = 1.5};
    *state = b;
    return 0;
}

static void make(struct bed *b)
{
    b->retry = br_retry_new(&b->fake.node, &b->config, &b->fake.sink.consumer);
}

static int teardown(void **state)
{
    struct bed *b = *state;
    br_retry_free(b->retry);
    fake_bed_end(&b->fake);
    free(b);
    return 0;
}

static void send(struct bed *b, enum br_signal signal, uint64_t first, uint32_t n)
{
    br_consume(br_retry_input(b->retry),
               fake_tally_item(&b->fake.tally, &b->fake.h->host, signal, first, n));
}

static void successful_items_are_sent_once(void **state)
{
    struct bed *b = *state;
    make(b);
    send(b, BR_TRACES, 0, 3);
    assert_int_equal(b->fake.tally.n_done, 0);
    fake_host_advance(b->fake.h, 100000);
    assert_int_equal(b->fake.sink.n_items, 1);
    assert_int_equal(b->fake.tally.n_done, 1);
}

static void rejected_items_are_sent_once(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_REJECT;
    send(b, BR_TRACES, 0, 3);
    fake_host_advance(b->fake.h, 100000);
    assert_int_equal(b->fake.sink.n_items, 1);
    assert_int_equal(b->fake.tally.n_reject, 1);
    assert_string_equal(b->fake.tally.last.text, "scripted: reject");
}

/* The first delay is 5 s. Each further one is 1.5 times as long, up to 30 s. */
static void delays_grow_up_to_their_maximum(void **state)
{
    struct bed *b = *state;
    static const uint64_t delays[] = {5000, 7500, 11250, 16875, 25312, 30000, 30000, 30000};
    make(b);
    b->fake.sink.verdict = FAKE_RETRY;
    send(b, BR_TRACES, 0, 1);
    fake_host_iterate(b->fake.h);
    for (unsigned i = 0; i < BR_COUNT(delays); i++) {
        fake_host_advance(b->fake.h, delays[i] - 1);
        assert_int_equal(b->fake.sink.n_items, i + 1);
        fake_host_advance(b->fake.h, 1);
        assert_int_equal(b->fake.sink.n_items, i + 2);
    }
    b->fake.sink.verdict = FAKE_DONE;
    fake_host_advance(b->fake.h, 30000);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_int_equal(b->fake.tally.n, 1);
}

static void jitter_uses_its_whole_range(void **state)
{
    struct bed *b = *state;
    enum { N = 400 };
    uint64_t low = UINT64_MAX, high = 0, sum = 0;
    b->config.randomization_factor = 0.5;
    make(b);
    for (int i = 0; i < N; i++) {
        b->fake.sink.first_fail = 1;
        uint64_t start = b->fake.h->now_ms;
        send(b, BR_TRACES, 0, 1);
        fake_host_advance(b->fake.h, 7500);
        uint64_t delay = b->fake.sink.last_ms - start;
        assert_in_range(delay, 2500, 7500);
        low = delay < low ? delay : low;
        high = delay > high ? delay : high;
        sum += delay;
    }
    assert_int_equal(b->fake.tally.n_done, N);
    assert_true(low < 2600 && high > 7400);
    /* The delays are uniformly distributed over 5,000 ms. The standard deviation of their mean is
     * 5000 / sqrt(12 * N) = 72. The tolerance is five standard deviations. */
    assert_in_range(sum / N, 5000 - 361, 5000 + 361);
}

static void the_servers_hint_wins(void **state)
{
    struct bed *b = *state;
    b->config.randomization_factor = 0.5;
    make(b);
    b->fake.sink.first_fail = 2;
    b->fake.sink.delay_ms = 123;
    send(b, BR_TRACES, 0, 1);
    fake_host_advance(b->fake.h, 122);
    assert_int_equal(b->fake.sink.n_items, 1);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 2);
    b->fake.sink.delay_ms = 90000; /* the requested delay, which is longer than max_interval */
    b->fake.sink.first_fail = 1;
    fake_host_advance(b->fake.h, 123 + 89999);
    assert_int_equal(b->fake.sink.n_items, 3);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 4);
    assert_int_equal(b->fake.tally.n_done, 1);
}

/* A peer that asks for a retry after a millisecond does not get a thousand attempts per second. */
static void short_hints_have_a_least_delay(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_RETRY;
    b->fake.sink.delay_ms = 1;
    send(b, BR_TRACES, 0, 1);
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.sink.n_items, 1 + 10);
}

/* In seconds, the attempts are at 0, 5, 12.5, 23.75, 40.625, 65.937 and then every 30 s up to
 * 275.937. The next one would be after the time limit of 300 s. */
static void retries_end_before_the_time_limit(void **state)
{
    struct bed *b = *state;
    b->config.max_elapsed_time = 300 * S;
    make(b);
    b->fake.sink.verdict = FAKE_RETRY;
    send(b, BR_TRACES, 0, 3);
    fake_host_advance(b->fake.h, 275936);
    assert_int_equal(b->fake.sink.n_items, 12);
    assert_int_equal(b->fake.tally.n, 0);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 13);
    assert_int_equal(b->fake.tally.n_retry, 1);
    assert_string_equal(b->fake.tally.last.text, "scripted: retry");
    fake_host_advance(b->fake.h, 600000);
    assert_int_equal(b->fake.sink.n_items, 13);
}

static void disabled_the_first_answer_counts(void **state)
{
    struct bed *b = *state;
    b->config.enabled = false;
    make(b);
    b->fake.sink.verdict = FAKE_RETRY;
    b->fake.sink.delay_ms = 77;
    send(b, BR_TRACES, 0, 3);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_retry, 1);
    assert_int_equal(b->fake.tally.last.delay_ms, 77);
}

static void items_wait_independently(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.first_fail = 1;
    send(b, BR_TRACES, 0, 1);
    fake_host_advance(b->fake.h, 1000);
    send(b, BR_TRACES, 1, 1);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_done, 1); /* the second item did not wait for the first */
    fake_host_advance(b->fake.h, 4000);
    assert_int_equal(b->fake.tally.n_done, 2);
}

/* --- Too large -------------------------------------------------------------------------------- */

static void items_that_are_too_large_are_halved(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_TOO_LARGE;
    for (int s = 0; s < BR_SIGNALS; s++) {
        uint64_t first = 0;
        for (uint32_t limit = 1; limit <= 5; limit++) {
            for (uint32_t n = 1; n <= 17; n++) {
                struct fake_tally before = b->fake.tally;
                b->fake.sink.limit = limit;
                send(b, (enum br_signal)s, first, n);
                fake_host_iterate(b->fake.h);
                assert_int_equal(fake_sink_once(&b->fake.sink, (enum br_signal)s, first, n), n);
                assert_int_equal(b->fake.tally.n, before.n + 1);
                assert_int_equal(b->fake.tally.n_done, before.n_done + 1);
                first += n;
            }
        }
        assert_int_equal(fake_sink_twice(&b->fake.sink, (enum br_signal)s), 0);
    }
}

/* One of n records is too large for the peer. Each of the log2(n) + 1 pieces that contain this
 * record is rejected. The other log2(n) pieces are accepted. */
static void one_oversized_record_costs_two_log_n_requests(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_TOO_LARGE;
    b->fake.sink.limit = 1000;
    b->fake.sink.n_giants = 1;
    for (int s = 0; s < BR_SIGNALS; s++) {
        for (uint64_t at = 0; at < 64; at++) {
            struct fake_tally before = b->fake.tally;
            unsigned n_before = b->fake.sink.n_items;
            uint64_t first = at * 64;
            b->fake.sink.giant = first + at;
            send(b, (enum br_signal)s, first, 64);
            fake_host_iterate(b->fake.h);
            assert_int_equal(b->fake.sink.n_items - n_before, 2 * 6 + 1);
            assert_int_equal(fake_sink_once(&b->fake.sink, (enum br_signal)s, first, 64), 63);
            assert_int_equal(b->fake.tally.n_done, before.n_done + 1); /* a partial success */
            assert_int_equal(b->fake.tally.last.n_rejected, 1);
            assert_true(b->fake.tally.last.text[0]);
        }
        assert_int_equal(fake_sink_twice(&b->fake.sink, (enum br_signal)s), 0);
        assert_true(*b->fake.h->host.ledger.sent[s] == 64 * 63);
        fake_host_check_ledger(b->fake.h);
    }
}

/* The peer accepts one half of an item, and the other half fails temporarily until the time limit.
 * If the sender sent the whole item again, the accepted half would be duplicated (OTLP, "Partial
 * Success"). */
static void a_failed_half_is_a_partial_success(void **state)
{
    struct bed *b = *state;
    b->config.max_elapsed_time = 60 * S;
    make(b);
    b->fake.sink.verdict = FAKE_TOO_LARGE;
    b->fake.sink.limit = 8;
    send(b, BR_TRACES, 0, 16);
    b->fake.sink.verdict = FAKE_HOLD;
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.sink.n_held, 1);
    fake_sink_release(&b->fake.sink, FAKE_DONE);
    b->fake.sink.verdict = FAKE_RETRY;
    fake_host_advance(b->fake.h, 120000);
    assert_int_equal(b->fake.tally.n, 1);
    assert_int_equal(b->fake.tally.n_done, 1);
    assert_int_equal(b->fake.tally.last.n_rejected, 8);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, 0, 16), 8);
    assert_true(*b->fake.h->host.ledger.sent[BR_TRACES] == 8);
    fake_host_check_ledger(b->fake.h);
}

/* Several adjacent records are too large. Records next to them are not lost. If there are few such
 * records, there are no delays. */
static void adjacent_oversized_records_do_not_affect_others(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_TOO_LARGE;
    b->fake.sink.limit = 1000;
    uint64_t first = 0;
    for (uint32_t n = 1; n < 64; n += 3) {
        for (uint32_t at = 0; at + n <= 64; at += 7) {
            b->fake.sink.giant = first + at;
            b->fake.sink.n_giants = n;
            struct fake_tally before = b->fake.tally;
            send(b, BR_TRACES, first, 64);
            fake_host_advance(b->fake.h, n < 5 ? 0 : 3600000);
            assert_int_equal(fake_sink_once(&b->fake.sink, BR_TRACES, first, 64), 64 - n);
            assert_int_equal(b->fake.tally.n, before.n + 1);
            first += 64;
        }
    }
    assert_int_equal(fake_sink_twice(&b->fake.sink, BR_TRACES), 0);
}

/* A peer rejects pieces of every size as too large. It gets 2 log2(8192) + 2 = 28 rejected
 * requests, and one attempt with the largest piece. Then it gets one request after each delay. In
 * 300 s there are 12 delays: 5, 7.5, 11.25, 16.875, 25.312 and seven times 30 s are 275.937 s. */
static void a_peer_that_rejects_every_piece_gets_few_requests(void **state)
{
    struct bed *b = *state;
    b->config.max_elapsed_time = 300 * S;
    make(b);
    b->fake.sink.verdict = FAKE_TOO_LARGE;
    b->fake.sink.limit = 0;
    send(b, BR_TRACES, 0, 8192);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.sink.n_items, 28 + 1);
    fake_host_advance(b->fake.h, 4999);
    assert_int_equal(b->fake.sink.n_items, 28 + 1);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 28 + 2);
    assert_int_equal(b->fake.tally.n, 0);
    fake_host_advance(b->fake.h, 600000);
    assert_int_equal(b->fake.sink.n_items, 28 + 1 + 12);
    assert_int_equal(b->fake.tally.n, 1);
    assert_int_equal(b->fake.tally.n_done, 0);
    fake_host_check_ledger(b->fake.h);
}

/* When the peer accepts pieces again, all remaining pieces are sent at once. The sizes of the
 * rejected pieces are 64, 32, 16, 8, 4, 2, 1, 1, 2, 1, 1, 4, 2 and 1. Five of them are single
 * records. */
static void a_peer_that_recovers_gets_the_remaining_pieces(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_TOO_LARGE;
    b->fake.sink.limit = 0;
    send(b, BR_PROFILES, 0, 64);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.sink.n_items, 14 + 1);
    b->fake.sink.limit = 64;
    fake_host_advance(b->fake.h, 5000);
    assert_int_equal(b->fake.tally.n, 1);
    assert_int_equal(b->fake.tally.last.n_rejected, 5);
    assert_true(*b->fake.h->host.ledger.sent[BR_PROFILES] == 64 - 5);
    assert_int_equal(fake_sink_once(&b->fake.sink, BR_PROFILES, 0, 64), 64 - 5);
}

/* If retries are disabled, records that were not sent yet get the same result as the rejected
 * records. */
static void disabled_pieces_are_not_retried(void **state)
{
    struct bed *b = *state;
    b->config.enabled = false;
    make(b);
    b->fake.sink.verdict = FAKE_TOO_LARGE;
    b->fake.sink.limit = 0;
    send(b, BR_TRACES, 0, 8192);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.sink.n_items, 28 + 1);
    assert_int_equal(b->fake.tally.n_reject, 1);
    assert_true(*b->fake.h->host.ledger.rejected[BR_TRACES] == 8192);
}

static void a_single_item_that_is_too_large_is_rejected(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_TOO_LARGE;
    b->fake.sink.limit = 0;
    send(b, BR_TRACES, 0, 1);
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.sink.n_items, 1);
    assert_int_equal(b->fake.tally.n_reject, 1);
    assert_int_equal(b->fake.tally.last.status, BR_STATUS_RESOURCE_EXHAUSTED);
    assert_true(*b->fake.h->host.ledger.rejected[BR_TRACES] == 1);
}

/* The two halves of an item are retried separately. Records that were delivered are not sent
 * again. */
static void halves_are_retried_separately(void **state)
{
    struct bed *b = *state;
    b->config.randomization_factor = 0.5;
    make(b);
    for (uint64_t seed = 1; seed <= 50; seed++) {
        for (int s = 0; s < BR_SIGNALS; s++) {
            uint64_t first = seed * 100;
            b->fake.sink.verdict = FAKE_TOO_LARGE;
            b->fake.sink.limit = 4;
            send(b, (enum br_signal)s, first, 30);
            /* number of attempts that fail first; attempts with a half are counted, too */
            b->fake.sink.first_fail = (unsigned)(seed % 7);
            fake_host_advance(b->fake.h, 200000);
            assert_int_equal(fake_sink_once(&b->fake.sink, (enum br_signal)s, first, 30), 30);
        }
    }
    assert_int_equal(b->fake.tally.n_done, 100);
    assert_int_equal(fake_sink_twice(&b->fake.sink, BR_TRACES), 0);
    assert_int_equal(fake_sink_twice(&b->fake.sink, BR_PROFILES), 0);
}

/* --- A peer that is back ---------------------------------------------------------------------- */

/* Five items arrive 3 s apart. All attempts fail for a minute, so that each item waits for up to 30
 * s. */
static void fail_for_a_minute(struct bed *b, enum br_signal signal)
{
    b->fake.sink.verdict = FAKE_RETRY;
    for (uint64_t i = 0; i < 5; i++) {
        send(b, signal, i, 1);
        fake_host_advance(b->fake.h, 3000);
    }
    fake_host_advance(b->fake.h, 45000);
    assert_int_equal(b->fake.tally.n, 0);
}

/* Waits until the sink has received `n` items. Returns the time that took. */
static uint64_t time_until_received(struct bed *b, unsigned n)
{
    uint64_t begun = b->fake.h->now_ms;
    while (b->fake.sink.n_items < n && b->fake.h->now_ms - begun < 100000)
        fake_host_advance(b->fake.h, 1);
    assert_true(b->fake.sink.n_items >= n);
    return b->fake.h->now_ms - begun;
}

static void the_first_answer_after_failures_triggers_the_others(void **state)
{
    struct bed *b = *state;
    make(b);
    fail_for_a_minute(b, BR_TRACES);
    b->fake.sink.verdict = FAKE_DONE;
    (void)time_until_received(b, b->fake.sink.n_items + 1);
    assert_int_equal(b->fake.tally.n_done, 1); /* the items are not all sent at the same moment */
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.tally.n_done, 5);
}

static void one_request_probes_a_reachable_peer(void **state)
{
    struct bed *b = *state;
    make(b);
    fail_for_a_minute(b, BR_PROFILES);
    unsigned before = b->fake.sink.n_items;
    br_retry_reachable(&b->fake.node);
    fake_host_advance(b->fake.h, 0);
    assert_int_equal(b->fake.sink.n_items, before + 1); /* this attempt fails, too */
    assert_int_equal(b->fake.tally.n, 0);
    b->fake.sink.verdict = FAKE_DONE;
    br_retry_reachable(&b->fake.node);
    fake_host_advance(b->fake.h, 0);
    assert_int_equal(b->fake.sink.n_items, before + 2);
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.tally.n_done, 5);
}

/* A peer that is reachable, but does not answer, gets only this one request before the delay
 * ends. */
static void failed_probes_do_not_change_the_delay(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_RETRY;
    send(b, BR_TRACES, 0, 1);
    fake_host_advance(b->fake.h, 5000 + 7500);
    assert_int_equal(b->fake.sink.n_items, 3);
    br_retry_reachable(&b->fake.node);
    fake_host_advance(b->fake.h, 0);
    assert_int_equal(b->fake.sink.n_items, 4);
    fake_host_advance(b->fake.h, 16874);
    assert_int_equal(b->fake.sink.n_items, 4);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.sink.n_items, 5);
    b->fake.sink.verdict = FAKE_DONE;
    fake_host_advance(b->fake.h, 30000);
    assert_int_equal(b->fake.tally.n_done, 1);
}

static void retry_hints_are_respected(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_RETRY;
    b->fake.sink.delay_ms = 90000;
    send(b, BR_TRACES, 0, 1);
    fake_host_iterate(b->fake.h);
    b->fake.sink.delay_ms = 0;
    send(b, BR_TRACES, 1, 1);
    fake_host_advance(b->fake.h, 10000);
    b->fake.sink.verdict = FAKE_DONE;
    br_retry_reachable(&b->fake.node);
    fake_host_advance(b->fake.h, 1000);
    assert_int_equal(b->fake.tally.n_done, 1);
    fake_host_advance(b->fake.h, 90000 - 11000 - 1);
    assert_int_equal(b->fake.tally.n_done, 1);
    fake_host_advance(b->fake.h, 1);
    assert_int_equal(b->fake.tally.n_done, 2);
}

/* Every second request fails. The failed items wait for their delays, even if other items succeed
 * meanwhile. */
static void a_peer_that_accepts_some_requests_gets_no_early_retries(void **state)
{
    struct bed *b = *state;
    make(b);
    for (uint64_t i = 0; i < 4; i++) {
        b->fake.sink.first_fail = 1;
        send(b, BR_TRACES, 2 * i, 1);
        send(b, BR_TRACES, 2 * i + 1, 1);
        fake_host_advance(b->fake.h, 1000);
        assert_int_equal(b->fake.sink.n_items, 2 * (i + 1));
    }
    fake_host_advance(b->fake.h, 10000);
    assert_int_equal(b->fake.tally.n_done, 8);
}

/* The two signals may have different destinations. A success of one signal therefore only causes
 * one request of the other signal, to probe its destination. */
static void an_answer_to_one_signal_triggers_a_probe_of_the_other(void **state)
{
    struct bed *b = *state;
    make(b);
    fail_for_a_minute(b, BR_PROFILES);
    send(b, BR_TRACES, 0, 1);
    fake_host_iterate(b->fake.h);
    unsigned before = b->fake.sink.n_items;
    b->fake.sink.verdict = FAKE_DONE;
    uint64_t took = time_until_received(b, before + 1);
    fake_host_advance(b->fake.h, 1000);
    assert_true(took < 30000);
    assert_int_equal(b->fake.tally.n_done, 6);
}

/* --- The log ---------------------------------------------------------------------------------- */

/* Returns the lines logged since the last call. */
static const char *logged_lines(int fd)
{
    static char text[65536];
    ssize_t n = read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static unsigned lines_of(const char *text, const char *words)
{
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, words)); at++)
        n++;
    return n;
}

/* Logs a warning when failures begin and a line when they have ended, each at most once per
 * minute. */
static void retries_are_logged_once(void **state)
{
    struct bed *b = *state;
    int fds[2];
    assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
    br_log_setup(BR_LOG_INFO, false, fds[1]);
    make(b);
    send(b, BR_TRACES, 0, 1);
    fake_host_iterate(b->fake.h);
    assert_string_equal(logged_lines(fds[0]), "");
    b->fake.sink.first_fail = 3;
    send(b, BR_TRACES, 0, 1);
    send(b, BR_TRACES, 0, 1);
    send(b, BR_TRACES, 0, 1);
    fake_host_advance(b->fake.h, 20000);
    const char *text = logged_lines(fds[0]);
    assert_int_equal(lines_of(text, "not delivered, next attempt in 5.0 s"), 1);
    assert_int_equal(lines_of(text, "the destination responds again after 5.0 s"), 1);
    for (int i = 0; i < 3; i++) { /* failures and successes within the same minute */
        b->fake.sink.first_fail = 1;
        send(b, BR_TRACES, 0, 1);
        fake_host_advance(b->fake.h, 10000);
    }
    assert_string_equal(logged_lines(fds[0]), "");
    fake_host_advance(b->fake.h, 60000);
    b->fake.sink.first_fail = 2;
    send(b, BR_TRACES, 0, 1);
    fake_host_advance(b->fake.h, 100000);
    text = logged_lines(fds[0]);
    assert_int_equal(lines_of(text, "not delivered"), 1);
    assert_int_equal(lines_of(text, "the destination responds again after 12.5 s"), 1);
    fake_host_advance(b->fake.h, 60000);
    b->fake.sink.first_fail = 1;
    send(b, BR_TRACES, 0, 1);
    /* this request was in progress before the failure, so its result does not prove anything */
    send(b, BR_TRACES, 0, 1);
    fake_host_advance(b->fake.h, 999);
    assert_int_equal(lines_of(logged_lines(fds[0]), "responds again"), 0);
    fake_host_advance(b->fake.h, 4001);
    assert_int_equal(lines_of(logged_lines(fds[0]), "the destination responds again after 5.0 s"),
                     1);
    br_log_setup(BR_LOG_ERROR, false, 2);
    close(fds[0]);
    close(fds[1]);
}

/* --- Shutdown --------------------------------------------------------------------------------- */

static void freed_while_waiting_items_return_to_the_senders(void **state)
{
    struct bed *b = *state;
    make(b);
    b->fake.sink.verdict = FAKE_RETRY;
    for (int i = 0; i < 5; i++)
        send(b, BR_TRACES, 0, 2);
    fake_host_advance(b->fake.h, 1000);
    br_retry_free(b->retry);
    b->retry = NULL;
    fake_host_iterate(b->fake.h);
    assert_int_equal(b->fake.tally.n_retry, 5);
    br_retry_free(NULL);
}

static void scenario(void *arg)
{
    const enum br_signal signal = *(const enum br_signal *)arg;
    struct bed *b;
    setup((void **)&b);
    b->fake.sink.verdict = FAKE_TOO_LARGE;
    b->fake.sink.limit = 2;
    b->fake.sink.first_fail = 1;
    fault_start();
    make(b);
    struct br_item *item =
        b->retry ? fake_tally_item(&b->fake.tally, &b->fake.h->host, signal, 0, 6) : NULL;
    if (item) {
        br_consume(br_retry_input(b->retry), item);
        fake_host_advance(b->fake.h, 3000);
        fake_host_advance(b->fake.h, 120000);
    }
    fault_stop();
    fake_host_advance(b->fake.h, 120000); /* memory is available again */
    if (item) {
        assert_int_equal(b->fake.tally.n, 1);
        size_t once = fake_sink_once(&b->fake.sink, signal, 0, 6);
        assert_int_equal(fake_sink_twice(&b->fake.sink, signal), 0);
        if (b->fake.tally.n_done)
            assert_int_equal(once, 6);
        assert_true(b->fake.tally.n_done || fault_failed());
        /* Memory will be available again, so the failure must be retryable. */
        assert_int_equal(b->fake.tally.n_reject, 0);
        assert_true(*b->fake.h->host.ledger.sent[signal] == (double)once);
    }
    teardown((void **)&b);
}

static void without_memory_items_are_not_lost_or_duplicated(void **state)
{
    (void)state;
    for (enum br_signal s = BR_TRACES; s <= BR_PROFILES; s++)
        fault_each("retry", scenario, &s);
}

SUITE(retry)
{
    const struct CMUnitTest tests[] = {
        TEST(successful_items_are_sent_once),
        TEST(rejected_items_are_sent_once),
        TEST(delays_grow_up_to_their_maximum),
        TEST(jitter_uses_its_whole_range),
        TEST(the_servers_hint_wins),
        TEST(short_hints_have_a_least_delay),
        TEST(retries_end_before_the_time_limit),
        TEST(disabled_the_first_answer_counts),
        TEST(items_wait_independently),
        TEST(items_that_are_too_large_are_halved),
        TEST(one_oversized_record_costs_two_log_n_requests),
        TEST(a_failed_half_is_a_partial_success),
        TEST(adjacent_oversized_records_do_not_affect_others),
        TEST(a_peer_that_rejects_every_piece_gets_few_requests),
        TEST(a_peer_that_recovers_gets_the_remaining_pieces),
        TEST(disabled_pieces_are_not_retried),
        TEST(a_single_item_that_is_too_large_is_rejected),
        TEST(halves_are_retried_separately),
        TEST(the_first_answer_after_failures_triggers_the_others),
        TEST(one_request_probes_a_reachable_peer),
        TEST(failed_probes_do_not_change_the_delay),
        TEST(retry_hints_are_respected),
        TEST(a_peer_that_accepts_some_requests_gets_no_early_retries),
        TEST(an_answer_to_one_signal_triggers_a_probe_of_the_other),
        TEST(retries_are_logged_once),
        TEST(freed_while_waiting_items_return_to_the_senders),
        cmocka_unit_test(without_memory_items_are_not_lost_or_duplicated),
    };
    br_log_setup(BR_LOG_ERROR, false, 2);
    return RUN(tests, NULL, NULL);
}
