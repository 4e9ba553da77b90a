/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>

#include "base/mem.h"
#include "pipeline/exporter.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/test.h"

#define MAX 4

struct bed {
    struct fake_host *h;
    struct fake_sink sinks[MAX];
    struct br_fanout_config config; /* 1 s, 1 MiB */
    struct br_fanout_end ends[MAX];
    struct br_ledger ledgers[MAX]; /* ledgers of the exporters sink/0, sink/1, ... */
    struct fake_tally tally;
};

static int setup(void **state)
{
    static const char *const names[MAX] = {"sink/0", "sink/1", "sink/2", "sink/3"};
    struct bed *b = calloc(1, sizeof *b);
    b->h = fake_host_new();
    b->config = (struct br_fanout_config){.hold_size = 1 << 20, .hold_time = 10000000000u};
    for (int i = 0; i < MAX; i++) {
        fake_sink_init(&b->sinks[i], &b->h->host);
        assert_int_equal(br_ledger_init(&b->ledgers[i], b->h->host.metrics, names[i]), 0);
        b->ends[i] = (struct br_fanout_end){.next = &b->sinks[i].consumer,
                                            .ledger = &b->ledgers[i],
                                            .name = names[i],
                                            .kind = "exporter",
                                            .id = names[i]};
    }
    *state = b;
    return 0;
}

static struct br_fanout *make(struct bed *b, size_t n)
{
    return br_fanout_new(&b->h->host, &b->config, b->ends, n);
}

/* Returns the number of records dropped for the reason; the exporter itself does not report
 * these. */
static double dropped(const struct bed *b, int i, enum br_signal signal, const char *reason)
{
    char labels[128];
    (void)snprintf(labels, sizeof labels, "exporter=\"sink/%d\",signal=\"%s\",reason=\"%s\"", i,
                   br_signal_name(signal), reason);
    double n = fake_host_metric(b->h, "braid_exporter_dropped", labels);
    return n < 0 ? 0 : n;
}

static double lost(const struct bed *b, int i, enum br_signal signal)
{
    static const char *const reasons[] = {
        "lagging", "rejected", "shutdown",        "out_of_memory",
        "other",   "test",     "partial_success", "retries_exhausted"};
    double n = 0;
    for (size_t r = 0; r < BR_COUNT(reasons); r++)
        n += dropped(b, i, signal, reasons[r]);
    return n;
}

/* Checks that the ledgers balance at this moment: the received records are sent, held, rejected or
 * dropped. */
static void check_ledgers(const struct bed *b)
{
    assert_true(fake_host_ledger_closes(b->h));
    for (int i = 0; i < MAX; i++) {
        for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
            const struct br_ledger *l = &b->ledgers[i];
            assert_true(*l->received[s] ==
                        *l->sent[s] + *l->rejected[s] + *l->held[s] + lost(b, i, s));
            assert_true(*l->held[s] >= 0);
        }
    }
}

static int teardown(void **state)
{
    struct bed *b = *state;
    for (int i = 0; i < MAX; i++)
        fake_sink_free(&b->sinks[i]);
    fake_host_iterate(b->h);
    fake_host_check_ledger(b->h);
    check_ledgers(b);
    for (int i = 0; i < MAX; i++)
        for (int s = 0; s < BR_SIGNALS; s++)
            assert_true(*b->ledgers[i].held[s] == 0);
    fake_host_free(b->h);
    free(b);
    return 0;
}

static void send_to(struct bed *b, struct br_fanout *f, uint64_t first, uint32_t n)
{
    br_consume(br_fanout_input(f), fake_tally_item(&b->tally, &b->h->host, BR_TRACES, first, n));
    fake_host_iterate(b->h);
    check_ledgers(b);
}

static double ledger(const struct bed *b, double *const *entry)
{
    (void)b;
    return *entry[BR_TRACES];
}

