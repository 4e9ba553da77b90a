/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/join_rig.h"

#include <stdarg.h>

#include "base/mem.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "otlp/walk/walk.h"
#include "processors/join/join.h"
#include "tests/support/otlp_text.h"
#include "tests/support/profiles_pb.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_join_processor;

/* --- The sink --------------------------------------------------------------------------------- */

static void finish(struct br_item *item, enum join_rig_sink verdict)
{
    if (verdict == RIG_RETRY)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 0, "scripted: retry");
    else if (verdict == RIG_REJECT)
        br_item_reject(item, BR_STATUS_INVALID_ARGUMENT, "scripted: reject");
    else
        br_item_done(item);
}

static struct wire bytes_of(const struct br_item *item)
{
    struct br_rope rope = {0};
    struct wire w = {0};
    assert_int_equal(br_item_write(item, &rope), 0);
    for (uint32_t i = 0; i < rope.count; i++)
        wire_raw(&w, rope.slices[i].data, rope.slices[i].len);
    br_rope_release(&rope);
    return w;
}

static void sink(struct br_consumer *self, struct br_item *item)
{
    struct join_rig *r = br_container_of(self, struct join_rig, sink);
    if (r->blind) {
        finish(item, r->verdict);
        return;
    }
    assert_true(r->n_out < JOIN_RIG_OUT_MAX);
    struct join_out *o = &r->out[r->n_out++];
    *o = (struct join_out){.signal = item->signal, .bytes = bytes_of(item), .at_ms = r->h->now_ms};
    o->text = join_text(item->signal, o->bytes.data, o->bytes.len);
    if (item->metadata)
        (void)snprintf(o->metadata, sizeof o->metadata, "%s=%s", item->metadata,
                       item->metadata + strlen(item->metadata) + 1);
    if (r->verdict == RIG_KEEP)
        r->kept[r->n_kept++] = item;
    else
        finish(item, r->verdict);
}

void join_rig_release(struct join_rig *r, enum join_rig_sink verdict)
{
    for (unsigned i = 0; i < r->n_kept; i++)
        finish(r->kept[i], verdict);
    r->n_kept = 0;
    fake_host_iterate(r->h);
}

static enum reorder field_order;

const char *join_rig_order(unsigned variant)
{
    field_order = (enum reorder)variant;
    return reorder_name(field_order);
}

const char *join_rig_order_falling(unsigned variant)
{
    static const enum reorder orders[] = {REORDER_NOT, REORDER_FALLING};
    return join_rig_order(variant < BR_COUNT(orders) ? orders[variant] : REORDERS);
}

/* --- The node --------------------------------------------------------------------------------- */

static int load(const char *yaml, void *config, struct br_arena *arena, struct br_errs *errs)
{
    const struct br_component *c = &br_join_processor;
    struct br_yaml *node;
    if (br_yaml_parse(yaml, strlen(yaml), "test.yaml", arena, &node, errs) ||
        br_options_read(c->options, node, "join", config, arena, errs))
        return BR_EINVAL;
    return c->check(config, node, "join", arena, errs);
}

const char *join_rig_error(const char *yaml)
{
    static char text[1024];
    struct br_arena arena;
    struct br_errs errs = {0};
    br_arena_init(&arena, 0);
    void *config = br_arena_calloc(&arena, 1, br_join_processor.config_size);
    assert_non_null(config);
    text[0] = '\0';
    if (load(yaml, config, &arena, &errs))
        (void)br_err_format(&errs.errors[0], text, sizeof text);
    br_errs_release(&errs);
    br_arena_release(&arena);
    return text;
}

/* DEFAULT_TABLE is the size of the join's table by default, in bytes. Most tests use a smaller
 * table, because the kernel takes longer to clear the default table than the rest of the test
 * takes. */
#define DEFAULT_TABLE (64 << 20)
#define SMALL_TABLE (16 << 20)

