/* SPDX-License-Identifier: Apache-2.0 */
/* The field numbers of OTLP, pprof and Pyroscope's push match the schemas. KeyValue and AnyValue
 * are read with their fields in any order. */
#include "base/mem.h"
#include "exporters/pyroscope/pyroscope.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "otlp/keyvalue.h"
#include "pprof/profile.pb-c.h"
#include "profile/pprof/fields.h"
#include "push/v1/push.pb-c.h"
#include "tests/support/fake_sink.h"
#include "tests/support/reorder.h"
#include "tests/support/test.h"

/* --- Field numbers ---------------------------------------------------------------------------- */

#define COLLECTOR(name) opentelemetry__proto__collector__##name##__descriptor
#define COMMON(name) opentelemetry__proto__common__v1__##name##__descriptor
#define TRACE(name) opentelemetry__proto__trace__v1__##name##__descriptor
#define PROFILES(name) opentelemetry__proto__profiles__v1development__##name##__descriptor
#define PPROF(name) perftools__profiles__##name##__descriptor
#define PUSH(name) push__v1__##name##__descriptor
#define NAMES_MAX 16

struct numbers {
    const ProtobufCMessageDescriptor *type;
    unsigned v[NAMES_MAX]; /* the numbers of all fields in rising order; 0 ends the list */
};

