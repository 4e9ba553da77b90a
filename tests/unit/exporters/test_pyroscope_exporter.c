/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pyroscope exporter on a fake host whose clients answer like Pyroscope's distributor
 * (pkg/distributor, connectrpc.com/docs/protocol). Requests are decoded with
 * proto/push/v1/push.proto. tests/e2e/test_pyroscope_exporter.py tests labels, names and HTTP.
 */
#include <inttypes.h>

#include "base/mem.h"
#include "base/steps.h"
#include "pipeline/component.h"
#include "push/v1/push.pb-c.h"
#include "tests/support/fake_sink.h"
#include "tests/support/fault.h"
#include "tests/support/node_rig.h"
#include "tests/support/otlp_text.h"
#include "tests/support/test.h"

extern const struct br_component br_pyroscope_exporter;

#define SERVICES_MAX 64
#define HOUR_NS 3600000000000u
#define MINUTE_NS 60000000000u

enum behaviour {
    FINE,
    BAD_PROFILES, /* 400 for a bad service */
    FORBIDDEN,    /* 403 */
};

struct fixture {
    struct node_rig rig;
    enum behaviour behaviour;
    unsigned busy_left, n_requests;
    int64_t retry_after_s;
    const char *bad;               /* the bad services; each letter is a service */
    unsigned stored[SERVICES_MAX]; /* number of stored profiles for each letter */
    struct fake_tally tally;
};

/* --- Pyroscope ------------------------------------------------------------------------------- */

static char service_of(const Push__V1__RawProfileSeries *s)
{
    for (size_t i = 0; i < s->n_labels; i++)
        if (strcmp(s->labels[i]->name, "service_name") == 0)
            return s->labels[i]->value[0];
    return '?';
}

static struct fake_answer error_answer(const struct fixture *f, unsigned status)
{
    return (struct fake_answer){.http_status = status,
                                .type = "application/json",
                                .body = "no",
                                .len = 2,
                                .has_retry_after = f->retry_after_s > 0,
                                .retry_after_s = f->retry_after_s};
}

static struct fake_answer answer_push(struct fixture *f, const Push__V1__PushRequest *r)
{
    char service = service_of(r->series[0]);
    assert_int_equal(r->n_series, 1);
    assert_int_equal(r->series[0]->n_samples, 1);
    assert_int_equal(strlen(r->series[0]->samples[0]->id), 32);
    f->n_requests++;
    if (f->busy_left > 0) {
        f->busy_left--;
        return error_answer(f, 503);
    }
    if (f->behaviour == FORBIDDEN)
        return error_answer(f, 403);
    if (f->behaviour == BAD_PROFILES && strchr(f->bad, service))
        return error_answer(f, 400);
    f->stored[service - 'A']++;
    return (struct fake_answer){.type = "application/proto"};
}

/* Decodes the request in memory of the C library, so that only the code under test runs out of
 * memory. */
static struct fake_answer on_exchange(const struct br_exchange *x, void *arg)
{
    struct fixture *f = arg;
    uint8_t *data = malloc(x->body.len + 1);
    size_t at = 0;
    assert_non_null(data);
    assert_string_equal(x->path, "/push.v1.PusherService/Push");
    assert_string_equal(x->content_type, "application/proto");
    for (size_t i = 0; i < x->body.count; i++) {
        memcpy(data + at, x->body.slices[i].data, x->body.slices[i].len);
        at += x->body.slices[i].len;
    }
    assert_int_equal(at, x->body.len);
    Push__V1__PushRequest *r = push__v1__push_request__unpack(NULL, at, data);
    assert_non_null(r);
    struct fake_answer answer = answer_push(f, r);
    push__v1__push_request__free_unpacked(r, NULL);
    free(data);
    return answer;
}

/* --- The exporter ---------------------------------------------------------------------------- */

static int create(struct fixture *f, const char *yaml)
{
    struct br_err err = {0};
    *f = (struct fixture){.bad = ""};
    node_rig_begin(&f->rig, &br_pyroscope_exporter, yaml);
    f->rig.h->answer = on_exchange;
    f->rig.h->answer_arg = f;
    f->rig.node.in_pipeline[BR_PROFILES] = true;
    assert_int_equal(br_pyroscope_exporter.create(&f->rig.node, &err), 0);
    return br_pyroscope_exporter.start(&f->rig.node, &err);
}

