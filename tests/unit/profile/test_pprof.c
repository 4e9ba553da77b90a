/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads pprofs written by hand after profile.proto, and those of Go's runtime in tests/data/pprof.
 * The expected sums of the latter were printed by `go tool pprof -raw` and are in the .txt file
 * next to each profile. Every result has to pass the walk. tests/conformance/test_pprof.py compares
 * sample by sample.
 */
#include "tests/support/pprof_rig.h"
#include "tests/support/test.h"
#include "wire/compression.h"

static void check_whole(const struct read *r)
{
    assert_int_equal(n_profiles(r), 2);
    for (size_t i = 0; i < 2; i++) {
        Profile *p = profile_at(r, i);
        assert_string_equal(string_at(r, p->sample_type->type_strindex), i ? "cpu" : "samples");
        assert_string_equal(string_at(r, p->sample_type->unit_strindex),
                            i ? "nanoseconds" : "count");
        assert_int_equal(p->time_unix_nano, 1700000000000000000);
        assert_int_equal(p->duration_nano, 10);
        assert_int_equal(p->period, 77);
        assert_string_equal(string_at(r, p->period_type->type_strindex), "cpu");
        assert_string_equal(profile_text(r, i, "pprof.profile.drop_frames"), "^runtime");
        assert_string_equal(profile_text(r, i, "pprof.profile.keep_frames"), "^keep");
        assert_string_equal(profile_text(r, i, "pprof.profile.doc_url"), "https://doc");
        AnyValue *comments = value_of(r, p->attribute_indices, p->n_attribute_indices,
                                      "pprof.profile.comment", NULL);
        assert_int_equal(comments->array_value->n_values, 2);
        assert_string_equal(comments->array_value->values[0]->string_value, "a comment");
        assert_string_equal(comments->array_value->values[1]->string_value, "user");
        assert_int_equal(p->n_samples, 2);
        assert_int_equal(p->samples[0]->values[0], i ? 2 : 1);
        assert_int_equal(p->samples[1]->values[0], i ? -4 : 3);
        assert_int_equal(p->samples[0]->n_values, 1);
    }
    assert_string_equal(scope_value(r, "pprof.scope.default_sample_type")->string_value, "cpu");
    Opentelemetry__Proto__Common__V1__ArrayValue *order =
        scope_value(r, "pprof.scope.sample_type_order")->array_value;
    assert_int_equal(order->n_values, 2);
    assert_int_equal(order->values[0]->int_value, 0);
    assert_int_equal(order->values[1]->int_value, 1);
}

static void check_code(const struct read *r)
{
    Opentelemetry__Proto__Profiles__V1development__ProfilesDictionary *d = r->request->dictionary;
    Sample *s = profile_at(r, 0)->samples[0];
    Opentelemetry__Proto__Profiles__V1development__Stack *stack = d->stack_table[s->stack_index];
    assert_int_equal(stack->n_location_indices, 2);
    Opentelemetry__Proto__Profiles__V1development__Location *l =
        d->location_table[stack->location_indices[0]];
    assert_int_equal(l->address, 4100);
    assert_int_equal(l->n_lines, 2);
    assert_int_equal(l->lines[0]->line, 9);
    assert_int_equal(l->lines[0]->column, 3);
    assert_int_equal(l->lines[1]->function_index, 0);
    assert_int_equal(l->lines[1]->line, -1);
    AnyValue *folded =
        value_of(r, l->attribute_indices, l->n_attribute_indices, "pprof.location.is_folded", NULL);
    assert_true(folded->bool_value);
    assert_int_equal(d->location_table[stack->location_indices[1]]->n_attribute_indices, 0);
    assert_int_equal(d->location_table[stack->location_indices[1]]->mapping_index, 0);
    Opentelemetry__Proto__Profiles__V1development__Function *f =
        d->function_table[l->lines[0]->function_index];
    assert_string_equal(string_at(r, f->name_strindex), "main");
    assert_string_equal(string_at(r, f->system_name_strindex), "cpu");
    assert_string_equal(string_at(r, f->filename_strindex), "main.go");
    assert_int_equal(f->start_line, 7);
    Opentelemetry__Proto__Profiles__V1development__Mapping *m = d->mapping_table[l->mapping_index];
    assert_int_equal(m->memory_start, 4096);
    assert_int_equal(m->memory_limit, 8192);
    assert_int_equal(m->file_offset, 1);
    assert_string_equal(string_at(r, m->filename_strindex), "/bin/app");
    assert_int_equal(m->n_attribute_indices, 4);
    const char *const flags[] = {"pprof.mapping.has_functions", "pprof.mapping.has_line_numbers",
                                 "pprof.mapping.has_inline_frames"};
    for (size_t i = 0; i < BR_COUNT(flags); i++)
        assert_true(value_of(r, m->attribute_indices, 4, flags[i], NULL)->bool_value);
    assert_string_equal(
        value_of(r, m->attribute_indices, 4, "process.executable.build_id.gnu", NULL)->string_value,
        "b1d");
}

