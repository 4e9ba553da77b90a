/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the cost of worst-case profiles requests, in two sizes. Each request has a long or deep
 * part, and as many references to that part as possible. Either the walk rejects the request, or
 * each component that reads profiles (a "reader") takes a number of steps (base/steps.h) in
 * proportion to the bytes. For manual use, `--mode times` prints the CPU time of each reader for 1
 * MiB instead.
 */
#include "base/mem.h"
#include "tests/support/fake_host.h"
#include "tests/support/mem_meter.h"
#include "tests/support/test.h"
#include "tests/support/walk_check.h"
#include "tests/support/wire.h"
#include "tests/support/worst.h"
#include "tests/support/worst_bench.h"

#define MIB (1u << 20)
#define UNKNOWN_FIELD 14

enum { MAPPING = 1, LOCATION, FUNCTION, LINK, STRING, ATTRIBUTE, STACK, TABLES };

/* --- Shapes ----------------------------------------------------------------------------------- */

/* A request that is being built. Half of its `size` bytes are one long part, such as a text or a
 * list. */
struct shape {
    size_t size;
    char *text; /* a text of size / 2 bytes */
    struct wire tables[TABLES], profiles, samples, resources;
    const char *key; /* string 1; string 2 is the long string, if `long_string` */
    bool long_string;
};

static size_t refs_len(const struct shape *s)
{
    size_t len = s->profiles.len + s->samples.len + s->resources.len;
    for (int t = 1; t < TABLES; t++)
        len += s->tables[t].len;
    return len;
}

static bool more(const struct shape *s)
{
    return refs_len(s) < s->size / 2;
}

/* Appends a message with one number, and with unknown fields that take half of the request's
 * size. */
static void put_padded(struct shape *s, uint32_t table, uint32_t field, uint64_t v)
{
    size_t entry = wire_open(&s->tables[table], table);
    wire_varint(&s->tables[table], field, v);
    for (size_t i = 0; i < s->size / 4; i++)
        wire_varint(&s->tables[table], UNKNOWN_FIELD, 1);
    wire_close(&s->tables[table], entry);
}

static void put_number(struct wire *w, uint32_t table, uint32_t field, uint64_t v)
{
    size_t entry = wire_open(w, table);
    wire_varint(w, field, v);
    wire_close(w, entry);
}

static void put_sample(struct wire *w, uint32_t field, uint64_t v)
{
    size_t sample = wire_open(w, 2);
    wire_varint(w, field, v);
    wire_varint(w, 4, 1);
    wire_close(w, sample);
}

static void put_profile(struct wire *w, const struct wire *fields)
{
    size_t profile = wire_open(w, 2);
    wire_raw(w, fields->data, fields->len);
    put_sample(w, 3, 0);
    wire_close(w, profile);
}

/* Appends an attribute whose key is string 1 and whose value refers to string 2. */
static void put_reference(struct wire *w)
{
    size_t entry = wire_open(w, ATTRIBUTE);
    wire_varint(w, 1, 1);
    size_t any = wire_open(w, 2);
    wire_varint(w, 8, 2);
    wire_close(w, any);
    wire_close(w, entry);
}

static void labels(struct shape *s)
{
    s->long_string = true;
    while (more(s))
        put_reference(&s->tables[ATTRIBUTE]);
}

/* Appends five attributes with the long string. The walk does not allow more references to a string
 * of this length. */
static void some_labels(struct shape *s)
{
    s->long_string = true;
    for (int i = 0; i < 5; i++)
        put_reference(&s->tables[ATTRIBUTE]);
    for (uint64_t i = 0; refs_len(s) < s->size / 2; i++)
        put_sample(&s->samples, 2, 1 + i % 5);
}

static void long_keys(struct shape *s)
{
    s->long_string = true;
    while (more(s)) {
        put_number(&s->tables[ATTRIBUTE], ATTRIBUTE, 1, 2);
        put_sample(&s->samples, 2, 1);
    }
}

