/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "pipeline/broadcast.h"
#include "pipeline/override.h"
#include "tests/support/fake_host.h"
#include "tests/support/test.h"

/* --- Broadcasts ------------------------------------------------------------------------------- */

struct test_broadcast {
    struct br_broadcast broadcast;
    char visited[16];
    unsigned n_done;
};

static void on_visit(struct br_broadcast *e, struct br_host *host)
{
    struct test_broadcast *t = br_container_of(e, struct test_broadcast, broadcast);
    size_t len = strlen(t->visited);
    assert_int_equal(t->n_done, 0);
    assert_true(len + 1 < sizeof t->visited);
    t->visited[len] = (char)('0' + host->worker);
}

static void on_done(struct br_broadcast *e, struct br_host *home)
{
    assert_ptr_equal(home, e->home);
    br_container_of(e, struct test_broadcast, broadcast)->n_done++;
}

static void test_broadcast_without_loops_runs_at_the_end_of_the_iteration(void **state)
{
    (void)state;
    struct fake_host *h = fake_host_new();
    struct test_broadcast t = {.broadcast = {.visit = on_visit, .done = on_done}};
    assert_true(br_broadcast_send(&t.broadcast, &h->host));
    assert_string_equal(t.visited, "");
    fake_host_iterate(h);
    assert_string_equal(t.visited, "0");
    assert_int_equal(t.n_done, 1);
    fake_host_free(h);
}

#define WORKERS 3

struct workers {
    struct br_net *net;
    struct br_loop *loops[WORKERS];
};

static void make_workers(struct workers *c)
{
    struct br_err err;
    c->net = br_net_new();
    assert_non_null(c->net);
    for (unsigned i = 0; i < WORKERS; i++) {
        assert_int_equal(br_loop_new(c->net, i, WORKERS, &c->loops[i], &err), 0);
        br_loop_host(c->loops[i])->loops = c->loops;
    }
}

static void free_workers(struct workers *c)
{
    for (unsigned i = 0; i < WORKERS; i++)
        br_loop_free(c->loops[i]);
    br_net_free(c->net);
}

/* Reads the remaining messages in the same order as service.c after its threads have ended. */
static void read_last_mail(struct workers *c)
{
    for (unsigned i = WORKERS; i-- > 0;)
        br_loop_read_mail(c->loops[i]);
}

static void test_broadcast_visits_every_worker_and_returns(void **state)
{
    (void)state;
    struct workers c;
    make_workers(&c);
    struct test_broadcast t = {.broadcast = {.visit = on_visit, .done = on_done}};
    assert_true(br_broadcast_send(&t.broadcast, br_loop_host(c.loops[0])));
    br_loop_read_mail(c.loops[0]);
    assert_string_equal(t.visited, "");
    br_loop_read_mail(c.loops[2]);
    br_loop_read_mail(c.loops[2]);
    assert_string_equal(t.visited, "2");
    br_loop_read_mail(c.loops[1]);
    assert_string_equal(t.visited, "21");
    assert_int_equal(t.n_done, 0);
    br_loop_read_mail(c.loops[0]);
    assert_string_equal(t.visited, "210");
    assert_int_equal(t.n_done, 1);
    free_workers(&c);
}

static void test_broadcast_in_progress_returns_at_shutdown(void **state)
{
    (void)state;
    for (unsigned before = 0; before < WORKERS; before++) {
        struct workers c;
        make_workers(&c);
        struct test_broadcast t = {.broadcast = {.visit = on_visit, .done = on_done}};
        assert_true(br_broadcast_send(&t.broadcast, br_loop_host(c.loops[0])));
        for (unsigned i = 0; i < before; i++)
            br_loop_read_mail(c.loops[WORKERS - 1 - i]);
        read_last_mail(&c);
        assert_string_equal(t.visited, "210");
        assert_int_equal(t.n_done, 1);
        free_workers(&c);
    }
}

static void nothing(struct br_message *m, struct br_loop *loop)
{
    (void)loop;
    free(m);
}

