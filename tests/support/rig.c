/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/rig.h"

#include "base/mem.h"
#include "otlp/json/json.h"
#include "otlp/walk/walk.h"
#include "tests/support/fault.h"
#include "tests/support/otlp_text.h"
#include "tests/support/scrape.h"
#include "tests/support/test.h"

#define START_MS 1000000u
#define START_NS 1767225600000000000u /* 2026-01-01T00:00:00Z */

static enum reorder field_order;

const char *rig_order(unsigned variant)
{
    field_order = (enum reorder)variant;
    return reorder_name(field_order);
}

const char *rig_order_not_rising(unsigned variant)
{
    return rig_order(variant < REORDER_RISING ? variant : variant + 1);
}

/* Writes the fields of the request again in another order. */
static struct br_buf *reordered(struct br_pool *pool, enum br_signal signal, enum reorder order,
                                const void *data, size_t len)
{
    struct wire w = {0};
    uint64_t random = len;
    wire_raw(&w, data, len);
    reorder_request(&w, signal, order, &random);
    struct br_buf *buf = br_buf_new(pool, w.len);
    assert_non_null(buf);
    if (w.len)
        memcpy(buf->data, w.data, w.len);
    buf->len = (uint32_t)w.len;
    wire_free(&w);
    return buf;
}

static uint64_t mono_ms(struct br_host *h)
{
    return ((struct rig *)(void *)h)->now_ms;
}

static uint64_t unix_ns(struct br_host *h)
{
    return ((struct rig *)(void *)h)->unix_ns;
}

static const struct br_host_ops ops = {.mono_ms = mono_ms, .unix_ns = unix_ns};

/* Returns by how many bytes the item's size may exceed the number of bytes written. The size counts
 * the tag and the length of each dictionary addition, which are not written. */
static size_t slack(const struct br_item *item)
{
    size_t n = 0;
    for (uint32_t i = 0; i < item->n_parts; i++)
        n += item->parts[i].additions ? item->parts[i].body_at : 0;
    return n;
}

/* Keeps the item's bytes, and their JSON. */
static void sink(struct br_consumer *self, struct br_item *item)
{
    struct rig *r = br_container_of(self, struct rig, sink);
    struct br_rope rope = {0};
    const uint8_t *data;
    br_mem_set_hooks(NULL);
    r->n_out++;
    r->out_size = item->size;
    br_buf_unref(r->wire);
    assert_int_equal(br_item_write(item, &rope), 0);
    r->wire = br_rope_flat(&rope, r->pool, &data);
    assert_non_null(r->wire);
    r->bytes = data;
    r->n_bytes = rope.len;
    br_str_clear(&r->out);
    struct br_buf *shown = reordered(r->pool, item->signal,
                                     field_order ? REORDER_RISING : REORDER_NOT, data, rope.len);
    assert_int_equal(
        br_json_encode(br_otlp_request(item->signal), shown->data, shown->len, &r->out), 0);
    br_buf_unref(shown);
    assert_in_range(rope.len, item->size - slack(item), item->size);
    br_rope_release(&rope);
    br_item_done(item);
}

static void node_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_node *node = br_container_of(self, struct br_node, input);
    node->component->consume(node, item);
}

static void on_drained(struct br_node *node, void *arg)
{
    (void)node;
    *(bool *)arg = true;
}

static int load(const struct br_component *c, const char *text, void *config,
                struct br_arena *arena, struct br_errs *errs)
{
    struct br_yaml *node;
    if (br_yaml_parse(text, strlen(text), "test.yaml", arena, &node, errs))
        return BR_EINVAL;
    size_t before = errs->n_errors;
    int rc = br_options_read(c->options, node, "x", config, arena, errs);
    if (!rc && c->check)
        rc = c->check(config, node, "x", arena, errs);
    assert_int_equal(rc != 0, errs->n_errors > before);
    return rc;
}

void *rig_config(const struct br_component *c, const char *yaml, struct br_arena *arena)
{
    struct br_errs errs = {0};
    void *config = br_arena_calloc(arena, 1, c->config_size);
    assert_non_null(config);
    if (load(c, yaml, config, arena, &errs))
        fail_msg("%s", errs.errors[0].text);
    br_errs_release(&errs);
    return config;
}

struct br_node rig_node(const struct br_component *c, const char *yaml, struct br_host *host,
                        struct br_arena *arena, bool *drained)
{
    struct br_node node = {.component = c,
                           .id = c->name,
                           .config = rig_config(c, yaml, arena),
                           .state = br_calloc(1, c->state_size),
                           .host = host,
                           .log = {c->name},
                           .input.consume = node_consume,
                           .on_drained = drained ? on_drained : NULL,
                           .on_drained_arg = drained};
    assert_non_null(node.state);
    return node;
}