/* Each sample has a separate attribute, whose key is the long string and whose value is a short
 * text. */
static void long_keys_of_texts(struct shape *s)
{
    struct wire *w = &s->tables[ATTRIBUTE];
    s->long_string = true;
    for (uint64_t i = 1; more(s); i++) {
        size_t entry = wire_open(w, ATTRIBUTE);
        wire_varint(w, 1, 2);
        size_t any = wire_open(w, 2);
        wire_len(w, 1, "v", 1);
        wire_close(w, any);
        wire_close(w, entry);
        put_sample(&s->samples, 2, i);
    }
}

static void inline_label(struct shape *s)
{
    struct wire *w = &s->tables[ATTRIBUTE];
    size_t entry = wire_open(w, ATTRIBUTE);
    wire_varint(w, 1, 1);
    size_t any = wire_open(w, 2);
    wire_len(w, 1, s->text, s->size / 2);
    wire_close(w, any);
    wire_close(w, entry);
    for (unsigned i = 0; i < 1000; i++) {
        entry = wire_open(w, ATTRIBUTE);
        wire_varint(w, 1, 1);
        any = wire_open(w, 2);
        wire_varint(w, 3, i);
        wire_close(w, any);
        wire_close(w, entry);
    }
    /* the samples have different lists of attributes, and each list contains the long attribute */
    for (uint64_t i = 0; refs_len(s) < s->size; i++) {
        size_t sample = wire_open(&s->samples, 2), list = wire_open(&s->samples, 2);
        wire_number(&s->samples, 1);
        wire_number(&s->samples, 2 + i % 1000);
        wire_number(&s->samples, 2 + i / 1000 % 1000);
        wire_close(&s->samples, list);
        wire_varint(&s->samples, 4, 1);
        wire_close(&s->samples, sample);
    }
}

/* All profiles and all samples refer to attribute 1. */
static void profiles_of_value(struct shape *s)
{
    struct wire fields = {0};
    wire_varint(&fields, 11, 1);
    put_sample(&fields, 2, 1);
    while (refs_len(s) < s->size * 9 / 16)
        put_profile(&s->profiles, &fields);
    while (refs_len(s) < s->size)
        put_sample(&s->samples, 2, 1);
    wire_free(&fields);
}

static void bytes_value(struct shape *s)
{
    struct wire *w = &s->tables[ATTRIBUTE];
    size_t entry = wire_open(w, ATTRIBUTE);
    wire_varint(w, 1, 1);
    size_t any = wire_open(w, 2);
    wire_len(w, 7, s->text, s->size / 2);
    wire_close(w, any);
    wire_close(w, entry);
    profiles_of_value(s);
}

static void value_of_many_fields(struct shape *s)
{
    struct wire *w = &s->tables[ATTRIBUTE];
    size_t entry = wire_open(w, ATTRIBUTE);
    wire_varint(w, 1, 1);
    wire_value_of_many_fields(w, 2, s->size / 2);
    wire_close(w, entry);
    profiles_of_value(s);
}

static void scope_of_many_fields(struct shape *s)
{
    struct wire *w = &s->profiles, none = {0};
    size_t scope = wire_open(w, 1), pair = wire_open(w, 3);
    wire_str(w, 1, "k");
    wire_value_of_many_fields(w, 2, s->size / 2);
    wire_close(w, pair);
    wire_close(w, scope);
    while (refs_len(s) < s->size)
        put_profile(w, &none);
}

/* Appends an attribute whose value is a list of numbers, or a map of numbers if `type` is 6. */
static void put_numbers(struct shape *s, uint32_t type)
{
    struct wire *w = &s->tables[ATTRIBUTE];
    size_t entry = wire_open(w, ATTRIBUTE);
    wire_varint(w, 1, 1);
    size_t any = wire_open(w, 2), list = wire_open(w, type);
    for (unsigned i = 0; w->len < s->size / 2; i++) {
        size_t element = wire_open(w, 1), value = element;
        if (type == 6) {
            char key[16];
            (void)snprintf(key, sizeof key, "%u", i);
            wire_str(w, 1, key);
            value = wire_open(w, 2);
        }
        wire_varint(w, 3, 1);
        if (type == 6)
            wire_close(w, value);
        wire_close(w, element);
    }
    wire_close(w, list);
    wire_close(w, any);
    wire_close(w, entry);
    profiles_of_value(s);
}

