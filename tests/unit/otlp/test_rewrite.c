/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares rewritten requests with protobuf-c. A random verdict for each message is carried out on
 * the bytes and on the tree that protobuf-c decodes from them. Both must give the same request.
 */
#include "base/err.h"
#include "base/mem.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "otlp/edit/rewrite.h"
#include "otlp/json/json.h"
#include "otlp/walk/walk.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/gen.h"
#include "tests/support/items.h"
#include "tests/support/otlp_text.h"
#include "tests/support/test.h"

typedef Opentelemetry__Proto__Collector__Trace__V1__ExportTraceServiceRequest Traces;
typedef Opentelemetry__Proto__Trace__V1__ResourceSpans ResourceSpans;
typedef Opentelemetry__Proto__Trace__V1__ScopeSpans ScopeSpans;
typedef Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
    Profiles;
typedef Opentelemetry__Proto__Profiles__V1development__ResourceProfiles ResourceProfiles;
typedef Opentelemetry__Proto__Profiles__V1development__ScopeProfiles ScopeProfiles;
typedef Opentelemetry__Proto__Profiles__V1development__Profile Profile;

#define SCOPES (1u << BR_LEVEL_SCOPE)
#define WHOLE (1u << BR_LEVEL_PROFILE)
#define ITEMS (1u << BR_LEVEL_RECORD)

static int setup(void **state)
{
    *state = fake_host_new();
    return 0;
}

static int teardown(void **state)
{
    fake_host_free(*state);
    return 0;
}

/* --- Verdicts --------------------------------------------------------------------------------- */

/* The verdict on a message depends only on its level and its number. The test can therefore compute
 * it for the bytes and for protobuf-c's tree. */
struct plan {
    uint64_t seed;
    unsigned levels;
    unsigned percent[3];     /* percentage of messages to drop, for each level */
    unsigned change_percent; /* percentage of the remaining messages to replace */
    uint8_t bytes[1 << 16];  /* content of the last replacement */
    unsigned n_visits[3], n_dropped;
    uint32_t next[3], last_part;
};

static enum br_change verdict(const struct plan *p, enum br_level level, uint32_t index)
{
    uint64_t seed = p->seed * 1000003 + (uint64_t)level * 500009 + index;
    uint64_t random = fake_random(&seed);
    if (!(p->levels >> level & 1))
        return BR_KEEP;
    if (random % 100 < p->percent[level])
        return BR_DROP;
    return random / 100 % 100 < p->change_percent ? BR_REPLACE : BR_KEEP;
}

/* Writes a field that is valid in every message. Its length makes the length prefixes of the
 * enclosing messages grow in some cases. */
static size_t put_addition(uint8_t *out, uint32_t index)
{
    static const uint8_t filler[300];
    struct wire w = {0};
    wire_len(&w, 700, filler, index % 3 == 0 ? 300 : index % 7);
    memcpy(out, w.data, w.len);
    size_t len = w.len;
    wire_free(&w);
    return len;
}

static int on_visit(void *arg, struct br_visit *v)
{
    struct plan *p = arg;
    p->n_visits[v->level]++;
    assert_true(v->part >= p->last_part);
    p->last_part = v->part;
    assert_true(v->level == BR_LEVEL_PROFILE || v->index == p->next[v->level]);
    assert_true(v->index >= p->next[v->level]);
    p->next[v->level] = v->index + 1;
    enum br_change what = verdict(p, v->level, v->index);
    if (what == BR_REPLACE) {
        assert_true(v->len + 400 < sizeof p->bytes);
        if (v->len)
            memcpy(p->bytes, v->body, v->len);
        v->out = (struct br_addition){p->bytes, v->len};
        v->out.len += put_addition(p->bytes + v->len, v->index);
    }
    return (int)what;
}

/* --- The same with protobuf-c ----------------------------------------------------------------- */