static void start(struct fixture *f, const char *more)
{
    char yaml[512];
    (void)snprintf(yaml, sizeof yaml,
                   "{endpoint: \"http://localhost:4040\", compression: none, %s}", more);
    assert_int_equal(create(f, yaml), 0);
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
    t->n_retry += item->outcome.verdict == BR_RETRY;
    t->n_reject += item->outcome.verdict == BR_REJECT;
    t->last = item->outcome;
}

/* Writes a resource of the service `service` with a profile of one sample. */
static void put_resource(struct br_str *json, char service, uint64_t time_ns)
{
    char name[64] = {service};
    if (service >= 'X')
        memset(name, service, sizeof name - 1); /* make it large */
    br_str_printf(
        json,
        "%s{'resource':{'attributes':[{'key':'service.name','value':{'stringValue':'%s'}}]},"
        "'scopeProfiles':[{'profiles':[{'samples':[{'values':[1]}],'timeUnixNano':%" PRIu64 "}]}]}",
        json->len ? "," : "{'resourceProfiles':[", name, time_ns);
}

/* Makes an item of the resources in `json`, and releases `json`. */
static struct br_item *end_item(struct fixture *f, struct br_str *json)
{
    br_str_puts(json, "]}");
    assert_false(json->failed);
    struct br_item *item = otlp_text_item(&f->rig.h->host, BR_PROFILES, json->data);
    br_str_release(json);
    br_item_received(item);
    item->done = on_done;
    item->done_arg = &f->tally;
    return item;
}

/* Makes an item with one profile for each letter of `services`. times[i] is relative to the current
 * time. */
static struct br_item *item_of(struct fixture *f, const char *services, const int64_t *times)
{
    struct br_str json = {0};
    for (size_t i = 0; services[i]; i++)
        put_resource(&json, services[i], f->rig.h->unix_ns + (uint64_t)(times ? times[i] : 0));
    return end_item(f, &json);
}

static void push(struct fixture *f, const char *services, const int64_t *times)
{
    br_pyroscope_exporter.consume(&f->rig.node, item_of(f, services, times));
    fake_host_iterate(f->rig.h);
}

static void stored_once(const struct fixture *f, const char *services)
{
    for (char c = 'A'; c <= 'Z'; c++)
        assert_int_equal(f->stored[c - 'A'], strchr(services, c) ? 1 : 0);
}

static double dropped(struct fixture *f, const char *reason)
{
    return fake_host_dropped(f->rig.h, BR_PROFILES, reason);
}

/* --- Limits ---------------------------------------------------------------------------------- */

static void old_and_future_profiles_are_dropped(void **state)
{
    struct fixture f;
    const int64_t hour = (int64_t)HOUR_NS, minute = (int64_t)MINUTE_NS;
    const int64_t times[] = {0, -hour, -hour + 1, 10 * minute, 10 * minute - 1};
    (void)state;
    start(&f, "");
    push(&f, "ABCDE", times);
    stored_once(&f, "ACE");
    assert_true(dropped(&f, "too_old") == 1 && dropped(&f, "too_new") == 1);
    assert_true(f.tally.n_done == 1 && f.tally.last.n_rejected == 2);
    /* while time passes, the timestamps of new profiles become too old */
    fake_host_advance(f.rig.h, 3600000);
    push(&f, "F", &(const int64_t){-hour});
    push(&f, "G", &(const int64_t){0});
    stored_once(&f, "ACEG");
    end(&f);
    start(&f, "limits: {max_age: 0, max_ahead: 0}");
    push(&f, "ABCDE", times);
    stored_once(&f, "ABCDE");
    end(&f);
}

/* If all profiles are dropped, nothing is sent. */
static void all_profiles_are_dropped(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "limits: {max_profile_size: 1}");
    push(&f, "ABC", NULL);
    assert_true(f.n_requests == 0 && dropped(&f, "too_large") == 3);
    assert_true(f.tally.n_done == 1 && f.tally.last.n_rejected == 3);
    end(&f);
}

static void each_profile_is_a_request(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "");
    push(&f, "ABCDEFGH", NULL);
    assert_int_equal(f.n_requests, 8);
    stored_once(&f, "ABCDEFGH");
    end(&f);
}

/* Makes a Resource with `n` attributes of 2000 bytes, and as many scopes with a profile of one
 * sample. */
static struct br_item *one_resource(struct fixture *f, unsigned n, unsigned scopes)
{
    struct br_str json = {0};
    char text[2001];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    br_str_puts(&json,
                "{'resourceProfiles':[{'resource':{'attributes':[{'key':'service.name','value':"
                "{'stringValue':'A'}}");
    for (unsigned i = 0; i < n; i++)
        br_str_printf(&json, ",{'key':'k%u','value':{'stringValue':'%s'}}", i, text);
    br_str_puts(&json, "]},'scopeProfiles':[");
    for (unsigned i = 0; i < scopes; i++)
        br_str_printf(&json, "%s{'profiles':[{'samples':[{'values':[1]}]}]}", i ? "," : "");
    br_str_puts(&json, "]}");
    return end_item(f, &json);
}