static void list_value(struct shape *s)
{
    put_numbers(s, 5);
}

static void map_value(struct shape *s)
{
    put_numbers(s, 6);
}

/* Appends two attributes whose values are equal long texts. Their keys differ. */
static void same_values(struct shape *s)
{
    struct wire *w = &s->tables[ATTRIBUTE];
    for (uint64_t i = 0; i < 2; i++) {
        size_t entry = wire_open(w, ATTRIBUTE);
        wire_varint(w, 1, i);
        size_t any = wire_open(w, 2);
        wire_len(w, 1, s->text, s->size / 4);
        wire_close(w, any);
        wire_close(w, entry);
    }
    while (refs_len(s) < s->size) {
        size_t sample = wire_open(&s->samples, 2), list = wire_open(&s->samples, 2);
        wire_number(&s->samples, 1);
        wire_number(&s->samples, 2);
        wire_close(&s->samples, list);
        wire_varint(&s->samples, 4, 1);
        wire_close(&s->samples, sample);
    }
}

static void padded_label(struct shape *s)
{
    put_padded(s, ATTRIBUTE, 1, 1);
    while (refs_len(s) < s->size)
        put_sample(&s->samples, 2, 1);
}

static void padded_link(struct shape *s)
{
    put_padded(s, LINK, UNKNOWN_FIELD + 1, 1);
    while (refs_len(s) < s->size)
        put_sample(&s->samples, 3, 1);
}

static void padded_stack(struct shape *s)
{
    put_number(&s->tables[LOCATION], LOCATION, 2, 7);
    put_padded(s, STACK, 1, 1);
    while (refs_len(s) < s->size)
        put_sample(&s->samples, 1, 1);
}

static void deep_stack(struct shape *s)
{
    put_number(&s->tables[LOCATION], LOCATION, 2, 7);
    size_t entry = wire_open(&s->tables[STACK], STACK), list = wire_open(&s->tables[STACK], 1);
    for (size_t i = 0; i < s->size / 2; i++)
        wire_number(&s->tables[STACK], 1);
    wire_close(&s->tables[STACK], list);
    wire_close(&s->tables[STACK], entry);
    while (refs_len(s) < s->size)
        put_sample(&s->samples, 1, 1);
}

/* Appends stacks, each of which consists of location 1 only, and a sample for each stack. */
static void stacks(struct shape *s, size_t size)
{
    for (uint64_t i = 1; refs_len(s) < size; i++) {
        put_number(&s->tables[STACK], STACK, 1, 1);
        put_sample(&s->samples, 1, i);
    }
}

static void padded_location(struct shape *s)
{
    put_padded(s, LOCATION, 2, 7);
    stacks(s, s->size);
}

/* Appends a location that has very many lines, and stacks that consist of this location. */
static void inlined_location(struct shape *s)
{
    struct wire *w = &s->tables[LOCATION];
    size_t entry = wire_open(w, LOCATION);
    put_number(&s->tables[FUNCTION], FUNCTION, 1, 1);
    for (size_t i = 0; i < s->size / 8; i++)
        put_number(w, 3, 1, 1);
    wire_close(w, entry);
    stacks(s, s->size);
}

/* Appends stacks in which 0 to `most` frames of location 2 are called by location 1. */
static void stacks_cut(struct shape *s, uint64_t most)
{
    struct wire *w = &s->tables[STACK];
    put_number(&s->tables[FUNCTION], FUNCTION, 1, 1);
    put_number(&s->tables[LOCATION], LOCATION, 2, 7);
    for (uint64_t i = 1; refs_len(s) < s->size; i++) {
        size_t entry = wire_open(w, STACK), list = wire_open(w, 1);
        for (uint64_t n = i % (most + 1); n; n--)
            wire_number(w, 2);
        wire_number(w, 1);
        wire_close(w, list);
        wire_close(w, entry);
        put_sample(&s->samples, 1, i);
    }
}