/* Tests every field of the schema, in two orders: tables before samples; and samples first, then
 * the strings, then the other tables. */
static void test_whole(void **state)
{
    (void)state;
    struct message *types = join(type(SAMPLES, COUNT), type(CPU, NANOSECONDS));
    struct message *mapping =
        nest(PMAPPING, number(1, 5), number(2, 4096), number(3, 8192), number(4, 1), number(5, APP),
             number(6, BUILD_ID), number(7, 1), number(8, 0), number(9, 1), number(10, 1), END);
    struct message *function = nest(PFUNCTION, number(5, 7), number(1, 1ull << 60), number(2, MAIN),
                                    number(3, CPU), number(4, MAIN_GO), number(99, 1), END);
    struct message *line = nest(4, number(1, 1ull << 60), number(2, 9), number(3, 3), END);
    struct message *locations =
        join(nest(PLOCATION, line, nest(4, number(2, UINT64_MAX), END), number(1, UINT64_MAX),
                  number(2, 5), number(3, 4100), number(5, 1), END),
             nest(PLOCATION, number(1, 2), number(3, 1), END));
    /* The first sample has unpacked values. The second sample has packed values, in two pieces. */
    struct message *samples =
        join(nest(SAMPLE, number(2, 1), number(1, UINT64_MAX), number(1, 2), number(2, 2), END),
             nest(SAMPLE, bytes(1, "\2", 1), bytes(2, "\3", 1),
                  bytes(2, "\xfc\xff\xff\xff\xff\xff\xff\xff\xff\1", 10), END));
    struct message *other_fields = join(number(DROP, RUNTIME), number(KEEP, KEEP_TEXT));
    other_fields =
        join(other_fields, join(number(TIME, 1700000000000000000), number(DURATION, 10)));
    other_fields =
        join(other_fields, nest(PERIOD_TYPE, number(1, CPU), number(2, NANOSECONDS), END));
    other_fields = join(other_fields, join(number(PERIOD, 77), number(COMMENT, A_COMMENT)));
    other_fields = join(other_fields, join(bytes(COMMENT, "\x10", 1), number(DEFAULT_TYPE, CPU)));
    other_fields = join(other_fields, number(DOC_URL, URL));
    struct message *tables = join(join(mapping, function), locations);
    struct message *orders[] = {
        join(join(types, tables), join(join(all_strings(), other_fields), samples)),
        join(join(samples, other_fields),
             join(all_strings(), join(locations, join(function, join(mapping, types))))),
    };
    for (size_t i = 0; i < BR_COUNT(orders); i++) {
        struct read r = {0};
        if (read_message(&r, orders[i]))
            fail_msg("%s", r.err.text);
        check_whole(&r);
        check_code(&r);
        assert_null(r.request->resource_profiles[0]->resource);
        assert_null(scope_value(&r, "pyroscope.name"));
        free_unpacked(r.request, NULL);
    }
    free_messages();
}