static void destinations_receive_everything_once(void **state)
{
    struct bed *b = *state;
    for (size_t n = 1; n <= MAX; n++) {
        struct br_fanout *f = make(b, n);
        for (int s = 0; s < BR_SIGNALS; s++)
            br_consume(br_fanout_input(f),
                       fake_tally_item(&b->tally, &b->h->host, (enum br_signal)s, n * 100, 7));
        fake_host_iterate(b->h);
        for (size_t i = 0; i < MAX; i++)
            for (int s = 0; s < BR_SIGNALS; s++)
                assert_int_equal(fake_sink_once(&b->sinks[i], (enum br_signal)s, n * 100, 7),
                                 i < n ? 7 : 0);
        assert_int_equal(b->tally.n, 2 * n);
        assert_int_equal(b->tally.n_done, 2 * n);
        br_fanout_free(f);
    }
    /* 7 spans are sent to one, two, three and four destinations, so the ledger counts 28 spans. */
    assert_true(*b->h->host.ledger.received[BR_TRACES] == 4 * 7);
    assert_true(*b->h->host.ledger.sent[BR_TRACES] == 4 * 7);
    for (int i = 0; i < MAX; i++)
        assert_true(*b->ledgers[i].sent[BR_TRACES] == (MAX - i) * 7);
    br_fanout_free(NULL);
}

static void senders_are_answered_after_all_destinations(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make(b, 3);
    for (int i = 0; i < 3; i++)
        b->sinks[i].verdict = FAKE_HOLD;
    br_consume(br_fanout_input(f), fake_tally_item(&b->tally, &b->h->host, BR_TRACES, 0, 5));
    for (int i = 2; i >= 0; i--) {
        fake_host_iterate(b->h);
        assert_int_equal(b->tally.n, 0);
        fake_sink_release(&b->sinks[i], FAKE_DONE);
    }
    fake_host_iterate(b->h);
    assert_int_equal(b->tally.n_done, 1);
    br_fanout_free(f);
}

/* If one destination rejects the item, the item is rejected. If all destinations fail temporarily,
 * the sender must retry. If only some of them fail temporarily, the item is done, and the fan-out
 * keeps it for those destinations. */
static void the_result_combines_all_destinations(void **state)
{
    struct bed *b = *state;
    static const enum fake_verdict verdicts[] = {FAKE_DONE, FAKE_RETRY, FAKE_REJECT};
    struct br_fanout *f = NULL;
    for (unsigned all = 0; all < 27; all++) {
        unsigned v[3] = {all % 3, all / 3 % 3, all / 9}, n[3] = {0};
        f = make(b, 3);
        for (int i = 0; i < 3; i++) {
            b->sinks[i].verdict = verdicts[v[i]];
            n[v[i]]++;
        }
        send_to(b, f, 0, 5);
        enum br_verdict expected = n[0] ? BR_DONE : BR_RETRY;
        if (n[2])
            expected = BR_REJECT;
        assert_int_equal(b->tally.last.verdict, expected);
        assert_true(br_fanout_idle(f) == (n[1] == 0 || n[1] == 3));
        br_fanout_free(f);
        fake_host_iterate(b->h);
        check_ledgers(b);
    }
    assert_int_equal(b->tally.n, 27);
}

/* --- One slow destination --------------------------------------------------------------------- */

static void failed_items_are_held_for_one_destination(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make(b, 2);
    b->sinks[1].verdict = FAKE_RETRY;
    for (uint64_t i = 0; i < 40; i++)
        send_to(b, f, i * 5, 5);
    assert_int_equal(b->tally.n_done, 40);
    assert_int_equal(fake_sink_once(&b->sinks[0], BR_TRACES, 0, 200), 200);
    /* a new item does not cause another attempt to send the kept items */
    assert_int_equal(b->sinks[1].n_items, 1);
    assert_true(fake_host_metric(b->h, "braid_fanout_held",
                                 "exporter=\"sink/1\",signal=\"traces\"") == 200);
    assert_true(*b->ledgers[1].held[BR_TRACES] == 200);
    assert_true(ledger(b, b->h->host.ledger.received) == 200);
    /* one destination has received all of them */
    assert_true(ledger(b, b->h->host.ledger.sent) == 200);
    fake_host_advance(b->h, 3000);
    b->sinks[1].verdict = FAKE_DONE;
    fake_host_advance(b->h, 2000);
    assert_int_equal(fake_sink_once(&b->sinks[1], BR_TRACES, 0, 200), 200);
    assert_int_equal(fake_sink_twice(&b->sinks[0], BR_TRACES), 0);
    assert_true(br_fanout_idle(f));
    assert_true(*b->ledgers[1].received[BR_TRACES] == 200);
    assert_true(*b->ledgers[1].sent[BR_TRACES] == 200);
    /* new items are offered at once again after the destination accepted the kept items */
    send_to(b, f, 200, 5);
    assert_int_equal(fake_sink_once(&b->sinks[1], BR_TRACES, 200, 5), 5);
    br_fanout_free(f);
}