static void inlined_location_cut(struct shape *s)
{
    struct wire *w = &s->tables[LOCATION];
    size_t entry = wire_open(w, LOCATION);
    for (size_t i = 0; i < s->size / 8; i++)
        put_number(w, 3, 1, 1);
    wire_close(w, entry);
    stacks_cut(s, 1);
}

/* Appends stacks with a location that has very many lines. A processor that cuts a stack inside
 * this location must copy the location. The location has many unknown fields: in its first line if
 * `in_line`, otherwise outside its lines. */
static void long_location_cut(struct shape *s, bool in_line)
{
    struct wire *w = &s->tables[LOCATION];
    size_t entry = wire_open(w, LOCATION), line = in_line ? wire_open(w, 3) : 0;
    for (size_t i = 0; i < s->size / 4; i++)
        wire_varint(w, UNKNOWN_FIELD, 1);
    if (in_line)
        wire_close(w, line);
    for (size_t i = 0; i < 1000; i++)
        put_number(w, 3, 1, 1);
    wire_close(w, entry);
    stacks_cut(s, 90);
}

static void long_line_cut(struct shape *s)
{
    long_location_cut(s, true);
}

static void padded_location_cut(struct shape *s)
{
    long_location_cut(s, false);
}

static void locations(struct shape *s, bool functions)
{
    for (uint64_t i = 1; refs_len(s) < s->size; i++) {
        struct wire *w = &s->tables[LOCATION];
        size_t entry = wire_open(w, LOCATION);
        if (functions)
            put_number(w, 3, 1, 1);
        else
            wire_varint(w, 1, 1);
        wire_close(w, entry);
        put_number(&s->tables[STACK], STACK, 1, i);
        put_sample(&s->samples, 1, i);
    }
}

static void padded_function(struct shape *s)
{
    put_padded(s, FUNCTION, 1, 1);
    locations(s, true);
}

static void padded_mapping(struct shape *s)
{
    put_padded(s, MAPPING, 4, 1);
    locations(s, false);
}

static void long_function_names(struct shape *s)
{
    s->long_string = true;
    for (uint64_t i = 1; more(s); i++) {
        put_number(&s->tables[FUNCTION], FUNCTION, 1, 2);
        struct wire *w = &s->tables[LOCATION];
        size_t entry = wire_open(w, LOCATION), line = wire_open(w, 3);
        wire_varint(w, 1, i);
        wire_close(w, line);
        wire_close(w, entry);
        put_number(&s->tables[STACK], STACK, 1, i);
        put_sample(&s->samples, 1, i);
    }
}

static void resources(struct shape *s)
{
    s->long_string = true;
    while (more(s)) {
        struct wire *w = &s->resources;
        size_t part = wire_open(w, 1), resource = wire_open(w, 1), pair = wire_open(w, 1);
        wire_varint(w, 3, 1);
        size_t any = wire_open(w, 2);
        wire_varint(w, 8, 2);
        wire_close(w, any);
        wire_close(w, pair);
        wire_close(w, resource);
        wire_close(w, part);
    }
}

/* Many profiles in one scope, whose name is long. */
static void profiles_of_scope(struct shape *s)
{
    struct wire *w = &s->profiles, none = {0};
    size_t scope = wire_open(w, 1);
    wire_len(w, 1, s->text, s->size / 2);
    wire_close(w, scope);
    while (refs_len(s) < s->size)
        put_profile(w, &none);
}

static void profiles_of_scope_of_many(struct shape *s)
{
    struct wire *w = &s->profiles, none = {0};
    size_t scope = wire_open(w, 1);
    while (w->len < s->size / 2)
        wire_attribute_of(w, 3, "k", "v", 1);
    wire_close(w, scope);
    while (refs_len(s) < s->size)
        put_profile(w, &none);
}

