/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling thresholds: the examples of the Collector's pkg/sampling, and arithmetic. */
#include <inttypes.h>
#include <math.h>

#include "base/str.h"
#include "otlp/trace_id.h"
#include "tests/support/fake_sink.h"
#include "tests/support/test.h"

/* Asserts the t-value of a probability: hexadecimal digits without trailing zeros. */
static void check_tvalue(double probability, unsigned precision, const char *expected)
{
    char text[20];
    uint64_t threshold = br_threshold(probability, precision);
    (void)snprintf(text, sizeof text, "%014" PRIx64, threshold);
    size_t n = 14;
    while (n > 1 && text[n - 1] == '0')
        n--;
    text[n] = '\0';
    assert_string_equal(text, expected);
}

static double below(double x, int n)
{
    while (n-- > 0)
        x = nextafter(x, 0);
    return x;
}

static void full_precision(void **state)
{
    (void)state;
    check_tvalue(1, 14, "0");
    check_tvalue(0.5, 14, "8");
    check_tvalue(0x1p-56, 14, "ffffffffffffff");
    check_tvalue(1 / 3., 14, "aaaaaaaaaaaaac");
    check_tvalue(2 / 3., 14, "55555555555558");
    check_tvalue(1 - 0x54p-8, 14, "54");
    check_tvalue(1 - 0x1p-8, 14, "01");
    check_tvalue(0x100p-56, 14, "ffffffffffff");
    check_tvalue(1 - 0x1p-52, 14, "0000000000001");
    static const struct {
        double base;
        const char *expected[4];
    } steps[] = {
        {15. / 16, {"1", "10000000000008", "1000000000001", "10000000000018"}},
        {8. / 16, {"8", "80000000000004", "80000000000008", "8000000000000c"}},
        {4. / 16, {"c", "c0000000000002", "c0000000000004", "c0000000000006"}},
        {2. / 16, {"e", "e0000000000001", "e0000000000002", "e0000000000003"}},
        {1. / 16, {"f", "f", "f0000000000001", "f0000000000001"}},
    };
    for (size_t i = 0; i < BR_COUNT(steps); i++)
        for (int n = 0; n < 4; n++)
            check_tvalue(below(steps[i].base, n), 14, steps[i].expected[n]);
}

static void precision(void **state)
{
    (void)state;
    check_tvalue(1 / 3., 3, "aab");
    check_tvalue(2 / 3., 3, "555");
    check_tvalue(1, 3, "0");
    check_tvalue(0x1p-56, 3, "ffffffffffffff");
    check_tvalue(0x2p-56, 3, "fffffffffffffe");
    check_tvalue(0x3p-56, 3, "fffffffffffffd");
    check_tvalue(0x4p-56, 3, "fffffffffffffc");
    check_tvalue(0x8p-56, 3, "fffffffffffff8");
    check_tvalue(0x10p-56, 3, "fffffffffffff");
    /* Without leading zeros, the rounded values are as long as the precision. */
    static const struct {
        double probability;
        const char *rounded[10];
    } rounding[] = {
        {1 - 0x456789ap-28, {"456789a", "45678a", "45679", "4568", "456", "45", "4"}},
        {1 - 0x456789ap-40,
         {"000456789a", "00045678a", "00045679", "0004568", "000456", "00045", "0004"}},
        {1 - 0x789abcdefp-40,
         {"0789abcdef", "0789abcdf", "0789abce", "0789abd", "0789ac", "0789b", "078a", "079",
          "08"}},
        {1 - 0x12345678p-32, {"12345678", "1234568", "123456", "12345", "1234", "123", "12", "1"}},
        {1 - 0x80801p-28, {"0080801", "00808", "008"}},
    };
    for (size_t i = 0; i < BR_COUNT(rounding); i++)
        for (size_t n = 0; n < 10 && rounding[i].rounded[n]; n++) {
            const char *text = rounding[i].rounded[n];
            check_tvalue(rounding[i].probability, (unsigned)strlen(text + strspn(text, "0")), text);
        }
}

static void out_of_range(void **state)
{
    (void)state;
    assert_true(br_threshold(0x1p-57, 14) == BR_THRESHOLD_NEVER);
    assert_true(br_threshold(0, 4) == BR_THRESHOLD_NEVER);
    assert_true(br_threshold(-1, 4) == BR_THRESHOLD_NEVER);
    assert_true(br_threshold((double)NAN, 4) == BR_THRESHOLD_NEVER);
    assert_true(br_threshold(1.1, 4) == BR_THRESHOLD_ALWAYS);
    assert_true(br_percentage_threshold(200, 4) == BR_THRESHOLD_ALWAYS);
    assert_true(br_percentage_threshold(0, 4) == BR_THRESHOLD_NEVER);
    assert_true(br_percentage_threshold(-1, 4) == BR_THRESHOLD_NEVER);
    assert_true(br_percentage_threshold((double)NAN, 4) == BR_THRESHOLD_NEVER);
    assert_true(br_percentage_threshold(1e-30, 4) == BR_THRESHOLD_NEVER - 1);
}