static void held_items_above_the_bound_are_dropped(void **state)
{
    struct bed *b = *state;
    struct wire w = {0};
    items_traces(&w, 0, 5, 1);
    b->config.hold_size =
        (int64_t)(10 * (w.len + 2000)); /* at least ten items and their overhead */
    b->sinks[1].verdict = FAKE_RETRY;
    struct br_fanout *f = make(b, 2);
    for (uint64_t i = 0; i < 100; i++)
        send_to(b, f, i * 5, 5);
    assert_int_equal(b->tally.n_done, 100);
    double held = *b->ledgers[1].held[BR_TRACES];
    assert_true(held >= 50 && held < 500);
    assert_true(dropped(b, 1, BR_TRACES, "lagging") == 500 - held);
    assert_true(fake_host_metric(b->h, "braid_fanout_dropped",
                                 "exporter=\"sink/1\",signal=\"traces\"") == 500 - held);
    /* Both destinations have received everything. */
    assert_true(ledger(b, b->h->host.ledger.sent) == 500);
    b->sinks[1].verdict = FAKE_DONE;
    fake_host_advance(b->h, 2000);
    assert_int_equal(fake_sink_once(&b->sinks[1], BR_TRACES, 0, (size_t)held), (size_t)held);
    br_fanout_free(f);
    wire_free(&w);
}

static void items_held_too_long_are_dropped(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make(b, 2);
    b->sinks[0].verdict = FAKE_RETRY;
    send_to(b, f, 0, 5);
    fake_host_advance(b->h, 9000);
    send_to(b, f, 5, 5);
    fake_host_advance(b->h, 2000);
    assert_true(dropped(b, 0, BR_TRACES, "lagging") == 5);
    assert_true(*b->ledgers[0].held[BR_TRACES] == 5);
    fake_host_advance(b->h, 10000);
    assert_true(dropped(b, 0, BR_TRACES, "lagging") == 10);
    assert_true(br_fanout_idle(f));
    br_fanout_free(f);
}

static void items_that_fail_everywhere_return_to_the_sender(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make(b, 3);
    for (int i = 0; i < 3; i++)
        b->sinks[i].verdict = FAKE_RETRY;
    b->sinks[1].delay_ms = 700;
    send_to(b, f, 0, 5);
    assert_int_equal(b->tally.n_retry, 1);
    assert_int_equal(b->tally.last.delay_ms, 700);
    assert_true(br_fanout_idle(f));
    assert_true(ledger(b, b->h->host.ledger.rejected) == 5);
    for (int i = 0; i < 3; i++)
        b->sinks[i].verdict = FAKE_DONE;
    send_to(b, f, 0, 5);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fake_sink_once(&b->sinks[i], BR_TRACES, 0, 5), 5);
    br_fanout_free(f);
}

/* One destination accepts the item after the other destination has failed. Until then, the result
 * is not known, because the sender may have to retry. */
static void a_late_answer_decides(void **state)
{
    struct bed *b = *state;
    static const enum fake_verdict late[] = {FAKE_DONE, FAKE_RETRY};
    for (int i = 0; i < 2; i++) {
        struct br_fanout *f = make(b, 2);
        b->sinks[0].verdict = FAKE_HOLD;
        b->sinks[1].verdict = FAKE_RETRY;
        send_to(b, f, (uint64_t)i * 5, 5);
        assert_int_equal(b->tally.n, (unsigned)i);
        fake_sink_release(&b->sinks[0], late[i]);
        fake_host_iterate(b->h);
        check_ledgers(b);
        assert_int_equal(b->tally.n_done, 1);
        assert_int_equal(b->tally.n_retry, (unsigned)i);
        b->sinks[1].verdict = FAKE_DONE;
        fake_host_advance(b->h, 2000);
        assert_int_equal(fake_sink_once(&b->sinks[1], BR_TRACES, 0, 10), 5);
        assert_true(br_fanout_idle(f));
        br_fanout_free(f);
    }
}