/* A profile that does not have a period type, a period, a time, mappings or functions. All of these
 * are optional. */
static void test_bare(void **state)
{
    (void)state;
    struct read r = {0};
    struct message *m = nest(SAMPLE, bytes(2, "\5", 1), END);
    m = join(m, join(type(CPU, 0), strings(texts, 2)));
    assert_int_equal(read_message(&r, m), 0);
    assert_null(profile_at(&r, 0)->period_type);
    assert_int_equal(profile_at(&r, 0)->time_unix_nano, 0);
    assert_int_equal(profile_at(&r, 0)->samples[0]->stack_index, 0);
    assert_int_equal(profile_at(&r, 0)->samples[0]->values[0], 5);
    done(&r);
    /* An empty body, or a body that only has tables, is an empty profile. */
    struct message *empty[] = {new_message(0), all_strings(), type(CPU, 0)};
    for (size_t i = 0; i < BR_COUNT(empty); i++) {
        assert_int_equal(read_message(&r, empty[i]), 0);
        assert_null(r.request);
    }
    done(&r);
}

static void check_link(const struct read *r, size_t i, const char *trace, const char *span)
{
    Sample *s = profile_at(r, 0)->samples[i];
    Opentelemetry__Proto__Profiles__V1development__Link *l =
        r->request->dictionary->link_table[s->link_index];
    assert_int_equal(s->link_index == 0, span == NULL);
    if (!span)
        return;
    assert_int_equal(l->span_id.len, 8);
    assert_int_equal(l->trace_id.len, 16);
    assert_memory_equal(l->span_id.data, span, 8);
    assert_memory_equal(l->trace_id.data, trace, 16);
}