/* The Resource's texts are checked once, not for each of 2,000 profiles. */
static void a_resource_is_read_once(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "labels: {resource_attributes: [\"*\"], max: 2}");
    struct br_item *item = one_resource(&f, 100, 2000);
    uint64_t steps = br_steps(), most = 4 * item->size;
    br_pyroscope_exporter.consume(&f.rig.node, item);
    steps = br_steps() - steps;
    fake_host_iterate(f.rig.h);
    assert_true(f.tally.n_done == 1 && f.stored[0] == 2000);
    assert_true(steps < most);
    end(&f);
}

/* Each of 2,000 pprofs would contain labels of 200 kB. */
static void growth_of_an_item_is_limited(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "labels: {resource_attributes: [\"*\"], max: 128}");
    struct br_item *item = one_resource(&f, 100, 2000);
    br_pyroscope_exporter.consume(&f.rig.node, item);
    fake_host_iterate(f.rig.h);
    assert_true(f.tally.n_reject == 1 && f.n_requests == 0);
    assert_non_null(strstr(f.tally.last.text, "exceed the size limit"));
    end(&f);
}

/* --- Memory limit ---------------------------------------------------------------------------- */

#define BUDGET ((size_t)16 << 20)

/* Sends an item while the process has used all but `left` bytes of its memory limit. */
static void push_with_memory_left(struct fixture *f, size_t left)
{
    struct br_memory *memory = &f->rig.h->memory;
    br_mem_flush();
    size_t used = br_memory_used(memory), hard = br_memory_hard(memory);
    assert_true(used + left < hard);
    void *held = br_malloc(hard - used - left);
    assert_non_null(held);
    push(f, "AB", NULL);
    br_free(held);
    br_mem_flush();
}

/* An eighth of the memory limit is reserved for sending, which is more than 2 MiB here. */
static void sent_from_reserved_memory_or_retried(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "");
    br_mem_flush();
    br_memory_limit(&f.rig.h->memory, 1, br_mem_live() + BUDGET);
    push_with_memory_left(&f, BUDGET / 16);
    assert_true(f.tally.n_done == 1 && f.n_requests == 2);
    push_with_memory_left(&f, 0);
    assert_true(f.tally.n == 1 && f.n_requests == 2);
    fake_host_advance(f.rig.h, 2000);
    assert_true(f.tally.n_done == 2 && f.n_requests == 4);
    end(&f);
}

static void retried_only_if_retries_are_enabled(void **state)
{
    static const char *const off = "retry_on_failure: {enabled: false}";
    struct fixture f;
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        start(&f, waits ? "" : off);
        br_mem_flush();
        br_memory_limit(&f.rig.h->memory, 1, br_mem_live() + BUDGET);
        push_with_memory_left(&f, 0);
        assert_int_equal(f.tally.n_retry, waits ? 0 : 1);
        end(&f);
    }
}

static void rejected_when_it_can_never_fit(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "");
    br_mem_flush();
    br_memory_limit(&f.rig.h->memory, 1, br_mem_live() + 4096);
    push(&f, "AB", NULL);
    assert_true(f.tally.n_reject == 1 && f.tally.n_retry == 0 && f.n_requests == 0);
    end(&f);
}

/* Each of 30 pprofs contains labels of 200 kB, which the item contains once. */
static void shared_labels_are_in_each_pprof(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "labels: {resource_attributes: [\"*\"], max: 128}");
    struct br_item *item = one_resource(&f, 100, 30);
    br_pyroscope_exporter.consume(&f.rig.node, item);
    fake_host_iterate(f.rig.h);
    assert_true(f.tally.n_done == 1 && f.stored[0] == 30);
    end(&f);
}

/* --- Rejections ------------------------------------------------------------------------------ */

static void rejected_profile_is_dropped_alone(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "");
    f.behaviour = BAD_PROFILES;
    f.bad = "F";
    push(&f, "ABCDEFGH", NULL);
    stored_once(&f, "ABCDEGH");
    assert_int_equal(f.n_requests, 8);
    assert_true(dropped(&f, "profile_rejected") == 1 && f.tally.n_done == 1);
    assert_int_equal(f.tally.last.n_rejected, 1);
    end(&f);
}