static void delivery_includes_all_destinations(void **state)
{
    struct bed *b = *state;
    for (unsigned i = 0; i < 4; i++) {
        b->ends[1].delivers = i & 1;
        struct br_fanout *f = make(b, 2);
        struct br_item *item = fake_tally_item(&b->tally, &b->h->host, BR_TRACES, i * 5, 5);
        item->sender = b->ends[1].delivers ? BR_SENDER_OPEN : BR_SENDER_WAITS;
        b->sinks[1].verdict = FAKE_RETRY;
        br_consume(br_fanout_input(f), item);
        fake_host_iterate(b->h);
        assert_int_equal(b->tally.n, i);
        if (i < 2)
            b->sinks[1].verdict = FAKE_DONE;
        fake_host_advance(b->h, 20000);
        assert_int_equal(b->tally.n_done, i + 1);
        assert_int_equal(b->tally.last.text[0] != 0,
                         /* the sender learns that one destination has not received the records */
                         i >= 2);
        /* a rejected count of 0: the records are kept for that destination */
        assert_int_equal(b->tally.last.n_rejected, i == 2 ? 5 : 0);
        check_ledgers(b);
        br_fanout_free(f);
    }
    assert_int_equal(fake_sink_once(&b->sinks[1], BR_TRACES, 0, 20), 10);
}

static struct br_item *answered_item(struct bed *b, uint64_t first)
{
    struct br_item *item = fake_tally_item(&b->tally, &b->h->host, BR_TRACES, first, 5);
    item->sender = BR_SENDER_ANSWERED;
    return item;
}

static struct br_fanout *make_delivering(struct bed *b, size_t detached_bytes)
{
    for (int i = 0; i < 2; i++) {
        b->ends[i].delivers = true;
        b->ends[i].detached_bytes = detached_bytes;
    }
    return make(b, 2);
}

/* A batch whose senders have already been answered does not wait for a destination that fails or
 * does not answer. Later, this destination receives each record once. */
static void batches_with_answered_senders_do_not_block(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make_delivering(b, 1 << 20);
    b->sinks[1].verdict = FAKE_RETRY;
    br_consume(br_fanout_input(f), answered_item(b, 0));
    fake_host_iterate(b->h);
    assert_int_equal(b->tally.n_done, 1);
    b->sinks[1].verdict = FAKE_DONE;
    fake_host_advance(b->h, 2000);
    assert_int_equal(fake_sink_once(&b->sinks[1], BR_TRACES, 0, 5), 5);

    b->sinks[1].verdict = FAKE_HOLD;
    for (unsigned i = 0; i < 3; i++) {
        br_consume(br_fanout_input(f), answered_item(b, 5 + i * 5));
        fake_host_iterate(b->h);
        check_ledgers(b);
        assert_int_equal(b->tally.n_done, i + 2);
    }
    assert_int_equal(b->tally.last.text[0], 0);
    b->sinks[1].verdict = FAKE_DONE;
    /* the item is kept for the destination that failed */
    fake_sink_release_one(&b->sinks[1], FAKE_RETRY);
    fake_sink_release_one(&b->sinks[1], FAKE_REJECT);
    fake_sink_release_one(&b->sinks[1], FAKE_DONE);
    fake_host_iterate(b->h);
    check_ledgers(b);
    assert_false(br_fanout_idle(f));
    fake_host_advance(b->h, 2000);
    check_ledgers(b);
    assert_true(br_fanout_idle(f));
    assert_true(*b->ledgers[1].rejected[BR_TRACES] == 5 && *b->ledgers[1].sent[BR_TRACES] == 15);
    assert_int_equal(fake_sink_once(&b->sinks[0], BR_TRACES, 0, 20), 20);
    br_fanout_free(f);
}