static void test_labels(void **state)
{
    (void)state;
    static const char trace[] = "\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36";
    static const char span[] = "\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", none[16] = {0};
    struct message *cases[] = {
        join(label(SPAN_ID, SPAN, 0, 0), label(TRACE_ID, TRACE, 0, 0)),
        join(label(TRACE_ID, TRACE, 0, 0), label(SPAN_ID, SHORT, 0, 0)),
        label(PROFILE_ID, SPAN, 0, 0),
        join(label(PROFILE_ID, SHORT, 0, 0), label(SPAN_ID, SPAN, 0, 0)),
        label(TRACE_ID, TRACE, 0, 0),
        join(label(SPAN_ID, NOT_HEX, 0, 0), label(PROFILE_ID, SPAN, 0, 0)),
        label(SPAN_ID, TRACE, 0, 0), /* too long */
        label(SPAN_ID, 0, 12, 0),
        join(label(BYTES, 0, 4096, KILOBYTES), label(USER, MAIN, 0, 0)),
        /* the label does not have a value, so it is dropped, as by Go's reader */
        label(USER, 0, 0, 0),
        join(label(USER, MAIN, 0, 0), join(label(BYTES, 0, 1, 0), label(USER, CPU, 0, 0))),
        join(label(BYTES, 0, 7, KILOBYTES),
             join(label(BYTES, 0, UINT64_MAX, KILOBYTES), label(BYTES, 0, 3, 0))),
        /* The labels name several spans, so the sample does not get a link. */
        join(label(SPAN_ID, SPAN, 0, 0), label(SPAN_ID, SHORT, 0, 0)),
        join(label(SPAN_ID, SHORT, 0, 0),
             join(label(TRACE_ID, TRACE, 0, 0), label(SPAN_ID, SPAN, 0, 0))),
        join(label(TRACE_ID, TRACE, 0, 0),
             join(label(SPAN_ID, SPAN, 0, 0), label(TRACE_ID, SPAN, 0, 0))),
        join(label(PROFILE_ID, SPAN, 0, 0), label(PROFILE_ID, SHORT, 0, 0)),
        /* The labels name the same span twice. In the second case, several values of profile_id are
         * ignored, because the sample also has a span_id. */
        join(label(SPAN_ID, SPAN, 0, 0),
             join(label(TRACE_ID, TRACE, 0, 0), label(SPAN_ID, SPAN, 0, 0))),
        join(label(PROFILE_ID, SPAN, 0, 0),
             join(label(PROFILE_ID, SHORT, 0, 0), label(SPAN_ID, SPAN, 0, 0))),
    };
    struct message *samples = new_message(0);
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        samples = join(samples, sample(cases[i]));
    struct read r = {0};
    if (read_message(&r, around(samples)))
        fail_msg("%s", r.err.text);
    check_link(&r, 0, trace, span);
    check_link(&r, 1, trace, "\0\0\0\0\0\0\x0f");
    check_link(&r, 2, none, span);
    check_link(&r, 3, none, span);
    check_link(&r, 4, NULL, NULL);
    check_link(&r, 5, none, span);
    check_link(&r, 6, NULL, NULL);
    check_link(&r, 7, NULL, NULL);
    for (size_t i = 12; i < 16; i++)
        check_link(&r, i, NULL, NULL);
    check_link(&r, 16, trace, span);
    check_link(&r, 17, none, span);
    Sample **s = profile_at(&r, 0)->samples;
    /* an id that does not become a link is kept as a label */
    assert_int_equal(s[0]->n_attribute_indices, 2);
    const char *unit;
    AnyValue *v = value_of(&r, s[0]->attribute_indices, 2, "span_id", &unit);
    assert_string_equal(v->string_value, "00F067AA0BA902B7");
    v = value_of(&r, s[8]->attribute_indices, 2, "bytes", &unit);
    assert_int_equal(v->int_value, 4096);
    assert_string_equal(unit, "kilobytes");
    v = value_of(&r, s[8]->attribute_indices, 2, "user", &unit);
    assert_string_equal(v->string_value, "main");
    assert_int_equal(s[9]->n_attribute_indices, 0);
    assert_int_equal(s[10]->n_attribute_indices, 2);
    v = value_of(&r, s[10]->attribute_indices, 2, "user", &unit);
    assert_int_equal(v->array_value->n_values, 2);
    assert_string_equal(v->array_value->values[0]->string_value, "main");
    assert_string_equal(v->array_value->values[1]->string_value, "cpu");
    assert_int_equal(s[11]->n_attribute_indices, 2); /* labels with different units differ */
    v = value_of(&r, s[11]->attribute_indices + 1, 1, "bytes", &unit);
    assert_int_equal(v->array_value->values[0]->int_value, 7);
    assert_int_equal(v->array_value->values[1]->int_value, -1);
    assert_string_equal(unit, "kilobytes");
    /* The samples of the second type have the same links, stacks and numbers of attributes. */
    Sample **other = profile_at(&r, 1)->samples;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        assert_int_equal(other[i]->link_index, s[i]->link_index);
        assert_int_equal(other[i]->stack_index, s[i]->stack_index);
        assert_int_equal(other[i]->n_attribute_indices, s[i]->n_attribute_indices);
        assert_int_equal(other[i]->values[0], 2);
    }
    done(&r);
}

/* A sample with so many labels that the reader does not compare them one by one. Each key occurs
 * twice. */
static void test_many_labels(void **state)
{
    (void)state;
    struct message *labels = new_message(0), *table = new_message(0);
    for (unsigned i = 0; i < 40; i++)
        labels = join(labels, label(i % 20, i + 1, 0, 0));
    for (unsigned i = 0; i < 41; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%u", i);
        table = join(table, text(PSTRING, i ? name : ""));
    }
    struct read r = {0};
    struct message *m = nest(SAMPLE, bytes(2, "\5", 1), labels, END);
    if (read_message(&r, join(m, join(type(1, 2), table))))
        fail_msg("%s", r.err.text);
    Sample *s = profile_at(&r, 0)->samples[0];
    assert_int_equal(s->n_attribute_indices, 20);
    AnyValue *v = value_of(&r, s->attribute_indices, 20, "7", NULL);
    assert_int_equal(v->array_value->n_values, 2);
    assert_string_equal(v->array_value->values[0]->string_value, "8");
    assert_string_equal(v->array_value->values[1]->string_value, "28");
    done(&r);
}