struct join_rig *join_rig_prepare(const char *yaml, struct br_shared *shared, unsigned worker)
{
    struct join_rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->h = fake_host_new();
    r->h->host.shared = shared;
    r->h->host.worker = worker;
    br_arena_init(&r->arena, 0);
    r->sink.consume = sink;
    r->order = field_order;
    r->node = rig_node(&br_join_processor, yaml, &r->h->host, &r->arena, &r->drained);
    struct join_config *config = (struct join_config *)(uintptr_t)r->node.config;
    if (config->max_bytes == DEFAULT_TABLE)
        config->max_bytes = SMALL_TABLE;
    for (int s = 0; s < BR_SIGNALS; s++) {
        r->node.next[s] = &r->sink;
        r->node.in_pipeline[s] = true;
    }
    return r;
}

bool join_rig_create(struct join_rig *r)
{
    struct br_err err = {0};
    return br_join_processor.create(&r->node, &err) == 0 &&
           br_join_processor.start(&r->node, &err) == 0;
}

struct join_rig *join_rig_new(const char *yaml, struct br_shared *shared, unsigned worker)
{
    struct join_rig *r = join_rig_prepare(yaml, shared, worker);
    assert_true(join_rig_create(r));
    return r;
}

void join_rig_drain(struct join_rig *r)
{
    fake_host_drain(r->h, &r->node);
}

void join_rig_destroy(struct join_rig *r)
{
    join_rig_release(r, RIG_RETRY);
    br_join_processor.destroy(&r->node);
    fake_host_iterate(r->h);
    fake_host_check_ledger(r->h);
    for (unsigned i = 0; i < r->n_out; i++) {
        wire_free(&r->out[i].bytes);
        free(r->out[i].text);
    }
    br_free(r->node.state);
    fake_host_free(r->h);
    br_arena_release(&r->arena);
    free(r);
}

void join_rig_free(struct join_rig *r)
{
    r->verdict = RIG_DONE;
    join_rig_release(r, RIG_DONE);
    if (!r->node.draining)
        join_rig_drain(r);
    fake_host_advance(r->h, 60000);
    assert_true(r->drained);
    join_rig_destroy(r);
}

static void on_done(struct br_item *item, void *arg)
{
    struct join_rig *r = arg;
    r->n_done += item->outcome.verdict == BR_DONE;
    r->n_retry += item->outcome.verdict == BR_RETRY;
    r->n_reject += item->outcome.verdict == BR_REJECT;
}

struct br_item *join_rig_item(struct join_rig *r, enum br_signal signal, const struct wire *w,
                              bool spans)
{
    const struct br_walk_options options = {.utf8 = BR_UTF8_REJECT, .spans = spans};
    struct br_err err = {0};
    uint32_t repaired;
    struct wire sent = {0};
    wire_raw(&sent, w->data, w->len);
    reorder_request(&sent, signal, r->order, &r->random);
    struct br_buf *buf = br_buf_new(r->h->host.pool, sent.len);
    struct br_item *item = br_item_new(&r->h->host, signal);
    assert_non_null(buf);
    assert_non_null(item);
    if (sent.len)
        memcpy(buf->data, sent.data, sent.len);
    buf->len = (uint32_t)sent.len;
    wire_free(&sent);
    if (br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err))
        fail_msg("%s", err.text);
    br_buf_unref(buf);
    br_item_received(item);
    item->done = on_done;
    item->done_arg = r;
    return item;
}

void join_rig_consume(struct join_rig *r, struct br_item *item)
{
    br_consume(&r->node.input, item);
    fake_host_iterate(r->h);
}

void join_rig_send(struct join_rig *r, enum br_signal signal, const struct wire *w, bool spans)
{
    join_rig_consume(r, join_rig_item(r, signal, w, spans));
}

void join_rig_send_text(struct join_rig *r, enum br_signal signal, bool spans, const char *format,
                        ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_in_range(len, 0, sizeof text - 1);
    struct br_buf *buf = otlp_text(r->h->host.pool, signal, text);
    join_rig_send(r, signal, &(struct wire){.data = buf->data, .len = buf->len}, spans);
    br_buf_unref(buf);
}

const char *join_rig_last(const struct join_rig *r)
{
    return r->n_out ? r->out[r->n_out - 1].text : "";
}