/* The names that the code uses for field numbers, here in the schemas' order. */
static const struct numbers numbers[] = {
    {&COLLECTOR(trace__v1__export_trace_service_request), {BR_REQUEST_RESOURCES}},
    {&COLLECTOR(profiles__v1development__export_profiles_service_request),
     {BR_REQUEST_RESOURCES, BR_REQUEST_DICTIONARY}},
    {&COLLECTOR(trace__v1__export_trace_service_response), {BR_RESPONSE_PARTIAL_SUCCESS}},
    {&COLLECTOR(profiles__v1development__export_profiles_service_response),
     {BR_RESPONSE_PARTIAL_SUCCESS}},
    {&COLLECTOR(trace__v1__export_trace_partial_success),
     {BR_PARTIAL_SUCCESS_REJECTED, BR_PARTIAL_SUCCESS_MESSAGE}},
    {&COLLECTOR(profiles__v1development__export_profiles_partial_success),
     {BR_PARTIAL_SUCCESS_REJECTED, BR_PARTIAL_SUCCESS_MESSAGE}},
    {&TRACE(resource_spans), {BR_RESOURCES_RESOURCE, BR_RESOURCES_SCOPES, BR_RESOURCES_SCHEMA_URL}},
    {&PROFILES(resource_profiles),
     {BR_RESOURCES_RESOURCE, BR_RESOURCES_SCOPES, BR_RESOURCES_SCHEMA_URL}},
    {&TRACE(scope_spans), {BR_SCOPES_SCOPE, BR_SCOPES_RECORDS, BR_SCOPES_SCHEMA_URL}},
    {&PROFILES(scope_profiles), {BR_SCOPES_SCOPE, BR_SCOPES_RECORDS, BR_SCOPES_SCHEMA_URL}},
    {&opentelemetry__proto__resource__v1__resource__descriptor,
     {BR_RESOURCE_ATTRIBUTES, BR_RESOURCE_DROPPED_ATTRIBUTES, BR_RESOURCE_ENTITY_REFS}},
    {&COMMON(entity_ref),
     {BR_ENTITY_SCHEMA_URL, BR_ENTITY_TYPE, BR_ENTITY_ID_KEYS, BR_ENTITY_DESCRIPTION_KEYS}},
    {&COMMON(instrumentation_scope),
     {BR_SCOPE_NAME, BR_SCOPE_VERSION, BR_SCOPE_ATTRIBUTES, BR_SCOPE_DROPPED_ATTRIBUTES}},
    {&COMMON(key_value), {BR_KEYVALUE_KEY, BR_KEYVALUE_VALUE, BR_KEYVALUE_KEY_STRINDEX}},
    {&COMMON(any_value),
     {BR_VALUE_STRING, BR_VALUE_BOOL, BR_VALUE_INT, BR_VALUE_DOUBLE, BR_VALUE_LIST, BR_VALUE_MAP,
      BR_VALUE_BYTES, BR_VALUE_STRINDEX}},
    {&COMMON(array_value), {BR_LIST_VALUES}},
    {&COMMON(key_value_list), {BR_LIST_VALUES}},
    {&TRACE(span),
     {BR_SPAN_TRACE_ID, BR_SPAN_SPAN_ID, BR_SPAN_TRACE_STATE, BR_SPAN_PARENT_SPAN_ID, BR_SPAN_NAME,
      BR_SPAN_KIND, BR_SPAN_START_TIME, BR_SPAN_END_TIME, BR_SPAN_ATTRIBUTES,
      BR_SPAN_DROPPED_ATTRIBUTES, BR_SPAN_EVENTS, BR_SPAN_DROPPED_EVENTS, BR_SPAN_LINKS,
      BR_SPAN_DROPPED_LINKS, BR_SPAN_STATUS, BR_SPAN_FLAGS}},
    {&TRACE(span__event),
     {BR_EVENT_TIME, BR_EVENT_NAME, BR_EVENT_ATTRIBUTES, BR_EVENT_DROPPED_ATTRIBUTES}},
    {&TRACE(span__link),
     {BR_SPAN_LINK_TRACE_ID, BR_SPAN_LINK_SPAN_ID, BR_SPAN_LINK_TRACE_STATE,
      BR_SPAN_LINK_ATTRIBUTES, BR_SPAN_LINK_DROPPED_ATTRIBUTES, BR_SPAN_LINK_FLAGS}},
    {&TRACE(status), {BR_SPAN_STATUS_MESSAGE, BR_SPAN_STATUS_CODE}},
    {&PROFILES(profiles_dictionary),
     {BR_DICTIONARY_MAPPINGS, BR_DICTIONARY_LOCATIONS, BR_DICTIONARY_FUNCTIONS, BR_DICTIONARY_LINKS,
      BR_DICTIONARY_STRINGS, BR_DICTIONARY_ATTRIBUTES, BR_DICTIONARY_STACKS}},
    {&PROFILES(profile),
     {BR_PROFILE_SAMPLE_TYPE, BR_PROFILE_SAMPLES, BR_PROFILE_TIME, BR_PROFILE_DURATION,
      BR_PROFILE_PERIOD_TYPE, BR_PROFILE_PERIOD, BR_PROFILE_PROFILE_ID,
      BR_PROFILE_DROPPED_ATTRIBUTES, BR_PROFILE_PAYLOAD_FORMAT, BR_PROFILE_PAYLOAD,
      BR_PROFILE_ATTRIBUTES}},
    {&PROFILES(value_type), {BR_VALUE_TYPE_TYPE, BR_VALUE_TYPE_UNIT}},
    {&PROFILES(sample),
     {BR_SAMPLE_STACK, BR_SAMPLE_ATTRIBUTES, BR_SAMPLE_LINK, BR_SAMPLE_VALUES, BR_SAMPLE_TIMES}},
    {&PROFILES(link), {BR_LINK_TRACE_ID, BR_LINK_SPAN_ID}},
    {&PROFILES(stack), {BR_STACK_LOCATIONS}},
    {&PROFILES(location),
     {BR_LOCATION_MAPPING, BR_LOCATION_ADDRESS, BR_LOCATION_LINES, BR_LOCATION_ATTRIBUTES}},
    {&PROFILES(line), {BR_LINE_FUNCTION, BR_LINE_LINE, BR_LINE_COLUMN}},
    {&PROFILES(function),
     {BR_FUNCTION_NAME, BR_FUNCTION_SYSTEM_NAME, BR_FUNCTION_FILENAME, BR_FUNCTION_START_LINE}},
    {&PROFILES(mapping),
     {BR_MAPPING_START, BR_MAPPING_LIMIT, BR_MAPPING_FILE_OFFSET, BR_MAPPING_FILENAME,
      BR_MAPPING_ATTRIBUTES}},
    {&PROFILES(key_value_and_unit), {BR_ATTRIBUTE_KEY, BR_ATTRIBUTE_VALUE, BR_ATTRIBUTE_UNIT}},
    {&PPROF(profile),
     {BR_PPROF_SAMPLE_TYPE, BR_PPROF_SAMPLE, BR_PPROF_MAPPING, BR_PPROF_LOCATION, BR_PPROF_FUNCTION,
      BR_PPROF_STRING, BR_PPROF_DROP_FRAMES, BR_PPROF_KEEP_FRAMES, BR_PPROF_TIME, BR_PPROF_DURATION,
      BR_PPROF_PERIOD_TYPE, BR_PPROF_PERIOD, BR_PPROF_COMMENT, BR_PPROF_DEFAULT_TYPE,
      BR_PPROF_DOC_URL}},
    {&PPROF(value_type), {BR_PPROF_VALUE_TYPE_TYPE, BR_PPROF_VALUE_TYPE_UNIT}},
    {&PPROF(sample), {BR_PPROF_SAMPLE_LOCATIONS, BR_PPROF_SAMPLE_VALUES, BR_PPROF_SAMPLE_LABELS}},
    {&PPROF(label),
     {BR_PPROF_LABEL_KEY, BR_PPROF_LABEL_STR, BR_PPROF_LABEL_NUM, BR_PPROF_LABEL_UNIT}},
    {&PPROF(mapping),
     {BR_PPROF_MAPPING_ID, BR_PPROF_MAPPING_START, BR_PPROF_MAPPING_LIMIT, BR_PPROF_MAPPING_OFFSET,
      BR_PPROF_MAPPING_FILENAME, BR_PPROF_MAPPING_BUILD_ID, BR_PPROF_MAPPING_HAS_FUNCTIONS,
      BR_PPROF_MAPPING_HAS_FILENAMES, BR_PPROF_MAPPING_HAS_LINE_NUMBERS,
      BR_PPROF_MAPPING_HAS_INLINE_FRAMES}},
    {&PPROF(location),
     {BR_PPROF_LOCATION_ID, BR_PPROF_LOCATION_MAPPING, BR_PPROF_LOCATION_ADDRESS,
      BR_PPROF_LOCATION_LINES, BR_PPROF_LOCATION_IS_FOLDED}},
    {&PPROF(line), {BR_PPROF_LINE_FUNCTION, BR_PPROF_LINE_LINE, BR_PPROF_LINE_COLUMN}},
    {&PPROF(function),
     {BR_PPROF_FUNCTION_ID, BR_PPROF_FUNCTION_NAME, BR_PPROF_FUNCTION_SYSTEM_NAME,
      BR_PPROF_FUNCTION_FILENAME, BR_PPROF_FUNCTION_START_LINE}},
    {&PUSH(push_request), {PYROSCOPE_REQUEST_SERIES}},
    {&PUSH(raw_profile_series), {PYROSCOPE_SERIES_LABELS, PYROSCOPE_SERIES_SAMPLES}},
    {&PUSH(label_pair), {PYROSCOPE_LABEL_NAME, PYROSCOPE_LABEL_VALUE}},
    {&PUSH(raw_sample), {PYROSCOPE_SAMPLE_PROFILE, PYROSCOPE_SAMPLE_ID}},
};

