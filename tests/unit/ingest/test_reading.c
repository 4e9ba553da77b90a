/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the reading of bodies (ingest/reading.h), in the worker or in a thread of the pool. Uses
 * uploads of folded stacks. Bodies of up to 256 KiB are read in the worker. */
#include <zstd.h>

#include "base/mem.h"
#include "base/str.h"
#include "ingest/reading.h"
#include "tests/support/fault.h"
#include "tests/support/receiver_rig.h"
#include "tests/support/test.h"
#include "wire/compression.h"

extern const struct br_component br_pprof_receiver;

#define UPLOAD "/v1/profiles/upload?name=shop&format=folded"
#define LARGE (300u << 10)

static int setup(void **state)
{
    struct receiver_rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    receiver_rig_start(r, &br_pprof_receiver, "http: {max_request_body_size: 1048576}");
    r->h->threads = true;
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    return receiver_rig_teardown(state);
}

/* Returns a text of `len` bytes that repeats one stack, so its profile has one sample. */
static struct br_str stacks(size_t len)
{
    struct br_str text = {0};
    while (text.len < len)
        br_str_puts(&text, "main;work 1\n");
    assert_false(text.failed);
    return text;
}

static struct fake_request *post(struct receiver_rig *r, const void *body, size_t len,
                                 const char *encoding)
{
    struct fake_request *q = fake_request_new(r->h, "pprof http", UPLOAD);
    assert_non_null(q);
    if (encoding)
        fake_request_header(q, "content-encoding", encoding);
    fake_request_send(q, body, len);
    fake_host_iterate(r->h);
    return q;
}

static struct fake_request *post_stacks(struct receiver_rig *r, size_t len)
{
    struct br_str text = stacks(len);
    struct fake_request *q = post(r, text.data, text.len, NULL);
    br_str_release(&text);
    return q;
}

static unsigned status_of(const struct fake_request *q)
{
    const struct fake_reply *reply = fake_request_reply(q);
    return reply->came ? reply->status : 0;
}

static void work(struct receiver_rig *r)
{
    assert_int_equal(fake_host_work(r->h), 1);
    fake_host_iterate(r->h);
}

/* Simulates a thread that begins its work at once. */
static bool begin_at_once(struct br_host *h, struct br_work *w)
{
    const struct br_reading_task *job = br_container_of(w, struct br_reading_task, task.work);
    assert_true(job->reading.body->len >= LARGE);
    assert_int_equal(job->reading.body->refs, 1);
    struct fake_host *host = (struct fake_host *)(void *)h;
    host->works[host->n_works++] = w;
    return true;
}

/* Reference counts are not atomic, so a thread must own the body from the beginning. */
static void a_thread_owns_the_body(void **state)
{
    struct receiver_rig *r = *state;
    const struct br_host_ops *ops = r->h->host.ops;
    struct br_host_ops others = *ops;
    others.work = begin_at_once;
    r->h->host.ops = &others;
    struct fake_request *large = post_stacks(r, LARGE);
    r->h->host.ops = ops;
    work(r);
    assert_int_equal(status_of(large), 200);
    fake_request_free(large);
}

static int free_body(struct br_reading *reading)
{
    assert_int_equal(reading->body->len, 1000);
    br_reading_free_bytes(reading);
    assert_null(reading->body);
    assert_int_equal(br_pool_live(reading->host->pool), 0);
    assert_true(reading->scope.used <= -1000);
    return 0;
}

/* Bytes that are no longer needed are freed during the reading, so that later steps can use their
 * memory. */
static void bytes_are_freed_before_the_reading_ends(void **state)
{
    (void)state;
    struct br_host host = {.pool = br_pool_new(0)};
    struct br_reading reading = {.host = &host, .owns_body = true};
    br_list_init(&reading.pieces);
    reading.body = br_buf_new(host.pool, 1000);
    assert_non_null(reading.body);
    reading.body->len = 1000;
    assert_int_equal(br_reading_run(&reading, free_body), 0);
    br_pool_free(host.pool);
}

static void small_requests_overtake_a_large_body(void **state)
{
    struct receiver_rig *r = *state;
    struct fake_request *large = post_stacks(r, LARGE);
    assert_int_equal(status_of(large), 0);
    struct fake_request *small = post_stacks(r, 100);
    assert_int_equal(status_of(small), 200);
    assert_int_equal(r->n, 1);
    work(r);
    assert_int_equal(status_of(large), 200);
    assert_int_equal(r->n, 2);
    receiver_rig_expect_in(r, "service.name=shop");
    fake_request_free(large);
    fake_request_free(small);
}