static void change(void *slot, uint32_t index)
{
    ProtobufCMessage **m = slot;
    uint8_t bytes[400];
    struct wire w = gen_encode(*m);
    wire_raw(&w, bytes, put_addition(bytes, index));
    const ProtobufCMessageDescriptor *d = (*m)->descriptor;
    protobuf_c_message_free_unpacked(*m, NULL);
    *m = gen_decode(d, w.data, w.len);
    wire_free(&w);
}

/* Removes the empty places of the list, and returns the new length of the list. */
static size_t compact(void *list, size_t n)
{
    void **v = list;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i])
            v[kept++] = v[i];
    return kept;
}

static bool drop(void *slot)
{
    ProtobufCMessage **m = slot;
    protobuf_c_message_free_unpacked(*m, NULL);
    *m = NULL;
    return true;
}

static size_t want_items(struct plan *p, void *list, size_t n)
{
    ProtobufCMessage **v = list;
    for (size_t i = 0; i < n; i++) {
        uint32_t index = p->next[BR_LEVEL_RECORD]++;
        enum br_change what = verdict(p, BR_LEVEL_RECORD, index);
        if (what == BR_DROP && drop(&v[i]))
            p->n_dropped++;
        else if (what == BR_REPLACE)
            change(&v[i], index);
    }
    return compact(v, n);
}

static void want_profile(struct plan *p, Profile **slot)
{
    Profile *m = *slot;
    size_t before = m->n_samples;
    uint32_t index = p->next[BR_LEVEL_PROFILE]++;
    m->n_samples = want_items(p, m->samples, before);
    if (before && !m->n_samples) {
        drop(slot);
        return;
    }
    enum br_change what = verdict(p, BR_LEVEL_PROFILE, index);
    if (what == BR_DROP) {
        p->n_dropped += (unsigned)m->n_samples;
        drop(slot);
    } else if (what == BR_REPLACE) {
        change(slot, index);
    }
}

/* protobuf-c merges a scope that occurs twice, but the generator writes only one. */
static void want_scope(struct plan *p, void *slot)
{
    ProtobufCMessage **m = slot;
    uint32_t index = p->next[BR_LEVEL_SCOPE]++;
    if (*m && verdict(p, BR_LEVEL_SCOPE, index) == BR_REPLACE)
        change(m, index);
}

/* Returns false if the message had children and lost all of them. */
typedef bool want_fn(struct plan *p, void *m);

/* Applies `want` to each message of the list, and removes messages that have lost all of their
 * children. */
static bool want_each(struct plan *p, void *list, size_t *n, want_fn *want)
{
    void **v = list;
    size_t before = *n;
    for (size_t i = 0; i < before; i++)
        if (!want(p, v[i]))
            drop(&v[i]);
    *n = compact(v, before);
    return *n || !before;
}

static bool want_scope_spans(struct plan *p, void *message)
{
    ScopeSpans *m = message;
    size_t before = m->n_spans;
    want_scope(p, &m->scope);
    m->n_spans = want_items(p, m->spans, before);
    return m->n_spans || !before;
}

static bool want_scope_profiles(struct plan *p, void *message)
{
    ScopeProfiles *m = message;
    size_t before = m->n_profiles;
    want_scope(p, &m->scope);
    for (size_t i = 0; i < before; i++)
        want_profile(p, &m->profiles[i]);
    m->n_profiles = compact(m->profiles, before);
    return m->n_profiles || !before;
}

static bool want_resource_spans(struct plan *p, void *message)
{
    ResourceSpans *m = message;
    return want_each(p, m->scope_spans, &m->n_scope_spans, want_scope_spans);
}

static bool want_resource_profiles(struct plan *p, void *message)
{
    ResourceProfiles *m = message;
    return want_each(p, m->scope_profiles, &m->n_scope_profiles, want_scope_profiles);
}

static void want_traces(struct plan *p, Traces *r)
{
    (void)want_each(p, r->resource_spans, &r->n_resource_spans, want_resource_spans);
}

static void want_profiles(struct plan *p, Profiles *r)
{
    (void)want_each(p, r->resource_profiles, &r->n_resource_profiles, want_resource_profiles);
}

