/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h wants the four above */
#include <cmocka.h>

#include "pipeline/keep_rules.h"
#include "pipeline/shared.h"
#include "tests/support/fake_host.h"

#define NOW 1000000u

static struct br_keep_rule rule_of(const char *service, uint64_t until_ms, double percentage)
{
    struct br_keep_rule r = {.until_ms = until_ms, .sampling_percentage = percentage};
    r.service_len = (uint8_t)strlen(service);
    memcpy(r.service, service, r.service_len);
    return r;
}

static bool keeps(const struct br_keep_rule *r, uint64_t now_ms, const char *service,
                  const uint8_t *trace, uint64_t duration_ns)
{
    return br_keep_rule_keeps(r, now_ms, service, strlen(service), trace, duration_ns);
}

static void a_rule_is_everybodys_until_it_ends(void **state)
{
    (void)state;
    struct fake_host *h[2] = {fake_host_new(), fake_host_new()};
    struct br_shared *shared = br_shared_new();
    h[0]->host.shared = h[1]->host.shared = shared;
    struct br_keep_rules *a = br_keep_rules_get(&h[0]->host), *b = br_keep_rules_get(&h[1]->host);
    assert_non_null(a);
    assert_ptr_equal(a, b);
    struct br_keep_rule in = rule_of("shop", NOW + 100, 100), out[BR_KEEP_RULES_MAX];
    uint64_t version = br_keep_rules_version(b), seen;
    uint64_t id = br_keep_rules_add(a, &in, NOW);
    assert_true(id);
    assert_true(br_keep_rules_version(b) != version);
    assert_int_equal(br_keep_rules_copy(b, NOW, out, &seen), 1);
    assert_true(seen == br_keep_rules_version(b));
    assert_true(out[0].id == id);
    assert_true(keeps(&out[0], NOW + 99, "shop", NULL, 0));
    assert_false(keeps(&out[0], NOW + 100, "shop", NULL, 0));
    assert_int_equal(br_keep_rules_copy(b, NOW + 100, out, &seen), 0);
    assert_true(br_keep_rules_remove(b, id));
    assert_false(br_keep_rules_remove(b, id));
    assert_int_equal(br_keep_rules_copy(a, NOW, out, &seen), 0);
    br_keep_rules_put(&h[0]->host, a);
    br_keep_rules_put(&h[1]->host, b);
    br_shared_free(shared);
    fake_host_free(h[0]);
    fake_host_free(h[1]);
}

static void rules_are_bounded_and_the_ended_make_room(void **state)
{
    (void)state;
    struct fake_host *h = fake_host_new();
    struct br_keep_rules *r = br_keep_rules_get(&h->host);
    struct br_keep_rule out[BR_KEEP_RULES_MAX];
    uint64_t seen;
    for (unsigned i = 0; i < BR_KEEP_RULES_MAX; i++) {
        struct br_keep_rule in = rule_of("shop", NOW + 10 + i % 2, 100);
        assert_true(br_keep_rules_add(r, &in, NOW));
    }
    struct br_keep_rule more = rule_of("cart", NOW + 50, 100);
    assert_int_equal(br_keep_rules_add(r, &more, NOW), 0);
    assert_true(br_keep_rules_add(r, &more, NOW + 10)); /* half of them have ended */
    assert_int_equal(br_keep_rules_copy(r, NOW + 10, out, &seen), BR_KEEP_RULES_MAX / 2 + 1);
    br_keep_rules_put(&h->host, r);
    fake_host_free(h);
}

/* A threshold of 50 per cent is half of 2^56: the ids just below and at it. */
static void a_rule_asks_for_service_length_and_trace(void **state)
{
    (void)state;
    static const uint8_t low[16] = {[9] = 0x7f, [10] = 0xff}, high[16] = {[9] = 0x80};
    struct br_keep_rule half = rule_of("shop", NOW + 1, 50), all = rule_of("", NOW + 1, 100);
    assert_true(keeps(&half, NOW, "shop", high, 0));
    assert_false(keeps(&half, NOW, "shop", low, 0));
    assert_false(keeps(&half, NOW, "shop", NULL, 0));
    assert_false(keeps(&half, NOW, "shops", high, 0));
    assert_false(keeps(&half, NOW, "", high, 0));
    assert_true(keeps(&all, NOW, "anything", low, 0));
    struct br_keep_rule slow = rule_of("shop", NOW + 1, 0);
    slow.slow_threshold_ns = 1000;
    assert_false(keeps(&slow, NOW, "shop", high, 999));
    assert_true(keeps(&slow, NOW, "shop", high, 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rule_is_everybodys_until_it_ends),
        cmocka_unit_test(rules_are_bounded_and_the_ended_make_room),
        cmocka_unit_test(a_rule_asks_for_service_length_and_trace),
    };
    return cmocka_run_group_tests_name("keep rules", tests, NULL, NULL);
}
