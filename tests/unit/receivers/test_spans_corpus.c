/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the conversions of Zipkin's and Jaeger's spans. Runs the fuzz targets of these conversions
 * on the seeds and on changed seeds, without libFuzzer.
 */
#include "tests/support/corpus.h"
#include "tests/support/fake_sink.h"
#include "tests/support/spans_fuzz.h"
#include "tests/support/test.h"

#define ROUNDS 300

static void (*convert)(const uint8_t *data, size_t len);

/* Converts a seed, prefixes of it, and copies with changed bytes. */
static void one_seed(const uint8_t *data, size_t len)
{
    uint64_t seed = len;
    for (size_t cut = 0; cut <= len; cut += cut < 64 ? 1 : 17)
        convert(data, cut);
    convert(data, len);
    uint8_t *copy = malloc(len);
    assert_non_null(copy);
    for (int round = 0; round < ROUNDS && len; round++) {
        memcpy(copy, data, len);
        for (uint64_t k = fake_random(&seed) % 4 + 1; k > 0; k--)
            copy[fake_random(&seed) % len] = (uint8_t)fake_random(&seed);
        convert(copy, len);
    }
    free(copy);
}

static void on_zipkin_json(const uint8_t *data, size_t len)
{
    spans_fuzz_zipkin(len && data[0] & 2 ? zipkin_read_v1_json : zipkin_read_v2_json, data, len);
}

static void on_zipkin_proto(const uint8_t *data, size_t len)
{
    spans_fuzz_zipkin(len && data[0] & 2 ? zipkin_read_v1_thrift : zipkin_read_v2_proto, data, len);
}

static void on_jaeger_proto(const uint8_t *data, size_t len)
{
    spans_fuzz_jaeger(SPANS_FUZZ_PROTO, data, len);
}

static void on_thrift_binary(const uint8_t *data, size_t len)
{
    spans_fuzz_jaeger(SPANS_FUZZ_BINARY, data, len);
}

static void on_thrift_compact(const uint8_t *data, size_t len)
{
    spans_fuzz_jaeger(SPANS_FUZZ_COMPACT, data, len);
}

static void test_corpora(void **state)
{
    static const struct {
        const char *name;
        void (*convert)(const uint8_t *data, size_t len);
    } corpora[] = {{"zipkin_json", on_zipkin_json},
                   {"zipkin_proto", on_zipkin_proto},
                   {"jaeger_proto", on_jaeger_proto},
                   {"thrift_binary", on_thrift_binary},
                   {"thrift_compact", on_thrift_compact}};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(corpora); i++) {
        convert = corpora[i].convert;
        assert_true(corpus_replay(corpora[i].name, one_seed) >= 1);
    }
}

SUITE(spans_corpus)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_corpora)};
    return RUN(tests, NULL, NULL);
}
