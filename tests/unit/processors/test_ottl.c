/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements and conditions, compared with the results of the Collector's processors transform and
 * filter (v0.165) for the same data. tests/data/ottl contains the data, the results, and the
 * program that made them.
 */
#include <inttypes.h>
#include <math.h>

#include "base/str.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "tests/support/file.h"
#include "tests/support/otlp_text.h"
#include "tests/support/profiles_pb.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_filter_processor, br_transform_processor;

#define FACTS_MAX 256
#define TEXT_MAX 65536

typedef Opentelemetry__Proto__Common__V1__AnyValue any_value;
typedef Opentelemetry__Proto__Common__V1__KeyValue key_value;
typedef Opentelemetry__Proto__Trace__V1__Span span_message;
typedef Opentelemetry__Proto__Profiles__V1development__Profile profile_message;
typedef Opentelemetry__Proto__Profiles__V1development__ProfilesDictionary dictionary_message;

/* --- The text of data ------------------------------------------------------------------------- */

/* The fields and attributes of a request that have a value, as in main.go: one text for each, with
 * its name, a "=" and its value. */
struct facts {
    char text[TEXT_MAX];
    struct br_str out;
    size_t starts[FACTS_MAX], count;
};

static void begin(struct facts *f)
{
    f->out =
        (struct br_str){.data = f->text, .cap = sizeof f->text, .max = TEXT_MAX - 1, .fixed = true};
    f->count = 0;
    f->text[0] = '\0';
}

static const char *fact(const struct facts *f, size_t i)
{
    return f->text + f->starts[i];
}

__attribute__((format(printf, 2, 3))) static void open_fact(struct facts *f, const char *fmt, ...)
{
    va_list ap;
    char name[256];
    assert_true(f->count < FACTS_MAX);
    if (f->count)
        br_str_putc(&f->out, '\0');
    f->starts[f->count++] = f->out.len;
    va_start(ap, fmt);
    (void)vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    br_str_puts(&f->out, name);
}

static void put_escaped(struct br_str *out, const char *text)
{
    for (; *text; text++) {
        if (*text > ' ' && *text < 0x7f && *text != '"' && *text != '\\')
            br_str_putc(out, *text);
        else
            br_str_printf(out, "\\%02x", (unsigned char)*text);
    }
}

static void put_quoted(struct br_str *out, const char *text)
{
    br_str_putc(out, '"');
    put_escaped(out, text);
    br_str_putc(out, '"');
}

static void put_value(struct br_str *out, const any_value *v);

static void put_list(struct br_str *out, any_value *const *values, size_t count)
{
    br_str_putc(out, '[');
    for (size_t i = 0; i < count; i++) {
        br_str_puts(out, i ? "," : "");
        put_value(out, values[i]);
    }
    br_str_putc(out, ']');
}

static int compare_texts(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void put_map(struct br_str *out, key_value *const *values, size_t count)
{
    char *entries[64];
    assert_in_range(count, 0, BR_COUNT(entries) - 1);
    for (size_t i = 0; i < count; i++) {
        struct br_str entry = {.max = TEXT_MAX};
        put_escaped(&entry, values[i]->key);
        br_str_putc(&entry, ':');
        put_value(&entry, values[i]->value);
        entries[i] = entry.data;
    }
    qsort(entries, count, sizeof *entries, compare_texts);
    br_str_putc(out, '{');
    for (size_t i = 0; i < count; i++) {
        br_str_puts(out, i ? "," : "");
        br_str_puts(out, entries[i]);
        br_free(entries[i]);
    }
    br_str_putc(out, '}');
}

static void put_double(struct br_str *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value))
        br_str_puts(out, "dnan");
    else
        br_str_printf(out, "d%016" PRIx64, bits);
}

static void put_value(struct br_str *out, const any_value *v)
{
    switch (v ? v->value_case : 0) {
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE:
        put_quoted(out, v->string_value);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_BOOL_VALUE:
        br_str_puts(out, v->bool_value ? "true" : "false");
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_INT_VALUE:
        br_str_printf(out, "%" PRId64, v->int_value);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_DOUBLE_VALUE:
        put_double(out, v->double_value);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_ARRAY_VALUE:
        put_list(out, v->array_value->values, v->array_value->n_values);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_KVLIST_VALUE:
        put_map(out, v->kvlist_value->values, v->kvlist_value->n_values);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_BYTES_VALUE:
        br_str_putc(out, 'x');
        br_str_hex(out, v->bytes_value.data, v->bytes_value.len);
        break;
    default:
        br_str_puts(out, "nil");
        break;
    }
}