static void all_profiles_are_rejected(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "");
    f.behaviour = BAD_PROFILES;
    f.bad = "ABCDE";
    push(&f, "ABCDE", NULL);
    assert_int_equal(f.n_requests, 5);
    assert_true(dropped(&f, "profile_rejected") == 5 && f.tally.n_reject == 1);
    end(&f);
}

static void forbidden_item_is_rejected(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, "");
    f.behaviour = FORBIDDEN;
    push(&f, "ABCDE", NULL);
    stored_once(&f, "");
    assert_int_equal(f.n_requests, 5);
    assert_true(f.tally.n_reject == 1 && f.tally.last.status == BR_STATUS_PERMISSION_DENIED);
    end(&f);
}

/* --- Retries --------------------------------------------------------------------------------- */

#define RETRY "retry_on_failure: {initial_interval: 1s, randomization_factor: 0}"

/* The server is too busy for two profiles. Only these are sent again. */
static void busy_server_is_retried(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, RETRY);
    f.busy_left = 2;
    push(&f, "ABC", NULL);
    assert_true(f.n_requests == 3 && f.tally.n == 0);
    stored_once(&f, "C");
    fake_host_advance(f.rig.h, 999);
    assert_int_equal(f.n_requests, 3);
    fake_host_advance(f.rig.h, 1);
    assert_true(f.n_requests == 5 && f.tally.n_done == 1);
    stored_once(&f, "ABC");
    end(&f);
}

static void retry_after_is_respected(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, RETRY);
    f.busy_left = 1;
    f.retry_after_s = 7;
    push(&f, "A", NULL);
    fake_host_advance(f.rig.h, 6999);
    assert_int_equal(f.n_requests, 1);
    fake_host_advance(f.rig.h, 1);
    assert_true(f.n_requests == 2 && f.tally.n_done == 1);
    end(&f);
}

/* All profiles are sent to each endpoint. If one endpoint fails, the other endpoints do not receive
 * them twice. The queue waits for a failing endpoint only if wait_for_result is set. */
static void failing_endpoint_does_not_affect_others(void **state)
{
    struct fixture f;
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        assert_int_equal(
            create(&f,
                   waits ? "{endpoints: [\"http://a:1\", \"http://b:1\"], compression: none, "
                           "sending_queue: {wait_for_result: true}, " RETRY "}"
                         : "{endpoints: [\"http://a:1\", \"http://b:1\"], compression: none, " RETRY
                           "}"),
            0);
        f.busy_left = 1;
        push(&f, "A", NULL);
        assert_true(f.n_requests == 2 && f.stored[0] == 1 && f.tally.n == 1 - waits);
        fake_host_advance(f.rig.h, 1000);
        assert_true(f.n_requests == 3 && f.stored[0] == 2 && f.tally.n_done == 1);
        end(&f);
    }
}

static void destroyed_during_requests(void **state)
{
    struct fixture f;
    (void)state;
    start(&f, RETRY);
    f.busy_left = 100;
    push(&f, "ABC", NULL);
    end(&f); /* checks the ledger and the memory */
}

/* --- Config ---------------------------------------------------------------------------------- */

/* Writes the first error. If there is none, writes the first warning or an empty text. */
static void first_message(const struct br_errs *errs, char *out, size_t size)
{
    const struct br_err *first = NULL;
    if (errs->n_errors)
        first = errs->errors;
    else if (errs->n_warnings)
        first = errs->warnings;
    out[0] = '\0';
    if (first)
        (void)br_err_format(first, out, size);
}