/* An item larger than the limit for kept bytes is kept, too. */
static void an_item_larger_than_the_bound_is_held(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make_delivering(b, 3000);
    b->sinks[1].verdict = FAKE_HOLD;
    for (unsigned i = 0; i < 10; i++) {
        br_consume(br_fanout_input(f), answered_item(b, i * 5));
        fake_host_iterate(b->h);
    }
    assert_int_equal(b->tally.n_done, 10);
    assert_in_range(b->sinks[1].n_items, 2, 3);
    b->sinks[1].verdict = FAKE_DONE;
    fake_sink_release(&b->sinks[1], FAKE_DONE);
    fake_host_advance(b->h, 2000);
    assert_true(br_fanout_idle(f));
    assert_true(*b->ledgers[1].sent[BR_TRACES] == 50 && lost(b, 1, BR_TRACES) == 0);
    br_fanout_free(f);
}

/* A sender waits for a slow destination for a limited time. Later senders do not wait for it until
 * it works again. */
static void senders_wait_for_a_limited_time(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make_delivering(b, 1 << 20);
    b->sinks[1].verdict = FAKE_HOLD;
    send_to(b, f, 0, 5);
    fake_host_advance(b->h, BR_FANOUT_WAIT_MS - 100);
    assert_int_equal(b->tally.n, 0);
    fake_host_advance(b->h, 200);
    check_ledgers(b);
    assert_int_equal(b->tally.n_done, 1);
    assert_int_equal(b->tally.last.n_rejected, 0);
    assert_non_null(strstr(b->tally.last.text, "sink/1"));
    send_to(b, f, 5, 5);
    assert_int_equal(b->tally.n_done, 2);
    assert_non_null(strstr(b->tally.last.text, "sink/1"));
    fake_sink_release(&b->sinks[1], FAKE_DONE);
    fake_host_iterate(b->h);
    assert_true(br_fanout_idle(f));
    send_to(b, f, 10, 5);
    assert_int_equal(b->tally.n_done, 2);
    fake_sink_release(&b->sinks[1], FAKE_DONE);
    fake_host_iterate(b->h);
    assert_int_equal(b->tally.n_done, 3);
    assert_int_equal(b->tally.last.text[0], 0);
    assert_true(*b->ledgers[1].sent[BR_TRACES] == 15);
    br_fanout_free(f);
}

/* After a sender has waited for a destination in vain, later senders do not wait for it until it
 * accepts an item. A rejection does not count as acceptance. If `held`, the destination fails
 * temporarily, and the fan-out keeps the items and offers them again. Otherwise the destination
 * keeps the items and answers later. */
static void check_stays_slow(struct bed *b, bool held)
{
    struct br_fanout *f = make_delivering(b, held ? 0 : 1 << 20);
    const enum fake_verdict slow = held ? FAKE_RETRY : FAKE_HOLD;
    uint64_t first = 0;
    b->tally = (struct fake_tally){0};
    b->sinks[1].verdict = slow;
    send_to(b, f, first, 5);
    fake_host_advance(b->h, BR_FANOUT_WAIT_MS + 100);
    assert_int_equal(b->tally.n, 1);
    for (int accepts = 0; accepts < 2; accepts++) {
        /* The destination rejects or accepts all items that it holds, and then the next item at
         * once. */
        b->sinks[1].verdict = accepts ? FAKE_DONE : FAKE_REJECT;
        fake_sink_release(&b->sinks[1], accepts ? FAKE_DONE : FAKE_REJECT);
        fake_host_advance(b->h, 20000);
        assert_true(br_fanout_idle(f));
        send_to(b, f, first += 5, 5);
        b->sinks[1].verdict = slow;
        send_to(b, f, first += 5, 5);
        assert_int_equal(b->tally.n, accepts ? 4 : 3);
    }
    b->sinks[1].verdict = FAKE_DONE;
    fake_sink_release(&b->sinks[1], FAKE_DONE);
    fake_host_advance(b->h, 20000);
    assert_int_equal(b->tally.n, 5);
    assert_true(br_fanout_idle(f));
    br_fanout_free(f);
}