/* --- Parameters of the upload ----------------------------------------------------------------- */

static void test_source(void **state)
{
    (void)state;
    const struct br_sample_type types[] = {{.type = "samples", .cumulative = true},
                                           {.type = "cpu", .display_name = "mutex_x"}};
    struct br_arena arena = {0};
    struct br_addition resource = {0};
    assert_int_equal(br_add_string(&arena, &resource, 1, "service.name", "shop", 4), 0);
    struct read r = {.source = {.resource = &resource,
                                .from_pyroscope = true,
                                .profile_id = (const uint8_t *)"0123456789abcdef",
                                .start_ns = 1700000000000000000,
                                .types = types,
                                .n_types = 2}};
    assert_int_equal(read_message(&r, join(around(sample(NULL)), number(TIME, 1700000000000000))),
                     0);
    for (size_t i = 0; i < 2; i++) {
        Profile *p = profile_at(&r, i);
        assert_int_equal(p->time_unix_nano, 1700000000000000000); /* converted from microseconds */
        /* ids are unique, so only the first profile has the given id */
        assert_int_equal(p->profile_id.len, i == 0 ? 16 : 0);
        if (i == 0)
            assert_memory_equal(p->profile_id.data, "0123456789abcdef", 16);
        AnyValue *v = value_of(&r, p->attribute_indices, p->n_attribute_indices,
                               "pprof.profile.cumulative", NULL);
        assert_int_equal(v != NULL, i == 0);
        assert_true(!v || v->bool_value);
    }
    assert_string_equal(scope_value(&r, "pyroscope.name")->string_value, "mutex");
    KeyValue *kv = r.request->resource_profiles[0]->resource->attributes[0];
    assert_string_equal(kv->key, "service.name");
    assert_string_equal(kv->value->string_value, "shop");
    free_unpacked(r.request, NULL);
    /* A number from the year 1971 on, in nanoseconds, is not converted. A name given with the
     * upload is kept. */
    r.source.pyroscope_name = "godeltaprof_memory";
    assert_int_equal(read_message(&r, join(around(sample(NULL)), number(TIME, 31536000000000000))),
                     0);
    assert_int_equal(profile_at(&r, 0)->time_unix_nano, 31536000000000000);
    assert_string_equal(scope_value(&r, "pyroscope.name")->string_value, "godeltaprof_memory");
    done(&r);
    br_arena_release(&arena);
}

static void test_cumulative(void **state)
{
    (void)state;
    static const char *const names[] = {"", "alloc_space", "inuse_space"};
    struct read r = {.source = {.cumulative = true}};
    struct message *m = join(type(1, 0), type(2, 0));
    m = join(m, join(nest(SAMPLE, bytes(2, "\1\2", 2), END), strings(names, 3)));
    assert_int_equal(read_message(&r, m), 0);
    assert_int_equal(profile_at(&r, 0)->n_attribute_indices, 1);
    assert_int_equal(profile_at(&r, 1)->n_attribute_indices, 0);
    done(&r);
}