static void profile_types(struct shape *s)
{
    struct wire type = {0};
    put_number(&type, 1, 1, 2);
    s->long_string = true;
    while (more(s))
        put_profile(&s->profiles, &type);
    wire_free(&type);
}

/* One profile that has very many attributes and very many samples. */
static void profile_attributes(struct shape *s)
{
    for (int i = 0; i < 100; i++)
        put_number(&s->tables[ATTRIBUTE], ATTRIBUTE, 1, 1);
    size_t list = wire_open(&s->samples, 11);
    for (size_t i = 0; i < s->size / 2; i++)
        wire_number(&s->samples, 1 + i % 100);
    wire_close(&s->samples, list);
    while (refs_len(s) < s->size)
        put_sample(&s->samples, 2, 1);
}

static void empty_profiles(struct shape *s)
{
    while (refs_len(s) < s->size)
        wire_len(&s->profiles, 2, "", 0);
}

static void short_samples(struct shape *s)
{
    while (refs_len(s) < s->size)
        wire_len(&s->samples, 2, "\x20\1", 2);
}

static void unknown_fields(struct shape *s)
{
    while (refs_len(s) < s->size) {
        wire_varint(&s->profiles, UNKNOWN_FIELD, 1);
        wire_varint(&s->samples, UNKNOWN_FIELD, 1);
        wire_varint(&s->resources, UNKNOWN_FIELD, 1);
    }
}

/* Samples with 16 texts of 4 KiB each. No text occurs twice. */
static void put_texts(struct shape *s, int byte)
{
    struct wire *w = &s->tables[ATTRIBUTE];
    memset(s->text, byte, 4096);
    for (uint64_t n = 1; refs_len(s) + w->len < s->size; n += 16) {
        size_t sample = wire_open(&s->samples, 2), list = wire_open(&s->samples, 2);
        for (uint64_t i = n; i < n + 16; i++) {
            size_t entry = wire_open(w, ATTRIBUTE);
            wire_varint(w, 1, 1);
            size_t any = wire_open(w, 2);
            wire_len(w, 1, s->text, 4096 - i % 64);
            wire_close(w, any);
            wire_close(w, entry);
            wire_number(&s->samples, i);
        }
        wire_close(&s->samples, list);
        wire_varint(&s->samples, 4, 1);
        wire_close(&s->samples, sample);
    }
}

static void texts_of_samples(struct shape *s)
{
    put_texts(s, 'x');
}

/* The texts consist of invalid bytes. Each of them becomes three bytes when it is replaced. */
static void bad_texts_of_samples(struct shape *s)
{
    put_texts(s, 0xff);
}

static const struct {
    const char *name, *key;
    void (*make)(struct shape *s);
    bool refused; /* true: the walk rejects the request */
} shapes[] = {
    {"span_id of blanks", "span_id", labels, true},
    {"thread.name", "thread.name", labels, true},
    {"a few long span_ids", "span_id", some_labels, false},
    {"long keys", "k", long_keys, false},
    {"long keys of texts", "k", long_keys_of_texts, false},
    {"a long value in many lists", "k", inline_label, false},
    {"a value of bytes", "k", bytes_value, false},
    {"a value of many fields", "k", value_of_many_fields, false},
    {"a scope's value of many fields", "k", scope_of_many_fields, false},
    {"a list of numbers", "k", list_value, false},
    {"a map of numbers", "k", map_value, false},
    {"two long values, the same", "k", same_values, false},
    {"a long attribute", "span_id", padded_label, false},
    {"a long link", "k", padded_link, false},
    {"a long stack", "k", padded_stack, false},
    {"a deep stack", "k", deep_stack, false},
    {"a long location", "k", padded_location, false},
    {"a location of many lines", "k", inlined_location, false},
    {"many lines, cut at two", "k", inlined_location_cut, false},
    {"a long line, cut at each", "k", long_line_cut, false},
    {"a long location, cut at each", "k", padded_location_cut, false},
    {"a long function", "k", padded_function, false},
    {"a long mapping", "k", padded_mapping, false},
    {"functions of a long name", "k", long_function_names, false},
    {"resources of a long service", "service.name", resources, true},
    {"profiles of a long scope", "k", profiles_of_scope, false},
    {"a scope of many attributes", "k", profiles_of_scope_of_many, false},
    {"profiles of a long type", "k", profile_types, false},
    {"a profile of many attributes", "k", profile_attributes, false},
    {"empty profiles", "k", empty_profiles, false},
    {"short samples", "k", short_samples, false},
    {"unknown fields", "k", unknown_fields, false},
    {"texts of each sample", "k", texts_of_samples, false},
    {"bad texts of each sample", "k", bad_texts_of_samples, false},
};