static void add_text(struct facts *f, const char *at, const char *name, const char *text)
{
    if (!*text)
        return;
    open_fact(f, "%s.%s=", at, name);
    put_quoted(&f->out, text);
}

static void add_number(struct facts *f, const char *at, const char *name, int64_t number)
{
    if (number)
        open_fact(f, "%s.%s=%" PRId64, at, name, number);
}

static void add_id(struct facts *f, const char *at, const char *name, const ProtobufCBinaryData *id,
                   size_t size)
{
    static const uint8_t none[16];
    open_fact(f, "%s.%s=", at, name);
    br_str_hex(&f->out, id->len ? id->data : none, id->len ? id->len : size);
}

static void add_attribute(struct facts *f, const char *at, const char *key, const any_value *value)
{
    open_fact(f, "%s@", at);
    put_escaped(&f->out, key);
    br_str_putc(&f->out, '=');
    put_value(&f->out, value);
}

static void add_attributes(struct facts *f, const char *at, key_value *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add_attribute(f, at, list[i]->key, list[i]->value);
}

static void add_resource(struct facts *f, const char *at,
                         const Opentelemetry__Proto__Resource__V1__Resource *resource)
{
    if (!resource)
        return;
    add_attributes(f, at, resource->attributes, resource->n_attributes);
    add_number(f, at, "dropped", resource->dropped_attributes_count);
}

static void add_scope(struct facts *f, const char *at,
                      const Opentelemetry__Proto__Common__V1__InstrumentationScope *scope)
{
    if (!scope)
        return;
    add_text(f, at, "name", scope->name);
    add_text(f, at, "version", scope->version);
    add_attributes(f, at, scope->attributes, scope->n_attributes);
    add_number(f, at, "dropped", scope->dropped_attributes_count);
}

static void add_events(struct facts *f, const char *at, const span_message *span)
{
    char name[128];
    for (size_t i = 0; i < span->n_events; i++) {
        (void)snprintf(name, sizeof name, "%se%zu", at, i);
        add_text(f, name, "name", span->events[i]->name);
        add_number(f, name, "time", (int64_t)span->events[i]->time_unix_nano);
        add_number(f, name, "dropped", span->events[i]->dropped_attributes_count);
        add_attributes(f, name, span->events[i]->attributes, span->events[i]->n_attributes);
    }
}

static void add_span(struct facts *f, const char *at, const span_message *span)
{
    add_id(f, at, "trace", &span->trace_id, 16);
    add_id(f, at, "id", &span->span_id, 8);
    add_id(f, at, "parent", &span->parent_span_id, 8);
    add_text(f, at, "name", span->name);
    add_number(f, at, "kind", (int32_t)span->kind);
    add_text(f, at, "state", span->trace_state);
    add_number(f, at, "start", (int64_t)span->start_time_unix_nano);
    add_number(f, at, "end", (int64_t)span->end_time_unix_nano);
    if (span->status) {
        add_number(f, at, "code", (int32_t)span->status->code);
        add_text(f, at, "message", span->status->message);
    }
    add_number(f, at, "dropped", span->dropped_attributes_count);
    add_number(f, at, "events", span->dropped_events_count);
    add_number(f, at, "links", span->dropped_links_count);
    add_attributes(f, at, span->attributes, span->n_attributes);
    add_events(f, at, span);
}

#define TRACE_REQUEST(x)                                                                           \
    opentelemetry__proto__collector__trace__v1__export_trace_service_request__##x

static void read_traces(struct facts *f, const uint8_t *data, size_t len)
{
    char at[64];
    Opentelemetry__Proto__Collector__Trace__V1__ExportTraceServiceRequest *request =
        TRACE_REQUEST(unpack)(NULL, len, data);
    assert_non_null(request);
    for (size_t i = 0; i < request->n_resource_spans; i++) {
        const Opentelemetry__Proto__Trace__V1__ResourceSpans *part = request->resource_spans[i];
        (void)snprintf(at, sizeof at, "r%zu", i);
        add_resource(f, at, part->resource);
        for (size_t j = 0; j < part->n_scope_spans; j++) {
            (void)snprintf(at, sizeof at, "r%zus%zu", i, j);
            add_scope(f, at, part->scope_spans[j]->scope);
            for (size_t k = 0; k < part->scope_spans[j]->n_spans; k++) {
                (void)snprintf(at, sizeof at, "r%zus%zun%zu", i, j, k);
                add_span(f, at, part->scope_spans[j]->spans[k]);
            }
        }
    }
    TRACE_REQUEST(free_unpacked)(request, NULL);
}