/* The duration of a file shows whether Go's counters in it are differences or totals. */
static void test_cumulative_file(void **state)
{
    static const struct {
        const char *type;
        uint64_t duration_ns;
        bool marked;
    } rows[] = {{"alloc_objects", 0, true}, {"alloc_space", 0, true},  {"contentions", 0, true},
                {"delay", 0, true},         {"alloc_space", 1, false}, {"inuse_space", 0, false},
                {"samples", 0, false},      {"cpu", 0, false},         {"goroutine", 0, false}};
    (void)state;
    for (size_t i = 0; i < 2 * BR_COUNT(rows); i++) {
        const char *names[] = {"", rows[i / 2].type};
        struct read r = {.source = {.from_file = i % 2 == 0}};
        struct message *m = join(type(1, 0), nest(SAMPLE, bytes(2, "\1", 1), END));
        m = join(m, join(strings(names, 2), number(DURATION, rows[i / 2].duration_ns)));
        assert_int_equal(read_message(&r, m), 0);
        assert_int_equal(profile_at(&r, 0)->n_attribute_indices, rows[i / 2].marked && i % 2 == 0);
        done(&r);
    }
}

static const char *first_function(const struct read *r)
{
    return string_at(r, r->request->dictionary->function_table[1]->name_strindex);
}

/* Tests Pyroscope's repairs: FixFunctionNamesForScriptingLanguages, fixSampleTypes and
 * FixFunctionIDForBrokenDotnet. */
static void test_repairs(void **state)
{
    (void)state;
    static const struct {
        const char *spy, *file, *want;
    } cases[] = {{NULL, "app.py", "main"},
                 {"gospy", "app.py", "main"},
                 {"pyspy", "app.py", "app.py main"},
                 {"pyspy", "/srv/app.py", "main"},
                 {"rbspy", "/srv/app.rb", "/srv/app.rb main"}};
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const char *const names[] = {"", "cpu", "main", cases[i].file};
        struct read r = {.source = {.from_pyroscope = true, .spy_name = cases[i].spy}};
        struct message *m = join(type(1, 0), nest(SAMPLE, number(1, 1), number(2, 1), END));
        m = join(m, nest(PLOCATION, number(1, 1), nest(4, number(1, 1), END), END));
        m = join(m, nest(PFUNCTION, number(1, 1), number(2, 2), number(4, 3), END));
        assert_int_equal(read_message(&r, join(m, strings(names, 4))), 0);
        assert_string_equal(first_function(&r), cases[i].want);
        done(&r);
    }
    const char *const names[] = {"", "inuse-space", "main"};
    struct message *m = join(type(1, 0), nest(SAMPLE, number(1, 9), number(2, 1), END));
    m = join(m, nest(PLOCATION, number(1, 9), nest(4, number(1, 9), END), END));
    m = join(m, join(nest(PFUNCTION, number(2, 2), END), strings(names, 3)));
    struct read r = {.source = {.from_pyroscope = true, .spy_name = "dotnetspy"}};
    assert_int_equal(read_message(&r, m), 0);
    assert_string_equal(string_at(&r, profile_at(&r, 0)->sample_type->type_strindex),
                        "inuse_space");
    assert_string_equal(first_function(&r), "main");
    assert_string_equal(scope_value(&r, "pyroscope.name")->string_value, "memory");
    free_unpacked(r.request, NULL);
    r.source.spy_name = "gospy";
    assert_int_equal(read_message(&r, m), BR_EINVAL);
    done(&r);
}

/* --- Names and guesses ------------------------------------------------------------------------ */