static void put_dictionary(struct wire *w, struct shape *s)
{
    size_t dictionary = wire_open(w, 2);
    for (uint32_t t = 1; t < TABLES; t++) {
        if (s->tables[t].len || t == STRING)
            wire_len(w, t, "", 0);
        wire_raw(w, s->tables[t].data, s->tables[t].len);
        if (t == STRING)
            wire_str(w, t, s->key);
        if (t == STRING && s->long_string)
            wire_len(w, t, s->text, s->size / 2);
        wire_free(&s->tables[t]);
    }
    wire_close(w, dictionary);
}

static struct wire make_shape(size_t i, size_t size)
{
    struct shape s = {.size = size, .text = malloc(size / 2), .key = shapes[i].key};
    struct wire w = {0};
    assert_non_null(s.text);
    memset(s.text, ' ', size / 2);
    shapes[i].make(&s);
    wire_raw(&w, s.resources.data, s.resources.len);
    size_t part = wire_open(&w, 1), scope = wire_open(&w, 2);
    if (s.samples.len) {
        size_t profile = wire_open(&w, 2);
        wire_raw(&w, s.samples.data, s.samples.len);
        wire_close(&w, profile);
    }
    wire_raw(&w, s.profiles.data, s.profiles.len);
    wire_close(&w, scope);
    wire_close(&w, part);
    put_dictionary(&w, &s);
    wire_free(&s.samples);
    wire_free(&s.profiles);
    wire_free(&s.resources);
    free(s.text);
    return w;
}

/* --- The readers ------------------------------------------------------------------------------ */

extern const struct br_component br_join_processor, br_batch_processor, br_redaction_processor,
    br_filter_processor, br_attributes_processor, br_resource_processor, br_transform_processor,
    br_profile_limits_processor, br_group_by_attrs_processor, br_debug_exporter,
    br_tail_sampling_processor;

