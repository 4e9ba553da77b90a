/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the packing of request bodies (egress/packing.c), in the worker or in a thread of the pool.
 * Uses the OTLP exporters and the pyroscope exporter. */
#include <inttypes.h>

#include "base/log.h"
#include "base/mem.h"
#include "egress/call.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
#include "tests/support/node_rig.h"
#include "tests/support/otlp_text.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_otlp_exporter;
extern const struct br_component br_otlphttp_exporter;
extern const struct br_component br_pyroscope_exporter;

#define PROFILE_ID 32 /* random bytes at the end of a request to Pyroscope */
#define MANY 20000    /* records that take more than BR_PACKING_NOW bytes */

struct fixture {
    struct node_rig rig;
    struct fake_tally tally;
    uint64_t timeout_ms; /* timeout of the last exchange */
    bool never;
};

static struct fake_answer on_exchange(const struct br_exchange *x, void *arg)
{
    struct fixture *f = arg;
    f->timeout_ms = x->timeout_ms;
    return (struct fake_answer){.never = f->never};
}

static void start(struct fixture *f, const struct br_component *component, const char *yaml)
{
    *f = (struct fixture){.never = false};
    node_rig_begin(&f->rig, component, yaml);
    f->rig.h->answer = on_exchange;
    f->rig.h->answer_arg = f;
    f->rig.h->threads = true;
    f->rig.node.in_pipeline[BR_TRACES] = f->rig.node.in_pipeline[BR_PROFILES] = true;
    rig_node_start(&f->rig.node);
}

static void start_otlp(struct fixture *f)
{
    start(f, &br_otlp_exporter, "{endpoint: \"http://localhost:1\", timeout: 5s}");
}

static void end(struct fixture *f)
{
    node_rig_end(&f->rig);
}

static void on_done(struct br_item *item, void *arg)
{
    struct fake_tally *t = arg;
    t->n++;
    t->n_done += item->outcome.verdict == BR_DONE;
}

static void send(struct fixture *f, enum br_signal signal, uint32_t n)
{
    f->rig.node.component->consume(&f->rig.node,
                                   fake_tally_item(&f->tally, &f->rig.h->host, signal, 0, n));
    fake_host_iterate(f->rig.h);
}

static void work(struct fixture *f)
{
    assert_int_equal(fake_host_work(f->rig.h), 1);
    fake_host_iterate(f->rig.h);
}

/* Returns the uncompressed body of the last request, which the caller owns. */
static struct br_buf *last_body(struct fixture *f, enum br_encoding encoding)
{
    struct br_codec *codec = br_codec_new();
    const uint8_t *data;
    struct br_buf *plain = NULL;
    struct br_buf *flat = br_rope_flat(&f->rig.h->last_body, f->rig.h->host.pool, &data);
    assert_int_equal(br_decompress(codec, encoding, data, f->rig.h->last_body.len, BR_BUF_MAX,
                                   f->rig.h->host.pool, &plain, NULL),
                     0);
    br_buf_unref(flat);
    br_codec_free(codec);
    return plain;
}

static void expect_last(struct fixture *f, enum br_encoding encoding, uint32_t n)
{
    struct wire w = {0};
    struct br_buf *plain = last_body(f, encoding);
    items_traces(&w, 0, n, 2); /* like items_new */
    assert_true(w.len > BR_PACKING_NOW);
    assert_int_equal(plain->len, w.len);
    assert_memory_equal(plain->data, w.data, w.len);
    br_buf_unref(plain);
    wire_free(&w);
}

static void small_requests_overtake_a_large_one_being_compressed(void **state)
{
    static const struct {
        const char *name;
        enum br_encoding encoding;
    } cases[] = {{"gzip", BR_ENCODING_GZIP}, {"zstd", BR_ENCODING_ZSTD}};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct fixture f;
        char yaml[128];
        (void)snprintf(yaml, sizeof yaml, "{endpoint: \"http://localhost:1\", compression: %s}",
                       cases[i].name);
        start(&f, &br_otlp_exporter, yaml);
        send(&f, BR_TRACES, MANY);
        assert_int_equal(f.rig.h->n_exchanges, 0);
        send(&f, BR_TRACES, 1);
        assert_int_equal(f.rig.h->n_exchanges, 1);
        assert_int_equal(f.tally.n_done, 1);
        work(&f);
        assert_int_equal(f.rig.h->n_exchanges, 2);
        assert_int_equal(f.tally.n_done, 2);
        expect_last(&f, cases[i].encoding, MANY);
        end(&f);
    }
}