static void test_pyroscope_name(void **state)
{
    (void)state;
    /* Expected values follow metricName of grafana/pyroscope (pkg/og/convert/pprof/profile.go). */
    const struct br_sample_type none[] = {{.type = "nothing"}};
    const struct br_sample_type block[] = {{.type = "contentions", .display_name = "block_count"},
                                           {.type = "delay", .display_name = ""}};
    const struct {
        const char *types[4];
        const struct br_sample_type *configs;
        size_t n_configs;
        const char *want;
    } cases[] = {{{"samples", "cpu"}, NULL, 0, "process_cpu"},
                 {{"samples", "cpu"}, none, 1, "process_cpu"},
                 {{"samples"}, none, 1, "samples"},
                 {{"samples", "wall"}, NULL, 0, "wall"},
                 {{"samples", "wall", "cpu"}, NULL, 0, "wall"},
                 {{"alloc_objects", "alloc_space"}, NULL, 0, "memory"},
                 {{"inuse_objects"}, NULL, 0, "memory"},
                 {{"objects", "space"}, NULL, 0, "memory"},
                 {{"contentions", "delay"}, NULL, 0, "mutex"},
                 {{"contentions", "delay"}, block, 2, "block"},
                 {{"delay"}, block, 2, "delay"},
                 {{"goroutine"}, NULL, 0, "goroutines"},
                 {{"threadcreate"}, NULL, 0, "threadcreate"},
                 {{"a", "b"}, NULL, 0, "b"},
                 {{NULL}, NULL, 0, ""}};
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        size_t n = 0;
        char name[32];
        while (n < 4 && cases[i].types[n])
            n++;
        br_pyroscope_name(cases[i].types, n, cases[i].configs, cases[i].n_configs, name,
                          sizeof name);
        assert_string_equal(name, cases[i].want);
    }
    char small[4];
    br_pyroscope_name(cases[0].types, 2, NULL, 0, small, sizeof small);
    assert_string_equal(small, "pro");
}

static void test_guess(void **state)
{
    (void)state;
    const struct message *pprof = around(sample(NULL));
    const struct {
        const char *data;
        size_t len;
        int want; /* -1: no type */
    } cases[] = {
        {(const char *)pprof->data, pprof->len, BR_FORMAT_PPROF},
        {"\x1f\x8b\x08", 3, BR_FORMAT_PPROF},
        {"FLR\0\0\2", 6, BR_FORMAT_JFR},
        {"{\"$schema\":1}", 13, BR_FORMAT_SPEEDSCOPE},
        {"{\"shared\":{}}", 13, BR_FORMAT_SPEEDSCOPE},
        {"{\"nodes\":[]}", 12, BR_FORMAT_CPUPROFILE},
        {"{ \"meta\": {}}", 13, BR_FORMAT_GECKO},
        {"{\"threads\":[]}", 14, BR_FORMAT_GECKO},
        {" {\n \"a\":1}", 10, BR_FORMAT_SPEEDSCOPE},
        {"main;foo 10\nmain 1\n", 19, BR_FORMAT_FOLDED},
        {"\n\nmain;foo 10\r\n", 15, BR_FORMAT_FOLDED},
        {"{main};foo 10", 13, BR_FORMAT_FOLDED},
        {"hello\n", 6, -1},
        {"12\n", 3, -1},
        {"a\1b 1\n", 6, -1},
        {"\xff b 1\n", 6, -1},
        {(const char *)pprof->data, pprof->len - 1, -1},
        {(const char *)pprof->data, 4, -1},
        {"", 0, -1},
        {"\n", 1, -1},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        enum br_profile_format format;
        bool known = br_profile_guess((const uint8_t *)cases[i].data, cases[i].len, &format);
        if ((known ? (int)format : -1) != cases[i].want)
            fail_msg("case %zu", i);
    }
    assert_false(br_profile_guess(NULL, 0, &(enum br_profile_format){0}));
    struct read r = {0};
    struct br_arena arena = {0};
    assert_int_equal(br_profile_read(NULL, (enum br_profile_format)99, &r.source, &arena, &r.err),
                     BR_EUNSUPPORTED);
    free_messages();
}

/* --- Go's runtime ----------------------------------------------------------------------------- */