static void test_broadcast_is_not_sent_if_a_mailbox_is_full(void **state)
{
    (void)state;
    struct workers c;
    make_workers(&c);
    struct test_broadcast t = {.broadcast = {.visit = on_visit, .done = on_done}};
    for (unsigned i = 0; i < BR_MAILBOX_MAX; i++) {
        struct br_message *m = calloc(1, sizeof *m);
        assert_non_null(m);
        m->run = nothing;
        assert_true(br_loop_post(c.loops[WORKERS - 1], m));
    }
    assert_false(br_broadcast_send(&t.broadcast, br_loop_host(c.loops[0])));
    read_last_mail(&c);
    assert_int_equal(t.n_done, 0);
    free_workers(&c);
}

/* --- Overridables ----------------------------------------------------------------------------- */

struct thing {
    struct br_overridable overridable;
    const char *name;
    int answer;
    unsigned n_applied, n_withdrawn;
    uint64_t id;
};

static int thing_apply(struct br_overridable *t, const struct br_override *override,
                       struct br_err *err)
{
    struct thing *x = br_container_of(t, struct thing, overridable);
    x->n_applied++;
    x->id = override->id;
    return x->answer < 0 ? br_err_set(err, x->answer, "%s is full", x->name) : x->answer;
}

static void thing_withdraw(struct br_overridable *t, uint64_t id)
{
    struct thing *x = br_container_of(t, struct thing, overridable);
    x->n_withdrawn += x->id == id;
}

static void thing_list(const struct br_overridable *t, br_collected_fn *fn, void *arg)
{
    const struct thing *x = br_container_of(t, struct thing, overridable);
    fn(&(struct br_collected){.component = x->name}, arg);
}

static const struct br_overridable_ops ops = {thing_apply, thing_withdraw, thing_list};

static void add_name(const struct br_collected *c, void *arg)
{
    char *names = arg;
    (void)snprintf(names + strlen(names), 16, "%s ", c->component);
}

static void test_overrides_reach_every_overridable(void **state)
{
    (void)state;
    struct fake_host *h = fake_host_new();
    struct thing a = {.overridable.ops = &ops, .name = "a", .answer = 2};
    struct thing b = {.overridable.ops = &ops, .name = "b", .answer = 3};
    struct br_override override = {.id = 7};
    struct br_err err = {0};
    char names[64] = "";
    br_overridable_unregister(&a.overridable); /* one that is zero-initialised */
    br_overridable_register(&a.overridable, &h->host);
    br_overridable_register(&b.overridable, &h->host);
    assert_int_equal(br_override_apply(&h->host, &override, &err), 5);
    br_override_list(&h->host, add_name, names);
    assert_string_equal(names, "a b ");
    br_override_withdraw(&h->host, 7);
    assert_int_equal(a.n_withdrawn + b.n_withdrawn, 2);

    b.answer = BR_EFULL;
    override.id = 8;
    assert_int_equal(br_override_apply(&h->host, &override, &err), BR_EFULL);
    assert_string_equal(err.text, "b is full");
    assert_int_equal(a.n_withdrawn, 2); /* withdrawn already */

    h->host.draining = true;
    unsigned before = a.n_applied;
    assert_int_equal(br_override_apply(&h->host, &override, &err), 0);
    assert_int_equal(a.n_applied, before);

    br_overridable_unregister(&a.overridable);
    br_overridable_unregister(&b.overridable);
    names[0] = '\0';
    br_override_list(&h->host, add_name, names);
    assert_string_equal(names, "");
    fake_host_free(h);
}

static void test_types_of_a_override(void **state)
{
    (void)state;
    const char *const types[] = {"cpu", "mutex"};
    const struct br_override some = {.types = types, .n_types = 2}, none = {0};
    assert_true(br_override_has_type(&some, "mutex", false));
    assert_false(br_override_has_type(&some, "block", true));
    assert_true(br_override_has_type(&none, "block", true));
    assert_false(br_override_has_type(&none, "block", false));
}

SUITE(override)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcast_without_loops_runs_at_the_end_of_the_iteration),
        cmocka_unit_test(test_broadcast_visits_every_worker_and_returns),
        cmocka_unit_test(test_broadcast_in_progress_returns_at_shutdown),
        cmocka_unit_test(test_broadcast_is_not_sent_if_a_mailbox_is_full),
        cmocka_unit_test(test_overrides_reach_every_overridable),
        cmocka_unit_test(test_types_of_a_override),
    };
    return RUN(tests, NULL, NULL);
}
