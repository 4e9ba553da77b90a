/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json/json.h"

#include "base/mem.h"
#include "google/rpc/status.pb-c.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "otlp/json/number.h"
#include "tests/support/corpus.h"
#include "tests/support/fault.h"
#include "wire/protobuf.h"

#include "tests/fuzz/fuzz_json.c"
#include "tests/support/test.h"

#define SPAN_TEXT "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{%s}]}]}]}"
#define AT_SPAN "resourceSpans[0].scopeSpans[0].spans[0]."

/* Inserts a tag and a length before the bytes. */
static size_t wrap(uint8_t *bytes, size_t len, uint32_t field)
{
    uint8_t copy[1024];
    memcpy(copy, bytes, len);
    return (size_t)(br_put_len(bytes, field, copy, len) - bytes);
}

static size_t span_wire(const char *hex, uint8_t *out)
{
    long n = br_hex_decode(hex, strlen(hex), out, 512);
    assert_true(n >= 0);
    return wrap(out, wrap(out, wrap(out, (size_t)n, 2), 2), 1);
}

static void expect_span(struct br_pool *pool, const char *fields, const char *hex)
{
    char text[2048];
    uint8_t want[1024];
    struct br_err err = {0};
    struct br_buf *got = NULL;
    size_t want_len = span_wire(hex, want);
    int len = snprintf(text, sizeof text, SPAN_TEXT, fields);
    int rc =
        br_json_decode(br_otlp_request(BR_TRACES), text, (size_t)len, 32, 4096, pool, &got, &err);
    if (rc != 0)
        fail_msg("%s: %s", fields, err.text);
    if (got->len != want_len || memcmp(got->data, want, want_len) != 0)
        fail_msg("%s: other bytes than %s", fields, hex);
    br_buf_unref(got);
}

/* Follows protobuf.dev/programming-guides/json and the specification's "JSON Protobuf Encoding".
 * The bytes are written by hand: tag = field number << 3 | wire type. */