static void percentages(void **state)
{
    (void)state;
    assert_true(br_percentage_threshold(1, 4) == UINT64_C(0xfd70a) << 36);
    assert_true(br_percentage_threshold(1, 3) == UINT64_C(0xfd71) << 40);
    assert_true(br_percentage_threshold(40, 6) == UINT64_C(0x99999a) << 32);
    assert_true(br_percentage_threshold(25, 4) == UINT64_C(0xc) << 52);
}

static void check_id(const char *hex, double percentage, bool sampled)
{
    uint8_t id[16];
    assert_int_equal(br_hex_decode(hex, 32, id, sizeof id), 16);
    assert_int_equal(br_trace_sampled(id, percentage), sampled);
}

static void ids(void **state)
{
    (void)state;
    check_id("abababababababababd29d6a7215ced0", 25, true);
    check_id("eeeeeeeeeeeeeeeeee00000000000000", 50, false);
    check_id("eeeeeeeeeeeeeeeeee7fffffffffffff", 50, false);
    check_id("eeeeeeeeeeeeeeeeee80000000000000", 50, true);
    check_id("eeeeeeeeeeeeeeeeeeffffffffffffff", 50, true);
    check_id("eeeeeeeeeeeeeeeeee00000000000000", 100, true);
    check_id("eeeeeeeeeeeeeeeeeeffffffffffffff", 0, false);
    check_id("eeeeeeeeeeeeeeeeeeffffffffffffff", 1e-20, true);
    uint8_t id[16] = {0};
    assert_false(br_trace_id_valid(id));
    id[15] = 1;
    assert_true(br_trace_id_valid(id));
    assert_true(br_trace_randomness(id) == 1);
}

/* Samples 100,000 fixed ids. The number kept is within five standard deviations of a binomial
 * distribution. An id kept at a lower percentage is kept at every higher one. */
static void statistics(void **state)
{
    (void)state;
    static const double percentage[] = {0.1, 1, 10, 33.3, 50, 90, 99.9};
    enum { N = 100000, P = BR_COUNT(percentage) };
    uint64_t seed = 20260101;
    unsigned n[P] = {0};
    for (int i = 0; i < N; i++) {
        uint64_t halves[2] = {fake_random(&seed), fake_random(&seed)};
        uint8_t id[16];
        bool before = false;
        memcpy(id, halves, sizeof id);
        for (size_t p = 0; p < P; p++) {
            bool sampled = br_trace_sampled(id, percentage[p]);
            assert_true(sampled || !before);
            n[p] += sampled;
            before = sampled;
        }
    }
    for (size_t p = 0; p < P; p++) {
        double expected = N * percentage[p] / 100;
        double deviation = sqrt(expected * (1 - percentage[p] / 100));
        assert_true(fabs(n[p] - expected) < 5 * deviation);
    }
}

static void labels(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex; /* NULL: absent */
    } cases[] = {
        {"0102030405060708090a0b0c0d0e0f10", "0102030405060708090a0b0c0d0e0f10"},
        {" 0102030405060708090A0B0C0D0E0F10\n", "0102030405060708090a0b0c0d0e0f10"},
        {"ab", "000000000000000000000000000000ab"},
        {"000102030405060708090a0b0c0d0e0f10", "0102030405060708090a0b0c0d0e0f10"},
        {"110102030405060708090a0b0c0d0e0f10", NULL},
        {"0102030405060708090a0b0c0d0e0f1g", NULL},
        {"00000000000000000000000000000000", NULL},
        {"  ", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        uint8_t id[16], expected[16];
        bool ok = br_trace_id_parse(cases[i].text, strlen(cases[i].text), id);
        assert_int_equal(ok, cases[i].hex != NULL);
        if (!ok)
            continue;
        assert_int_equal(br_hex_decode(cases[i].hex, 32, expected, sizeof expected), 16);
        assert_memory_equal(id, expected, sizeof id);
    }
}

SUITE(trace_id)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_precision),
        cmocka_unit_test(precision),
        cmocka_unit_test(out_of_range),
        cmocka_unit_test(percentages),
        cmocka_unit_test(ids),
        cmocka_unit_test(statistics),
        cmocka_unit_test(labels),
    };
    return RUN(tests, NULL, NULL);
}