static struct br_buf *data_file(const char *name)
{
    char path[256];
    uint8_t block[65536];
    (void)snprintf(path, sizeof path, "tests/data/pprof/%s.pb.gz", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t len = fread(block, 1, sizeof block, f);
    (void)fclose(f);
    struct br_codec *codec = br_codec_new();
    struct br_buf *plain = NULL;
    assert_int_equal(
        br_decompress(codec, BR_ENCODING_GZIP, block, len, 1 << 20, host.pool, &plain, NULL), 0);
    br_codec_free(codec);
    return plain;
}

/* Sums printed by `go tool pprof -raw` of the profiles that make.go writes. */
static const struct {
    const char *name;
    const char *types[4];
    const char *period_type;
    int64_t period;
    size_t n_samples, n_frames, n_linked;
    int64_t sums[4];
    const char *pyroscope_name; /* the name if the profile is sent to /ingest of Pyroscope */
} go[] = {
    {"allocs",
     {"alloc_objects", "alloc_space", "inuse_objects", "inuse_space"},
     "space",
     16384,
     32,
     200,
     0,
     {1813, 18867305, 233, 13101335},
     "memory"},
    {"block", {"contentions", "delay"}, "contentions", 1, 8, 47, 0, {168, 1448588900}, "mutex"},
    {"cpu", {"samples", "cpu"}, "cpu", 10000000, 14, 112, 6, {61, 610000000}, "process_cpu"},
    {"empty", {"samples", "cpu"}, "cpu", 10000000, 0, 0, 0, {0, 0}, ""},
    {"goroutine", {"goroutine"}, "goroutine", 1, 2, 13, 1, {2}, "goroutines"},
    {"heap",
     {"alloc_objects", "alloc_space", "inuse_objects", "inuse_space"},
     "space",
     16384,
     22,
     100,
     0,
     {1813, 18867305, 233, 13101335},
     "memory"},
    {"mutex", {"contentions", "delay"}, "contentions", 1, 5, 42, 0, {165, 1258303187}, "mutex"},
    {"threadcreate", {"threadcreate"}, "threadcreate", 1, 1, 32, 0, {4}, "threadcreate"},
};

static void test_go(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(go); i++) {
        struct br_buf *buf = data_file(go[i].name);
        enum br_profile_format format;
        assert_true(br_profile_guess(buf->data, buf->len, &format));
        assert_int_equal(format, BR_FORMAT_PPROF);
        struct read r = {.source = {.from_pyroscope = true}};
        assert_int_equal(run(&r, buf->data, buf->len), 0);
        br_buf_unref(buf);
        if (go[i].n_samples == 0) {
            assert_null(r.request);
            continue;
        }
        size_t n = 0;
        while (n < 4 && go[i].types[n])
            n++;
        assert_int_equal(n_profiles(&r), n);
        assert_string_equal(scope_value(&r, "pyroscope.name")->string_value, go[i].pyroscope_name);
        for (size_t t = 0; t < n; t++) {
            Profile *p = profile_at(&r, t);
            int64_t sum = 0;
            size_t frames = 0, linked = 0;
            assert_string_equal(string_at(&r, p->sample_type->type_strindex), go[i].types[t]);
            assert_string_equal(string_at(&r, p->period_type->type_strindex), go[i].period_type);
            assert_int_equal(p->period, go[i].period);
            assert_int_equal(p->n_samples, go[i].n_samples);
            for (size_t k = 0; k < p->n_samples; k++) {
                sum += p->samples[k]->values[0];
                linked += p->samples[k]->link_index != 0;
                frames += r.request->dictionary->stack_table[p->samples[k]->stack_index]
                              ->n_location_indices;
            }
            assert_int_equal(sum, go[i].sums[t]);
            assert_int_equal(frames, go[i].n_frames);
            assert_int_equal(linked, go[i].n_linked);
        }
        free_unpacked(r.request, NULL);
    }
}

SUITE(pprof)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_bare),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_many_labels),
        cmocka_unit_test(test_source),
        cmocka_unit_test(test_cumulative),
        cmocka_unit_test(test_cumulative_file),
        cmocka_unit_test(test_repairs),
        cmocka_unit_test(test_pyroscope_name),
        cmocka_unit_test(test_guess),
        cmocka_unit_test(test_go),
    };
    return RUN(tests, request_setup, request_teardown);
}