static void add_entries(struct facts *f, const char *at, const dictionary_message *dictionary,
                        const int32_t *indices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const Opentelemetry__Proto__Profiles__V1development__KeyValueAndUnit *entry =
            dictionary->attribute_table[indices[i]];
        add_attribute(f, at, dictionary->string_table[entry->key_strindex], entry->value);
    }
}

static void add_type(struct facts *f, const char *at, const char *type, const char *unit,
                     const dictionary_message *dictionary,
                     const Opentelemetry__Proto__Profiles__V1development__ValueType *value)
{
    if (!value)
        return;
    add_text(f, at, type, dictionary->string_table[value->type_strindex]);
    add_text(f, at, unit, dictionary->string_table[value->unit_strindex]);
}

static void add_profile(struct facts *f, const char *at, const dictionary_message *dictionary,
                        const profile_message *profile)
{
    char name[128];
    add_id(f, at, "id", &profile->profile_id, 16);
    add_type(f, at, "type", "unit", dictionary, profile->sample_type);
    add_type(f, at, "ptype", "punit", dictionary, profile->period_type);
    add_number(f, at, "time", (int64_t)profile->time_unix_nano);
    add_number(f, at, "duration", (int64_t)profile->duration_nano);
    add_number(f, at, "period", profile->period);
    add_number(f, at, "dropped", profile->dropped_attributes_count);
    add_text(f, at, "format", profile->original_payload_format);
    add_entries(f, at, dictionary, profile->attribute_indices, profile->n_attribute_indices);
    for (size_t i = 0; i < profile->n_samples; i++) {
        (void)snprintf(name, sizeof name, "%sx%zu", at, i);
        add_entries(f, name, dictionary, profile->samples[i]->attribute_indices,
                    profile->samples[i]->n_attribute_indices);
    }
}

static void read_profiles(struct facts *f, const uint8_t *data, size_t len)
{
    char at[64];
    Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
        *request = PROFILES_REQUEST(unpack)(NULL, len, data);
    assert_non_null(request);
    for (size_t i = 0; i < request->n_resource_profiles; i++) {
        const Opentelemetry__Proto__Profiles__V1development__ResourceProfiles *part =
            request->resource_profiles[i];
        (void)snprintf(at, sizeof at, "r%zu", i);
        add_resource(f, at, part->resource);
        for (size_t j = 0; j < part->n_scope_profiles; j++) {
            (void)snprintf(at, sizeof at, "r%zus%zu", i, j);
            add_scope(f, at, part->scope_profiles[j]->scope);
            for (size_t k = 0; k < part->scope_profiles[j]->n_profiles; k++) {
                (void)snprintf(at, sizeof at, "r%zus%zup%zu", i, j, k);
                add_profile(f, at, request->dictionary, part->scope_profiles[j]->profiles[k]);
            }
        }
    }
    PROFILES_REQUEST(free_unpacked)(request, NULL);
}

static void read_facts(struct facts *f, enum br_signal signal, const uint8_t *data, size_t len)
{
    begin(f);
    if (signal == BR_TRACES)
        read_traces(f, data, len);
    else
        read_profiles(f, data, len);
    assert_false(f->out.failed);
}

/* Returns the fact with the same name, or NULL. */
static const char *find(const struct facts *f, const char *wanted)
{
    size_t len = strcspn(wanted, "=");
    for (size_t i = 0; i < f->count; i++)
        if (strncmp(fact(f, i), wanted, len + 1) == 0)
            return fact(f, i);
    return NULL;
}

/* Appends texts, sorted, with a blank between two of them. */
static void put_sorted(struct br_str *out, char **texts, size_t count)
{
    qsort(texts, count, sizeof *texts, compare_texts);
    for (size_t i = 0; i < count; i++)
        br_str_printf(out, "%s%s", i ? " " : "", texts[i]);
}

/* Writes the facts that are new or different, and the names of those that are gone. */
static void put_changes(struct br_str *out, const struct facts *before, const struct facts *after)
{
    char *list[2 * FACTS_MAX], gone[FACTS_MAX][80];
    size_t n = 0, n_gone = 0;
    for (size_t i = 0; i < after->count; i++) {
        const char *old = find(before, fact(after, i));
        if (!old || strcmp(old, fact(after, i)) != 0)
            list[n++] = (char *)(uintptr_t)fact(after, i);
    }
    for (size_t i = 0; i < before->count; i++) {
        if (find(after, fact(before, i)))
            continue;
        (void)snprintf(gone[n_gone], sizeof gone[0], "-%.*s", (int)strcspn(fact(before, i), "="),
                       fact(before, i));
        list[n++] = gone[n_gone++];
    }
    put_sorted(out, list, n);
}