static void a_destination_stays_slow_until_it_accepts_an_item(void **state)
{
    check_stays_slow(*state, false);
    check_stays_slow(*state, true);
}

/* After a temporary failure, a destination accepts an item in time. Senders then wait for it
 * again. */
static void a_destination_that_accepts_in_time_is_not_slow(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make_delivering(b, 0);
    for (unsigned i = 0; i < 3; i++) {
        b->sinks[1].verdict = FAKE_RETRY;
        send_to(b, f, i * 5, 5);
        assert_int_equal(b->tally.n, i);
        b->sinks[1].verdict = FAKE_DONE;
        fake_host_advance(b->h, 2000);
        assert_int_equal(b->tally.n_done, i + 1);
        assert_int_equal(b->tally.last.text[0], 0);
    }
    assert_true(br_fanout_idle(f));
    br_fanout_free(f);
}

/* --- Destinations that retry --------------------------------------------------------------------
 */

static struct br_fanout *make_detaching(struct bed *b, size_t detached_bytes)
{
    for (int i = 0; i < 2; i++) {
        b->ends[i].delivers = b->ends[i].final = true;
        b->ends[i].detached_bytes = detached_bytes;
    }
    return make(b, 2);
}

/* A destination that does not answer, or that retries for minutes, does not delay the other
 * destinations. */
static void slow_destinations_detach(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make_detaching(b, 1 << 20);
    b->sinks[1].verdict = FAKE_HOLD;
    for (unsigned i = 0; i < 3; i++) {
        send_to(b, f, i * 5, 5);
        assert_int_equal(b->tally.n_done, i + 1);
    }
    assert_false(br_fanout_idle(f));
    assert_true(ledger(b, b->h->host.ledger.sent) == 15 && *b->ledgers[1].held[BR_TRACES] == 15);
    fake_sink_release_one(&b->sinks[1], FAKE_RETRY); /* the destination gives up its retries */
    fake_sink_release_one(&b->sinks[1], FAKE_REJECT);
    fake_sink_release_one(&b->sinks[1], FAKE_DONE);
    fake_host_iterate(b->h);
    check_ledgers(b);
    assert_true(br_fanout_idle(f));
    assert_true(ledger(b, b->h->host.ledger.sent) == 15);
    assert_true(dropped(b, 1, BR_TRACES, "retries_exhausted") == 5);
    assert_true(*b->ledgers[1].rejected[BR_TRACES] == 5 && *b->ledgers[1].sent[BR_TRACES] == 5);
    br_fanout_free(f);
}

static void detached_bytes_are_limited(void **state)
{
    struct bed *b = *state;
    /* max_bytes of 3000; each item counts as more than 1 KiB */
    struct br_fanout *f = make_detaching(b, 3000);
    b->sinks[1].verdict = FAKE_HOLD;
    for (unsigned i = 0; i < 10; i++)
        send_to(b, f, i * 5, 5);
    assert_int_equal(b->tally.n_done, 10);
    assert_in_range(b->sinks[1].n_items, 2, 3);
    assert_true(dropped(b, 1, BR_TRACES, "lagging") == (10 - b->sinks[1].n_items) * 5);
    unsigned n = b->sinks[1].n_items;
    fake_sink_release(&b->sinks[1], FAKE_DONE);
    fake_host_iterate(b->h);
    send_to(b, f, 50, 5);
    assert_int_equal(b->sinks[1].n_items, n + 1);
    fake_sink_release(&b->sinks[1], FAKE_DONE);
    fake_host_iterate(b->h);
    br_fanout_free(f);
}

/* The sender still waits if no destination has accepted the item, or if it needs to know the result
 * of the delivery. */