static void field_numbers_match_the_schemas(void **state)
{
    (void)state;
    for (size_t k = 0; k < BR_COUNT(numbers); k++) {
        const ProtobufCMessageDescriptor *type = numbers[k].type;
        for (unsigned i = 0; i < type->n_fields; i++)
            if (i >= NAMES_MAX || numbers[k].v[i] != type->fields[i].id)
                fail_msg("%s.%s", type->name, type->fields[i].name);
        if (type->n_fields < NAMES_MAX && numbers[k].v[type->n_fields])
            fail_msg("%s has fewer fields", type->name);
    }
}

/* --- Reading ---------------------------------------------------------------------------------- */

static struct br_value bytes_of(const struct wire *w)
{
    return (struct br_value){w->data, w->len};
}

static void key_and_value_may_have_any_order(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (unsigned order = 0; order < REORDERS; order++) {
        struct wire w = {0};
        struct br_keyvalue kv;
        wire_str(&w, 1, "key");
        size_t any = wire_open(&w, 2);
        wire_i64(&w, 4, 0x3ff8000000000000u);
        wire_close(&w, any);
        wire_varint(&w, 3, 7);
        wire_varint(&w, 9, 9); /* an unknown field */
        reorder_message(&w, &COMMON(key_value), (enum reorder)order, &random);
        assert_true(br_keyvalue_read(w.data, w.len, &kv));
        assert_int_equal(kv.key_len, 3);
        assert_memory_equal(kv.key, "key", 3);
        assert_int_equal(kv.key_index, 7);
        assert_false(kv.several);
        assert_int_equal(br_any_read(kv.value).type, BR_VALUE_DOUBLE);
        assert_true(br_any_read(kv.value).number == 0x3ff8000000000000u);
        wire_free(&w);
    }
}

static void entries_may_have_any_order(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (unsigned order = 0; order < REORDERS; order++) {
        struct wire w = {0};
        struct br_keyvalue kv;
        wire_varint(&w, 1, 300);
        size_t any = wire_open(&w, 2);
        wire_varint(&w, 8, 5);
        wire_close(&w, any);
        wire_varint(&w, 3, 7);
        reorder_message(&w, &PROFILES(key_value_and_unit), (enum reorder)order, &random);
        assert_true(br_keyvalue_read_entry(w.data, w.len, &kv));
        assert_int_equal(kv.key_index, 300);
        assert_int_equal(kv.unit, 7);
        assert_int_equal(br_any_read(kv.value).type, BR_VALUE_EMPTY);
        assert_int_equal(br_any_read(kv.value).reference, 5);
        wire_free(&w);
    }
}

