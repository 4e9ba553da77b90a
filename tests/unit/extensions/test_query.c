/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the extension query on a fake host: access control, answers with and without stored data,
 * and limits. */
#include <ftw.h>

#include "base/mem.h"
#include "extensions/query/query.h"
#include "tests/support/fault.h"
#include "tests/support/items.h"
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

static struct fake_request *send_query(struct node_rig *f, const char *method, const char *path,
                                       const char *header, const char *value)
{
    struct fake_request *r = fake_request_new(f->h, "query", path);
    fake_request_method(r, method);
    if (header)
        fake_request_header(r, header, value);
    fake_request_send(r, NULL, 0);
    fake_host_iterate(f->h);
    return r;
}

static void expect_status(struct node_rig *f, const char *method, const char *path, unsigned status,
                          const char *body)
{
    struct fake_request *r = send_query(f, method, path, NULL, NULL);
    const struct fake_reply *reply = fake_request_reply(r);
    assert_true(reply->came);
    if (reply->status != status || strcmp(reply->body, body) != 0)
        fail_msg("%s %s\ngave %u %s\nnot  %u %s", method, path, reply->status, reply->body, status,
                 body);
    fake_request_free(r);
}

static void requests_without_a_store_are_answered(void **state)
{
    struct node_rig f;
    (void)state;
    start(&f, "{}");
    expect_status(&f, "GET", "/api/echo", 200, "echo");
    expect_status(&f, "GET", "/ready", 503, "the store is not open\n");
    expect_status(&f, "GET", "/nowhere", 404, "404 page not found\n");
    expect_status(&f, "GET", "/api/echo/", 404, "404 page not found\n");
    expect_status(&f, "GET", "/api", 404, "404 page not found\n");
    expect_status(&f, "POST", "/api/echo", 405, "this path does not support the method\n");
    expect_status(&f, "DELETE", "/api/echo", 405, "this path does not support the method\n");
    expect_status(&f, "GET", "/api/echo?a=%zz", 400,
                  "the query has a malformed escape or too many parameters\n");
    struct fake_request *r = send_query(&f, "GET", "/api/status/buildinfo", NULL, NULL);
    assert_string_equal(fake_request_reply(r)->type, "application/json");
    assert_non_null(strstr(fake_request_reply(r)->body, "\"version\":\"2."));
    fake_request_free(r);
    end(&f);
}

static void foreign_hosts_and_origins_are_rejected(void **state)
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
        {"localhost:3200", "https://grafana.example", 200}, /* CORS */
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
        fake_host_iterate(f.h);
        if (fake_request_reply(r)->status != cases[i].status)
            fail_msg("%s %s gave %u", cases[i].host, cases[i].origin ? cases[i].origin : "-",
                     fake_request_reply(r)->status);
        fake_request_free(r);
    }
    end(&f);
}

/* Requests of a browser that have no Origin header. An image on another site must not cause work
 * for the server. A link to the page from another site is allowed. */
static void requests_embedded_in_other_sites_are_rejected(void **state)
{
    static const struct {
        const char *site, *mode;
        unsigned status;
    } cases[] = {
        {"same-origin", "no-cors", 200}, {"none", "navigate", 200},
        {"cross-site", "navigate", 200}, {"cross-site", "no-cors", 403},
        {"same-site", "no-cors", 403}, /* a page on another port of localhost */
        {"cross-site", NULL, 403},
    };
    struct node_rig f;
    (void)state;
    start(&f, "");
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct fake_request *r = fake_request_new(f.h, "query", "/api/echo");
        fake_request_method(r, "GET");
        fake_request_header(r, "sec-fetch-site", cases[i].site);
        if (cases[i].mode)
            fake_request_header(r, "sec-fetch-mode", cases[i].mode);
        fake_request_send(r, NULL, 0);
        fake_host_iterate(f.h);
        if (fake_request_reply(r)->status != cases[i].status)
            fail_msg("%s gave %u", cases[i].site, fake_request_reply(r)->status);
        fake_request_free(r);
    }
    end(&f);
}