long long join_rig_span_int(const struct join_rig *r, const char *span, const char *key)
{
    char begin[64], want[96];
    (void)snprintf(begin, sizeof begin, "%s ", span);
    (void)snprintf(want, sizeof want, " %s=", key);
    const char *line = join_rig_last(r);
    while (line && strncmp(line, begin, strlen(begin)) != 0) {
        line = strchr(line, '\n');
        line = line && line[1] ? line + 1 : NULL;
    }
    const char *end = line ? strchr(line, '\n') : NULL, *at = line ? strstr(line, want) : NULL;
    return at && at < end ? strtoll(at + strlen(want), NULL, 10) : -1;
}

long long join_rig_said(struct join_rig *r, const char *span, const char *key)
{
    long long said = -1;
    unsigned n_out = r->n_out;
    for (r->n_out = 1; r->n_out <= n_out && said < 0; r->n_out++)
        if (r->out[r->n_out - 1].signal == BR_TRACES)
            said = join_rig_span_int(r, span, key);
    r->n_out = n_out;
    return said;
}

double join_rig_count(struct join_rig *r, const char *name, const char *type)
{
    char metric[128], labels[256];
    (void)snprintf(metric, sizeof metric, "braid_join_%s", name);
    (void)snprintf(labels, sizeof labels,
                   type ? "processor=\"join\",profile_type=\"%s\"" : "processor=\"join\"", type);
    double v = fake_host_metric(r->h, metric, labels);
    return v < 0 ? 0 : v;
}

/* Returns the number of exported samples that are linked to span `id` of trace 7. */
static unsigned count_linked(const struct join_rig *r, uint64_t id)
{
    char link[80];
    unsigned n = 0;
    (void)snprintf(link, sizeof link, " %032x/%016llx:", 7, (unsigned long long)id);
    for (unsigned i = 0; i < r->n_out; i++)
        for (const char *p = r->out[i].text;
             r->out[i].signal == BR_PROFILES && (p = strstr(p, link)); p++)
            n++;
    return n;
}

void join_rig_check_mark(struct join_rig *r, const char *span, uint64_t id,
                         struct join_rig_marks *marks)
{
    if (join_rig_said(r, span, "pyroscope.profile.id") < 0)
        return;
    unsigned linked = count_linked(r, id);
    long long said = join_rig_said(r, span, "profile.sample_count");
    bool partial = join_rig_said(r, span, "profile.partial") >= 0;
    marks->n++;
    marks->n_partial += partial;
    if (!linked || (!partial && said != linked))
        fail_msg("%s: %u samples left with its link, and it says %lld", span, linked, said);
}

/* --- Text ------------------------------------------------------------------------------------- */

struct text {
    char *data;
    size_t len, cap;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    if (t->cap - t->len < 1024) {
        t->cap = t->cap * 2 + 4096;
        t->data = realloc(t->data, t->cap);
        assert_non_null(t->data);
    }
    va_start(ap, fmt);
    int n = vsnprintf(t->data + t->len, t->cap - t->len, fmt, ap);
    va_end(ap);
    assert_in_range(n, 0, 1023);
    t->len += (size_t)n;
}

static void add_id(struct text *t, ProtobufCBinaryData id)
{
    for (size_t i = 0; i < id.len; i++)
        add(t, "%02x", id.data[i]);
}

static void add_any(struct text *t, const Opentelemetry__Proto__Common__V1__AnyValue *v)
{
    if (!v)
        add(t, "null");
    else if (v->value_case == OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE)
        add(t, "%s", v->string_value);
    else if (v->value_case == OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_INT_VALUE)
        add(t, "%lld", (long long)v->int_value);
    else if (v->value_case == OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_BOOL_VALUE)
        add(t, v->bool_value ? "true" : "false");
    else if (v->value_case != OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_ARRAY_VALUE)
        add(t, "?");
    else
        for (size_t i = 0; i < v->array_value->n_values; i++)
            add(t, "%s%s", i ? "," : "", v->array_value->values[i]->string_value);
}