static void test_decode_span(void **state)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"\"traceId\":\"5B8EFFF798038103d269b633813fc60c\"",
         "0a105b8efff798038103d269b633813fc60c"},
        {"\"spanId\":\"eee19b7ec3c1b174\"", "1208eee19b7ec3c1b174"},
        {"\"parentSpanId\":\"\"", ""},
        {"\"kind\":3", "3003"},
        {"\"kind\":\"SPAN_KIND_CLIENT\"", "3003"},
        {"\"kind\":0", ""},
        {"\"kind\":-1", "30ffffffffffffffffff01"},
        {"\"startTimeUnixNano\":\"1544712660000000000\"", "39004859e3faeb6f15"},
        {"\"startTimeUnixNano\":1544712660000000000", "39004859e3faeb6f15"},
        {"\"startTimeUnixNano\":18446744073709551615", "39ffffffffffffffff"},
        {"\"startTimeUnixNano\":9223372036854775808", "390000000000000080"},
        {"\"startTimeUnixNano\":9007199254740993.0", "390100000000002000"},
        {"\"flags\":4294967295", "8501ffffffff"},
        {"\"droppedAttributesCount\":1.0", "5001"},
        {"\"droppedAttributesCount\":1e2", "5064"},
        {"\"droppedAttributesCount\":100E-2", "5001"},
        {"\"droppedAttributesCount\":\"7\"", "5007"},
        {"\"droppedAttributesCount\":-0", ""},
        {"\"name\":\"\\u0000\"", "2a0100"},
        {"\"name\":\"\\ud83d\\ude00\"", "2a04f09f9880"},
        {"\"name\":\"\\u00e9\\u20ac\\ud800\\udc00\\udbff\\udfff\"",
         "2a0dc3a9e282acf0908080f48fbfbf"},
        /* A lone surrogate becomes U+FFFD; the text after it is kept. */
        {"\"name\":\"\\ud83d\"", "2a03efbfbd"},
        {"\"name\":\"\\udc00\"", "2a03efbfbd"},
        {"\"name\":\"a\\ud83d\\u0041\"", "2a0561efbfbd41"},
        {"\"name\":\"\\ud83d\\ud83d\\ude00\"", "2a07efbfbdf09f9880"},
        {"\"name\":\"\\ud83d\\n\"", "2a04efbfbd0a"},
        {"\"name\":\"\\ud83dA\"", "2a04efbfbd41"},
        {"\"un\\udc00known\":\"\\udc00\"", ""},
        {"\"name\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "2a08225c2f080c0a0d09"},
        {"\"n\\u0061me\":\"escaped name\"", "2a0c65736361706564206e616d65"},
        {"\"n\\u0000me\":\"unknown\"", ""},
        {"\"name\":null", ""},
        {"\"name\":\"a\",\"name\":null", ""},
        {"\"spanId\":\"\\u0065ee19b7ec3c1b174\"", "1208eee19b7ec3c1b174"},
        {"\"flags\":\"\\u0031\"", "850101000000"},
        {"\"attributes\":[{\"value\":{\"bytesValue\":\"AQL\\/\"}}]", "4a0712053a030102ff"},
        {"\"name\":\"a\",\"name\":\"b\"", "2a0162"},
        {"\"name\":\"a\",\"traceState\":\"b\"", "1a01622a0161"},
        {"\"name\":\"abcde\\n\"", "2a066162636465"
                                  "0a"},
        /* The last value of a repeated key replaces the others: messages are not merged, and a
         * zero counts. */
        {"\"name\":null,\"name\":\"a\"", "2a0161"},
        {"\"name\":\"a\",\"name\":\"\"", ""},
        {"\"kind\":3,\"kind\":0", ""},
        {"\"status\":{\"message\":\"a\"},\"status\":{\"code\":1}", "7a021801"},
        {"\"events\":[{},{}],\"events\":[{\"name\":\"a\"}]", "5a03120161"},
        {"\"events\":[{},{}],\"events\":[]", ""},
        {"\"kind\":3,\"name\":\"a\",\"kind\":0,\"traceState\":\"b\",\"name\":\"abcde\"",
         "1a01622a056162636465"},
        {"\"spanId\":\"\",\"name\":\"a\",\"spanId\":\"eee19b7ec3c1b174\",\"kind\":0",
         "1208eee19b7ec3c1b1742a0161"},
        {"\"attributes\":[{\"value\":{\"kvlistValue\":{\"values\":[{\"value\":{\"intValue\":2},"
         "\"key\":\"b\"}]}},\"key\":\"a\"}]",
         "4a100a0161120b32090a070a016212021802"},
        {"\"attributes\":[{\"value\":{\"stringValue\":\"a\",\"stringValue\":null,\"intValue\":1}}]",
         "4a0412021801"},
        {"\"trace_state\":\"abc\",\"name\":\"a\"", "1a036162632a0161"},
        {"\"traceState\":\"a\",\"trace_state\":\"b\"", "1a0162"},
        {"\"trace_state\":\"a\",\"traceState\":\"b\"", "1a0162"},
        {"\"trace_stat\":\"a\",\"trace_states\":\"b\",\"Trace_state\":\"c\",\"tracestate\":\"d\"",
         ""},
        {"\"unknown\":[1e999,{\"a\":123456789012345678901234567890}],\"name\":\"a\"", "2a0161"},
        {"\"status\":{}", "7a00"},
        {"\"status\":null", ""},
        {"\"events\":[]", ""},
        {"\"events\":[{},{\"name\":\"a\"}]", "5a005a03120161"},
        {"\"attributes\":[{\"key\":\"a\",\"value\":{}}]", "4a050a01611200"},
        {"\"attributes\":[{\"value\":{\"stringValue\":\"\"}}]", "4a0412020a00"},
        {"\"attributes\":[{\"value\":{\"boolValue\":false}}]", "4a0412021000"},
        {"\"attributes\":[{\"value\":{\"intValue\":\"0\"}}]", "4a0412021800"},
        {"\"attributes\":[{\"value\":{\"intValue\":-1}}]", "4a0d120b18ffffffffffffffffff01"},
        {"\"attributes\":[{\"value\":{\"intValue\":\"-9223372036854775808\"}}]",
         "4a0d120b1880808080808080808001"},
        {"\"attributes\":[{\"value\":{\"intValue\":null,\"boolValue\":true}}]", "4a0412021001"},
        {"\"attributes\":[{\"value\":{\"doubleValue\":\"NaN\"}}]", "4a0b120921000000000000f87f"},
        {"\"attributes\":[{\"value\":{\"doubleValue\":\"-Infinity\"}}]",
         "4a0b120921000000000000f0ff"},
        {"\"attributes\":[{\"value\":{\"doubleValue\":-2.5}}]", "4a0b12092100000000000004c0"},
        {"\"attributes\":[{\"value\":{\"doubleValue\":\"1e1\"}}]", "4a0b1209210000000000002440"},
        {"\"attributes\":[{\"value\":{\"bytesValue\":\"AQL/\"}}]", "4a0712053a030102ff"},
        {"\"attributes\":[{\"value\":{\"bytesValue\":\"AQL_\"}}]", "4a0712053a030102ff"},
        {"\"attributes\":[{\"value\":{\"bytesValue\":\"AQ\"}}]", "4a0512033a0101"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        expect_span(*state, cases[i][0], cases[i][1]);
}

static void expect_error(struct br_pool *pool, const char *text, const char *sentence)
{
    struct br_err err = {0};
    struct br_buf *got = NULL;
    int rc =
        br_json_decode(br_otlp_request(BR_TRACES), text, strlen(text), 32, 4096, pool, &got, &err);
    assert_int_equal(rc, BR_EINVAL);
    assert_int_equal(err.code, BR_EINVAL);
    assert_null(got);
    assert_string_equal(err.text, sentence);
}

static void test_decode_errors(void **state)
{
    static const char *const cases[][2] = {
        {"\"traceId\":\"5b8efff798038103d269b633813fc60\"",
         "traceId: must be 32 hex digits, got 31"},
        {"\"spanId\":\"eee19b7ec3c1b17x\"", "spanId: must be 16 hex digits"},
        {"\"spanId\":7", "spanId: must be a string"},
        {"\"name\":5", "name: must be a string"},
        {"\"name\":5,\"name\":\"a\"", "name: must be a string"},
        {"\"kind\":\"CLIENT\"", "kind: CLIENT is not a SpanKind"},
        {"\"kind\":2147483648", "kind: must be from -2147483648 to 2147483647, got 2147483648"},
        {"\"startTimeUnixNano\":-1",
         "startTimeUnixNano: must be from 0 to 18446744073709551615, got -1"},
        {"\"startTimeUnixNano\":18446744073709551616",
         "startTimeUnixNano: must be an integer of at most 64 bits, got 18446744073709551616"},
        {"\"startTimeUnixNano\":1.5",
         "startTimeUnixNano: must be an integer of at most 64 bits, got 1.5"},
        {"\"startTimeUnixNano\":\"\"", "startTimeUnixNano: must be an integer"},
        {"\"startTimeUnixNano\":\"0x10\"", "startTimeUnixNano: must be an integer"},
        {"\"startTimeUnixNano\":\" 1\"", "startTimeUnixNano: must be an integer"},
        {"\"startTimeUnixNano\":\"1\\u0000\"", "startTimeUnixNano: must be an integer"},
        {"\"startTimeUnixNano\":true", "startTimeUnixNano: must be an integer"},
        {"\"attributes\":{}", "attributes: must be an array"},
        {"\"attributes\":[{},null]", "attributes[1]: must be an object"},
        {"\"status\":[]", "status: must be an object"},
        {"\"attributes\":[{\"value\":{\"boolValue\":\"true\"}}]",
         "attributes[0].value.boolValue: must be true or false"},
        {"\"attributes\":[{\"value\":{\"bytesValue\":\"A\"}}]",
         "attributes[0].value.bytesValue: must be base64"},
        {"\"attributes\":[{\"value\":{\"doubleValue\":1e400}}]",
         "attributes[0].value.doubleValue: must fit in a double, got 1e400"},
        {"\"attributes\":[{\"value\":{\"doubleValue\":\"inf\"}}]",
         "attributes[0].value.doubleValue: must be a number, \"NaN\", \"Infinity\" or "
         "\"-Infinity\""},
        {"\"attributes\":[{\"value\":{\"stringValue\":\"a\",\"intValue\":1}}]",
         "attributes[0].value.intValue: cannot be combined with stringValue; set only one of them"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        char text[512], sentence[512];
        (void)snprintf(text, sizeof text, SPAN_TEXT, cases[i][0]);
        (void)snprintf(sentence, sizeof sentence, AT_SPAN "%s", cases[i][1]);
        expect_error(*state, text, sentence);
    }
    expect_error(*state, "[]", "must be an object");
    expect_error(*state, "{\"resourceSpans\":[7]}", "resourceSpans[0]: must be an object");
}

/* RFC 8259: texts that are not JSON. The error message is that of the parser. */
static void test_decode_not_json(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "{}x",
        "{\"a\":01}",
        "{\"a\":-01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{\"a\":-}",
        "{\"a\":1e}",
        "{\"a\":-1-1}",
        "{\"a\":-1.5.5}",
        "{\"a\":0x1}",
        "{\"a\":NaN}",
        "{'a':1}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\":\"\xed\xa0\x80\"}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "\xef\xbb\xbf{}",
        "{\"a\":\"\\",
        "{\"a\":\"b",
        "{\"a\":1} -1",
        "{\"a\":-1 2}",
        "{\"a\":tru}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":[1 2]}",
        "{\"a\":[1,]}",
        "{\"a\":}",
        "{1:2}",
        "{\"a\":1}}",
        "nul",
        "{\"resourceSpans\":7,}", /* has the wrong type as well */
        "{\"resourceSpans\":[{\"schemaUrl\":1}]",
        "[[[[[[[[", /* more values than there would be room for if all brackets were closed */
        "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[",
    };
    for (size_t i = 0; i < BR_COUNT(texts); i++) {
        struct br_err err = {0};
        struct br_buf *got = NULL;
        int rc = br_json_decode(br_otlp_request(BR_TRACES), texts[i], strlen(texts[i]), 32, 4096,
                                *state, &got, &err);
        if (rc != BR_EINVAL || strncmp(err.text, "not JSON: ", 10) != 0)
            fail_msg("%s: %d, %s", texts[i], rc, err.text);
    }
}