static void destinations_do_not_detach_if_a_sender_waits(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make_detaching(b, 1 << 20);
    b->sinks[1].verdict = FAKE_HOLD;
    struct br_item *item = fake_tally_item(&b->tally, &b->h->host, BR_TRACES, 0, 5);
    item->sender = BR_SENDER_WAITS;
    br_consume(br_fanout_input(f), item);
    b->sinks[0].verdict = FAKE_HOLD;
    send_to(b, f, 5, 5);
    assert_int_equal(b->tally.n, 0);
    fake_sink_release(&b->sinks[0], FAKE_RETRY);
    fake_sink_release(&b->sinks[1], FAKE_RETRY);
    fake_host_iterate(b->h);
    assert_int_equal(b->tally.n_done, 1);
    assert_int_equal(b->tally.n_retry, 1);
    br_fanout_free(f);
}

/* If several copies of a request are rejected in part, the counts are not added. The highest count
 * is reported. */
static void partial_rejections_of_copies_do_not_add_up(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make(b, 2);
    b->sinks[0].n_rejected = 2;
    b->sinks[1].n_rejected = 3;
    send_to(b, f, 0, 10);
    assert_int_equal(b->tally.last.n_rejected, 3);
    assert_true(ledger(b, b->h->host.ledger.sent) == 8);
    assert_true(fake_host_dropped(b->h, BR_TRACES, "partial_success") == 2);
    assert_true(*b->ledgers[1].sent[BR_TRACES] == 7);
    br_fanout_free(f);
}

static void held_items_are_dropped_for_shutdown(void **state)
{
    struct bed *b = *state;
    struct br_fanout *f = make(b, 2);
    b->sinks[0].verdict = FAKE_RETRY;
    send_to(b, f, 0, 5);
    br_fanout_close(f);
    assert_true(dropped(b, 0, BR_TRACES, "shutdown") == 5);
    assert_true(br_fanout_idle(f));
    send_to(b, f, 5, 5);
    assert_true(dropped(b, 0, BR_TRACES, "shutdown") == 10);
    br_fanout_free(f);
}

static void a_destination_that_gave_up_gets_no_retry(void **state)
{
    struct bed *b = *state;
    b->ends[0].final = true;
    struct br_fanout *f = make(b, 2);
    b->sinks[0].verdict = FAKE_RETRY;
    send_to(b, f, 0, 5);
    assert_int_equal(b->tally.n_done, 1);
    assert_true(dropped(b, 0, BR_TRACES, "retries_exhausted") == 5);
    fake_host_advance(b->h, 5000);
    assert_int_equal(b->sinks[0].n_items, 1);
    br_fanout_free(f);
}

/* --- Ledgers of nested fan-outs --------------------------------------------------------------- */

/* The output of one fan-out goes to a second one. Both feed queues that merge items. For random
 * answers, all ledgers balance after every tenth request, and no destination receives a record
 * twice. */
static void balance_ledgers(struct bed *b, bool waits)
{
    struct br_node nodes[MAX];
    struct br_queue *queues[MAX];
    struct br_queue_batch_config batch = {
        .flush_timeout = 20000000, .min_size = 20, .max_size = 7, .partition.cache_size = 10000};
    struct br_queue_config config = {
        .enabled = true, .num_consumers = 2, .queue_size = 30, .batch = &batch};
    uint64_t seed = 7;
    for (int i = 0; i < MAX; i++) {
        nodes[i] = fake_node(&b->h->host);
        nodes[i].ledger = &b->ledgers[i];
        b->sinks[i].verdict = FAKE_RANDOM;
        b->sinks[i].seed = (uint64_t)i;
        b->ends[i].delivers = i == 1;
        b->ends[i].detached_bytes = i == 1 ? 8000 : 0;
        queues[i] = br_queue_new(&nodes[i], &config, &b->sinks[i].consumer);
        b->ends[i].next = i == 1 ? &b->sinks[i].consumer : br_queue_input(queues[i]);
    }
    b->config.hold_size = 10000;
    struct br_fanout *inner = make(b, 3);
    struct br_fanout_end ends[2] = {
        b->ends[3],
        {.next = br_fanout_input(inner), .name = "inner", .kind = "pipeline", .id = "inner"}};
    struct br_fanout *outer = br_fanout_new(&b->h->host, &b->config, ends, 2);
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t r = fake_random(&seed);
        struct br_item *item =
            fake_tally_item(&b->tally, &b->h->host, BR_TRACES, i * 9, 1 + (uint32_t)(r >> 1) % 9);
        if (r & 1024)
            item->sender = BR_SENDER_ANSWERED;
        else if (waits && r & 2048)
            item->sender = BR_SENDER_WAITS;
        br_consume(br_fanout_input(r & 1 ? inner : outer), item);
        fake_host_iterate(b->h);
        if (r & 64)
            fake_host_advance(b->h, r >> 8 & 31);
        if (i % 10 == 0)
            check_ledgers(b);
    }
    fake_host_advance(b->h, 60000);
    assert_int_equal(b->tally.n, 2000);
    for (int i = 0; i < MAX && !waits; i++) {
        size_t got = fake_sink_once(&b->sinks[i], BR_TRACES, 0, 18000);
        assert_int_equal(fake_sink_twice(&b->sinks[i], BR_TRACES), 0);
        assert_true(*b->ledgers[i].sent[BR_TRACES] == (double)got && got > 0);
    }
    assert_true(ledger(b, b->h->host.ledger.held) == 0);
    for (int i = 0; i < MAX; i++) {
        br_queue_close(queues[i]);
        br_queue_free(queues[i]);
    }
    br_fanout_free(outer);
    br_fanout_free(inner);
}

