/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the items that the join holds: their limit, and how they are released. */
#include "tests/support/join_steps.h"
#include "tests/support/test.h"

static void items_beyond_the_limit_are_not_held(void **state)
{
    (void)state;
    struct wire w = {0};
    char config[128];
    put_one_sample(&w, "shop", 7, 42, 5);
    (void)snprintf(config, sizeof config, "{profile_hold: 10s, hold_max_bytes: %zu}", 2 * w.len);
    struct join_rig *r = join_rig_new(config, NULL, 0);
    for (unsigned i = 0; i < 3; i++)
        join_rig_send(r, BR_PROFILES, &w, false);
    assert_int_equal(r->n_out, 1);
    assert_int_equal((int)join_rig_count(r, "hold_full_items", NULL), 1);
    /* The item that was not held arrived before its span, as it would without profile_hold. */
    join_steps_send_span(r, "shop", 7, 42, "GET");
    join_steps_check_counts(r, CPU, 0, 1, 0, 0, 0);
    fake_host_advance(r->h, 10000);
    assert_int_equal(r->n_out, 4);
    join_steps_check_counts(r, CPU, 0, 3, 0, 0, 0);
    /* there is room again, but this item does not need to be held */
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_int_equal(r->n_out, 5);
    wire_free(&w);
    join_rig_free(r);
}

/* Items that were released but not delivered still count against the limit. Senders therefore
 * notice a destination that does not accept anything. */
static void undelivered_items_count_against_the_limit(void **state)
{
    (void)state;
    struct wire w = {0};
    char config[128];
    put_one_sample(&w, "shop", 7, 42, 5);
    (void)snprintf(config, sizeof config, "{profile_hold: 1s, hold_max_bytes: %zu}", 2 * w.len);
    struct join_rig *r = join_rig_new(config, NULL, 0);
    r->verdict = RIG_KEEP;
    for (unsigned i = 0; i < 2; i++)
        join_rig_send(r, BR_PROFILES, &w, false);
    fake_host_advance(r->h, 1000);
    assert_int_equal(r->n_kept, 2);
    assert_int_equal(r->n_done, 2);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_int_equal(r->n_kept, 3);
    assert_int_equal(r->n_done, 2); /* the sender of this item waits for the outcome */
    join_rig_release(r, RIG_DONE);
    assert_int_equal(r->n_done, 3);
    join_rig_send(r, BR_PROFILES, &w, false);
    assert_int_equal(r->n_done, 4);
    assert_int_equal(r->n_kept, 0);
    wire_free(&w);
    join_rig_free(r);
}

static void failed_items_are_sent_again(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{hold: 1s, profile_hold: 1s}", NULL, 0);
    r->verdict = RIG_RETRY;
    join_steps_send_sample(r, "shop", 7, 42, 5);
    join_steps_send_span(r, "shop", 7, 42, "GET");
    assert_int_equal(r->n_out, 0);
    assert_int_equal(r->n_done, 2);
    fake_host_advance(r->h, 5000);
    assert_true(r->n_out > 4); /* both, repeatedly */
    assert_int_equal(*r->h->host.ledger.held[BR_TRACES], 1);
    r->verdict = RIG_DONE;
    fake_host_advance(r->h, 20000);
    assert_int_equal(*r->h->host.ledger.held[BR_TRACES], 0);
    assert_int_equal(*r->h->host.ledger.sent[BR_TRACES], 1);
    assert_int_equal(*r->h->host.ledger.sent[BR_PROFILES], 1);
    /* the sample is counted once, however often it was sent */
    join_steps_check_counts(r, CPU, 0, 1, 0, 0, 0);
    join_rig_free(r);
}

static void items_rejected_after_a_hold_are_dropped(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{profile_hold: 1s}", NULL, 0);
    r->verdict = RIG_REJECT;
    join_steps_send_sample(r, "shop", 7, 42, 5);
    fake_host_advance(r->h, 1000);
    assert_int_equal(r->n_out, 1);
    assert_int_equal((int)fake_host_dropped(r->h, BR_PROFILES, "rejected"), 1);
    join_rig_free(r);
}

static void draining_releases_held_items(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{hold: 1m, profile_hold: 1m}", NULL, 0);
    join_steps_send_sample(r, "shop", 7, 42, 5);
    join_steps_send_span(r, "shop", 7, 42, "GET");
    join_steps_send_span(r, "shop", 7, 43, "PUT");
    assert_int_equal(r->n_out, 0);
    r->verdict = RIG_RETRY;
    join_rig_drain(r);
    assert_int_equal(r->n_out, 3);
    assert_false(r->drained); /* not delivered yet */
    assert_string_equal(r->out[0].text, "5 " T7 "/" S42 ": span.name=GET\n");
    assert_non_null(strstr(r->out[1].text, "profile.sample_count=5"));
    assert_string_equal(r->out[2].text, "PUT 000000000000002b:\n");
    r->verdict = RIG_DONE;
    fake_host_advance(r->h, 1000);
    assert_true(r->drained);
    /* Items that arrive now are not held. */
    join_steps_send_sample(r, "shop", 7, 44, 5);
    assert_int_equal(r->n_out, 7);
    join_rig_free(r);
}

static void an_idle_join_drains_at_once(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{}", NULL, 0);
    join_rig_drain(r);
    assert_true(r->drained);
    join_rig_free(r);
}

static void destroying_drops_held_items(void **state)
{
    (void)state;
    struct join_rig *r = join_rig_new("{hold: 1m, profile_hold: 1s}", NULL, 0);
    join_steps_send_sample(r, "shop", 7, 42, 5);
    r->verdict = RIG_RETRY;
    /* the item is released and rejected as retryable, so it must be sent again */
    fake_host_advance(r->h, 1000);
    join_steps_send_sample(r, "shop", 7, 43, 5);
    join_steps_send_span(r, "shop", 7, 42, "GET");
    assert_int_equal(r->n_out, 1);
    join_rig_destroy(r); /* checks that the ledger balances and no items are held */
}

static void held_items_keep_their_metadata(void **state)
{
    (void)state;
    static const char metadata[] = "x-tenant\0acme\0x-empty\0\0x-last\0z\0";
    struct join_rig *r = join_rig_new("{profile_hold: 1s}", NULL, 0);
    struct wire w = {0};
    put_one_sample(&w, "shop", 7, 42, 5);
    struct br_item *item = join_rig_item(r, BR_PROFILES, &w, false);
    item->metadata = br_arena_strndup(&item->arena, metadata, sizeof metadata - 1);
    join_rig_consume(r, item);
    assert_int_equal(r->n_out, 0);
    r->verdict = RIG_KEEP;
    fake_host_advance(r->h, 1000);
    assert_string_equal(r->out[0].metadata, "x-tenant=acme");
    assert_memory_equal(r->kept[0]->metadata, metadata, sizeof metadata);
    wire_free(&w);
    join_rig_free(r);
}

SUITE(join_hold)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_beyond_the_limit_are_not_held),
        cmocka_unit_test(undelivered_items_count_against_the_limit),
        cmocka_unit_test(failed_items_are_sent_again),
        cmocka_unit_test(items_rejected_after_a_hold_are_dropped),
        cmocka_unit_test(draining_releases_held_items),
        cmocka_unit_test(an_idle_join_drains_at_once),
        cmocka_unit_test(destroying_drops_held_items),
        cmocka_unit_test(held_items_keep_their_metadata),
    };
    return RUN_VARIANTS(tests, join_rig_order);
}