static int decode_limited(struct br_pool *pool, const char *text, unsigned max_depth, size_t max)
{
    struct br_buf *got = NULL;
    int rc = br_json_decode(br_otlp_request(BR_TRACES), text, strlen(text), max_depth, max, pool,
                            &got, NULL);
    br_buf_unref(got);
    return rc;
}

static void test_decode_limits(void **state)
{
    /* 0a 05 1a 03 61 62 63: seven bytes in two messages. */
    const char *text = "{\"resourceSpans\":[{\"schemaUrl\":\"abc\"}]}";
    assert_int_equal(decode_limited(*state, text, 2, 7), 0);
    assert_int_equal(decode_limited(*state, text, 2, 6), BR_ETOOBIG);
    assert_int_equal(decode_limited(*state, text, 1, 7), BR_EINVAL);
    assert_int_equal(decode_limited(*state, "{\"x\":[[1]]}", 1, 7), BR_EINVAL);
}

/* Each level of KeyValueList or ArrayValue nests two messages. */
static void test_depth_both_ways(void **state)
{
    struct br_str text = {0};
    struct br_str out = {0};
    struct br_buf *got = NULL;
    br_str_puts(&text, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"value\":{");
    for (int i = 0; i < 61; i++)
        br_str_puts(&text, "\"arrayValue\":{\"values\":[{");
    br_str_puts(&text, "\"arrayValue\":{}");
    for (int i = 0; i < 61; i++)
        br_str_puts(&text, "}]}");
    br_str_puts(&text, "}}]}}]}");
    /* 5 messages around 61 pairs, and one message inside them, are 128 messages. */
    const ProtobufCMessageDescriptor *desc = br_otlp_request(BR_TRACES);
    assert_int_equal(br_json_decode(desc, text.data, text.len, 127, 4096, *state, &got, NULL),
                     BR_EINVAL);
    assert_int_equal(br_json_decode(desc, text.data, text.len, 1000, 4096, *state, &got, NULL), 0);
    assert_int_equal(br_json_encode(desc, got->data, got->len, &out), 0);
    assert_string_equal(out.data, text.data);
    br_buf_unref(got);
    br_str_release(&text);
    br_str_release(&out);
}

