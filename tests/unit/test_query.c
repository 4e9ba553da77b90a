/* SPDX-License-Identifier: Apache-2.0 */
/* Extension query on a fake host: who may ask, what is answered where nothing is stored. */
#include <ftw.h>

#include "base/mem.h"
#include "extensions/query/query.h"
#include "tests/support/node_rig.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"

extern const struct br_component br_query_extension;

static void start(struct node_rig *f, const char *yaml)
{
    node_rig_start(f, &br_query_extension, yaml);
}

static void end_now(struct node_rig *f)
{
    f->node.component->destroy(&f->node);
    br_free(f->node.state);
    br_arena_release(&f->arena);
}

static void end(struct node_rig *f)
{
    node_rig_drain(f);
    node_rig_end(f);
}

static struct fake_request *ask(struct node_rig *f, const char *method, const char *path,
                                const char *header, const char *value)
{
    struct fake_request *r = fake_request_new(f->h, "query", path);
    fake_request_method(r, method);
    if (header)
        fake_request_header(r, header, value);
    fake_request_send(r, NULL, 0);
    fake_host_turn(f->h);
    return r;
}

static void expect(struct node_rig *f, const char *method, const char *path, unsigned status,
                   const char *body)
{
    struct fake_request *r = ask(f, method, path, NULL, NULL);
    const struct fake_reply *reply = fake_request_reply(r);
    assert_true(reply->came);
    if (reply->status != status || strcmp(reply->body, body) != 0)
        fail_msg("%s %s\ngave %u %s\nnot  %u %s", method, path, reply->status, reply->body, status,
                 body);
    fake_request_free(r);
}

static void answers_what_needs_no_store(void **state)
{
    struct node_rig f;
    (void)state;
    start(&f, "{}");
    expect(&f, "GET", "/api/echo", 200, "echo");
    expect(&f, "GET", "/ready", 503, "the store is not open\n");
    expect(&f, "GET", "/nowhere", 404, "404 page not found\n");
    expect(&f, "GET", "/api/echo/", 404, "404 page not found\n");
    expect(&f, "GET", "/api", 404, "404 page not found\n");
    expect(&f, "POST", "/api/echo", 405, "there is no such method here\n");
    expect(&f, "DELETE", "/api/echo", 405, "there is no such method here\n");
    expect(&f, "GET", "/api/echo?a=%zz", 400,
           "the query has a broken escape, or too many parameters\n");
    struct fake_request *r = ask(&f, "GET", "/api/status/buildinfo", NULL, NULL);
    assert_string_equal(fake_request_reply(r)->type, "application/json");
    assert_non_null(strstr(fake_request_reply(r)->body, "\"version\":\"2."));
    fake_request_free(r);
    end(&f);
}

static void refuses_foreign_hosts_and_origins(void **state)
{
    static const struct {
        const char *host, *origin;
        unsigned status;
    } cases[] = {
        {"localhost:3200", NULL, 200},
        {"127.0.0.1:3200", NULL, 200},
        {"evil.example", NULL, 403},
        {"braid.example:3200", NULL, 200}, /* allowed_hosts */
        {"localhost:3200", "http://localhost:3200", 200},
        {"localhost:3200", "https://localhost:3200", 200},
        {"localhost:3200", "http://localhost:3000", 403},
        {"localhost:3200", "http://evil.example", 403},
        {"localhost:3200", "null", 403},
        {"localhost:3200", "", 403},
        {"localhost:3200", "https://grafana.example", 200}, /* cors */
    };
    struct node_rig f;
    (void)state;
    start(&f, "{allowed_hosts: [braid.example], "
              "cors: {allowed_origins: ['https://grafana.example']}}");
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct fake_request *r = fake_request_new(f.h, "query", "/api/echo");
        fake_request_method(r, "GET");
        fake_request_host(r, cases[i].host);
        if (cases[i].origin)
            fake_request_header(r, "origin", cases[i].origin);
        fake_request_send(r, NULL, 0);
        fake_host_turn(f.h);
        if (fake_request_reply(r)->status != cases[i].status)
            fail_msg("%s %s gave %u", cases[i].host, cases[i].origin ? cases[i].origin : "-",
                     fake_request_reply(r)->status);
        fake_request_free(r);
    }
    end(&f);
}

/* Grafana opens it whatever is set, and waits. */
static void refuses_grpc(void **state)
{
    struct node_rig f;
    (void)state;
    start(&f, "{}");
    struct fake_request *r =
        ask(&f, "POST", "/tempopb.StreamingQuerier/Search", "content-type", "application/grpc");
    assert_true(fake_request_reply(r)->grpc);
    assert_int_equal(fake_request_reply(r)->grpc_status, 12);
    fake_request_free(r);
    end(&f);
}

/* --- With a store ----------------------------------------------------------------------------- */