static struct wire gen_rewritten(enum br_signal signal, const struct wire *bytes, struct plan *plan)
{
    void *m = gen_decode(br_otlp_request(signal), bytes->data, bytes->len);
    if (plan && signal == BR_TRACES)
        want_traces(plan, m);
    else if (plan)
        want_profiles(plan, m);
    struct wire w = gen_encode(m);
    protobuf_c_message_free_unpacked(m, NULL);
    return w;
}

/* Asserts that the item's parts and counts are those that the walk finds in its bytes. */
static void check_walked(struct br_item *item, const struct wire *bytes)
{
    struct br_item *fresh = items_walk(item->host, item->signal, bytes->data, bytes->len);
    assert_int_equal(fresh->n_records, item->n_records);
    assert_int_equal(fresh->n_parts, item->n_parts);
    for (uint32_t i = 0; i < item->n_parts; i++) {
        const struct br_part *a = &item->parts[i], *b = &fresh->parts[i];
        assert_int_equal(a->kind, b->kind);
        assert_int_equal(a->n_records, b->n_records);
        assert_int_equal(a->raw_len, b->raw_len);
        assert_int_equal(a->body_at, b->body_at);
        assert_int_equal(a->res_at, b->res_at);
        assert_int_equal(a->res_len, b->res_len);
        assert_int_equal(a->res_body_at, b->res_body_at);
    }
    br_item_free(fresh);
}

static void random_rewrite(struct fake_host *h, enum br_signal signal, struct plan plan)
{
    struct wire w = {0};
    struct gen g = {.w = &w, .random = plan.seed, .signal = signal};
    struct plan other = plan;
    gen_request(&g);
    struct br_item *item = items_walk(&h->host, signal, w.data, w.len);
    uint32_t before = item->n_records;
    struct wire want = gen_rewritten(signal, &w, &other);
    assert_int_equal(br_item_rewrite(item, plan.levels, on_visit, &plan), 0);
    assert_int_equal(item->n_records, before - other.n_dropped);
    if (plan.levels & ITEMS)
        assert_int_equal(plan.n_visits[BR_LEVEL_RECORD], before);
    struct wire bytes = gen_written(item), got = gen_rewritten(signal, &bytes, NULL);
    assert_int_equal(got.len, want.len);
    if (got.len)
        assert_memory_equal(got.data, want.data, got.len);
    check_walked(item, &bytes);
    br_item_free(item);
    wire_free(&got);
    wire_free(&bytes);
    wire_free(&want);
    wire_free(&w);
}

static void random_rewrites_match_protobuf_c(void **state)
{
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        struct plan plan = {.seed = seed,
                            .levels = (unsigned)(seed % 8),
                            .percent = {0, (unsigned)(seed * 7 % 60), (unsigned)(seed * 13 % 101)},
                            .change_percent = (unsigned)(seed * 31 % 101)};
        random_rewrite(*state, BR_TRACES, plan);
        random_rewrite(*state, BR_PROFILES, plan);
    }
}

/* --- Nothing changes -------------------------------------------------------------------------- */

static int keep(void *arg, struct br_visit *v)
{
    (void)v;
    ++*(unsigned *)arg;
    return BR_KEEP;
}

static void kept_messages_are_shared(void **state)
{
    struct fake_host *h = *state;
    for (int signal = 0; signal < BR_SIGNALS; signal++) {
        struct br_item *item = items_new(&h->host, (enum br_signal)signal, 1, 10);
        struct br_span spans[10];
        struct wire before = gen_written(item);
        struct br_buf *buf = item->parts[0].buf;
        const uint8_t *raw = item->parts[0].raw;
        unsigned n = 0;
        item->spans = spans;
        assert_int_equal(br_item_rewrite(item, SCOPES | WHOLE | ITEMS, keep, &n), 0);
        assert_true(n >= 10);
        assert_ptr_equal(item->parts[0].buf, buf);
        assert_ptr_equal(item->parts[0].raw, raw);
        assert_ptr_equal(item->spans, spans);
        struct wire after = gen_written(item);
        assert_int_equal(after.len, before.len);
        assert_memory_equal(after.data, before.data, after.len);
        wire_free(&before);
        wire_free(&after);
        br_item_done(item);
        fake_host_iterate(h);
    }
}