static char *text_of_traces(const void *data, size_t len)
{
    struct text t = {0};
    Opentelemetry__Proto__Collector__Trace__V1__ExportTraceServiceRequest *m =
        opentelemetry__proto__collector__trace__v1__export_trace_service_request__unpack(NULL, len,
                                                                                         data);
    assert_non_null(m);
    add(&t, "%s", "");
    for (size_t i = 0; i < m->n_resource_spans; i++) {
        for (size_t k = 0; k < m->resource_spans[i]->n_scope_spans; k++) {
            const Opentelemetry__Proto__Trace__V1__ScopeSpans *scope =
                m->resource_spans[i]->scope_spans[k];
            for (size_t s = 0; s < scope->n_spans; s++) {
                add(&t, "%s ", scope->spans[s]->name);
                add_id(&t, scope->spans[s]->span_id);
                add(&t, ":");
                for (size_t a = 0; a < scope->spans[s]->n_attributes; a++) {
                    add(&t, " %s=", scope->spans[s]->attributes[a]->key);
                    add_any(&t, scope->spans[s]->attributes[a]->value);
                }
                add(&t, "\n");
            }
        }
    }
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return t.data;
}

static void add_sample(struct text *t,
                       const Opentelemetry__Proto__Profiles__V1development__ProfilesDictionary *d,
                       const Opentelemetry__Proto__Profiles__V1development__Sample *s)
{
    unsigned long long value = 0;
    if (s->n_values)
        value = (unsigned long long)s->values[0];
    else if (s->n_timestamps_unix_nano)
        value = (unsigned long long)s->timestamps_unix_nano[0];
    add(t, "%llu ", value);
    if (s->link_index) {
        assert_true(d && (size_t)s->link_index < d->n_link_table);
        add_id(t, d->link_table[s->link_index]->trace_id);
        add(t, "/");
        add_id(t, d->link_table[s->link_index]->span_id);
    } else {
        add(t, "-");
    }
    add(t, ":");
    for (size_t i = 0; i < s->n_attribute_indices; i++) {
        assert_true(d && (size_t)s->attribute_indices[i] < d->n_attribute_table);
        const Opentelemetry__Proto__Profiles__V1development__KeyValueAndUnit *a =
            d->attribute_table[s->attribute_indices[i]];
        assert_true((size_t)a->key_strindex < d->n_string_table);
        add(t, " %s=", d->string_table[a->key_strindex]);
        add_any(t, a->value);
    }
    add(t, "\n");
}

static char *text_of_profiles(const void *data, size_t len)
{
    struct text t = {0};
    Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest *m =
        PROFILES_REQUEST(unpack)(NULL, len, data);
    assert_non_null(m);
    add(&t, "%s", "");
    const Opentelemetry__Proto__Profiles__V1development__ProfilesDictionary *d = m->dictionary;
    /* Entry 0 of an existing table is empty. */
    if (d && d->n_string_table)
        assert_string_equal(d->string_table[0], "");
    if (d && d->n_link_table)
        assert_true(d->link_table[0]->span_id.len == 0);
    for (size_t i = 0; i < m->n_resource_profiles; i++)
        for (size_t k = 0; k < m->resource_profiles[i]->n_scope_profiles; k++) {
            const Opentelemetry__Proto__Profiles__V1development__ScopeProfiles *scope =
                m->resource_profiles[i]->scope_profiles[k];
            for (size_t p = 0; p < scope->n_profiles; p++)
                for (size_t s = 0; s < scope->profiles[p]->n_samples; s++)
                    add_sample(&t, d, scope->profiles[p]->samples[s]);
        }
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return t.data;
}

char *join_text(enum br_signal signal, const void *data, size_t len)
{
    return signal == BR_TRACES ? text_of_traces(data, len) : text_of_profiles(data, len);
}

/* --- Requests --------------------------------------------------------------------------------- */

static void big_endian(uint8_t out[8], uint64_t v)
{
    for (int i = 7; i >= 0; i--, v >>= 8)
        out[i] = (uint8_t)v;
}