static void ledgers_balance_for_random_answers(void **state)
{
    balance_ledgers(*state, false);
}

/* If a sender waits for the delivery, records that were delivered in part may arrive twice. */
static void ledgers_balance_with_senders_that_wait(void **state)
{
    balance_ledgers(*state, true);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void scenario(void *arg)
{
    struct bed *b;
    (void)arg;
    setup((void **)&b);
    fault_start();
    struct br_fanout *f = make(b, 3);
    struct br_item *item = fake_tally_item(&b->tally, &b->h->host, BR_TRACES, 0, 5);
    if (f && item) {
        b->sinks[0].first_fail = 1;
        br_consume(br_fanout_input(f), item);
        fake_host_iterate(b->h);
        assert_int_equal(b->tally.n, 1);
        assert_true(b->tally.n_done == 1 || (fault_failed() && b->tally.n_retry == 1));
        fake_host_advance(b->h, 20000);
        assert_true(fault_failed() || b->sinks[0].n_done == 1);
    } else {
        br_item_free(item);
    }
    br_fanout_free(f);
    fault_stop();
    teardown((void **)&b);
}

static void without_memory_the_sender_must_retry(void **state)
{
    (void)state;
    fault_each("fanout", scenario, NULL);
}

SUITE(fanout)
{
    br_log_setup(BR_LOG_ERROR, false, open("/dev/null", O_WRONLY | O_CLOEXEC));
    const struct CMUnitTest tests[] = {
        TEST(destinations_receive_everything_once),
        TEST(senders_are_answered_after_all_destinations),
        TEST(the_result_combines_all_destinations),
        TEST(failed_items_are_held_for_one_destination),
        TEST(held_items_above_the_bound_are_dropped),
        TEST(items_held_too_long_are_dropped),
        TEST(items_that_fail_everywhere_return_to_the_sender),
        TEST(a_late_answer_decides),
        TEST(delivery_includes_all_destinations),
        TEST(batches_with_answered_senders_do_not_block),
        TEST(an_item_larger_than_the_bound_is_held),
        TEST(senders_wait_for_a_limited_time),
        TEST(a_destination_stays_slow_until_it_accepts_an_item),
        TEST(a_destination_that_accepts_in_time_is_not_slow),
        TEST(slow_destinations_detach),
        TEST(detached_bytes_are_limited),
        TEST(destinations_do_not_detach_if_a_sender_waits),
        TEST(partial_rejections_of_copies_do_not_add_up),
        TEST(held_items_are_dropped_for_shutdown),
        TEST(a_destination_that_gave_up_gets_no_retry),
        TEST(ledgers_balance_for_random_answers),
        TEST(ledgers_balance_with_senders_that_wait),
        cmocka_unit_test(without_memory_the_sender_must_retry),
    };
    return RUN(tests, NULL, NULL);
}