/* 62 pairs are 129 messages, one more than allowed. */
static void test_encode_too_deep(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    struct br_str out = {0};
    size_t len = 0;
    for (int i = 0; i < 62; i++)
        len = wrap(bytes, wrap(bytes, len, 1), 5);
    len = wrap(bytes, wrap(bytes, wrap(bytes, wrap(bytes, len, 2), 1), 1), 1);
    assert_int_equal(br_json_encode(br_otlp_request(BR_TRACES), bytes, len, &out), BR_ETOOBIG);
    br_str_release(&out);
}

static void expect_json(const ProtobufCMessageDescriptor *desc, const char *hex, const char *want)
{
    uint8_t bytes[512];
    struct br_str out = {0};
    long n = br_hex_decode(hex, strlen(hex), bytes, sizeof bytes);
    assert_true(n >= 0);
    assert_int_equal(br_json_encode(desc, bytes, (size_t)n, &out), 0);
    assert_string_equal(out.data, want);
    br_str_release(&out);
}

static void expect_span_json(const char *hex, const char *fields)
{
    uint8_t bytes[1024];
    char want[2048];
    struct br_str out = {0};
    size_t len = span_wire(hex, bytes);
    (void)snprintf(want, sizeof want, SPAN_TEXT, fields);
    assert_int_equal(br_json_encode(br_otlp_request(BR_TRACES), bytes, len, &out), 0);
    assert_string_equal(out.data, want);
    br_str_release(&out);
}

