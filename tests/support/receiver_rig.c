/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/receiver_rig.h"

#include "base/mem.h"
#include "tests/support/fault.h"
#include "tests/support/profile_text.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

static void write_down(struct receiver_rig *r, const struct br_item *item)
{
    char *text = profile_text(item);
    struct br_rope rope = {0};
    br_str_puts(&r->text, text);
    free(text);
    assert_int_equal(br_item_write(item, &rope), 0);
    br_str_clear(&r->bytes);
    for (size_t i = 0; i < rope.count; i++)
        br_str_add(&r->bytes, rope.slices[i].data, rope.slices[i].len);
    br_rope_release(&rope);
}

static void on_item(struct br_consumer *self, struct br_item *item)
{
    struct receiver_rig *r = br_container_of(self, struct receiver_rig, sink);
    r->n++;
    if (!r->quiet)
        write_down(r, item);
    if (!r->hold) {
        br_item_finish(item, &r->outcome);
        return;
    }
    assert_null(r->held);
    r->held = item;
}

static void make(struct receiver_rig *r, const struct br_component *c, const char *yaml)
{
    *r = (struct receiver_rig){.h = fake_host_new(), .sink.consume = on_item};
    br_arena_init(&r->arena, 0);
    r->node = rig_node(c, yaml, &r->h->host, &r->arena, &r->drained);
    r->node.next[BR_PROFILES] = &r->sink;
}

void receiver_rig_start(struct receiver_rig *r, const struct br_component *c, const char *yaml)
{
    make(r, c, yaml);
    rig_node_start(&r->node);
}

bool receiver_rig_try(struct receiver_rig *r, const struct br_component *c, const char *yaml)
{
    struct br_err err = {0};
    make(r, c, yaml);
    fault_start();
    bool ok = c->create(&r->node, &err) == 0 && c->start(&r->node, &err) == 0;
    fault_stop();
    if (!ok)
        receiver_rig_end(r);
    return ok;
}

void receiver_rig_refused(const struct br_component *c, const char *yaml, const char *error)
{
    struct receiver_rig r;
    struct br_err err = {0};
    make(&r, c, yaml);
    if (c->create(&r.node, &err) == 0 && c->start(&r.node, &err) == 0)
        fail_msg("%s: it starts", yaml);
    assert_string_equal(err.text, error);
    receiver_rig_end(&r);
}

void receiver_rig_finish(struct receiver_rig *r)
{
    struct br_item *item = r->held;
    assert_non_null(item);
    r->held = NULL;
    br_item_finish(item, &r->outcome);
    fake_host_iterate(r->h);
}

void receiver_rig_drain(struct receiver_rig *r)
{
    fake_host_drain(r->h, &r->node);
}

void receiver_rig_end(struct receiver_rig *r)
{
    if (r->node.component->destroy)
        r->node.component->destroy(&r->node);
    /* threads may still read the state of the receiver, so `destroy` must have waited for all
     * work */
    assert_int_equal(r->h->n_waits, r->h->n_works);
    br_free(r->node.state);
    if (r->held)
        receiver_rig_finish(r);
    br_arena_release(&r->arena);
    br_str_release(&r->text);
    br_str_release(&r->bytes);
    fake_host_iterate(r->h);
    assert_true(br_list_empty(&r->h->host.overridables));
    fake_host_check_ledger(r->h);
    fake_host_free(r->h);
}

int receiver_rig_teardown(void **state)
{
    struct receiver_rig *r = *state;
    receiver_rig_drain(r);
    assert_true(r->drained);
    receiver_rig_end(r);
    free(r);
    return 0;
}

void receiver_rig_expect(struct receiver_rig *r, const char *text)
{
    assert_string_equal(r->text.data ? r->text.data : "", text);
    br_str_clear(&r->text);
}

void receiver_rig_expect_in(struct receiver_rig *r, const char *text)
{
    if (!r->text.data || !strstr(r->text.data, text))
        fail_msg("\"%s\" is not in\n%s", text, r->text.data ? r->text.data : "(nothing)");
}

bool receiver_rig_has_bytes(const struct receiver_rig *r, const char *text)
{
    return memmem(r->bytes.data, r->bytes.len, text, strlen(text)) != NULL;
}