static const struct worst_reader readers[] = {
    {"join", &br_join_processor,
     "{max_bytes: 1048576, top_functions: 5, infer: true, span_metrics: {enabled: true}}"},
    {"join, keep", &br_join_processor, "{max_bytes: 1048576, keep: {cpu_threshold: 1s}}"},
    {"batch", &br_batch_processor, "{timeout: 0s}"},
    {"redaction", &br_redaction_processor,
     "{blocked_value_words: [secret], function_names: {words: [private]}, file_paths: {words: "
     "[home]}, match_time: 1h}"},
    {"redaction, keys", &br_redaction_processor,
     "{allow_all_keys: false, allowed_keys: [span_id], match_time: 1h}"},
    {"redaction, patterns", &br_redaction_processor,
     "{blocked_key_patterns: ['^secret'], blocked_values: ['secret'], match_time: 1h}"},
    {"filter", &br_filter_processor,
     "{match_time: 1h, profiles: {exclude: {match_type: regexp, functions: [secret]}}}"},
    {"filter, scopes", &br_filter_processor,
     "{match_time: 1h, profiles: {exclude: {match_type: regexp, libraries: [{name: none}], "
     "sample_types: [none]}}}"},
    {"filter, conditions", &br_filter_processor,
     "{match_time: 1h, profiles: {profile: ['profile.sample_type.type == \"none\"', "
     "'IsMatch(profile.sample_type.unit, \"none\")']}}"},
    {"filter, conditions on values", &br_filter_processor,
     "{match_time: 1h, profiles: {profile: ['IsMatch(attributes[\"k\"], \"secret\")']}, "
     "profile_conditions: ['IsMatch(sample.attributes[\"k\"], \"secret\")', "
     "'sample.attributes[\"k\"] != sample.attributes[\"\"]']}"},
    {"filter, conditions on scopes", &br_filter_processor,
     "{match_time: 1h, profile_conditions: ['scope.name == \"none\" or scope.version == \"none\"', "
     "'scope.attributes[\"k\"] == \"none\"', 'IsMatch(scope.name, \"none\")']}"},
    {"filter, types", &br_filter_processor,
     "{match_time: 1h, profiles: {exclude: {match_type: regexp, sample_types: [none]}}}"},
    {"filter, values", &br_filter_processor,
     "{match_time: 1h, profiles: {exclude: {match_type: regexp, attributes: [{key: k, value: "
     "secret}]}}}"},
    {"attributes", &br_attributes_processor,
     "{match_time: 1h, actions: [{key: k, action: hash}, {key: copy, from_attribute: k, action: "
     "upsert}, {key: copy, action: convert, converted_type: int}]}"},
    {"attributes, patterns", &br_attributes_processor,
     "{match_time: 1h, actions: [{pattern: '^secret', action: hash}, {pattern: '^none', action: "
     "delete}, {key: k, pattern: '^(?P<first>[^ ]+)', action: extract}]}"},
    {"resource", &br_resource_processor,
     "{match_time: 1h, attributes: [{key: service.name, action: hash}]}"},
    {"tail sampling", &br_tail_sampling_processor,
     "{decision_wait: 0s, policies: [{name: a, type: cpu_time}]}"},
    {"tail sampling, held", &br_tail_sampling_processor,
     "{decision_wait: 1s, policies: [{name: a, type: profiled}]}"},
    {"group_by_attrs", &br_group_by_attrs_processor, "{keys: [k, service.name]}"},
    {"group_by_attrs, compaction", &br_group_by_attrs_processor, "{}"},
    {"transform", &br_transform_processor,
     "{match_time: 1h, profile_statements: ['set(sample.attributes[\"copy\"], "
     "resource.attributes[\"k\"])', 'set(sample.attributes[\"f\"], sample.function_names[0])', "
     "'replace_all_patterns(sample.attributes, \"value\", \"v\", \"w\")', "
     "'truncate_all(profile.attributes, 100)', 'set(profile.sample_type.type, "
     "Concat([profile.sample_type.type, scope.name], \"-\"))', 'delete_key(sample.attributes, "
     "\"k\") where IsMatch(sample.attributes[\"k\"], \"secret\") == false']}"},
    {"profile_limits", &br_profile_limits_processor,
     "{max_stack_depth: 100, max_label_values: 10, max_samples: 0}"},
    {"profile_limits, split", &br_profile_limits_processor, "{max_samples: 1}"},
    {"debug", &br_debug_exporter, "{verbosity: detailed, output_paths: [/dev/null]}"},
    {"debug, normal", &br_debug_exporter, "{verbosity: normal, output_paths: [/dev/null]}"},
};

/* Returns the item of a shape, or NULL if the walk rejects it as expected. In addition to the
 * buffer of the request, the walk may allocate at most three times the size of the request plus 1
 * MiB. */