static void test_encode_span(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"0a105b8efff798038103d269b633813fc60c",
         "\"traceId\":\"5b8efff798038103d269b633813fc60c\""},
        {"0a00", ""},
        {"3003", "\"kind\":3"},
        {"30ffffffffffffffffff01", "\"kind\":-1"},
        {"39004859e3faeb6f15", "\"startTimeUnixNano\":\"1544712660000000000\""},
        {"39ffffffffffffffff", "\"startTimeUnixNano\":\"18446744073709551615\""},
        {"390000000000000000", ""},
        {"8501ffffffff", "\"flags\":4294967295"},
        {"5064", "\"droppedAttributesCount\":100"},
        {"50e48000", "\"droppedAttributesCount\":100"}, /* overlong */
        {"2a0100", "\"name\":\"\\u0000\""},
        {"2a0322615c", "\"name\":\"\\\"a\\\\\""},
        {"2a03610a62", "\"name\":\"a\\nb\""},
        {"2a0161"
         "2a0162",
         "\"name\":\"b\""}, /* the last value counts */
        {"2a0162"
         "1a0161",
         "\"traceState\":\"a\",\"name\":\"b\""},
        {"7a00", "\"status\":{}"},
        {"7a03120161"
         "3003"
         "7a021802",
         "\"kind\":3,\"status\":{\"message\":\"a\",\"code\":2}"},
        {"5a00"
         "3003"
         "5a03120161",
         "\"kind\":3,\"events\":[{},{\"name\":\"a\"}]"},
        {"a03801"
         "2a0161"
         "a23803616263",
         "\"name\":\"a\""}, /* field 900 is unknown */
        {"2801"
         "2a0161",
         "\"name\":\"a\""}, /* a name that is also written as a number */
        {"4a050a01611200", "\"attributes\":[{\"key\":\"a\",\"value\":{}}]"},
        {"4a0412021000", "\"attributes\":[{\"value\":{\"boolValue\":false}}]"},
        {"4a0d120b18ffffffffffffffffff01", "\"attributes\":[{\"value\":{\"intValue\":\"-1\"}}]"},
        {"4a0b120921000000000000f87f", "\"attributes\":[{\"value\":{\"doubleValue\":\"NaN\"}}]"},
        {"4a0b120921000000000000f0ff",
         "\"attributes\":[{\"value\":{\"doubleValue\":\"-Infinity\"}}]"},
        {"4a0b1209219a9999999999b93f", "\"attributes\":[{\"value\":{\"doubleValue\":0.1}}]"},
        {"4a0712053a030102ff", "\"attributes\":[{\"value\":{\"bytesValue\":\"AQL/\"}}]"},
        {"4a0612041001"
         "1805",
         "\"attributes\":[{\"value\":{\"intValue\":\"5\"}}]"},
        /* An array in two pieces is merged, unless a string between the pieces replaced the
         * first one. */
        {"4a0e120c2a040a0210012a040a021801",
         "\"attributes\":[{\"value\":{\"arrayValue\":{\"values\":[{\"boolValue\":true},"
         "{\"intValue\":\"1\"}]}}}]"},
        {"4a10120e2a040a0210010a002a040a021801",
         "\"attributes\":[{\"value\":{\"arrayValue\":{\"values\":[{\"intValue\":\"1\"}]}}}]"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        expect_span_json(cases[i][0], cases[i][1]);
}

