/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "pipeline/exporter.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"

#define MAX 4

struct bed {
    struct fake_host *h;
    struct fake_sink sinks[MAX];
    struct br_consumer *next[MAX];
    struct fake_tally tally;
};

static int setup(void **state)
{
    struct bed *b = calloc(1, sizeof *b);
    b->h = fake_host_new();
    for (int i = 0; i < MAX; i++) {
        fake_sink_init(&b->sinks[i], &b->h->host);
        b->next[i] = &b->sinks[i].consumer;
    }
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;
    for (int i = 0; i < MAX; i++)
        fake_sink_free(&b->sinks[i]);
    fake_host_turn(b->h);
    fake_host_check_ledger(b->h);
    fake_host_free(b->h);
    free(b);
    return 0;
}

static void everybody_gets_everything_once(void **state)
{
    struct bed *b = *state;
    for (size_t n = 1; n <= MAX; n++) {
        struct br_consumer *f = br_fanout_new(b->next, n);
        for (int s = 0; s < BR_SIGNALS; s++)
            br_consume(f, fake_tally_item(&b->tally, &b->h->host, (enum br_signal)s, n * 100, 7));
        fake_host_turn(b->h);
        for (size_t i = 0; i < MAX; i++)
            for (int s = 0; s < BR_SIGNALS; s++)
                assert_int_equal(fake_sink_once(&b->sinks[i], (enum br_signal)s, n * 100, 7),
                                 i < n ? 7 : 0);
        assert_int_equal(b->tally.n, 2 * n);
        assert_int_equal(b->tally.n_done, 2 * n);
        br_fanout_free(f);
    }
    /* 7 spans to one, then two, three and four destinations. */
    assert_true(*b->h->host.ledger.sent[BR_TRACES] == 7 * (1 + 2 + 3 + 4));
    br_fanout_free(NULL);
}

static void the_sender_hears_when_all_have_answered(void **state)
{
    struct bed *b = *state;
    struct br_consumer *f = br_fanout_new(b->next, 3);
    for (int i = 0; i < 3; i++)
        b->sinks[i].verdict = FAKE_HOLD;
    br_consume(f, fake_tally_item(&b->tally, &b->h->host, BR_TRACES, 0, 5));
    for (int i = 2; i >= 0; i--) {
        fake_host_turn(b->h);
        assert_int_equal(b->tally.n, 0);
        fake_sink_release(&b->sinks[i], FAKE_DONE);
    }
    fake_host_turn(b->h);
    assert_int_equal(b->tally.n_done, 1);
    br_fanout_free(f);
}

static void the_worst_answer_is_the_senders(void **state)
{
    struct bed *b = *state;
    static const enum fake_verdict verdicts[] = {FAKE_DONE, FAKE_RETRY, FAKE_REJECT};
    static const enum br_verdict want[] = {BR_DONE, BR_RETRY, BR_REJECT};
    struct br_consumer *f = br_fanout_new(b->next, 3);
    for (int all = 0; all < 27; all++) {
        int v[3] = {all % 3, all / 3 % 3, all / 9};
        int worst = 0;
        for (int i = 0; i < 3; i++) {
            b->sinks[i].verdict = verdicts[v[i]];
            worst = v[i] > worst ? v[i] : worst;
        }
        br_consume(f, fake_tally_item(&b->tally, &b->h->host, BR_TRACES, 0, 5));
        fake_host_turn(b->h);
        assert_int_equal(b->tally.last.verdict, want[worst]);
        fake_host_check_ledger(b->h);
    }
    assert_int_equal(b->tally.n, 27);
    br_fanout_free(f);
}

static void scenario(void *arg)
{
    struct bed *b;
    (void)arg;
    setup((void **)&b);
    fault_start();
    struct br_consumer *f = br_fanout_new(b->next, 3);
    struct br_item *item = fake_tally_item(&b->tally, &b->h->host, BR_TRACES, 0, 5);
    if (f && item) {
        br_consume(f, item);
        fake_host_turn(b->h);
        assert_int_equal(b->tally.n, 1);
        assert_true(b->tally.n_done == 1 || (fault_failed() && b->tally.n_retry == 1));
    } else {
        br_item_free(item);
    }
    br_fanout_free(f);
    fault_stop();
    teardown((void **)&b);
}

static void without_memory_the_sender_is_told_to_try_again(void **state)
{
    (void)state;
    fault_each("fanout", scenario, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(everybody_gets_everything_once),
        TEST(the_sender_hears_when_all_have_answered),
        TEST(the_worst_answer_is_the_senders),
        cmocka_unit_test(without_memory_the_sender_is_told_to_try_again),
    };
    return cmocka_run_group_tests_name("fanout", tests, NULL, NULL);
}