/* --- Dropped and kept messages ---------------------------------------------------------------- */

static int drop_all(void *arg, struct br_visit *v)
{
    (void)arg;
    return v->level == BR_LEVEL_SCOPE ? BR_KEEP : BR_DROP;
}

static void emptied_resources_are_dropped(void **state)
{
    struct fake_host *h = *state;
    for (int signal = 0; signal < BR_SIGNALS; signal++) {
        for (int level = signal == BR_TRACES ? BR_LEVEL_RECORD : BR_LEVEL_PROFILE;
             level <= BR_LEVEL_RECORD; level++) {
            struct br_item *item = items_new(&h->host, (enum br_signal)signal, 1, 10);
            uint32_t held = item->n_pending;
            assert_int_equal(br_item_rewrite(item, 1u << level, drop_all, NULL), 0);
            assert_int_equal(item->n_records, 0);
            assert_int_equal(item->n_pending, held);
            assert_null(item->spans);
            size_t size = 0;
            for (uint32_t i = 0; i < item->n_parts; i++) {
                assert_int_not_equal(item->parts[i].kind, BR_PART_RESOURCE);
                size += item->parts[i].raw_len;
            }
            assert_int_equal(item->size, size);
            br_item_report(item, BR_RESULT_DROPPED, "test", held);
            br_item_done(item);
            fake_host_iterate(h);
        }
    }
}

/* Messages that had no children when they were received are kept. */
static void empty_messages_are_kept(void **state)
{
    struct fake_host *h = *state;
    struct br_item *item =
        otlp_text_item(&h->host, BR_TRACES,
                       "{'resourceSpans': [{'scopeSpans': ["
                       "{'schemaUrl': 'a scope without spans'}, {'spans': [{'name': 'a span'}]}]},"
                       "{'scopeSpans': [{}]}]}"); /* an empty scope */
    assert_int_equal(br_item_rewrite(item, ITEMS, drop_all, NULL), 0);
    assert_int_equal(item->n_parts, 2);
    struct wire bytes = gen_written(item);
    Traces *m = gen_decode(br_otlp_request(BR_TRACES), bytes.data, bytes.len);
    assert_int_equal(m->n_resource_spans, 2);
    assert_int_equal(m->resource_spans[0]->n_scope_spans, 1);
    assert_string_equal(m->resource_spans[0]->scope_spans[0]->schema_url, "a scope without spans");
    assert_int_equal(m->resource_spans[1]->n_scope_spans, 1);
    protobuf_c_message_free_unpacked(&m->base, NULL);
    wire_free(&bytes);
    br_item_free(item);
}

static int replace_by_nothing(void *arg, struct br_visit *v)
{
    (void)arg;
    v->out = (struct br_addition){NULL, 0};
    return BR_REPLACE;
}

static void a_replacement_may_be_empty(void **state)
{
    struct fake_host *h = *state;
    struct br_item *item = items_new(&h->host, BR_TRACES, 1, 10);
    assert_int_equal(br_item_rewrite(item, SCOPES | ITEMS, replace_by_nothing, NULL), 0);
    assert_int_equal(item->n_records, 10);
    struct wire bytes = gen_written(item);
    Traces *m = gen_decode(br_otlp_request(BR_TRACES), bytes.data, bytes.len);
    assert_int_equal(m->resource_spans[0]->scope_spans[0]->spans[0]->span_id.len, 0);
    assert_true(bytes.len < 200);
    protobuf_c_message_free_unpacked(&m->base, NULL);
    wire_free(&bytes);
    br_item_done(item);
    fake_host_iterate(h);
}