/* Opens an empty folder for the node; its name goes to `ret`. */
static void open_store(struct node_rig *f, char ret[64])
{
    const struct query *query = f->node.state;
    struct br_err err = {0};
    (void)snprintf(ret, 64, "/tmp/braid-query-XXXXXX");
    assert_non_null(mkdtemp(ret));
    const struct br_store_config config = {.directory = ret,
                                           .max_bytes = 1 << 30,
                                           .max_age_ns = UINT64_MAX / 4,
                                           .partition_rows = 1000,
                                           .partition_age_ns = UINT64_MAX / 4};
    if (br_store_open(query->store, &config, &f->node.log, &err))
        fail_msg("%s", err.text);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_store(const char *folder)
{
    assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static struct fake_request *begin_get(struct node_rig *f, const char *path)
{
    struct fake_request *r = fake_request_new(f->h, "query", path);
    fake_request_method(r, "GET");
    fake_request_send(r, NULL, 0);
    return r;
}

static void answers_in_a_thread(void **state)
{
    struct node_rig f;
    char folder[64];
    (void)state;
    start(&f, "{}");
    open_store(&f, folder);
    f.h->threads = true;
    struct fake_request *r = begin_get(&f, "/api/search?q=%7B%7D");
    fake_host_turn(f.h);
    assert_false(fake_request_reply(r)->came);
    assert_int_equal(fake_host_work(f.h), 1);
    assert_string_equal(fake_request_reply(r)->body,
                        "{\"traces\":[],\"metrics\":{\"inspectedTraces\":0,\"completedJobs\":1,"
                        "\"totalJobs\":1}}");
    fake_request_free(r);
    expect(&f, "GET", "/ready", 200, "ready\n");
    end(&f);
    remove_store(folder);
}

/* A client may go before its query has a thread, and while the thread has it. */
static void ends_what_nobody_waits_for(void **state)
{
    struct node_rig f;
    char folder[64];
    (void)state;
    start(&f, "{max_concurrent: 2}");
    open_store(&f, folder);
    f.h->threads = true;
    struct fake_request *one = begin_get(&f, "/api/search?q=%7B%7D");
    struct fake_request *other = begin_get(&f, "/api/search?q=%7B%7D");
    struct fake_request *third = begin_get(&f, "/api/search?q=%7B%7D");
    assert_int_equal(fake_request_reply(third)->status, 503);
    assert_non_null(strstr(fake_request_reply(third)->headers, "retry-after: 1\n"));
    fake_request_gone(one);
    assert_int_equal(fake_host_work(f.h), 2);
    assert_false(fake_request_reply(one)->came);
    assert_int_equal(fake_request_reply(other)->status, 200);
    fake_request_free(one);
    fake_request_free(other);
    fake_request_free(third);
    end(&f);
    remove_store(folder);
}

/* The node goes before the thread has ended: it is waited for, and answers nobody. */
static void may_be_destroyed_under_way(void **state)
{
    struct node_rig f;
    char folder[64];
    (void)state;
    start(&f, "{}");
    open_store(&f, folder);
    f.h->threads = true;
    struct fake_request *r = begin_get(&f, "/api/search?q=%7B%7D");
    end_now(&f);
    fake_request_free(r);
    fake_host_free(f.h);
    remove_store(folder);
}

/* What streams lives on what is written, says now and then that it is alive, and ends with the
 * server. */
static void streams_until_the_end(void **state)
{
    struct node_rig f;
    char folder[64];
    (void)state;
    start(&f, "{}");
    open_store(&f, folder);
    struct fake_request *r = begin_get(&f, "/api/braid/tail");
    fake_host_turn(f.h);
    const struct fake_reply *reply = fake_request_reply(r);
    assert_true(reply->came && reply->streaming);
    assert_string_equal(reply->type, "text/event-stream");
    size_t len = reply->body_len;
    fake_host_advance(f.h, 14000);
    assert_int_equal(reply->body_len, len);
    fake_host_advance(f.h, 3000);
    assert_int_equal(reply->body_len, len + 3); /* a comment */
    assert_string_equal(reply->body + len, ":\n\n");
    struct fake_request *gone = begin_get(&f, "/api/braid/tail");
    fake_host_turn(f.h);
    fake_request_gone(gone);
    fake_request_free(gone);
    fake_host_drain(f.h, &f.node);
    assert_false(reply->streaming);
    assert_true(f.drained);
    fake_request_free(r);
    end_now(&f);
    fake_host_free(f.h);
    remove_store(folder);
}

static void refuses_configs(void **state)
{
    static const char *const cases[][2] = {
        {"{endpoint: here}", "endpoint: must be host:port"},
        {"{store: ''}", "store: must be the id of a store exporter"},
        {"{query_timeout: 11m}", "query_timeout: must be from 1ms to 10m"},
        {"{max_query_memory: 1}", "max_query_memory"},
        {"{max_concurrent: 0}", "max_concurrent"},
        {"{allowed_hosts: ['http://x']}", "allowed_hosts"},
    };
    (void)state;
    rig_expect_errors_in(&br_query_extension, cases, BR_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_what_needs_no_store),
        cmocka_unit_test(refuses_foreign_hosts_and_origins),
        cmocka_unit_test(refuses_grpc),
        cmocka_unit_test(answers_in_a_thread),
        cmocka_unit_test(ends_what_nobody_waits_for),
        cmocka_unit_test(may_be_destroyed_under_way),
        cmocka_unit_test(streams_until_the_end),
        cmocka_unit_test(refuses_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