static void expect_sample_json(const char *hex, const char *fields)
{
    uint8_t bytes[256];
    char want[512];
    struct br_str out = {0};
    long n = br_hex_decode(hex, strlen(hex), bytes, sizeof bytes);
    assert_true(n >= 0);
    size_t len = (size_t)n;
    for (int i = 0; i < 3; i++)
        len = wrap(bytes, len, 2); /* samples, profiles, scope_profiles */
    len = wrap(bytes, len, 1);
    (void)snprintf(want, sizeof want,
                   "{\"resourceProfiles\":[{\"scopeProfiles\":[{\"profiles\":[{\"samples\":[{%s}]"
                   "}]}]}]}",
                   fields);
    assert_int_equal(br_json_encode(br_otlp_request(BR_PROFILES), bytes, len, &out), 0);
    assert_string_equal(out.data, want);
    br_str_release(&out);
}

/* protobuf.dev/programming-guides/encoding, "Packed Repeated Fields": both forms, also mixed in
 * one message. */
static void test_encode_lists(void **state)
{
    (void)state;
    expect_sample_json("22039601"
                       "05",
                       "\"values\":[\"150\",\"5\"]");
    expect_sample_json("20960120"
                       "05",
                       "\"values\":[\"150\",\"5\"]");
    expect_sample_json("2001"
                       "12020304"
                       "22020500"
                       "1005",
                       "\"attributeIndices\":[3,4,5],\"values\":[\"1\",\"5\",\"0\"]");
    expect_sample_json("2200", "");
    expect_sample_json("2a080100000000000000"
                       "290200000000000000",
                       "\"timestampsUnixNano\":[\"1\",\"2\"]");
}

static void test_encode_damaged(void **state)
{
    (void)state;
    static const char *const cases[] = {"0a", "0a05", "0a021205", "0a0212", "0b", "00"};
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        uint8_t bytes[16];
        struct br_str out = {0};
        long n = br_hex_decode(cases[i], strlen(cases[i]), bytes, sizeof bytes);
        assert_int_equal(br_json_encode(br_otlp_request(BR_TRACES), bytes, (size_t)n, &out),
                         BR_EINVAL);
        br_str_release(&out);
    }
    /* Packed values end inside a varint and inside a fixed64. */
    static const char *const packed[] = {"0a0a120812061204220280"
                                         "80",
                                         "0a0a1208120612042a020000"};
    for (size_t i = 0; i < 2; i++) {
        uint8_t bytes[32];
        struct br_str out = {0};
        long n = br_hex_decode(packed[i], strlen(packed[i]), bytes, sizeof bytes);
        assert_int_equal(br_json_encode(br_otlp_request(BR_PROFILES), bytes, (size_t)n, &out),
                         BR_EINVAL);
        br_str_release(&out);
    }
}

/* --- Responses ------------------------------------------------------------------------------ */

static void expect_both(struct br_pool *pool, const ProtobufCMessageDescriptor *desc,
                        const char *text, const char *hex)
{
    struct br_buf *got = NULL;
    uint8_t want[256];
    long n = br_hex_decode(hex, strlen(hex), want, sizeof want);
    assert_int_equal(br_json_decode(desc, text, strlen(text), 8, 4096, pool, &got, NULL), 0);
    assert_int_equal(got->len, n);
    assert_memory_equal(got->data, want, (size_t)n);
    br_buf_unref(got);
    expect_json(desc, hex, text);
}

#define RETRY_INFO_URL "type.googleapis.com/google.rpc.RetryInfo"
#define RETRY_INFO_HEX                                                                             \
    "0a28747970652e676f6f676c65617069732e636f6d2f676f6f676c652e7270632e5265747279496e666f"

#define COLLECTOR(name) opentelemetry__proto__collector__##name##__descriptor
#define TRACES_RESPONSE COLLECTOR(trace__v1__export_trace_service_response)
#define PROFILES_RESPONSE COLLECTOR(profiles__v1development__export_profiles_service_response)

