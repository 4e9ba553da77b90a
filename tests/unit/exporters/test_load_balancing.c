/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "exporters/load_balancing/balancer.h"
#include "tests/support/test.h"

/* The expected points and owners are those of the Collector's own test of its ring
 * (opentelemetry-collector-contrib, exporter/loadbalancingexporter, consistent_hashing_test.go). */

static const char *const endpoints[] = {"endpoint-1", "endpoint-2"};

static void points_are(uint32_t n_endpoints, const struct load_balancing_point *expected,
                       uint32_t count)
{
    struct load_balancing_ring ring;
    assert_int_equal(load_balancing_ring_make(&ring, endpoints, n_endpoints, 5), 0);
    assert_int_equal(ring.n_points, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(ring.points[i].position, expected[i].position);
        assert_int_equal(ring.points[i].backend, expected[i].backend);
    }
    load_balancing_ring_release(&ring);
}

static void test_ring_points(void **state)
{
    static const struct load_balancing_point one[] = {
        {1401, 0}, {4175, 0}, {14133, 0}, {17836, 0}, {21667, 0}};
    static const struct load_balancing_point two[] = {
        {1401, 0},  {4175, 0},  {10240, 1}, {14133, 0}, {15002, 1},
        {17836, 0}, {21263, 1}, {21667, 0}, {26806, 1}, {27020, 1}};
    (void)state;
    points_are(1, one, BR_COUNT(one));
    points_are(2, two, BR_COUNT(two));
}

static void test_ring_owners(void **state)
{
    static const struct {
        const char *key;
        size_t len;
        uint32_t owner;
    } rows[] = {{"\1\2\0\0", 4, 0},
                {"\200\200\0\0", 4, 1},
                {"ad-service-7", 12, 0},
                {"get-recommendations-1", 21, 1}};
    struct load_balancing_ring ring;
    (void)state;
    assert_int_equal(load_balancing_ring_make(&ring, endpoints, 2, LOAD_BALANCING_WEIGHT), 0);
    assert_int_equal(ring.n_points, 200);
    for (size_t i = 0; i < BR_COUNT(rows); i++)
        assert_int_equal(
            load_balancing_ring_owner(&ring, (const uint8_t *)rows[i].key, rows[i].len),
            rows[i].owner);
    load_balancing_ring_release(&ring);
}

/* The owners of random trace ids by a Go program with the Collector's algorithm. */
static void test_ring_trace_ids(void **state)
{
    static const char *const backends[] = {"10.0.0.0:4317", "[2001:db8::2]:55690", "gateway-1"};
    static const struct {
        const char *id;
        uint32_t owner;
    } rows[] = {
        {"14e7b90dd6ed73802f72898270b71639", 2}, {"103ee415d692d34bcf8b182f03992684", 0},
        {"277ad1b47bf165cd27ca7a4a16bc87e5", 1}, {"4a986de2696f0e13d53df8e10d7336bc", 1},
        {"dbced9de78149710e77f8561a9274d36", 0}, {"2fe479a8679748211c1b508441b66d0c", 0},
        {"0a4776bcf5f9490d2ca3bb57c8f7ac3a", 0}, {"e5b5c03335bf0f69f38a0381dd2d07fa", 2},
    };
    struct load_balancing_ring ring;
    uint8_t id[16];
    (void)state;
    assert_int_equal(load_balancing_ring_make(&ring, backends, 3, LOAD_BALANCING_WEIGHT), 0);
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        assert_int_equal(br_hex_decode(rows[i].id, 32, id, sizeof id), sizeof id);
        assert_int_equal(load_balancing_ring_owner(&ring, id, sizeof id), rows[i].owner);
    }
    load_balancing_ring_release(&ring);
}

/* The number of keys that each backend owns is in proportion to the positions before its points. A
 * position after the last point belongs to the first one. */
static void test_ring_boundaries(void **state)
{
    static const struct load_balancing_point points[] = {{100, 0}, {200, 1}, {35000, 2}};
    struct load_balancing_ring ring = {(struct load_balancing_point *)points, 3};
    struct load_balancing_ring all = {0};
    struct load_balancing_point one = {0, 7};
    unsigned seen[3] = {0};
    (void)state;
    all.points = &one;
    all.n_points = 1;
    for (uint32_t n = 0; n < 100000; n++) {
        seen[load_balancing_ring_owner(&ring, (const uint8_t *)&n, sizeof n)]++;
        assert_int_equal(load_balancing_ring_owner(&all, (const uint8_t *)&n, sizeof n), 7);
    }
    /* positions 0 to 100 and 35001 to 35999: 1,100 of 36,000; 101 to 200: 100 of 36,000 */
    assert_in_range(seen[0], 2900, 3250);
    assert_in_range(seen[1], 200, 360);
    assert_int_equal(seen[0] + seen[1] + seen[2], 100000);
}

static void test_default_port(void **state)
{
    static const char *const rows[][2] = {{"gateway", "gateway:4317"},
                                          {"gateway:5000", "gateway:5000"},
                                          {"10.0.0.1", "10.0.0.1:4317"},
                                          {"[2001:db8::1]", "[2001:db8::1]:4317"},
                                          {"[2001:db8::1]:55680", "[2001:db8::1]:55680"}};
    char endpoint[LOAD_BALANCING_ENDPOINT_SIZE];
    (void)state;
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        load_balancing_add_port(rows[i][0], endpoint);
        assert_string_equal(endpoint, rows[i][1]);
    }
}

SUITE(load_balancing)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_points),    cmocka_unit_test(test_ring_owners),
        cmocka_unit_test(test_ring_trace_ids), cmocka_unit_test(test_ring_boundaries),
        cmocka_unit_test(test_default_port),
    };
    return RUN(tests, NULL, NULL);
}