/* The size of a compressed body is only known while it is decompressed. */
static void body_with_large_uncompressed_size_is_read_in_a_thread(void **state)
{
    struct receiver_rig *r = *state;
    struct br_pool *pool = br_pool_new(0);
    struct br_codec *codec = br_codec_new();
    static const size_t sizes[] = {200u << 10, LARGE};
    for (int i = 0; i < 2; i++) {
        struct br_str text = stacks(sizes[i]);
        struct br_rope rope = {0};
        struct br_buf *packed = NULL;
        assert_int_equal(br_rope_add(&rope, NULL, text.data, text.len), 0);
        assert_int_equal(br_compress(codec, BR_ENCODING_GZIP, 0, &rope, 0, pool, &packed), 0);
        struct fake_request *q = post(r, packed->data, packed->len, "gzip");
        if (i == 1) {
            assert_int_equal(status_of(q), 0);
            work(r);
        }
        assert_int_equal(status_of(q), 200);
        fake_request_free(q);
        br_buf_unref(packed);
        br_rope_release(&rope);
        br_str_release(&text);
    }
    assert_int_equal(r->n, 2);
    br_codec_free(codec);
    br_pool_free(pool);
}

/* Compresses a text as stream encoders do, for example Go's by default: without the content
 * size, and with a window of 8 MiB. Returns the number of bytes in `out`. */
static size_t zstd_stream(const struct br_str *text, void *out, size_t size)
{
    ZSTD_CCtx *z = ZSTD_createCCtx();
    ZSTD_inBuffer in = {text->data, text->len, 0};
    ZSTD_outBuffer made = {out, size, 0};
    assert_non_null(z);
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, 23)));
    assert_int_equal(ZSTD_compressStream2(z, &made, &in, ZSTD_e_flush), 0);
    assert_int_equal(ZSTD_compressStream2(z, &made, &in, ZSTD_e_end), 0);
    ZSTD_freeCCtx(z);
    return made.pos;
}

static void decoder_window_is_not_counted_as_body_size(void **state)
{
    struct receiver_rig *r = *state;
    static const size_t sizes[] = {1000, 200u << 10, LARGE, 1000};
    static uint8_t packed[64u << 10];
    for (size_t i = 0; i < BR_COUNT(sizes); i++) {
        struct br_str text = stacks(sizes[i]);
        struct fake_request *q = post(r, packed, zstd_stream(&text, packed, sizeof packed), "zstd");
        (void)fake_host_work(r->h);
        fake_host_iterate(r->h);
        assert_int_equal(status_of(q), 200);
        fake_request_free(q);
        br_str_release(&text);
    }
    assert_int_equal(r->n, BR_COUNT(sizes));
}

static void invalid_body_is_rejected_from_a_thread(void **state)
{
    struct receiver_rig *r = *state;
    struct br_str text = stacks(LARGE);
    memcpy(text.data, "main;work x", 11);
    struct fake_request *q = post(r, text.data, text.len, NULL);
    work(r);
    assert_int_equal(status_of(q), 400);
    assert_int_equal(r->n, 0);
    assert_true(fake_host_metric(r->h, "otelcol_receiver_failed_profile_samples",
                                 "receiver=\"pprof\",transport=\"http\"") == 1);
    fake_request_free(q);
    br_str_release(&text);
}

/* The client has disconnected and cannot be answered, so its profile is not sent to the
 * pipeline. */
static void request_of_a_disconnected_client_is_discarded(void **state)
{
    struct receiver_rig *r = *state;
    struct fake_request *q = post_stacks(r, LARGE);
    fake_request_gone(q);
    /* the loop does not wait for the thread, because this would delay other clients */
    assert_int_equal(r->h->n_waits, 0);
    work(r);
    assert_int_equal(r->n, 0);
    fake_request_free(q);
}

/* The receiver is destroyed while a body is queued for a thread. */
static void release_does_not_wait_for_queued_readings(void **state)
{
    struct receiver_rig r;
    (void)state;
    receiver_rig_start(&r, &br_pprof_receiver, "http: {max_request_body_size: 1048576}");
    r.h->threads = true;
    struct fake_request *q = post_stacks(&r, LARGE);
    fake_request_gone(q);
    fake_request_free(q);
    receiver_rig_end(&r);
}

/* Returns a text with many different stacks. */
static struct br_str many_stacks(size_t len)
{
    struct br_str text = {0};
    for (unsigned i = 0; text.len < len; i++)
        br_str_printf(&text, "main;handle;%090u 1\n", i);
    assert_false(text.failed);
    return text;
}

