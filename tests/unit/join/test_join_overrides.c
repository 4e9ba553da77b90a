/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/join.h"
#include "tests/support/fake_host.h"
#include "tests/support/test.h"

struct fixture {
    struct fake_host *h;
    struct br_node node;
    struct join_overrides overrides;
};

static void begin(struct fixture *f, bool enabled)
{
    *f = (struct fixture){.h = fake_host_new()};
    f->node = (struct br_node){.id = "join/a", .host = &f->h->host};
    join_overrides_start(&f->overrides, &f->node, enabled);
}

static void end(struct fixture *f)
{
    join_overrides_stop(&f->overrides);
    assert_int_equal(
        br_override_apply(&f->h->host, &(struct br_override){.id = 1, .keep = true}, NULL), 0);
    fake_host_free(f->h);
}

/* Sets an override that ends `ms` milliseconds from now. Returns the result. */
static int set(struct fixture *f, uint64_t id, const char *service, uint64_t ms, double percentage,
               uint64_t slow_ns)
{
    return br_override_apply(&f->h->host,
                             &(struct br_override){.id = id,
                                                   .until_ms = f->h->now_ms + ms,
                                                   .service = service,
                                                   .keep = true,
                                                   .sampling_percentage = percentage,
                                                   .slow_threshold_ns = slow_ns},
                             NULL);
}

static bool keeps(struct fixture *f, const char *service, const uint8_t *trace,
                  uint64_t duration_ns)
{
    return join_overrides_keep(&f->overrides, f->h->now_ms, service, strlen(service), trace,
                               duration_ns);
}

/* A threshold of 50 percent is half of 2^56. The trace ids are just below the threshold, and equal
 * to it. */
static const uint8_t low[16] = {[9] = 0x7f, [10] = 0xff}, high[16] = {[9] = 0x80};

static void an_override_selects_by_service_duration_and_trace(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, true);
    assert_int_equal(set(&f, 1, "shop", 1000, 50, 0), 1);
    assert_true(keeps(&f, "shop", high, 0));
    assert_false(keeps(&f, "shop", low, 0));
    assert_false(keeps(&f, "shop", NULL, 0));
    assert_false(keeps(&f, "shops", high, 0));
    assert_false(keeps(&f, "", high, 0));
    assert_int_equal(set(&f, 1, "shop", 1000, 0, 1000), 1); /* replaced */
    assert_false(keeps(&f, "shop", high, 999));
    assert_true(keeps(&f, "shop", high, 1000));
    assert_true(keeps(&f, "shop", NULL, 1000));
    assert_int_equal(set(&f, 2, NULL, 1000, 100, 0), 1);
    assert_true(keeps(&f, "anything", NULL, 0));
    br_override_withdraw(&f.h->host, 2);
    assert_false(keeps(&f, "anything", NULL, 0));
    assert_true(keeps(&f, "shop", NULL, 1000));
    br_override_withdraw(&f.h->host, 7);
    br_override_withdraw(&f.h->host, 1);
    assert_false(keeps(&f, "shop", NULL, 1000));
    end(&f);
}

static void an_override_ends_by_the_clock(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, true);
    assert_int_equal(set(&f, 1, "shop", 100, 100, 0), 1);
    fake_host_advance(f.h, 99);
    assert_true(keeps(&f, "shop", NULL, 0));
    fake_host_advance(f.h, 1);
    assert_false(keeps(&f, "shop", NULL, 0));
    assert_int_equal(set(&f, 2, "shop", 0, 100, 0), 0); /* the override ends before it begins */
    end(&f);
}

static void overrides_of_others_are_ignored(void **state)
{
    struct fixture f;
    char name[JOIN_OVERRIDE_SERVICE_MAX + 2];
    (void)state;
    begin(&f, false);
    /* all links are kept even without the override */
    assert_int_equal(set(&f, 1, "shop", 100, 100, 0), 0);
    end(&f);
    begin(&f, true);
    const struct br_override scrape = {.id = 1, .until_ms = UINT64_MAX, .service = "shop"};
    assert_int_equal(br_override_apply(&f.h->host, &scrape, NULL), 0);
    memset(name, 'a', sizeof name);
    name[JOIN_OVERRIDE_SERVICE_MAX + 1] = '\0';
    assert_int_equal(set(&f, 1, name, 100, 100, 0), 0);
    name[JOIN_OVERRIDE_SERVICE_MAX] = '\0';
    assert_int_equal(set(&f, 1, name, 100, 100, 0), 1);
    assert_true(keeps(&f, name, NULL, 0));
    end(&f);
}

static void the_number_of_rules_is_limited_and_expired_ones_are_replaced(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, true);
    for (unsigned i = 0; i < BR_OVERRIDES_MAX; i++)
        assert_int_equal(set(&f, i + 1, "shop", 10 + i % 2, 100, 0), 1);
    assert_int_equal(set(&f, 100, "cart", 50, 100, 0), BR_EFULL);
    assert_false(keeps(&f, "cart", NULL, 0));
    /* replaces the override with this id */
    assert_int_equal(set(&f, BR_OVERRIDES_MAX, "cart", 50, 100, 0), 1);
    fake_host_advance(f.h, 10);
    assert_int_equal(set(&f, 100, "cart", 50, 100, 0), 1); /* half of them have expired */
    end(&f);
}

static void add_line(const struct br_collected *c, void *arg)
{
    struct br_str *out = arg;
    br_str_printf(out, "%s %s [%s] %s %llu %llu\n", c->component, c->type, c->service, c->state,
                  (unsigned long long)c->override, (unsigned long long)c->until_ms);
}

static void reports_its_state(void **state)
{
    struct fixture f;
    struct br_str out = {0};
    (void)state;
    begin(&f, true);
    set(&f, 7, "shop", 100, 100, 0);
    set(&f, 8, "a", 200, 0, 5);
    br_override_list(&f.h->host, add_line, &out);
    assert_string_equal(out.data, "join/a links [] some 0 0\n"
                                  "join/a links [shop] all 7 1000100\n"
                                  "join/a links [a] some 8 1000200\n");
    br_str_clear(&out);
    fake_host_advance(f.h, 100);
    br_override_list(&f.h->host, add_line, &out);
    assert_string_equal(out.data, "join/a links [] some 0 0\n"
                                  "join/a links [a] some 8 1000200\n");
    end(&f);
    br_str_clear(&out);
    begin(&f, false);
    br_override_list(&f.h->host, add_line, &out);
    assert_string_equal(out.data, "join/a links [] all 0 0\n");
    br_str_release(&out);
    end(&f);
}

SUITE(join_overrides)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_override_selects_by_service_duration_and_trace),
        cmocka_unit_test(an_override_ends_by_the_clock),
        cmocka_unit_test(overrides_of_others_are_ignored),
        cmocka_unit_test(the_number_of_rules_is_limited_and_expired_ones_are_replaced),
        cmocka_unit_test(reports_its_state),
    };
    return RUN(tests, NULL, NULL);
}