/* Writes the ids of the spans or profiles. */
static void put_kept(struct br_str *out, const struct facts *f)
{
    char *list[FACTS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++) {
        const char *id = strstr(fact(f, i), ".id=");
        if (id)
            list[n++] = (char *)(uintptr_t)(id + strlen(".id="));
    }
    put_sorted(out, list, n);
}

/* --- Running ---------------------------------------------------------------------------------- */

/* The requests as OTLP/JSON, and their fields before the processor changes them. */
struct comparison {
    char *json[BR_SIGNALS];
    struct facts before[BR_SIGNALS];
    size_t count, wrong;
};

/* Returns true if the component refuses a config. */
static bool is_refused(const struct br_component *component, const char *config, const char **why)
{
    *why = rig_errors(component, config);
    return **why && strncmp(*why, "warning: ", strlen("warning: ")) != 0;
}

static void run_config(struct comparison *c, const char *kind, const char *config,
                       struct br_str *out)
{
    static struct facts after;
    bool filter = strncmp(kind, "filter", strlen("filter")) == 0;
    enum br_signal signal = strstr(kind, "traces") ? BR_TRACES : BR_PROFILES;
    const struct br_component *component = filter ? &br_filter_processor : &br_transform_processor;
    const char *why;
    if (is_refused(component, config, &why)) {
        br_str_printf(out, "! %s", why);
        return;
    }
    struct rig *r = rig_new(component, config);
    rig_send(r, rig_item(r, signal, c->json[signal]));
    if (r->n_out) {
        read_facts(&after, signal, r->bytes, r->n_bytes);
        if (filter)
            put_kept(out, &after);
        else
            put_changes(out, &c->before[signal], &after);
    } else if (r->outcome.verdict != BR_DONE) {
        br_str_printf(out, "E %s", r->outcome.text);
    }
    rig_free(r);
}

/* Compares a result with that of the Collector. Of errors, only the kind is compared. */
static void compare(struct comparison *c, const char *kind, const char *config,
                    const char *expected)
{
    struct br_str out = {.max = TEXT_MAX};
    br_str_add(&out, "", 0);
    run_config(c, kind, config, &out);
    bool error = *out.data == '!' || *out.data == 'E';
    c->count++;
    if (error ? *out.data != *expected : strcmp(out.data, expected) != 0) {
        (void)fprintf(stderr, "# %s\t%s\n#  expected %s\n#  but got  %s\n", kind, config, expected,
                      out.data);
        c->wrong++;
    }
    br_str_release(&out);
}

static void read_input(struct comparison *c, enum br_signal signal, const char *path)
{
    struct br_pool *pool = br_pool_new(0);
    c->json[signal] = file_text(path);
    struct br_buf *buf = otlp_text(pool, signal, c->json[signal]);
    read_facts(&c->before[signal], signal, buf->data, buf->len);
    br_buf_unref(buf);
    br_pool_free(pool);
}

static void results_of_the_collector(void **state)
{
    static struct comparison c;
    (void)state;
    char *line = NULL;
    size_t cap = 0;
    FILE *f = fopen("tests/data/ottl/collector.tsv", "r");
    assert_non_null(f);
    read_input(&c, BR_TRACES, "tests/data/ottl/traces.json");
    read_input(&c, BR_PROFILES, "tests/data/ottl/profiles.json");
    while (getline(&line, &cap, f) > 0) {
        if (*line == '#')
            continue;
        line[strcspn(line, "\n")] = '\0';
        char *config = strchr(line, '\t');
        assert_non_null(config);
        *config++ = '\0';
        char *expected = strchr(config, '\t');
        assert_non_null(expected);
        *expected++ = '\0';
        compare(&c, line, config, expected);
    }
    free(line);
    (void)fclose(f);
    for (int i = 0; i < BR_SIGNALS; i++)
        free(c.json[i]);
    if (c.wrong)
        fail_msg("%zu of %zu results differ", c.wrong, c.count);
    assert_in_range(c.count, 3000, 10000);
}

SUITE(ottl)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_of_the_collector)};
    return RUN(tests, NULL, NULL);
}