static void the_last_of_a_field_counts(void **state)
{
    (void)state;
    struct wire w = {0};
    struct br_keyvalue kv;
    wire_str(&w, 1, "first");
    wire_len(&w, 2,
             "\x0a\x01"
             "a",
             3);
    wire_varint(&w, 3, 1);
    wire_str(&w, 1, "last");
    wire_len(&w, 2,
             "\x0a\x01"
             "b",
             3);
    wire_len(&w, 2, NULL, 0); /* an empty field, which leaves the value unchanged */
    wire_varint(&w, 3, 2);
    assert_true(br_keyvalue_read(w.data, w.len, &kv));
    assert_int_equal(kv.key_len, 4);
    assert_memory_equal(kv.key, "last", 4);
    assert_int_equal(kv.key_index, 2);
    assert_true(kv.several);
    assert_int_equal(br_any_read(kv.value).len, 1);
    assert_memory_equal(br_any_read(kv.value).data, "b", 1);
    wire_free(&w);
}

/* Reads the value twice, as a whole and only its last field, and asserts equal results. */
static struct br_any read_both(const struct wire *w)
{
    struct br_any any = br_any_read(bytes_of(w)), last = br_any_read(br_value_last(bytes_of(w)));
    assert_int_equal(last.type, any.type);
    assert_true(last.number == any.number && last.reference == any.reference);
    assert_true(last.data == any.data && last.len == any.len);
    return any;
}

/* The last value of a oneof counts: a reference replaces a text, and a text replaces a
 * reference. */
static void the_last_value_of_a_oneof_counts(void **state)
{
    (void)state;
    struct wire w = {0};
    wire_str(&w, 1, "text");
    wire_varint(&w, 3, (uint64_t)-5);
    assert_int_equal(read_both(&w).type, BR_VALUE_INT);
    assert_int_equal((int64_t)read_both(&w).number, -5);
    wire_varint(&w, 8, 4);
    assert_int_equal(read_both(&w).type, BR_VALUE_EMPTY);
    assert_int_equal(read_both(&w).reference, 4);
    wire_str(&w, 1, "");
    assert_int_equal(read_both(&w).type, BR_VALUE_STRING);
    assert_int_equal(read_both(&w).reference, 0);
    wire_varint(&w, 1, 4); /* the field is unknown because of its wire type */
    wire_varint(&w, 30, 4);
    assert_int_equal(read_both(&w).type, BR_VALUE_STRING);
    assert_int_equal(br_value_last(bytes_of(&w)).len, 2); /* an empty text */
    wire_free(&w);
}

static void malformed_values_are_reported(void **state)
{
    (void)state;
    struct wire w = {0};
    struct br_keyvalue kv;
    assert_true(br_keyvalue_read(NULL, 0, &kv) && !kv.key && !kv.value.data);
    assert_int_equal(br_any_read(kv.value).type, BR_VALUE_EMPTY);
    wire_str(&w, 1, "key");
    wire_raw(&w, "\x12\x05\x0a", 3);
    assert_false(br_keyvalue_read(w.data, w.len, &kv));
    assert_int_equal(kv.key_len, 3);
    assert_false(br_keyvalue_read_entry(w.data, w.len, &kv));
    assert_int_equal(read_both(&w).type, BR_VALUE_EMPTY);
    wire_free(&w);
}

static void lists_and_maps_are_iterated(void **state)
{
    (void)state;
    struct wire w = {0};
    struct br_value element;
    struct br_keyvalue kv;
    wire_attribute(&w, 1, "a", "x");
    wire_varint(&w, 7, 1);
    wire_attribute(&w, 1, "b", "y");
    const uint8_t *p = w.data, *end = w.data + w.len;
    for (const char *key = "ab"; *key; key++) {
        p = br_keyvalue_next(p, end, 1, &kv);
        assert_non_null(p);
        assert_int_equal(*kv.key, *key);
    }
    assert_null(br_keyvalue_next(p, end, 1, &kv));
    p = br_value_next(br_value_next(w.data, end, &element), end, &element);
    assert_true(p == end && element.data + element.len == end);
    assert_null(br_value_next(p, end, &element));
    assert_null(br_value_next(NULL, NULL, &element));
    wire_free(&w);
}

SUITE(keyvalue)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(field_numbers_match_the_schemas),
        cmocka_unit_test(key_and_value_may_have_any_order),
        cmocka_unit_test(entries_may_have_any_order),
        cmocka_unit_test(the_last_of_a_field_counts),
        cmocka_unit_test(the_last_value_of_a_oneof_counts),
        cmocka_unit_test(malformed_values_are_reported),
        cmocka_unit_test(lists_and_maps_are_iterated),
    };
    return RUN(tests, NULL, NULL);
}