static void config_is_checked(void **state)
{
    const struct br_component *c = &br_pyroscope_exporter;
    static const struct {
        const char *yaml, *message;
        int rc;
    } cases[] = {
        {"endpoint: \"http://localhost:4040\"", "", 0},
        {"endpoints: [\"http://a\", \"https://b/x\"]", "", 0},
        {"endpoints: http://a", "", 0},
        {"", "t:1:1: x: endpoint, or endpoints, is required", BR_EINVAL},
        {"endpoints: []", "t:1:1: x: endpoint, or endpoints, is required", BR_EINVAL},
        {"{endpoint: \"http://a\", endpoints: [\"http://b\"]}",
         "t:1:35: x: endpoint and endpoints cannot be used together", BR_EINVAL},
        {"endpoint: nowhere",
         "t:1:11: x::endpoint: \"nowhere\" must be a URL that starts with http:// or https://",
         BR_EINVAL},
        {"endpoints: [\"http://a\", nowhere]",
         "t:1:25: x::endpoints[1]: \"nowhere\" must be a URL that starts with http:// or https://",
         BR_EINVAL},
        {"endpoints: nowhere",
         "t:1:12: x::endpoints[0]: \"nowhere\" must be a URL that starts with http:// or https://",
         BR_EINVAL},
        {"{endpoint: \"http://a\", bearer_token: x, basic_auth: {username: u}}",
         "t:1:1: x: basic_auth and bearer_token cannot be used together", BR_EINVAL},
        {"{endpoint: \"http://a\", tenant_metadata: X, sending_queue: {batch: {}}}",
         "t:1:1: x: tenant_metadata needs batches of one tenant: "
         "sending_queue::batch::partition::metadata_keys must contain \"X\"",
         BR_EINVAL},
        {"{endpoint: \"http://a\", tenant_metadata: X, "
         "sending_queue: {batch: {partition: {metadata_keys: [x]}}}}",
         "", 0},
        {"{endpoint: \"http://a\", labels: {max: 30}}", "", 0},
        {"{endpoint: \"http://a\", labels: {max: 31}}",
         "t:1:38: x::labels::max: Pyroscope rejects series of more than 30 labels, unless its "
         "limit (max_label_names_per_series) is raised",
         0},
        {"{endpoint: \"http://a\", limits: {max_request_profiles: 64}}",
         "t:1:33: x::limits::max_request_profiles: is read and has no effect: each profile is sent "
         "in a separate request",
         0},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_errs errs = {0};
        struct br_arena arena;
        struct br_yaml *tree;
        char message[1024];
        br_arena_init(&arena, 0);
        void *config = br_arena_calloc(&arena, 1, c->config_size);
        assert_int_equal(
            br_yaml_parse(cases[i].yaml, strlen(cases[i].yaml), "t", &arena, &tree, &errs), 0);
        assert_int_equal(br_options_read(c->options, tree, "x", config, &arena, &errs), 0);
        int rc = c->check(config, tree, "x", &arena, &errs);
        first_message(&errs, message, sizeof message);
        if (rc != cases[i].rc || strcmp(message, cases[i].message) != 0)
            fail_msg("%s: %d, %s", cases[i].yaml, rc, message);
        br_errs_release(&errs);
        br_arena_release(&arena);
    }
}

/* --- Short memory ---------------------------------------------------------------------------- */

/* After any failed allocation, no valid profile is lost silently, and the ledger is balanced. */
static void scenario(void *arg)
{
    struct fixture f;
    start(&f, RETRY);
    f.behaviour = *(const enum behaviour *)arg;
    f.bad = "B";
    struct br_item *item = item_of(&f, "ABCDE", NULL);
    fault_start();
    br_pyroscope_exporter.consume(&f.rig.node, item);
    fake_host_iterate(f.rig.h);
    fault_stop();
    fake_host_advance(f.rig.h, 60000);
    assert_int_equal(f.tally.n, 1);
    assert_true(f.tally.n_done == 1 || fault_failed());
    if (!fault_failed())
        stored_once(&f, f.behaviour == FINE ? "ABCDE" : "ACDE");
    end(&f);
}

static void without_memory(void **state)
{
    static const enum behaviour behaviours[] = {FINE, BAD_PROFILES};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(behaviours); i++)
        fault_each("a request", scenario, (void *)(uintptr_t)&behaviours[i]);
}

SUITE(pyroscope_exporter)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_and_future_profiles_are_dropped),
        cmocka_unit_test(all_profiles_are_dropped),
        cmocka_unit_test(each_profile_is_a_request),
        cmocka_unit_test(rejected_profile_is_dropped_alone),
        cmocka_unit_test(a_resource_is_read_once),
        cmocka_unit_test(growth_of_an_item_is_limited),
        cmocka_unit_test(sent_from_reserved_memory_or_retried),
        cmocka_unit_test(retried_only_if_retries_are_enabled),
        cmocka_unit_test(rejected_when_it_can_never_fit),
        cmocka_unit_test(shared_labels_are_in_each_pprof),
        cmocka_unit_test(all_profiles_are_rejected),
        cmocka_unit_test(forbidden_item_is_rejected),
        cmocka_unit_test(busy_server_is_retried),
        cmocka_unit_test(retry_after_is_respected),
        cmocka_unit_test(failing_endpoint_does_not_affect_others),
        cmocka_unit_test(destroyed_during_requests),
        cmocka_unit_test(config_is_checked),
        cmocka_unit_test(without_memory),
    };
    return RUN(tests, NULL, NULL);
}