static void uncompressed_bodies_need_no_thread(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &br_otlp_exporter, "{endpoint: \"http://localhost:1\", compression: none}");
    send(&f, BR_TRACES, MANY);
    assert_int_equal(f.tally.n_done, 1);
    assert_int_equal(fake_host_work(f.rig.h), 0);
    end(&f);
}

static void json_is_encoded_in_a_thread(void **state)
{
    static const char begin[] = "{\"resourceSpans\":[{";
    struct fixture f;
    (void)state;
    start(&f, &br_otlphttp_exporter, "{endpoint: \"http://localhost:1\", encoding: json}");
    send(&f, BR_TRACES, MANY);
    assert_int_equal(f.rig.h->n_exchanges, 0);
    work(&f);
    assert_int_equal(f.tally.n_done, 1);
    struct br_buf *plain = last_body(&f, BR_ENCODING_GZIP);
    size_t n = 0;
    assert_memory_equal(plain->data, begin, sizeof begin - 1);
    for (const uint8_t *at = plain->data, *stop = at + plain->len;
         (at = memmem(at, (size_t)(stop - at), "\"spanId\"", 8)); at += 8)
        n++;
    assert_int_equal(n, MANY);
    br_buf_unref(plain);
    end(&f);
}

/* Makes a sample whose functions all have different names, so that its pprof is large, too. */
static struct br_item *make_functions(struct fixture *f)
{
    struct br_str json = {0};
    br_str_printf(&json,
                  "{'resourceProfiles':[{'scopeProfiles':[{'profiles':[{'samples':[{'stackIndex':1,"
                  "'values':[1]}],'timeUnixNano':%" PRIu64
                  "}]}]}],'dictionary':{'mappingTable':[{}],"
                  "'locationTable':[{}",
                  f->rig.h->unix_ns);
    for (unsigned i = 1; i <= MANY; i++)
        br_str_printf(&json, ",{'lines':[{'functionIndex':%u}]}", i);
    br_str_puts(&json, "],'functionTable':[{}");
    for (unsigned i = 1; i <= MANY; i++)
        br_str_printf(&json, ",{'nameStrindex':%u}", i);
    br_str_puts(&json, "],'linkTable':[{}],'attributeTable':[{}],'stringTable':[''");
    for (unsigned i = 1; i <= MANY; i++)
        br_str_printf(&json, ",'com.example.shop.checkout.function.%08u'", i);
    br_str_puts(&json, "],'stackTable':[{},{'locationIndices':[1");
    for (unsigned i = 2; i <= MANY; i++)
        br_str_printf(&json, ",%u", i);
    br_str_puts(&json, "]}]}}");
    assert_false(json.failed);
    struct br_item *item = otlp_text_item(&f->rig.h->host, BR_PROFILES, json.data);
    br_str_release(&json);
    br_item_received(item);
    item->done = on_done;
    item->done_arg = &f->tally;
    return item;
}

static void send_functions(struct fixture *f)
{
    f->rig.node.component->consume(&f->rig.node, make_functions(f));
    fake_host_iterate(f->rig.h);
}

static void pprofs_are_compressed_in_a_thread(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &br_pyroscope_exporter,
          "{endpoint: \"http://localhost:1\", limits: {max_profile_size: 4194304}}");
    send_functions(&f);
    assert_int_equal(f.rig.h->n_exchanges, 0);
    work(&f); /* writes the pprof */
    assert_int_equal(f.rig.h->n_exchanges, 0);
    work(&f); /* compresses it */
    assert_int_equal(f.rig.h->n_exchanges, 1);
    assert_int_equal(f.tally.n_done, 1);
    struct br_buf *plain = last_body(&f, BR_ENCODING_GZIP);
    assert_true(plain->len > BR_PACKING_NOW);
    br_buf_unref(plain);
    end(&f);
}