/* Duration: protobuf.dev/programming-guides/json. */
static void test_responses(void **state)
{
    expect_both(*state, &TRACES_RESPONSE, "{}", "");
    expect_both(*state, &TRACES_RESPONSE, "{\"partialSuccess\":{}}", "0a00");
    expect_both(*state, &PROFILES_RESPONSE,
                "{\"partialSuccess\":{\"rejectedProfiles\":\"3\",\"errorMessage\":\"no\"}}",
                "0a06080312026e6f");
    const ProtobufCMessageDescriptor *status = &google__rpc__status__descriptor;
    expect_both(*state, status, "{\"code\":3,\"message\":\"a\"}", "0803120161");
    expect_both(*state, status, "{\"details\":[{\"@type\":\"x/y\"}]}", "1a050a03782f79");
    expect_both(*state, status, "{\"details\":[{}]}", "1a00");
    expect_both(*state, status,
                "{\"details\":[{\"@type\":\"" RETRY_INFO_URL "\",\"retryDelay\":\"1.500s\"}]}",
                "1a36" RETRY_INFO_HEX "120a0a0808011080cab5ee01");
    expect_both(*state, status,
                "{\"details\":[{\"@type\":\"" RETRY_INFO_URL "\",\"retryDelay\":\"30s\"}]}",
                "1a30" RETRY_INFO_HEX "12040a02081e");
    expect_both(*state, status,
                "{\"details\":[{\"@type\":\"" RETRY_INFO_URL
                "\",\"retryDelay\":\"-0.000000001s\"}]}",
                "1a39" RETRY_INFO_HEX "120d0a0b10ffffffffffffffffff01");
}

/* The last type of an Any counts, and it may follow the fields that it describes. */
static void test_any_type(void **state)
{
    static const char text[] =
        "{\"details\":[{\"@type\":\"x/y\",\"retryDelay\":\"30s\",\"@type\":\"" RETRY_INFO_URL
        "\"},{\"@type\":\"" RETRY_INFO_URL "\",\"a\":[{\"b\":{}}]}]}";
    struct br_str out = {0};
    struct br_buf *got = NULL;
    const ProtobufCMessageDescriptor *desc = &google__rpc__status__descriptor;
    assert_int_equal(br_json_decode(desc, text, strlen(text), 8, 4096, *state, &got, NULL), 0);
    assert_int_equal(br_json_encode(desc, got->data, got->len, &out), 0);
    assert_string_equal(out.data,
                        "{\"details\":[{\"@type\":\"" RETRY_INFO_URL
                        "\",\"retryDelay\":\"30s\"},{\"@type\":\"" RETRY_INFO_URL "\"}]}");
    br_buf_unref(got);
    br_str_release(&out);
}

static void test_duration_errors(void **state)
{
    static const char *const texts[] = {"\"1\"",
                                        "\"s\"",
                                        "\"1.s\"",
                                        "\".5s\"",
                                        "\"1.1234567890s\"",
                                        "\"1 s\"",
                                        "1",
                                        "\"99999999999999999999s\"",
                                        "\"-s\""};
    for (size_t i = 0; i < BR_COUNT(texts); i++) {
        char text[160];
        struct br_buf *got = NULL;
        (void)snprintf(text, sizeof text,
                       "{\"details\":[{\"@type\":\"" RETRY_INFO_URL "\",\"retryDelay\":%s}]}",
                       texts[i]);
        assert_int_equal(br_json_decode(&google__rpc__status__descriptor, text, strlen(text), 8,
                                        4096, *state, &got, NULL),
                         BR_EINVAL);
    }
}

/* --- Numbers -------------------------------------------------------------------------------- */

static void test_number_print(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1e22, "1e+22"},
        {-1.5, "-1.5"},
        {100, "100"},
        {5e-324, "5e-324"},
        {1e-7, "1e-7"},
        {1e300 * 1e300, "\"Infinity\""},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_str out = {0};
        br_number_print(&out, cases[i].value);
        assert_string_equal(out.data, cases[i].text);
        br_str_release(&out);
    }
}

static void test_number_integer(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok, negative;
        uint64_t magnitude;
    } cases[] = {
        {"0", true, false, 0},
        {"-0.0e5", true, true, 0},
        {"18446744073709551615", true, false, UINT64_MAX},
        {"18446744073709551616", false, false, 0},
        {"1e19", true, false, 10000000000000000000u},
        {"1e20", false, false, 0},
        {"0e999999999999", true, false, 0},
        {"1e-999999999999", false, false, 0},
        {"1e99999999999999999999", false, false, 0},
        {"0.00012e5", true, false, 12},
        {"0.00012e4", false, false, 0},
        {"1200e-2", true, false, 12},
        {"-12.50e1", true, true, 125},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        bool negative = false;
        uint64_t v = 0;
        size_t len = strlen(cases[i].text);
        assert_int_equal(br_number_scan(cases[i].text, len), len);
        assert_int_equal(br_number_integer(cases[i].text, len, &negative, &v), cases[i].ok);
        assert_int_equal(v, cases[i].magnitude);
        assert_int_equal(negative, cases[i].negative);
    }
}

/* --- Time and memory (other shapes: test_json_bounds.c) --------------------------------------- */