/* Replaces each span by three of its own content. */
static int split_in_three(void *arg, struct br_visit *visit)
{
    struct wire *out = arg;
    wire_free(out);
    *out = (struct wire){0};
    for (int i = 0; i < 3; i++) {
        wire_len(out, 2, visit->body, visit->len); /* ScopeSpans.spans */
    }
    visit->out = (struct br_addition){out->data, out->len};
    visit->n_out = 3;
    return BR_SPLIT;
}

static void test_a_split_adds_records(void **state)
{
    struct fake_host *h = *state;
    struct wire made = {0};
    struct br_item *item = items_new(&h->host, BR_TRACES, 1, 10);
    assert_int_equal(br_item_rewrite(item, ITEMS, split_in_three, &made), 0);
    assert_int_equal(item->n_records, 30);
    assert_int_equal(item->parts[0].n_records + item->parts[1].n_records, 30);
    struct wire bytes = gen_written(item);
    check_walked(item, &bytes);
    wire_free(&bytes);
    wire_free(&made);
    br_item_done(item);
    fake_host_iterate(h);
}

static void a_replaced_resource_is_kept(void **state)
{
    struct fake_host *h = *state;
    struct br_item *item = items_new(&h->host, BR_PROFILES, 1, 10);
    struct br_buf *buf = otlp_text_service(h->host.pool, "other");
    uint32_t at = 0;
    while (item->parts[at].kind != BR_PART_RESOURCE)
        at++;
    br_item_set_resource(item, &item->parts[at], buf, buf->data, buf->len);
    struct plan plan = {.levels = ITEMS | WHOLE, .change_percent = 100};
    assert_int_equal(br_item_rewrite(item, plan.levels, on_visit, &plan), 0);
    size_t len;
    const uint8_t *resource = br_part_resource(&item->parts[at], &len);
    assert_int_equal(len, buf->len);
    assert_memory_equal(resource, buf->data, len);
    struct wire bytes = gen_written(item);
    struct br_item *fresh = items_walk(&h->host, BR_PROFILES, bytes.data, bytes.len);
    resource = br_part_resource(&fresh->parts[at], &len);
    assert_int_equal(len, buf->len);
    assert_memory_equal(resource, buf->data, len);
    br_item_free(fresh);
    wire_free(&bytes);
    br_buf_unref(buf);
    br_item_done(item);
    fake_host_iterate(h);
}

/* --- Failure ---------------------------------------------------------------------------------- */

static int fail_at_five(void *arg, struct br_visit *v)
{
    struct plan *p = arg;
    if (v->index == 5)
        return BR_EIO;
    return verdict(p, v->level, v->index) == BR_DROP ? BR_DROP : BR_KEEP;
}

static int drop_scopes(void *arg, struct br_visit *v)
{
    (void)arg;
    (void)v;
    return BR_DROP;
}

static void a_failure_does_not_change_the_item(void **state)
{
    struct fake_host *h = *state;
    struct plan plan = {.levels = ITEMS, .percent = {0, 0, 100}};
    struct br_item *item = items_new(&h->host, BR_TRACES, 1, 10);
    struct wire before = gen_written(item);
    assert_int_equal(br_item_rewrite(item, ITEMS, fail_at_five, &plan), BR_EIO);
    assert_int_equal(item->n_records, 10);
    struct wire after = gen_written(item);
    assert_int_equal(after.len, before.len);
    assert_memory_equal(after.data, before.data, after.len);
    wire_free(&before);
    wire_free(&after);
    br_item_done(item);
    fake_host_iterate(h);
}

static void a_scope_cannot_be_dropped(void **state)
{
    struct fake_host *h = *state;
    struct br_item *item =
        otlp_text_item(&h->host, BR_TRACES, "{'resourceSpans': [{'scopeSpans': [{'scope': {}}]}]}");
    size_t size = item->size;
    assert_int_equal(size, 6); /* three fields, each a tag and a length */
    assert_int_equal(br_item_rewrite(item, SCOPES, drop_scopes, NULL), BR_EINVAL);
    assert_int_equal(item->size, size);
    br_item_free(item);
}