struct ids join_ids(uint64_t trace, uint64_t span)
{
    struct ids i = {0};
    big_endian(i.trace + 8, trace);
    big_endian(i.span, span);
    return i;
}

struct open open_resource_of(struct wire *w, const char *const (*attributes)[2], size_t n)
{
    struct open o = {.resource = wire_open(w, 1)};
    size_t resource = wire_open(w, 1);
    for (size_t i = 0; i < n; i++)
        if (attributes[i][1])
            wire_attribute(w, 1, attributes[i][0], attributes[i][1]);
    wire_close(w, resource);
    o.scope = wire_open(w, 2);
    return o;
}

struct open open_resource(struct wire *w, const char *service, const char *instance,
                          const char *key, const char *value)
{
    const char *const attributes[][2] = {
        {key, key ? value : NULL}, {"service.instance.id", instance}, {"service.name", service}};
    return open_resource_of(w, attributes, BR_COUNT(attributes));
}

void close_resource(struct wire *w, struct open o)
{
    wire_close(w, o.scope);
    wire_close(w, o.resource);
}

void put_span(struct wire *w, const struct span_in *s)
{
    size_t at = wire_open(w, 2);
    wire_len(w, 1, s->ids.trace, 16);
    wire_len(w, 2, s->ids.span, 8);
    if (s->parent)
        wire_len(w, 4, join_ids(0, s->parent).span, 8);
    wire_str(w, 5, s->name);
    if (s->start_ns)
        wire_i64(w, 7, s->start_ns);
    if (s->end_ns)
        wire_i64(w, 8, s->end_ns);
    if (s->kind)
        wire_varint(w, 6, s->kind);
    for (unsigned i = 0; i + 1 < 8 && s->attributes[i]; i += 2)
        wire_attribute(w, 9, s->attributes[i], s->attributes[i + 1]);
    if (s->flags)
        wire_i32(w, 16, s->flags);
    if (s->status) {
        size_t status = wire_open(w, 15);
        wire_varint(w, 3, s->status);
        wire_close(w, status);
    }
    wire_close(w, at);
}

void put_one_span(struct wire *w, const char *service, uint64_t trace, uint64_t span,
                  const char *name)
{
    struct open o = open_resource(w, service, NULL, NULL, NULL);
    put_span(w, &(struct span_in){.ids = join_ids(trace, span), .name = name});
    close_resource(w, o);
}

uint32_t dict_string(struct dict *d, const char *text)
{
    if (!d->n_strings++)
        wire_str(&d->strings, 5, "");
    wire_str(&d->strings, 5, text);
    return d->n_strings;
}

static uint32_t dict_attribute_any(struct dict *d, const char *key, const struct wire *any)
{
    uint32_t name = dict_string(d, key);
    if (!d->n_attributes++)
        wire_len(&d->attributes, 6, NULL, 0);
    size_t at = wire_open(&d->attributes, 6);
    wire_varint(&d->attributes, 1, name);
    wire_len(&d->attributes, 2, any->data, any->len);
    wire_close(&d->attributes, at);
    return d->n_attributes;
}

uint32_t dict_attribute(struct dict *d, const char *key, const char *value)
{
    struct wire any = {0};
    wire_str(&any, 1, value);
    uint32_t i = dict_attribute_any(d, key, &any);
    wire_free(&any);
    return i;
}

uint32_t dict_attribute_int(struct dict *d, const char *key, int64_t value)
{
    struct wire any = {0};
    wire_varint(&any, 3, (uint64_t)value);
    uint32_t i = dict_attribute_any(d, key, &any);
    wire_free(&any);
    return i;
}

uint32_t dict_link(struct dict *d, const uint8_t *trace, const uint8_t *span)
{
    if (!d->n_links++)
        wire_len(&d->links, 4, NULL, 0);
    size_t at = wire_open(&d->links, 4);
    if (trace)
        wire_len(&d->links, 1, trace, 16);
    if (span)
        wire_len(&d->links, 2, span, 8);
    wire_close(&d->links, at);
    return d->n_links;
}