/* The pprof is the same with and without a thread. */
static void a_thread_writes_the_same_pprof(void **state)
{
    uint8_t *first = NULL;
    size_t first_len = 0;
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        struct fixture f;
        start(&f, &br_pyroscope_exporter,
              "{endpoint: \"http://localhost:1\", compression: none, limits: {max_profile_size: "
              "4194304}}");
        f.rig.h->threads = threads;
        send_functions(&f);
        assert_int_equal(fake_host_work(f.rig.h), threads);
        fake_host_iterate(f.rig.h);
        assert_int_equal(f.tally.n_done, 1);
        const uint8_t *data;
        size_t len = f.rig.h->last_body.len - PROFILE_ID;
        struct br_buf *flat = br_rope_flat(&f.rig.h->last_body, f.rig.h->host.pool, &data);
        if (!threads)
            first = memcpy(test_malloc(first_len = len), data, len);
        assert_int_equal(len, first_len);
        assert_memory_equal(data, first, len);
        br_buf_unref(flat);
        end(&f);
    }
    test_free(first);
}

/* The exporter is destroyed in the second step of packing, while a pprof is being compressed. */
static void destroyed_while_compressing_a_pprof(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, &br_pyroscope_exporter,
          "{endpoint: \"http://localhost:1\", limits: {max_profile_size: 4194304}}");
    send_functions(&f);
    work(&f);
    assert_int_equal(f.tally.n, 0);
    f.rig.node.component->destroy(&f.rig.node);
    fake_host_iterate(f.rig.h);
    assert_int_equal(f.tally.n, 1);
    br_free(f.rig.node.state);
    br_arena_release(&f.rig.arena);
    fake_host_check_ledger(f.rig.h);
    assert_int_equal(f.rig.h->n_works, 1);
    fake_host_free(f.rig.h);
}

/* The timeout applies to the whole attempt. The time that compression takes is therefore subtracted
 * from the time for the response. */
static void timeout_includes_packing(void **state)
{
    struct fixture f;
    (void)state;
    start_otlp(&f);
    f.never = true;
    send(&f, BR_TRACES, MANY);
    fake_host_advance(f.rig.h, 2000);
    work(&f);
    assert_int_equal(f.rig.h->n_exchanges, 1);
    assert_int_equal(f.timeout_ms, 3000);
    fake_host_advance(f.rig.h, 2999);
    assert_int_equal(f.tally.n, 0);
    fake_host_advance(f.rig.h, 1);
    assert_int_equal(f.tally.n_retry, 1);
    assert_int_equal(f.tally.last.status, BR_STATUS_DEADLINE_EXCEEDED);
    assert_string_equal(f.tally.last.text, "no answer in 5000 ms");
    end(&f);
}

static void timeout_during_packing(void **state)
{
    struct fixture f;
    (void)state;
    start_otlp(&f);
    send(&f, BR_TRACES, MANY);
    fake_host_advance(f.rig.h, 5000);
    assert_int_equal(f.tally.n_retry, 1);
    assert_int_equal(f.tally.last.status, BR_STATUS_DEADLINE_EXCEEDED);
    assert_string_equal(f.tally.last.text, "the request could not be compressed in 5000 ms");
    size_t n_buffers = br_pool_taken(f.rig.h->host.pool);
    work(&f);
    assert_int_equal(f.rig.h->n_exchanges, 0);
    assert_int_equal(f.tally.n, 1);
    assert_int_equal(br_pool_live(f.rig.h->host.pool), 0);
    assert_int_equal(br_pool_taken(f.rig.h->host.pool), n_buffers);
    end(&f);
}

static void destroyed_during_packing(void **state)
{
    static const struct br_component *const components[] = {&br_otlp_exporter,
                                                            &br_pyroscope_exporter};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(components); i++) {
        struct fixture f;
        start(&f, components[i], "{endpoint: \"http://localhost:1\"}");
        send_functions(&f);
        assert_int_equal(f.tally.n, 0);
        f.rig.node.component->destroy(&f.rig.node);
        fake_host_iterate(f.rig.h);
        assert_int_equal(f.tally.n, 1);
        br_free(f.rig.node.state);
        br_arena_release(&f.rig.arena);
        fake_host_check_ledger(f.rig.h);
        assert_int_equal(f.rig.h->n_works, 1);
        fake_host_free(f.rig.h); /* runs the remaining work, and fails if a buffer was not freed */
    }
}