/* The client has disconnected, but the pieces of its request must still be sent. */
static void drain_waits_for_pieces(void **state)
{
    struct receiver_rig *r = *state;
    struct br_str text = many_stacks(3 * LARGE);
    struct fake_request *q = post(r, text.data, text.len, NULL);
    r->quiet = true;
    work(r);
    assert_int_equal(r->n, 1);
    fake_request_gone(q);
    receiver_rig_drain(r);
    assert_false(r->drained);
    fake_host_advance(r->h, 1000);
    assert_in_range(r->n, 3, 40);
    assert_true(r->drained);
    assert_true(fake_host_metric(r->h, "otelcol_receiver_refused_profile_samples",
                                 "receiver=\"pprof\",transport=\"http\"") == 0);
    fake_request_free(q);
    br_str_release(&text);
}

/* The memory for reading is not available now, but may be available later. */
static void retryable_when_memory_is_used_by_others(void **state)
{
    struct receiver_rig *r = *state;
    br_memory_limit(&r->h->memory, 0, (br_mem_live() + (4u << 20)) / 7 * 8);
    struct fake_request *q = post_stacks(r, LARGE);
    void *others =
        br_malloc_for(BR_HOLDER_REQUESTS, br_memory_intake(&r->h->memory) - br_mem_live());
    work(r);
    assert_int_equal(status_of(q), 503);
    assert_int_equal(r->n, 0);
    fake_request_free(q);
    br_free_for(BR_HOLDER_REQUESTS, others);
    q = post_stacks(r, LARGE);
    work(r);
    assert_int_equal(status_of(q), 200);
    fake_request_free(q);
}

/* The compressed body is small, but the uncompressed one exceeds the memory of an idle process. */
static void rejected_when_it_can_never_fit(void **state)
{
    struct receiver_rig *r = *state;
    static uint8_t packed[64u << 10];
    struct br_str text = stacks(LARGE * 3);
    size_t len = zstd_stream(&text, packed, sizeof packed);
    br_str_release(&text);
    br_memory_limit(&r->h->memory, 0, (br_mem_live() + (600u << 10)) / 7 * 8);
    struct fake_request *q = post(r, packed, len, "zstd");
    (void)fake_host_work(r->h);
    fake_host_iterate(r->h);
    assert_int_equal(status_of(q), 413);
    assert_non_null(
        strstr(fake_request_reply(q)->body, "more memory than the memory limit allows"));
    fake_request_free(q);
}

/* A body that never fits into the memory limit is too large, even if the config allows its size. */
static void body_above_the_memory_limit_is_too_large(void **state)
{
    struct receiver_rig *r = *state;
    br_memory_limit(&r->h->memory, 0, (br_mem_live() + (100u << 10)) / 7 * 8);
    struct br_str text = stacks(LARGE);
    struct fake_request *q = fake_request_new(r->h, "pprof http", UPLOAD);
    fake_request_begin(q);
    /* as a connection does for a body above request->max_body */
    fake_request_fail(q, BR_BODY_TOO_BIG);
    fake_host_iterate(r->h);
    assert_int_equal(status_of(q), 413);
    assert_non_null(strstr(fake_request_reply(q)->body, "the request is larger than 102"));
    fake_request_free(q);
    br_str_release(&text);
}

static void run_large(void *arg)
{
    struct receiver_rig r;
    (void)arg;
    if (!receiver_rig_try(&r, &br_pprof_receiver, "http: {max_request_body_size: 1048576}"))
        return;
    r.h->threads = true;
    r.quiet = true;
    struct br_str text = stacks(LARGE);
    struct fake_request *q = fake_request_new(r.h, "pprof http", UPLOAD);
    fault_start();
    fake_request_send(q, text.data, text.len);
    (void)fake_host_work(r.h);
    fake_host_iterate(r.h);
    fault_stop();
    unsigned status = status_of(q);
    assert_true(status == 200 || (fault_failed() && status == 503));
    fake_request_free(q);
    br_str_release(&text);
    receiver_rig_end(&r);
}

static void retryable_when_memory_is_short(void **state)
{
    (void)state;
    fault_each("a large body", run_large, NULL);
}

SUITE(reading)
{
    const struct CMUnitTest tests[] = {
        TEST(a_thread_owns_the_body),
        cmocka_unit_test(bytes_are_freed_before_the_reading_ends),
        TEST(small_requests_overtake_a_large_body),
        TEST(body_with_large_uncompressed_size_is_read_in_a_thread),
        TEST(decoder_window_is_not_counted_as_body_size),
        TEST(invalid_body_is_rejected_from_a_thread),
        TEST(request_of_a_disconnected_client_is_discarded),
        cmocka_unit_test(release_does_not_wait_for_queued_readings),
        TEST(drain_waits_for_pieces),
        TEST(retryable_when_memory_is_used_by_others),
        TEST(rejected_when_it_can_never_fit),
        TEST(body_above_the_memory_limit_is_too_large),
        cmocka_unit_test(retryable_when_memory_is_short),
    };
    return RUN(tests, NULL, NULL);
}