/* Adds a stack with two functions and two locations that no other stack uses. */
uint32_t dict_stack(struct dict *d, const char *leaf)
{
    const char *const names[] = {leaf, "main"};
    uint32_t stack = ++d->n_stacks, first = 2 * stack - 1;
    if (stack == 1) {
        wire_len(&d->functions, 3, NULL, 0);
        wire_len(&d->locations, 2, NULL, 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t name = dict_string(d, names[i]);
        size_t at = wire_open(&d->functions, 3);
        wire_varint(&d->functions, 1, name);
        wire_close(&d->functions, at);
        at = wire_open(&d->locations, 2);
        size_t line = wire_open(&d->locations, 3);
        wire_varint(&d->locations, 1, first + i);
        wire_close(&d->locations, line);
        wire_close(&d->locations, at);
    }
    size_t at = wire_open(&d->stacks, 7), list = wire_open(&d->stacks, 1);
    wire_number(&d->stacks, first);
    wire_number(&d->stacks, first + 1);
    wire_close(&d->stacks, list);
    wire_close(&d->stacks, at);
    return stack;
}

void dict_put(struct wire *w, struct dict *d)
{
    size_t at = wire_open(w, 2);
    wire_raw(w, d->links.data, d->links.len);
    wire_raw(w, d->strings.data, d->strings.len);
    wire_raw(w, d->attributes.data, d->attributes.len);
    wire_raw(w, d->functions.data, d->functions.len);
    wire_raw(w, d->locations.data, d->locations.len);
    wire_len(w, 7, NULL, 0);
    wire_raw(w, d->stacks.data, d->stacks.len);
    wire_close(w, at);
    wire_free(&d->functions);
    wire_free(&d->locations);
    wire_free(&d->stacks);
    wire_free(&d->links);
    wire_free(&d->strings);
    wire_free(&d->attributes);
    *d = (struct dict){0};
}

static void put_value_type(struct wire *w, uint32_t field, struct dict *d, const char *type,
                           const char *unit)
{
    size_t at = wire_open(w, field);
    wire_varint(w, 1, dict_string(d, type));
    wire_varint(w, 2, dict_string(d, unit));
    wire_close(w, at);
}

size_t open_profile(struct wire *w, struct dict *d, const struct profile_in *p)
{
    size_t at = wire_open(w, 2);
    put_value_type(w, 1, d, p->type, p->unit);
    if (p->period_type)
        put_value_type(w, 5, d, p->period_type, p->period_unit);
    if (p->period)
        wire_varint(w, 6, (uint64_t)p->period);
    if (p->id)
        wire_len(w, 7, p->id, 16);
    return at;
}

void put_sample(struct wire *w, const struct sample_in *s)
{
    size_t at = wire_open(w, 2);
    if (s->stack)
        wire_varint(w, 1, s->stack);
    if (s->link)
        wire_varint(w, 3, s->link);
    if (s->attributes[0]) {
        size_t list = wire_open(w, 2);
        for (unsigned i = 0; i < BR_COUNT(s->attributes) && s->attributes[i]; i++)
            wire_number(w, s->attributes[i]);
        wire_close(w, list);
    }
    if (!s->no_value) {
        size_t list = wire_open(w, 4);
        wire_number(w, s->values ? s->values[0] : s->value);
        for (unsigned i = 1; i < s->n_times; i++)
            wire_number(w, s->values ? s->values[i] : 0);
        wire_close(w, list);
    }
    for (unsigned i = 0; i < s->n_times; i++)
        wire_i64(w, 5, s->times ? s->times[i] : 1000 + i);
    wire_close(w, at);
}

void put_one_sample(struct wire *w, const char *service, uint64_t trace, uint64_t span,
                    uint64_t value)
{
    struct dict d = {0};
    struct ids i = join_ids(trace, span);
    struct open o = open_resource(w, service, NULL, NULL, NULL);
    size_t p = open_profile(w, &d, &(struct profile_in){.type = "samples", .unit = "count"});
    put_sample(w, &(struct sample_in){.link = dict_link(&d, i.trace, i.span), .value = value});
    wire_close(w, p);
    close_resource(w, o);
    dict_put(w, &d);
}