/* A running job continues after it was cancelled, but its result is discarded. */
static void on_packed(void *arg, int rc, struct br_rope *body)
{
    (void)rc;
    (void)body;
    *(bool *)arg = true;
}

static void cancelled_job_reports_nothing(void **state)
{
    const struct br_packing packing = {.encoding = BR_ENCODING_GZIP};
    struct fake_host *h = fake_host_new();
    struct br_buf *buf = br_buf_new(h->host.pool, 1000);
    struct br_rope body = {0};
    bool called = false;
    (void)state;
    h->threads = true;
    assert_int_equal(br_rope_add(&body, buf, memset(buf->data, 'x', 1000), 1000), 0);
    br_buf_unref(buf);
    struct br_packing_job *job =
        br_packing_job_new(&h->host, &packing, BR_TRACES, &body, on_packed, &called);
    assert_int_equal(body.count, 0);
    br_packing_job_start(job);
    h->works[0]->run(h->works[0]);
    br_packing_job_cancel(job);
    h->n_works = 0;
    h->works[0]->done(h->works[0]);
    assert_false(called);
    fake_host_free(h);
}

struct shortage {
    const struct br_component *component;
    const char *yaml;
};

static void run_short(void *arg)
{
    const struct shortage *s = arg;
    struct fixture f;
    start(&f, s->component, s->yaml);
    struct br_item *item = fake_tally_item(&f.tally, &f.rig.h->host, BR_TRACES, 0, MANY);
    fault_start();
    f.rig.node.component->consume(&f.rig.node, item);
    (void)fake_host_work(f.rig.h);
    fake_host_iterate(f.rig.h);
    fault_stop();
    assert_int_equal(f.tally.n, 1);
    assert_true(f.tally.n_done == 1 || (fault_failed() && f.tally.n_retry == 1));
    end(&f);
}

static void retried_when_memory_is_short(void **state)
{
    static const struct shortage cases[] = {
        {&br_otlp_exporter, "{endpoint: \"http://localhost:1\"}"},
        {&br_otlphttp_exporter, "{endpoint: \"http://localhost:1\", compression: zstd}"},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        fault_each("a large request", run_short, (void *)(uintptr_t)&cases[i]);
}

static void run_short_of_pprof(void *arg)
{
    struct fixture f;
    (void)arg;
    start(&f, &br_pyroscope_exporter,
          "{endpoint: \"http://localhost:1\", compression: none, retry_on_failure: {enabled: "
          "false}}");
    struct br_item *item = make_functions(&f);
    fault_start();
    f.rig.node.component->consume(&f.rig.node, item);
    (void)fake_host_work(f.rig.h);
    fake_host_iterate(f.rig.h);
    fault_stop();
    assert_int_equal(f.tally.n, 1);
    assert_true(f.tally.n_done == 1 || fault_failed());
    end(&f);
}

static void pprof_when_memory_is_short(void **state)
{
    (void)state;
    fault_each("a large profile", run_short_of_pprof, NULL);
}

SUITE(packing)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_requests_overtake_a_large_one_being_compressed),
        cmocka_unit_test(uncompressed_bodies_need_no_thread),
        cmocka_unit_test(json_is_encoded_in_a_thread),
        cmocka_unit_test(pprofs_are_compressed_in_a_thread),
        cmocka_unit_test(a_thread_writes_the_same_pprof),
        cmocka_unit_test(destroyed_while_compressing_a_pprof),
        cmocka_unit_test(timeout_includes_packing),
        cmocka_unit_test(timeout_during_packing),
        cmocka_unit_test(destroyed_during_packing),
        cmocka_unit_test(cancelled_job_reports_nothing),
        cmocka_unit_test(retried_when_memory_is_short),
        cmocka_unit_test(pprof_when_memory_is_short),
    };
    br_log_setup(BR_LOG_ERROR, false, 2);
    return RUN(tests, NULL, NULL);
}