static struct br_item *walk(struct fake_host *h, size_t shape, const struct wire *w)
{
    struct walk_check c = {.h = h, .signal = BR_PROFILES};
    br_pool_trim(h->host.pool);
    mem_meter = (struct mem_meter){0};
    br_mem_set_hooks(&mem_meter_hooks);
    int rc = walk_check(&c, w);
    size_t peak = mem_meter.peak;
    walk_check_drop(&c); /* memory of the check itself does not count */
    br_pool_trim(h->host.pool);
    br_mem_set_hooks(NULL);
    if (rc != (shapes[shape].refused ? BR_ETOOBIG : 0))
        fail_msg("%s of %zu bytes: %s", shapes[shape].name, w->len, c.err.text);
    if (peak > br_buf_room(w->len) + 3 * w->len + MIB)
        fail_msg("%s of %zu bytes takes %zu", shapes[shape].name, w->len, peak);
    (void)walk_check(&c, w);
    return c.item;
}

/* Returns a new item with the same parts as `from`. */
static struct br_item *copy_of(const struct br_item *from)
{
    struct br_item *item = br_item_new(from->host, from->signal);
    assert_non_null(item);
    for (uint32_t i = 0; i < from->n_parts; i++)
        assert_int_equal(br_item_add_part(item, &from->parts[i]), 0);
    return item;
}

/* Sends the shape through the reader. Returns the microseconds of CPU time if `times`, otherwise
 * the number of steps. */
static uint64_t send_shape(struct fake_host *h, size_t reader, size_t shape,
                           const struct br_item *item, bool times)
{
    if (!item)
        return 0;
    enum br_verdict verdict = BR_DONE;
    uint64_t cost = worst_send(h, &readers[reader], copy_of(item), times, &verdict);
    if (verdict == BR_RETRY)
        fail_msg("%s: %s of %zu bytes has a retryable result", readers[reader].name,
                 shapes[shape].name, item->size);
    return cost;
}

/* The number of steps allowed for each byte. A rule of a config may read the long part of a request
 * a few times. Each reference to this part costs a few steps. */
#define STEPS_PER_BYTE 64

static void try_shape(struct fake_host *h, size_t shape, size_t size)
{
    struct wire w = make_shape(shape, size);
    struct br_item *item = walk(h, shape, &w);
    for (size_t r = 0; r < BR_COUNT(readers); r++) {
        uint64_t steps = send_shape(h, r, shape, item, false);
        bool transform = readers[r].component == &br_transform_processor;
        uint64_t most = transform ? TRANSFORM_STEPS : STEPS_PER_BYTE;
        if (steps > most * size)
            fail_msg("%s: %s of %zu bytes takes %llu steps", readers[r].name, shapes[shape].name,
                     size, (unsigned long long)steps);
    }
    br_item_free(item);
    wire_free(&w);
}

/* The allowed steps are proportional to the number of bytes. The test with the large request fails
 * if the work grows faster than the size. The test with the small request fails if the fixed cost
 * is high. */
static void work_is_proportional_to_bytes(void **state)
{
    (void)state;
    struct fake_host *h = fake_host_new();
    for (size_t s = 0; s < BR_COUNT(shapes); s++) {
        try_shape(h, s, MIB / 8);
        try_shape(h, s, worst_mib_max() * MIB / 2);
    }
    fake_host_free(h);
}

static void print_times(void)
{
    struct fake_host *h = fake_host_new();
    (void)printf("%-28s", "ms of CPU over 1 MiB");
    for (size_t r = 0; r < BR_COUNT(readers); r++)
        (void)printf(" %15s", readers[r].name);
    for (size_t s = 0; s < BR_COUNT(shapes); s++) {
        struct wire w = make_shape(s, MIB);
        struct br_item *item = walk(h, s, &w);
        (void)printf("\n%-28s", shapes[s].name);
        for (size_t r = 0; r < BR_COUNT(readers); r++) {
            (void)printf(" %15.1f", (double)send_shape(h, r, s, item, true) / 1000);
            (void)fflush(stdout);
        }
        br_item_free(item);
        wire_free(&w);
    }
    (void)printf("\n");
    fake_host_free(h);
}

SUITE(worst)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_proportional_to_bytes),
    };
    if (!test_mode_is("times"))
        return RUN(tests, NULL, NULL);
    print_times();
    return 0;
}