static void rewrite_without_memory(void *arg)
{
    enum br_signal signal = *(const enum br_signal *)arg;
    struct fake_host *h = fake_host_new();
    struct br_item *item = items_new(&h->host, signal, 1, 40);
    struct plan plan = {
        .seed = 3, .levels = ITEMS | WHOLE | SCOPES, .percent = {0, 0, 30}, .change_percent = 80};
    struct wire before = gen_written(item);
    fault_start();
    int rc = br_item_rewrite(item, plan.levels, on_visit, &plan);
    fault_stop();
    assert_true(rc == 0 || (rc == BR_ENOMEM && fault_failed()));
    struct wire after = gen_written(item);
    if (rc) {
        assert_int_equal(item->n_records, 40);
        assert_int_equal(after.len, before.len);
        assert_memory_equal(after.data, before.data, after.len);
    } else {
        check_walked(item, &after);
    }
    wire_free(&before);
    wire_free(&after);
    br_item_done(item);
    fake_host_iterate(h);
    fake_host_free(h);
}

static void without_memory_the_item_is_unchanged(void **state)
{
    (void)state;
    enum br_signal traces = BR_TRACES, profiles = BR_PROFILES;
    fault_each("rewrite traces", rewrite_without_memory, &traces);
    fault_each("rewrite profiles", rewrite_without_memory, &profiles);
}

/* --- The dictionary --------------------------------------------------------------------------- */

/* Returns an item whose dictionary is in three parts, with unknown fields between the entries. */
static struct br_item *dictionary_item(struct br_host *h)
{
    struct wire w = {0};
    static const char *const texts[] = {"", "one", "two", "three", "four", "five"};
    for (unsigned i = 0; i < 6; i += 2) {
        size_t at = wire_open(&w, 2);
        wire_str(&w, 5, texts[i]);
        wire_str(&w, 600, "unknown");
        wire_str(&w, 5, texts[i + 1]);
        if (i == 2)
            wire_close(&w, wire_open(&w, 3));
        wire_close(&w, at);
    }
    struct br_item *item = items_walk(h, BR_PROFILES, w.data, w.len);
    wire_free(&w);
    return item;
}

static const char *const new_texts[] = {
    NULL, "eins", NULL, "", NULL, "a text that is much longer than the one that was there"};

static void fill_entries(struct br_entry entries[6])
{
    for (unsigned i = 0; i < 6; i++)
        if (new_texts[i])
            entries[i] =
                (struct br_entry){(const uint8_t *)new_texts[i], (uint32_t)strlen(new_texts[i])};
}

static void entries_are_replaced_and_added(void **state)
{
    struct fake_host *h = *state;
    struct br_item *item = dictionary_item(&h->host);
    struct br_dictionary_view view;
    struct br_entry strings[6] = {{NULL, 0}};
    const struct br_entry *entries[BR_TABLES] = {[BR_TABLE_STRING] = strings};
    fill_entries(strings);
    struct wire more = {0};
    wire_str(&more, 5, "six");
    wire_close(&more, wire_open(&more, 3));
    struct br_buf *first = item->parts[0].buf;
    br_buf_ref(first);
    assert_int_equal(br_dictionary_index(item, &item->arena, &view), 0);
    assert_int_equal(br_item_rewrite_dictionary(item, &view, entries,
                                                &(struct br_addition){more.data, more.len}),
                     0);
    br_buf_unref(first);
    assert_int_equal(br_dictionary_index(item, &item->arena, &view), 0);
    static const char *const want[] = {"", "eins", "two", "", "four", NULL, "six"};
    assert_int_equal(view.count[BR_TABLE_STRING], 7);
    assert_int_equal(view.count[BR_TABLE_FUNCTION], 2);
    for (unsigned i = 0; i < 7; i++) {
        struct br_entry e = view.tables[BR_TABLE_STRING][i];
        const char *text = want[i] ? want[i] : new_texts[i];
        assert_int_equal(e.len, strlen(text));
        assert_memory_equal(e.data, text, e.len);
    }
    /* protobuf-c decodes the same entries from the wire. */
    struct wire bytes = gen_written(item);
    Profiles *m = gen_decode(br_otlp_request(BR_PROFILES), bytes.data, bytes.len);
    assert_int_equal(m->dictionary->n_string_table, 7);
    assert_string_equal(m->dictionary->string_table[1], "eins");
    assert_string_equal(m->dictionary->string_table[6], "six");
    unsigned n_unknown = 0; /* protobuf-c drops unknown fields when it merges */
    for (size_t i = 0; i + 7 <= bytes.len; i++)
        n_unknown += memcmp(bytes.data + i, "unknown", 7) == 0;
    assert_int_equal(n_unknown, 3);
    protobuf_c_message_free_unpacked(&m->base, NULL);
    wire_free(&bytes);
    wire_free(&more);
    br_item_free(item);
}