void rig_node_start(struct br_node *node)
{
    const struct br_component *c = node->component;
    struct br_err err = {0};
    if (c->create && c->create(node, &err))
        fail_msg("create: %s", err.text);
    if (c->start && c->start(node, &err))
        fail_msg("start: %s", err.text);
}

const char *rig_errors(const struct br_component *c, const char *text)
{
    static char out[8192];
    struct br_arena arena;
    struct br_errs errs = {0};
    struct br_str s = {.data = out, .cap = sizeof out, .max = sizeof out - 1, .fixed = true};
    char line[1024];
    br_arena_init(&arena, 0);
    void *config = br_arena_calloc(&arena, 1, c->config_size);
    out[0] = '\0';
    (void)load(c, text, config, &arena, &errs);
    for (size_t i = 0; i < errs.n_errors + errs.n_warnings; i++) {
        bool warning = i >= errs.n_errors;
        const struct br_err *e = warning ? &errs.warnings[i - errs.n_errors] : &errs.errors[i];
        br_str_printf(&s, "%s%s\n", warning ? "warning: " : "",
                      br_err_format(e, line, sizeof line));
    }
    br_errs_release(&errs);
    br_arena_release(&arena);
    return out;
}

void rig_expect_errors(const struct br_component *c, const char *const (*cases)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_string_equal(rig_errors(c, cases[i][0]), cases[i][1]);
}

void rig_expect_errors_in(const struct br_component *c, const char *const (*cases)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *got = rig_errors(c, cases[i][0]);
        if (!strstr(got, cases[i][1]))
            fail_msg("%s\ngave %s\nnot  %s", cases[i][0], got, cases[i][1]);
    }
}

static struct rig *make(const struct br_component *c, const char *text)
{
    struct rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->pool = br_pool_new(0);
    assert_int_equal(br_host_init(&r->host, &ops, r->pool), 0);
    br_host_set_memory(&r->host, &r->memory);
    r->now_ms = START_MS;
    r->unix_ns = START_NS;
    br_arena_init(&r->arena, 0);
    r->sink.consume = sink;
    r->node = rig_node(c, text, &r->host, &r->arena, &r->drained);
    for (int s = 0; s < BR_SIGNALS; s++) {
        r->node.next[s] = &r->sink;
        r->node.in_pipeline[s] = true;
    }
    return r;
}

struct rig *rig_new(const struct br_component *c, const char *text)
{
    struct rig *r = make(c, text);
    rig_node_start(&r->node);
    return r;
}

const char *rig_start_error(const struct br_component *c, const char *text)
{
    static struct br_err err;
    struct rig *r = make(c, text);
    err = (struct br_err){0};
    if (c->create && c->create(&r->node, &err))
        fail_msg("create: %s", err.text);
    int rc = c->start(&r->node, &err);
    assert_int_equal(rc, err.code);
    rig_free(r);
    return err.text;
}

void rig_turn(struct rig *r)
{
    while (br_host_iterate(&r->host))
        ;
}

double rig_dropped(const struct rig *r, enum br_signal signal, const char *reason)
{
    return scrape_dropped(&r->host, signal, reason);
}

static void check_ledger(const struct rig *r)
{
    for (int s = 0; s < BR_SIGNALS; s++) {
        const struct br_ledger *l = &r->host.ledger;
        double dropped = rig_dropped(r, (enum br_signal)s, NULL);
        assert_true(*l->received[s] == *l->sent[s] + *l->rejected[s] + dropped);
        assert_true(*l->held[s] == 0);
    }
}

void rig_free(struct rig *r)
{
    const struct br_component *c = r->node.component;
    r->node.draining = true;
    if (c->drain)
        c->drain(&r->node);
    rig_turn(r);
    assert_true(!c->drain || r->drained);
    if (c->destroy)
        c->destroy(&r->node);
    rig_turn(r);
    check_ledger(r);
    br_buf_unref(r->wire);
    assert_int_equal(br_pool_live(r->pool), 0);
    br_free(r->node.state);
    br_str_release(&r->out);
    br_host_release(&r->host);
    br_pool_free(r->pool);
    br_arena_release(&r->arena);
    free(r);
}

static void on_done(struct br_item *item, void *arg)
{
    struct rig *r = arg;
    r->outcome = item->outcome;
    r->n_ended++;
}

static struct br_item *received(struct rig *r, struct br_item *item)
{
    br_item_received(item);
    item->done = on_done;
    item->done_arg = r;
    return item;
}