/* Encodes a name of 4 MiB of quotes. This takes minutes if escaping scans the rest of the text
 * after each quote. */
static void test_escaping_is_linear(void **state)
{
    (void)state;
    size_t len = 4u << 20;
    uint8_t *bytes = malloc(len + 64);
    assert_non_null(bytes);
    uint8_t *p = br_put_varint(bytes, BR_TAG(1, BR_WIRE_LEN));
    p = br_put_varint(p, br_len_size(3, len));
    p = br_put_varint(p, BR_TAG(3, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    memset(p, '"', len);
    struct br_str out = {0};
    assert_int_equal(
        br_json_encode(br_otlp_request(BR_TRACES), bytes, (size_t)(p + len - bytes), &out), 0);
    assert_int_equal(out.len, strlen("{\"resourceSpans\":[{\"schemaUrl\":\"\"}]}") + 2 * len);
    br_str_release(&out);
    free(bytes);
}

/* Converts the text both ways, with the n-th allocation failing. Returns the error of the failed
 * step. */
static int both_ways(const char *text)
{
    struct br_pool *pool = br_pool_new(0);
    struct br_buf *buf = NULL;
    struct br_str out = {0};
    struct br_err err = {0};
    if (!pool)
        return BR_ENOMEM;
    const ProtobufCMessageDescriptor *desc = br_otlp_request(BR_TRACES);
    int rc = br_json_decode(desc, text, strlen(text), 32, 1u << 20, pool, &buf, &err);
    assert_int_equal(err.code, rc);
    if (rc == 0) {
        rc = br_json_encode(desc, buf->data, buf->len, &out);
        if (rc == 0)
            assert_string_equal(out.data, text);
    }
    /* The encoder must allocate memory to merge a singular message in two pieces. */
    static const uint8_t pieces[] = {0x0a, 8, 0x0a, 2, 0x10, 1, 0x0a, 2, 0x10, 2};
    br_str_clear(&out);
    if (rc == 0)
        rc = br_json_encode(desc, pieces, sizeof pieces, &out);
    if (rc == 0)
        assert_string_equal(out.data,
                            "{\"resourceSpans\":[{\"resource\":{\"droppedAttributesCount\":2}}]}");
    br_str_release(&out);
    br_buf_unref(buf);
    br_pool_free(pool);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    const char *text =
        "{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{\"name\":\"a\",\"kind\":-1},"
        "{\"kind\":-1},{\"kind\":-1},{\"kind\":-1},{\"kind\":-1},{\"kind\":-1},{\"kind\":-1},"
        "{\"attributes\":[{\"key\":\"k\",\"value\":{\"doubleValue\":-1.5}},{\"value\":{}},"
        "{\"value\":{\"bytesValue\":\"AQL/\"}}]}]}],\"schemaUrl\":\"u\"}]}";
    unsigned long n = 0;
    for (int rc = BR_ENOMEM; rc != 0; n++) {
        fault_nth(n + 1);
        rc = both_ways(text);
        (void)fault_nth_stop();
        assert_true(rc == 0 || rc == BR_ENOMEM);
        assert_true(n < 1000);
    }
    assert_true(n > 8);
}

static void on_seed(const uint8_t *data, size_t len)
{
    assert_int_equal(LLVMFuzzerTestOneInput(data, len), 0);
}

static void test_corpus(void **state)
{
    (void)state;
    assert_true(corpus_replay("json", on_seed) >= 20);
}

static int setup(void **state)
{
    *state = br_pool_new(1u << 20);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    br_pool_free(*state); /* asserts that all buffers were released */
    return 0;
}

SUITE(json)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_span),     cmocka_unit_test(test_decode_errors),
        cmocka_unit_test(test_decode_not_json), cmocka_unit_test(test_decode_limits),
        cmocka_unit_test(test_depth_both_ways), cmocka_unit_test(test_encode_too_deep),
        cmocka_unit_test(test_encode_span),     cmocka_unit_test(test_encode_lists),
        cmocka_unit_test(test_encode_damaged),  cmocka_unit_test(test_responses),
        cmocka_unit_test(test_duration_errors), cmocka_unit_test(test_number_print),
        cmocka_unit_test(test_number_integer),  cmocka_unit_test(test_escaping_is_linear),
        cmocka_unit_test(test_any_type),        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_corpus),
    };
    return RUN(tests, setup, teardown);
}
