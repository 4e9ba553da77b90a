/* SPDX-License-Identifier: Apache-2.0 */
/* Tests profiles whose times have another unit or are missing. The fields of the requests are in
 * every order. */
#include "base/err.h"
#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"
#include "otlp/edit/edit.h"
#include "otlp/json/json.h"
#include "otlp/walk/walk.h"
#include "tests/support/fake_host.h"
#include "tests/support/gen.h"
#include "tests/support/otlp_text.h"
#include "tests/support/reorder.h"
#include "tests/support/test.h"

typedef Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
    Profiles;

#define SECOND UINT64_C(1000000000)
#define NOW (UINT64_C(1796000000) * SECOND) /* 2026-11-30 */

static enum reorder field_order;

static const char *enter_order(unsigned order)
{
    field_order = (enum reorder)order;
    return reorder_name(field_order);
}

/* A profile with this time (0: no time), and one sample with each of these timestamps. */
struct given {
    uint64_t time_ns;
    uint64_t stamps[3];
    unsigned n_stamps;
};

static struct br_buf *request(struct br_pool *pool, const struct given *given)
{
    char text[1024], stamps[256] = "", time[64] = "";
    for (unsigned i = 0; i < given->n_stamps; i++)
        (void)snprintf(stamps + strlen(stamps), sizeof stamps - strlen(stamps), "%s'%llu'",
                       i ? "," : "", (unsigned long long)given->stamps[i]);
    if (given->time_ns)
        (void)snprintf(time, sizeof time, "'timeUnixNano': '%llu',",
                       (unsigned long long)given->time_ns);
    (void)snprintf(text, sizeof text,
                   "{'resourceProfiles': [{'scopeProfiles': [{'profiles': [{%s"
                   "'samples': [{'values': ['1'%s], 'timestampsUnixNano': [%s]}],"
                   "'durationNano': '7'}]}]}]}",
                   time, given->n_stamps == 2 ? ", '2'" : "", stamps);
    return otlp_text(pool, BR_PROFILES, text);
}

static struct br_item *walk(struct fake_host *h, const struct given *given)
{
    struct br_buf *buf = request(h->host.pool, given);
    struct wire w = {0};
    uint64_t random = 7;
    wire_raw(&w, buf->data, buf->len);
    br_buf_unref(buf);
    reorder_request(&w, BR_PROFILES, field_order, &random);
    buf = br_buf_new(h->host.pool, w.len);
    assert_non_null(buf);
    memcpy(buf->data, w.data, w.len);
    buf->len = (uint32_t)w.len;
    wire_free(&w);
    struct br_item *item = br_item_new(&h->host, BR_PROFILES);
    const struct br_walk_options options = {0};
    uint32_t repaired;
    struct br_err err;
    assert_non_null(item);
    assert_int_equal(br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err), 0);
    br_buf_unref(buf);
    return item;
}

static bool is_same(const struct given *given, const struct given *wanted)
{
    return given->time_ns == wanted->time_ns && given->n_stamps == wanted->n_stamps &&
           memcmp(given->stamps, wanted->stamps, sizeof given->stamps) == 0;
}

static void check(const struct given *given, const struct given *wanted)
{
    struct fake_host *h = fake_host_new();
    struct br_item *item = walk(h, given);
    uint32_t n_corrected;
    bool odd = !is_same(given, wanted);
    assert_int_equal(item->odd_times, odd);
    assert_int_equal(br_item_correct_times(item, NOW, &n_corrected), 0);
    assert_int_equal(n_corrected, odd);
    struct wire w = gen_written(item);
    Profiles *read = gen_decode(br_otlp_request(BR_PROFILES), w.data, w.len);
    Opentelemetry__Proto__Profiles__V1development__Profile *profile =
        read->resource_profiles[0]->scope_profiles[0]->profiles[0];
    assert_int_equal(profile->time_unix_nano, wanted->time_ns);
    assert_int_equal(profile->duration_nano, 7);
    assert_int_equal(profile->samples[0]->values[0], 1);
    assert_int_equal(profile->samples[0]->n_timestamps_unix_nano, wanted->n_stamps);
    for (unsigned i = 0; i < wanted->n_stamps; i++)
        assert_int_equal(profile->samples[0]->timestamps_unix_nano[i], wanted->stamps[i]);
    protobuf_c_message_free_unpacked(&read->base, NULL);
    wire_free(&w);
    br_item_free(item);
    fake_host_free(h);
}

#define TIME (NOW - 60 * SECOND)

static void other_units_become_nanoseconds(void **state)
{
    (void)state;
    const struct given wanted = {TIME, {TIME, TIME + SECOND}, 2};
    for (uint64_t unit = 1; unit <= SECOND; unit *= 1000)
        check(&(struct given){TIME / unit, {TIME / unit, (TIME + SECOND) / unit}, 2}, &wanted);
    check(&(struct given){TIME, {TIME / 1000, TIME / 1000 + 1000000}, 2}, &wanted);
    check(&(struct given){TIME / 1000, {TIME, TIME + SECOND}, 2}, &wanted);
}

static void a_missing_time_is_that_of_the_earliest_sample(void **state)
{
    (void)state;
    check(&(struct given){0, {TIME + SECOND, TIME}, 2},
          &(struct given){TIME, {TIME + SECOND, TIME}, 2});
    check(&(struct given){0, {TIME / 1000}, 1}, &(struct given){TIME, {TIME}, 1});
    check(&(struct given){.time_ns = 0}, &(struct given){.time_ns = NOW});
}

/* If the clock of the sender is unknown, the time of arrival is the only known time. */
static void other_times_become_the_time_of_arrival(void **state)
{
    (void)state;
    check(&(struct given){.time_ns = 5 * SECOND}, &(struct given){.time_ns = NOW});
    check(&(struct given){1, {2, TIME}, 2}, &(struct given){NOW, {NOW, TIME}, 2});
    /* a year ago in microseconds is not a current time */
    check(&(struct given){.time_ns = (NOW - 366 * 86400 * SECOND) / 1000},
          &(struct given){.time_ns = NOW});
}

static void valid_times_are_kept(void **state)
{
    (void)state;
    const struct given given[] = {{TIME, {TIME, TIME}, 2},
                                  {.time_ns = BR_TIME_MIN_NS},
                                  {.time_ns = UINT64_C(4102444800) * SECOND}};
    for (size_t i = 0; i < BR_COUNT(given); i++)
        check(&given[i], &given[i]);
}

SUITE(times)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_units_become_nanoseconds),
        cmocka_unit_test(a_missing_time_is_that_of_the_earliest_sample),
        cmocka_unit_test(other_times_become_the_time_of_arrival),
        cmocka_unit_test(valid_times_are_kept),
    };
    return RUN_VARIANTS(tests, enter_order);
}