static void answers_grpc_with_a_status(void **state)
{
    static const struct {
        const char *path;
        unsigned status;
    } cases[] = {
        {"/tempopb.StreamingQuerier/Search", BR_STATUS_UNAVAILABLE}, /* the store is not open */
        {"/tempopb.Querier/SearchRecent", BR_STATUS_UNIMPLEMENTED},
        {"/api/echo", BR_STATUS_UNIMPLEMENTED},
        {"/", BR_STATUS_UNIMPLEMENTED},
    };
    struct node_rig f;
    (void)state;
    start(&f, "{}");
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct fake_request *r =
            send_query(&f, "POST", cases[i].path, "content-type", "application/grpc");
        assert_true(fake_request_reply(r)->grpc);
        assert_int_equal(fake_request_reply(r)->grpc_status, cases[i].status);
        fake_request_free(r);
    }
    expect_status(&f, "POST", "/tempopb.StreamingQuerier/Search", 415, "this path requires gRPC\n");
    end(&f);
}

/* --- With a store ----------------------------------------------------------------------------- */

/* A node with a store whose directory is empty at first. */
struct stored {
    struct node_rig rig; /* this must be the first field */
    char directory[64];
};

static void start_stored(struct stored *f, const char *yaml)
{
    struct br_err err = {0};
    start(&f->rig, yaml);
    (void)snprintf(f->directory, sizeof f->directory, "/tmp/braid-query-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    const struct query *query = f->rig.node.state;
    const struct br_store_config config = {.directory = f->directory,
                                           .max_bytes = 1 << 30,
                                           .max_age_ns = UINT64_MAX / 4,
                                           .partition_rows = 1000,
                                           .partition_age_ns = UINT64_MAX / 4};
    if (br_store_open(query->store, &config, &f->rig.node.log, &err))
        fail_msg("%s", err.text);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_directory(const struct stored *f)
{
    assert_int_equal(nftw(f->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void end_stored(struct stored *f)
{
    end(&f->rig);
    remove_directory(f);
}

/* Ends a node that has been drained, or that must end without a drain. */
static void end_stored_now(struct stored *f)
{
    end_now(&f->rig);
    fake_host_free(f->rig.h);
    remove_directory(f);
}

static struct fake_request *begin_get(struct stored *f, const char *path)
{
    struct fake_request *r = fake_request_new(f->rig.h, "query", path);
    fake_request_method(r, "GET");
    fake_request_send(r, NULL, 0);
    return r;
}

static void write_items(struct stored *f)
{
    const struct query *query = f->rig.node.state;
    for (enum br_signal signal = BR_TRACES; signal <= BR_PROFILES; signal++) {
        struct br_err err = {0};
        struct wire w = {0};
        items_request(&w, signal, 0, 40, 2);
        struct br_item *item = items_walk(&f->rig.h->host, signal, w.data, w.len);
        const struct br_item *items[] = {item};
        if (br_store_write(query->store, items, 1, &err))
            fail_msg("%s", err.text);
        br_item_free(item);
        wire_free(&w);
    }
}

static void answers_in_a_thread(void **state)
{
    struct stored f;
    (void)state;
    start_stored(&f, "{}");
    f.rig.h->threads = true;
    struct fake_request *r = begin_get(&f, "/api/search?q=%7B%7D");
    fake_host_iterate(f.rig.h);
    assert_false(fake_request_reply(r)->came);
    assert_int_equal(fake_host_work(f.rig.h), 1);
    assert_string_equal(fake_request_reply(r)->body,
                        "{\"traces\":[],\"metrics\":{\"inspectedTraces\":0,\"completedJobs\":1,"
                        "\"totalJobs\":1}}");
    fake_request_free(r);
    expect_status(&f.rig, "GET", "/ready", 200, "ready\n");
    end_stored(&f);
}

/* A client may disconnect before a thread runs its query, or while a thread runs it. */
static void queries_of_disconnected_clients_end(void **state)
{
    struct stored f;
    (void)state;
    start_stored(&f, "{max_concurrent: 2}");
    f.rig.h->threads = true;
    struct fake_request *one = begin_get(&f, "/api/search?q=%7B%7D");
    struct fake_request *other = begin_get(&f, "/api/search?q=%7B%7D");
    struct fake_request *third = begin_get(&f, "/api/search?q=%7B%7D");
    assert_int_equal(fake_request_reply(third)->status, 503);
    assert_non_null(strstr(fake_request_reply(third)->headers, "retry-after: 1\n"));
    fake_request_gone(one);
    assert_int_equal(fake_host_work(f.rig.h), 2);
    assert_false(fake_request_reply(one)->came);
    assert_int_equal(fake_request_reply(other)->status, 200);
    fake_request_free(one);
    fake_request_free(other);
    fake_request_free(third);
    end_stored(&f);
}

/* The node is destroyed while a thread runs a query. The node waits for the thread, and does not
 * answer. */
static void may_be_destroyed_during_a_query(void **state)
{
    struct stored f;
    (void)state;
    start_stored(&f, "{}");
    f.rig.h->threads = true;
    struct fake_request *r = begin_get(&f, "/api/search?q=%7B%7D");
    end_now(&f.rig);
    fake_request_free(r);
    fake_host_free(f.rig.h);
    remove_directory(&f);
}

/* A streamed answer sends new data as it arrives. It sends comments to keep the connection open,
 * and ends when the server ends. */
static void streams_end_with_the_server(void **state)
{
    struct stored f;
    (void)state;
    start_stored(&f, "{}");
    struct fake_request *r = begin_get(&f, "/api/braid/tail");
    fake_host_iterate(f.rig.h);
    const struct fake_reply *reply = fake_request_reply(r);
    assert_true(reply->came && reply->streaming);
    assert_string_equal(reply->type, "text/event-stream");
    size_t len = reply->body_len;
    fake_host_advance(f.rig.h, 14000);
    assert_int_equal(reply->body_len, len);
    fake_host_advance(f.rig.h, 3000);
    assert_int_equal(reply->body_len, len + 3); /* a comment */
    assert_string_equal(reply->body + len, ":\n\n");
    struct fake_request *gone = begin_get(&f, "/api/braid/tail");
    fake_host_iterate(f.rig.h);
    fake_request_gone(gone);
    fake_request_free(gone);
    fake_host_drain(f.rig.h, &f.rig.node);
    assert_false(reply->streaming);
    assert_true(f.rig.drained);
    fake_request_free(r);
    end_stored_now(&f);
}

/* --- Limits of concurrent answers ------------------------------------------------------------- */

static void on_wake(struct br_conn *conn, void *owner)
{
    (void)conn;
    (void)owner;
}

/* Sends a request from a client that does not read. `unread` bytes are already waiting on its
 * connection. */
static struct fake_request *get_full(struct stored *f, struct br_conn *conn, const char *path,
                                     size_t unread)
{
    struct fake_request *r = fake_request_new(f->rig.h, "query", path);
    conn->wake = on_wake;
    fake_request_method(r, "GET");
    fake_request_on(r, conn);
    fake_request_stop_reading(r);
    fake_request_set_unread(r, unread);
    fake_request_send(r, NULL, 0);
    fake_host_iterate(f->rig.h);
    return r;
}

static struct fake_request *get_on(struct stored *f, struct br_conn *conn, const char *path)
{
    return get_full(f, conn, path, 0);
}

static unsigned status_of(struct fake_request *r)
{
    return fake_request_reply(r)->status;
}

/* An answer counts against the limit until all of it has been sent. If it makes no progress for a
 * second, a new query may replace it. */
static void slow_readers_are_replaced(void **state)
{
    struct br_conn conns[4] = {0};
    struct fake_request *r[4];
    struct stored f;
    (void)state;
    start_stored(&f, "{max_concurrent: 2}");
    for (int i = 0; i < 3; i++)
        r[i] = get_on(&f, &conns[i], "/api/braid/status");
    assert_int_equal(status_of(r[0]), 200);
    assert_int_equal(status_of(r[1]), 200);
    assert_int_equal(status_of(r[2]), 503);
    assert_false(conns[0].cut);
    fake_request_free(r[2]);
    fake_host_advance(f.rig.h, 1000);
    r[2] = get_on(&f, &conns[2], "/api/braid/status");
    assert_int_equal(status_of(r[2]), 200);
    assert_true(conns[0].cut);
    assert_false(conns[1].cut);
    fake_request_free(r[1]); /* the client has read its answer */
    r[3] = get_on(&f, &conns[3], "/api/braid/status");
    assert_int_equal(status_of(r[3]), 200);
    assert_false(conns[2].cut);
    assert_int_equal(fake_host_metric(f.rig.h, "braid_query_cut_off", "extension=\"query\""), 1);
    fake_request_free(r[0]);
    fake_request_free(r[2]);
    fake_request_free(r[3]);
    end_stored(&f);
}

/* All answers together may use a quarter of the memory limit, but a single answer may be larger. */
static void answers_have_a_share_of_the_memory(void **state)
{
    struct br_conn conns[3] = {0};
    struct fake_request *r[3];
    struct br_memory memory = {.hard = 1 << 30};
    struct stored f;
    (void)state;
    start_stored(&f, "{}");
    write_items(&f);
    r[0] = get_on(&f, &conns[0], "/api/braid/spans");
    size_t bytes = br_mem_held(BR_HOLDER_ANSWERS);
    assert_true(bytes >= fake_request_reply(r[0])->body_len);
    f.rig.h->host.memory = &memory;
    /* makes the memory of one worker exactly as large as this answer */
    f.rig.h->host.n_workers = (unsigned)((1 << 30) / 4 / bytes);
    r[1] = get_on(&f, &conns[1], "/api/echo");
    assert_int_equal(status_of(r[1]), 503);
    fake_request_free(r[1]);
    fake_host_advance(f.rig.h, 1000);
    r[1] = get_on(&f, &conns[1], "/api/echo");
    assert_int_equal(status_of(r[1]), 200);
    assert_true(conns[0].cut);
    fake_request_free(r[0]);
    fake_request_free(r[1]);
    assert_int_equal(br_mem_held(BR_HOLDER_ANSWERS), 0);
    f.rig.h->host.n_workers = 1 << 29;
    r[2] = get_on(&f, &conns[2], "/api/echo");
    assert_int_equal(status_of(r[2]), 200);
    fake_request_free(r[2]);
    f.rig.h->host.memory = NULL;
    end_stored(&f);
}

/* Live streams of new items (tails) have a separate limit. A new stream replaces the oldest one. */
static void tails_have_a_separate_limit(void **state)
{
    struct br_conn conns[3] = {0};
    struct fake_request *tails[3];
    struct stored f;
    (void)state;
    start_stored(&f, "{max_concurrent: 2}");
    for (int i = 0; i < 3; i++)
        tails[i] = get_on(&f, &conns[i], "/api/braid/tail");
    assert_false(fake_request_reply(tails[0])->streaming);
    assert_true(fake_request_reply(tails[1])->streaming);
    assert_true(fake_request_reply(tails[2])->streaming);
    struct fake_request *r = get_on(&f, &conns[0], "/api/braid/status");
    assert_int_equal(status_of(r), 200);
    fake_request_free(r);
    for (int i = 0; i < 3; i++)
        fake_request_free(tails[i]);
    end_stored(&f);
}

static void a_connection_may_have_half_of_the_answers(void **state)
{
    struct br_conn conn = {0}, other = {0};
    struct fake_request *r[4];
    struct stored f;
    (void)state;
    start_stored(&f, "{max_concurrent: 4}");
    for (int i = 0; i < 3; i++)
        r[i] = get_on(&f, &conn, "/api/braid/status");
    r[3] = get_on(&f, &other, "/api/braid/status");
    assert_int_equal(status_of(r[1]), 200);
    assert_int_equal(status_of(r[2]), 503);
    assert_int_equal(status_of(r[3]), 200);
    for (int i = 0; i < 4; i++)
        fake_request_free(r[i]);
    end_stored(&f);
}

/* --- Without memory --------------------------------------------------------------------------- */

#define METHOD(name) "/querier.v1.QuerierService/" name
#define TYPE "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define ALL "\"start\":1767225590000,\"end\":1767225610000"
#define SELECT "\"profileTypeID\":\"" TYPE "\",\"labelSelector\":\"{}\"," ALL
#define RANGE "start=1767225590&end=1767225610"
#define FROM "from=1767225590&until=1767225610"
#define TRACE "01000000000000000000000000000001"

/* One request for each route, and for each kind of work in a route. */
static const struct {
    const char *path, *body;
} asked[] = {
    {"/api/traces/" TRACE, NULL},
    {"/api/v2/traces/" TRACE, NULL},
    {"/api/search?q=%7Bname=~%22GET.*%22%7D%7Cselect(kind)&limit=2", NULL},
    {"/api/search?q=%7B%7D%3E%7Bspan.http.route=%22/a%22%7D%7Ccount()%3E0&limit=2", NULL},
    {"/api/search?tags=service.name%3Dservice-0&minDuration=1ns&limit=2", NULL},
    {"/api/search/tags", NULL},
    {"/api/v2/search/tags", NULL},
    {"/api/search/tag/service.name/values", NULL},
    {"/api/v2/search/tag/name/values", NULL},
    {"/api/v2/search/tag/span.http.route/values?q=%7Bname=%22GET%20/%22%7D", NULL},
    {"/api/v2/search/tag/rootServiceName/values", NULL},
    {"/api/metrics/query_range?q=%7B%7D%7Crate()by(name)&step=10s&" RANGE, NULL},
    {"/api/metrics/query?q=%7B%7D%7Cquantile_over_time(duration,.5)&" RANGE, NULL},
    {METHOD("ProfileTypes"), "{" ALL "}"},
    {METHOD("LabelNames"), "{" ALL "}"},
    {METHOD("LabelValues"), "{\"name\":\"service_name\"," ALL "}"},
    {METHOD("Series"), "{\"labelNames\":[\"service_name\"]," ALL "}"},
    {METHOD("SelectSeries"), "{\"step\":15,\"groupBy\":[\"service_name\"]," SELECT "}"},
    {METHOD("SelectMergeStacktraces"), "{" SELECT "}"},
    {METHOD("SelectMergeSpanProfile"), "{\"spanSelector\":[\"0000000000000001\"]," SELECT "}"},
    {METHOD("SelectMergeProfile"), "{" SELECT "}"},
    {METHOD("Diff"), "{\"left\":{" SELECT "},\"right\":{" SELECT "}}"},
    {METHOD("GetProfileStats"), "{}"},
    {"/pyroscope/render?query=" TYPE "{}&" FROM, NULL},
    {"/pyroscope/render-diff?leftQuery=" TYPE "{}&rightQuery=" TYPE "{}&leftFrom=1767225590&"
     "leftUntil=1767225610&rightFrom=1767225590&rightUntil=1767225610",
     NULL},
    {"/pyroscope/label-names", NULL},
    {"/pyroscope/label-values?label=service_name", NULL},
    {"/api/v1/query?query=topk(10,%20service-0.cpu{})&" FROM, NULL},
    {"/api/v1/profile?app=service-0&format=pprof&" FROM, NULL},
    {"/api/v1/profile?app=service-0&format=speedscope&" FROM, NULL},
    {"/api/v1/profile?app=service-0&format=folded&" FROM, NULL},
    {"/api/braid/status", NULL},
    {"/api/braid/services", NULL},
    {"/api/braid/operations?filter=get&" RANGE, NULL},
    {"/api/braid/spans?figures=subtree&order=cpu&limit=3", NULL},
    {"/api/braid/spans?q=%7Bname=%22GET%20/%22%7D&limit=3", NULL},
    {"/api/braid/traces/" TRACE, NULL},
    {"/api/braid/traces/" TRACE "/otlp", NULL},
    {"/api/braid/spans/" TRACE "/0000000000000004/profile?scope=subtree", NULL},
    {"/api/braid/profile?query=" TYPE "{}&" FROM, NULL},
    {"/api/braid/top?query=" TYPE "{}&" FROM, NULL},
    {"/api/braid/diff?left=query%3D" TYPE "{}&right=query%3D" TYPE "{}", NULL},
    {"/api/braid/slow?service=service-0&name=GET%20/&" RANGE, NULL},
    {"/api/braid/slow?service=service-0&name=GET%20/&of_service=service-0&of_name=GET%20/&" RANGE,
     NULL},
    {"/api/braid/timeline?step=10&" FROM, NULL},
    {"/api/braid/join", NULL},
};

/* Sends a request while the `n`-th allocation fails (0: none). Returns true if there were at least
 * `n` allocations. */
static bool send_query_without_memory(struct stored *f, size_t at, unsigned long n,
                                      struct fake_request **ret)
{
    const char *body = asked[at].body;
    struct fake_request *r = fake_request_new(f->rig.h, "query", asked[at].path);
    fake_request_method(r, body ? "POST" : "GET");
    fake_request_header(r, "content-type", "application/json");
    fake_request_header(r, "accept-encoding", at % 2 ? "gzip" : "identity");
    if (n)
        fault_nth(n);
    fake_request_send(r, body, body ? strlen(body) : 0);
    fake_host_iterate(f->rig.h);
    *ret = r;
    return n && fault_nth_stop();
}

/* Checks that the answer is either complete or an error. */
static void check_answer(size_t at, unsigned long n, const struct fake_reply *whole,
                         const struct fake_reply *reply)
{
    assert_true(reply->came);
    if (reply->status != 200) {
        if ((reply->status != 503 && reply->status != 422) || !reply->body_len)
            fail_msg("%s\nwithout allocation %lu gave %u %s", asked[at].path, n, reply->status,
                     reply->body);
        return;
    }
    bool same = reply->body_len == whole->body_len &&
                memcmp(reply->body, whole->body, whole->body_len) == 0;
    if (!same && !strstr(reply->headers, "braid-cut: "))
        fail_msg("%s\nwithout allocation %lu gave\n%s\nnot\n%s", asked[at].path, n, reply->body,
                 whole->body);
}

static void answers_are_complete_or_errors(void **state)
{
    struct stored f;
    (void)state;
    start_stored(&f, "{}");
    write_items(&f);
    for (size_t at = 0; at < BR_COUNT(asked); at++) {
        struct fake_request *whole, *after, *r;
        (void)send_query_without_memory(&f, at, 0, &whole);
        if (fake_request_reply(whole)->status != 200)
            fail_msg("%s\ngave %u %s", asked[at].path, fake_request_reply(whole)->status,
                     fake_request_reply(whole)->body);
        bool failed = true;
        for (unsigned long n = 1; failed; n++) {
            failed = send_query_without_memory(&f, at, n, &r);
            check_answer(at, n, fake_request_reply(whole), fake_request_reply(r));
            fake_request_free(r);
        }
        (void)send_query_without_memory(&f, at, 0, &after);
        check_answer(at, 0, fake_request_reply(whole), fake_request_reply(after));
        assert_int_equal(fake_request_reply(after)->status, 200);
        fake_request_free(after);
        fake_request_free(whole);
    }
    end_stored(&f);
}

/* Only names of items in the requested time range are returned. The items' time is in the range
 * ALL, and not before it. */
static void test_names_have_a_time_range(void **state)
{
    static const struct {
        const char *body;
        bool found;
    } cases[] = {
        {"{" ALL "}", true},
        {"{\"start\":1767225590000,\"end\":1767225591000}", false},
        {"{\"start\":1767225620000,\"end\":1767225630000}", false},
    };
    struct stored f;
    (void)state;
    start_stored(&f, "{}");
    write_items(&f);
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct fake_request *r = fake_request_new(f.rig.h, "query", METHOD("LabelNames"));
        fake_request_method(r, "POST");
        fake_request_header(r, "content-type", "application/json");
        fake_request_send(r, cases[i].body, strlen(cases[i].body));
        fake_host_iterate(f.rig.h);
        assert_int_equal(fake_request_reply(r)->status, 200);
        if (!strstr(fake_request_reply(r)->body, "service_name") == cases[i].found)
            fail_msg("%s gave %s", cases[i].body, fake_request_reply(r)->body);
        fake_request_free(r);
    }
    end_stored(&f);
}

static void test_an_unknown_sort_is_refused(void **state)
{
    struct stored f;
    (void)state;
    start_stored(&f, "{}");
    struct fake_request *r = begin_get(&f, "/api/braid/spans?sort=size");
    fake_host_iterate(f.rig.h);
    assert_int_equal(fake_request_reply(r)->status, 400);
    assert_non_null(
        strstr(fake_request_reply(r)->body, "must be duration, start or cpu, got \\\"size\\\""));
    fake_request_free(r);
    end_stored(&f);
}

static struct fake_request *begin_slice(struct stored *f)
{
    struct fake_request *r = begin_get(f, "/api/braid/slice");
    fake_host_iterate(f->rig.h);
    assert_true(fake_request_reply(r)->streaming);
    return r;
}

/* A download does not have a Content-Length. The client sees by the end of the transfer whether the
 * download is complete. */
static void downloads_are_complete_or_broken(void **state)
{
    struct stored f;
    (void)state;
    start_stored(&f, "{}");
    write_items(&f);
    struct fake_request *r = begin_slice(&f);
    const struct fake_reply *reply = fake_request_reply(r);
    fake_host_advance(f.rig.h, 1000);
    assert_false(reply->streaming || reply->broken);
    assert_int_equal(reply->body_len % 512, 0);
    fake_request_free(r);

    r = begin_slice(&f);
    reply = fake_request_reply(r);
    size_t len = reply->body_len;
    fault_nth(1);
    fake_host_advance(f.rig.h, 1000);
    assert_true(fault_nth_stop());
    assert_true(reply->broken && !reply->streaming);
    assert_int_equal(reply->body_len, len); /* the file does not contain an error message */
    fake_request_free(r);

    r = begin_slice(&f);
    reply = fake_request_reply(r);
    fake_host_drain(f.rig.h, &f.rig.node);
    assert_true(reply->broken && !reply->streaming);
    fake_request_free(r);
    end_stored_now(&f);
}

/* A client may read a slice slowly, until another client requests a slice. */
static void slow_downloads_are_replaced(void **state)
{
    struct br_conn conns[3] = {0};
    struct stored f;
    (void)state;
    start_stored(&f, "{}");
    write_items(&f);
    struct fake_request *slow = get_full(&f, &conns[0], "/api/braid/slice", QUERY_PIECES_MAX);
    fake_host_advance(f.rig.h, 9000);
    struct fake_request *r = get_on(&f, &conns[1], "/api/braid/slice");
    assert_int_equal(status_of(r), 503);
    fake_request_free(r);
    assert_true(fake_request_reply(slow)->streaming);
    fake_host_advance(f.rig.h, 60000);
    r = get_on(&f, &conns[2], "/api/braid/slice");
    assert_true(fake_request_reply(slow)->broken);
    assert_int_equal(status_of(r), 200);
    fake_request_free(slow);
    fake_request_free(r);
    end_stored(&f);
}

static void invalid_configs_are_rejected(void **state)
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

SUITE(query)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_without_a_store_are_answered),
        cmocka_unit_test(foreign_hosts_and_origins_are_rejected),
        cmocka_unit_test(requests_embedded_in_other_sites_are_rejected),
        cmocka_unit_test(answers_grpc_with_a_status),
        cmocka_unit_test(answers_in_a_thread),
        cmocka_unit_test(queries_of_disconnected_clients_end),
        cmocka_unit_test(may_be_destroyed_during_a_query),
        cmocka_unit_test(streams_end_with_the_server),
        cmocka_unit_test(slow_readers_are_replaced),
        cmocka_unit_test(test_names_have_a_time_range),
        cmocka_unit_test(test_an_unknown_sort_is_refused),
        cmocka_unit_test(answers_have_a_share_of_the_memory),
        cmocka_unit_test(tails_have_a_separate_limit),
        cmocka_unit_test(a_connection_may_have_half_of_the_answers),
        cmocka_unit_test(answers_are_complete_or_errors),
        cmocka_unit_test(downloads_are_complete_or_broken),
        cmocka_unit_test(slow_downloads_are_replaced),
        cmocka_unit_test(invalid_configs_are_rejected),
    };
    return RUN(tests, NULL, NULL);
}