struct br_item *rig_item(struct rig *r, enum br_signal signal, const char *json)
{
    struct br_err err = {0};
    struct br_buf *buf = otlp_text(r->pool, signal, json);
    struct br_walk_options options = {.utf8 = BR_UTF8_PASS};
    uint32_t repaired;
    struct br_buf *sent = reordered(r->pool, signal, field_order, buf->data, buf->len);
    br_buf_unref(buf);
    buf = sent;
    struct br_item *item = br_item_new(&r->host, signal);
    assert_non_null(item);
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err) != 0)
        fail_msg("%s", err.text);
    br_buf_unref(buf);
    return received(r, item);
}

/* Returns an item that is parsed from these bytes, as a receiver does it. Returns NULL if a
 * receiver would reject the bytes. */
static struct br_item *walked(struct rig *r, enum br_signal signal, struct br_buf *buf,
                              struct br_err *err)
{
    struct br_walk_options options = {.utf8 = BR_UTF8_REPAIR};
    uint32_t repaired;
    struct br_item *item = br_item_new(&r->host, signal);
    assert_non_null(item);
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, err) == 0)
        return item;
    br_item_free(item);
    return NULL;
}

struct br_item *rig_item_of(struct rig *r, enum br_signal signal, struct wire *w)
{
    struct br_err err = {0};
    struct br_buf *buf = reordered(r->pool, signal, field_order, w->data, w->len);
    wire_free(w);
    struct br_item *item = walked(r, signal, buf, &err);
    br_buf_unref(buf);
    if (!item)
        fail_msg("%s", err.text);
    return received(r, item);
}

void rig_send(struct rig *r, struct br_item *item)
{
    br_consume(&r->node.input, item);
    rig_turn(r);
}

static struct br_buf *mutant_of(struct rig *r, const struct br_buf *from, uint64_t *random)
{
    struct br_buf *buf = br_buf_new(r->pool, from->len);
    assert_non_null(buf);
    memcpy(buf->data, from->data, from->len);
    buf->len = from->len;
    for (unsigned i = 0; i < 4; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        buf->data[(*random >> 33) % from->len] = (uint8_t)(*random >> 24 & (i % 2 ? 0x0f : 0xff));
        if (*random >> 62 == 0)
            break;
    }
    return buf;
}

unsigned rig_send_mutants(struct rig *r, enum br_signal signal, const char *json, unsigned n)
{
    struct br_err err = {0};
    struct br_buf *from = otlp_text(r->pool, signal, json);
    uint64_t random = 1;
    unsigned n_sent = 0;
    for (unsigned i = 0; i < n; i++) {
        struct br_buf *buf = mutant_of(r, from, &random);
        struct br_item *item = walked(r, signal, buf, &err);
        br_buf_unref(buf);
        if (!item)
            continue;
        (void)received(r, item);
        unsigned before = r->n_out;
        rig_send(r, item);
        n_sent++;
        if (r->n_out == before)
            continue;
        struct br_item *out = walked(r, signal, r->wire, &err);
        assert_non_null(out);
        br_item_free(out);
    }
    br_buf_unref(from);
    return n_sent;
}

const char *rig_run(struct rig *r, enum br_signal signal, const char *json)
{
    unsigned before = r->n_out;
    rig_send(r, rig_item(r, signal, json));
    return r->n_out > before && r->out.data ? r->out.data : "";
}

/* Runs the scenario once while the n-th allocation fails. Returns true if there were at least n
 * allocations. */
static bool run_short(const struct rig_shortage *s, unsigned long n, unsigned *refused)
{
    struct rig *r = rig_new(s->component, s->yaml);
    struct br_item *item = s->make ? s->make(r, s->arg) : rig_item(r, s->signal, s->json);
    fault_nth(n);
    r->node.component->consume(&r->node, item);
    bool failed = fault_nth_stop();
    rig_turn(r);
    assert_int_equal(r->n_ended, 1);
    bool came = s->came ? s->came(r, s->arg) : r->n_out > 0;
    if (!came)
        assert_int_equal(r->outcome.verdict, BR_RETRY);
    else if (!s->came)
        assert_string_equal(r->out.data, s->expected);
    *refused += !came;
    rig_free(r);
    return failed;
}

unsigned rig_run_short(const struct rig_shortage *s)
{
    unsigned refused = 0;
    for (unsigned long n = 1; run_short(s, n, &refused); n++)
        ;
    return refused;
}

double rig_metric(struct rig *r, const char *name, const char *labels)
{
    return scrape_metric(&r->host, name, labels);
}