static void a_dictionary_without_changes_is_shared(void **state)
{
    struct fake_host *h = *state;
    struct br_item *item = dictionary_item(&h->host);
    struct br_dictionary_view view;
    struct br_entry strings[6] = {{NULL, 0}};
    const struct br_entry *entries[BR_TABLES] = {[BR_TABLE_STRING] = strings};
    strings[3] = (struct br_entry){(const uint8_t *)"x", 1};
    const uint8_t *raw[3] = {item->parts[0].raw, item->parts[1].raw, item->parts[2].raw};
    assert_int_equal(br_dictionary_index(item, &item->arena, &view), 0);
    assert_int_equal(br_item_rewrite_dictionary(item, &view, entries, NULL), 0);
    assert_int_equal(item->n_parts, 3);
    assert_ptr_equal(item->parts[0].raw, raw[0]);
    assert_ptr_not_equal(item->parts[1].raw, raw[1]);
    assert_ptr_equal(item->parts[2].raw, raw[2]);
    br_item_free(item);
}

static void dictionary_without_memory(void *arg)
{
    (void)arg;
    struct fake_host *h = fake_host_new();
    struct br_item *item = dictionary_item(&h->host);
    struct br_dictionary_view view;
    struct br_entry strings[6] = {{NULL, 0}};
    const struct br_entry *entries[BR_TABLES] = {[BR_TABLE_STRING] = strings};
    fill_entries(strings);
    static const uint8_t more[] = {0x2a, 1, 'x'};
    struct wire before = gen_written(item);
    assert_int_equal(br_dictionary_index(item, &item->arena, &view), 0);
    fault_start();
    int rc = br_item_rewrite_dictionary(item, &view, entries, &(struct br_addition){more, 3});
    fault_stop();
    assert_true(rc == 0 || (rc == BR_ENOMEM && fault_failed()));
    struct wire after = gen_written(item);
    if (rc) {
        assert_int_equal(after.len, before.len);
        assert_memory_equal(after.data, before.data, after.len);
    } else {
        assert_true(after.len > before.len);
    }
    wire_free(&before);
    wire_free(&after);
    br_item_free(item);
    fake_host_free(h);
}

static void without_memory_the_dictionary_is_unchanged(void **state)
{
    (void)state;
    fault_each("rewrite dictionary", dictionary_without_memory, NULL);
}

SUITE(rewrite)
{
    const struct CMUnitTest tests[] = {
        TEST(random_rewrites_match_protobuf_c),
        TEST(kept_messages_are_shared),
        TEST(emptied_resources_are_dropped),
        TEST(empty_messages_are_kept),
        TEST(a_replacement_may_be_empty),
        TEST(test_a_split_adds_records),
        TEST(a_replaced_resource_is_kept),
        TEST(a_failure_does_not_change_the_item),
        TEST(a_scope_cannot_be_dropped),
        cmocka_unit_test(without_memory_the_item_is_unchanged),
        TEST(entries_are_replaced_and_added),
        TEST(a_dictionary_without_changes_is_shared),
        cmocka_unit_test(without_memory_the_dictionary_is_unchanged),
    };
    return RUN(tests, NULL, NULL);
}
