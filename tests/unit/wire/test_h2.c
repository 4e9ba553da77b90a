/* SPDX-License-Identifier: Apache-2.0 */
#include <nghttp2/nghttp2.h>

#include "base/err.h"
#include "base/mem.h"
#include "tests/support/fault.h"
#include "tests/support/h2_check.h"
#include "tests/support/h2_frames.h"
#include "tests/support/mem_meter.h"
#include "tests/support/test.h"

static int setup_bare(void **state)
{
    struct h2_check *c = calloc(1, sizeof *c);
    assert_true(h2_check_init(c));
    *state = c;
    return 0;
}

static int setup(void **state)
{
    struct wire w = {0};
    setup_bare(state);
    struct h2_check *c = *state;
    h2_preface(&w);
    assert_int_equal(h2_check_feed(c, w.data, w.len, 0), 0);
    wire_free(&w);
    return 0;
}

static int teardown(void **state)
{
    h2_check_release(*state);
    free(*state);
    return 0;
}

static void assert_log(const struct h2_check *c, const char *want)
{
    assert_string_equal(c->log.data ? c->log.data : "", want);
}

static int feed(struct h2_check *c, struct wire *w)
{
    int rc = h2_check_feed(c, w->data, w->len, 0);
    wire_free(w);
    return rc;
}

/* Returns true if the server has sent a frame of that type, on that stream, with that error
 * code. */
static bool sent_code(const struct h2_check *c, unsigned type, uint32_t stream, uint32_t code)
{
    struct wire all = {0};
    bool found = false;
    for (uint32_t i = 0; i < c->out.count; i++)
        wire_raw(&all, c->out.slices[i].data, c->out.slices[i].len);
    for (size_t at = 0; at + 9 <= all.len;) {
        const uint8_t *f = all.data + at;
        size_t len = (size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2];
        uint32_t id = (uint32_t)f[5] << 24 | (uint32_t)f[6] << 16 | (uint32_t)f[7] << 8 | f[8];
        const uint8_t *p = f + 9 + (type == H2_GOAWAY ? 4 : 0);
        if (f[3] == type && id == stream && at + 9 + len <= all.len)
            found = found || ((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
                              p[3]) == code;
        at += 9 + len;
    }
    wire_free(&all);
    return found;
}

#define NO_ERROR 0u
#define PROTOCOL_ERROR 1u
#define REFUSED_STREAM 7u
#define ENHANCE_YOUR_CALM 11u

static unsigned count_codes(const struct h2_check *c, unsigned type, uint32_t code)
{
    unsigned n = 0;
    for (uint32_t id = 1; id < 400; id += 2)
        n += sent_code(c, type, id, code);
    return n;
}

/* --- Floods ----------------------------------------------------------------------------------- */

/* Writes the frames of a flood for the n-th time. */
typedef void flood_fn(struct wire *w, uint32_t n);

static void pings(struct wire *w, uint32_t n)
{
    (void)n;
    h2_frame(w, H2_PING, 0, 0, "12345678", 8);
}

static void settings(struct wire *w, uint32_t n)
{
    (void)n;
    h2_frame(w, H2_SETTINGS, 0, 0, "\0\3\0\0\0\144", 6);
}

static void priorities(struct wire *w, uint32_t n)
{
    h2_frame(w, H2_PRIORITY, 0, 2 * n + 1, "\0\0\0\0\1", 5);
}

static void unknown_frames(struct wire *w, uint32_t n)
{
    (void)n;
    h2_frame(w, 0x77, 0, 0, "x", 1);
}

/* CVE-2019-9517 and similar attacks: WINDOW_UPDATE frames, although the server has sent no data. */
static void window_updates(struct wire *w, uint32_t n)
{
    (void)n;
    h2_frame(w, H2_WINDOW_UPDATE, 0, 0, "\0\0\0\1", 4);
}

/* CVE-2023-44487: requests that the client resets immediately. */
static void rapid_resets(struct wire *w, uint32_t n)
{
    h2_headers(w, 2 * n + 1, "/later", 0);
    h2_frame(w, H2_RST_STREAM, 0, 2 * n + 1, "\0\0\0\10", 4);
}

/* CVE-2019-9518 */
static void empty_data(struct wire *w, uint32_t n)
{
    if (n == 0)
        h2_headers(w, 1, "/never", 0);
    h2_frame(w, H2_DATA, 0, 1, NULL, 0);
}

/* CVE-2025-8671: frames that make the server reset the stream. Here: a WINDOW_UPDATE with an
 * increment of 0. */
static void made_you_reset(struct wire *w, uint32_t n)
{
    h2_headers(w, 2 * n + 1, "/later", H2_END_STREAM);
    h2_frame(w, H2_WINDOW_UPDATE, 0, 2 * n + 1, "\0\0\0\0", 4);
}

/* CVE-2025-8671: window updates that increase a window beyond 2^31 - 1. */
static void window_overflows(struct wire *w, uint32_t n)
{
    h2_headers(w, 2 * n + 1, "/later", H2_END_STREAM);
    h2_frame(w, H2_WINDOW_UPDATE, 0, 2 * n + 1, "\x7f\xff\xff\xff", 4);
}

/* CVE-2025-8671: request bodies longer than their content-length. */
static void wrong_lengths(struct wire *w, uint32_t n)
{
    struct wire fields = {0};
    h2_request(&fields, "/later", "text/plain");
    h2_field(&fields, "content-length", "1");
    h2_frame(w, H2_HEADERS, H2_END_HEADERS, 2 * n + 1, fields.data, fields.len);
    h2_frame(w, H2_DATA, H2_END_STREAM, 2 * n + 1, "two", 3);
    wire_free(&fields);
}

static void malformed_requests(struct wire *w, uint32_t n)
{
    struct wire fields = {0};
    h2_field(&fields, "Upper", "case"); /* RFC 9113 section 8.2.1 */
    h2_frame(w, H2_HEADERS, H2_END_HEADERS | H2_END_STREAM, 2 * n + 1, fields.data, fields.len);
    wire_free(&fields);
}

/* An endless header block (CVE-2024-27316 and similar attacks). */
static void continuations(struct wire *w, uint32_t n)
{
    if (n == 0) {
        struct wire fields = {0};
        h2_request(&fields, "/", "text/plain");
        h2_frame(w, H2_HEADERS, 0, 1, fields.data, fields.len);
        wire_free(&fields);
        return;
    }
    struct wire field = {0};
    h2_field(&field, "x", "y");
    h2_frame(w, H2_CONTINUATION, 0, 1, field.data, field.len);
    wire_free(&field);
}

static void empty_continuations(struct wire *w, uint32_t n)
{
    if (n == 0)
        h2_frame(w, H2_HEADERS, 0, 1, "\x83", 1);
    else
        h2_frame(w, H2_CONTINUATION, 0, 1, NULL, 0);
}

/* Checks that the flood ends the connection within 1,000 repetitions. The clock does not advance.
 * The check is done twice: with one input per repetition, and with all repetitions in one input,
 * during which the server cannot send. */
static void check_flood(const char *name, flood_fn *flood)
{
    for (int at_once = 0; at_once < 2; at_once++) {
        struct h2_check *c;
        struct wire all = {0};
        setup((void **)&c);
        int rc = 0;
        uint32_t n = 0;
        for (; n < 1000 && !rc; n++) {
            struct wire w = {0};
            flood(at_once ? &all : &w, n);
            rc = at_once ? 0 : feed(c, &w);
        }
        if (at_once)
            rc = feed(c, &all);
        if (!rc)
            fail_msg("%s%s: the connection is open after %u", name, at_once ? " at once" : "", n);
        teardown((void **)&c);
    }
}

static void floods_end_the_connection(void **state)
{
    (void)state;
#define FLOOD(fn) check_flood(#fn, fn)
    FLOOD(pings);
    FLOOD(settings);
    FLOOD(priorities);
    FLOOD(unknown_frames);
    FLOOD(window_updates);
    FLOOD(rapid_resets);
    FLOOD(empty_data);
    FLOOD(made_you_reset);
    FLOOD(window_overflows);
    FLOOD(wrong_lengths);
    FLOOD(malformed_requests);
    FLOOD(continuations);
    FLOOD(empty_continuations);
}

static void floods_end_with_enhance_your_calm(void **state)
{
    struct h2_check *c = *state;
    int rc = 0;
    for (uint32_t n = 0; n < 1000 && !rc; n++) {
        struct wire w = {0};
        pings(&w, n);
        rc = feed(c, &w);
    }
    assert_true(rc != 0);
    assert_true(sent_code(c, H2_GOAWAY, 0, ENHANCE_YOUR_CALM));
}

/* Occasional use of these frames by a legitimate client does not count as a flood. */
static void moderate_use_is_allowed(void **state)
{
    struct h2_check *c = *state;
    for (uint32_t n = 0; n < 4000; n++) {
        struct wire w = {0};
        c->now_ms += 25; /* 40 repetitions a second */
        pings(&w, n);
        assert_int_equal(feed(c, &w), 0);
    }
    /* nghttp2 also limits the rate of these frames, by the real clock, so only 900 are sent */
    for (uint32_t n = 0; n < 900; n++) {
        struct wire w = {0};
        c->now_ms += 25;
        rapid_resets(&w, n);
        assert_int_equal(feed(c, &w), 0);
    }
    assert_int_equal(c->n_gone, 900);
}

/* gRPC A8, as implemented by grpc-go: three PINGs too close together since the last reply end
 * the connection. */
static void the_rate_of_pings_is_limited(void **state)
{
    static const struct {
        bool without_stream, stream, reply;
        uint64_t apart_ms;
        /* number of PINGs that do not end the connection; 10: all PINGs that the case sends */
        unsigned survives;
    } cases[] = {
        {false, true, false, 1000, 10}, {false, true, false, 999, 3},
        {false, false, false, 1000, 3}, {true, false, false, 1000, 10},
        {true, false, false, 999, 3},   {false, false, false, 7200000, 10},
        {false, true, true, 1, 10},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct h2_check c;
        struct wire w = {0};
        assert_true(h2_check_init_with(
            &c, &(struct br_conn_limits){.ping_min_ms = 1000,
                                         .ping_without_stream = cases[i].without_stream}));
        h2_preface(&w);
        if (cases[i].stream)
            h2_headers(&w, 1, "/later", 0);
        assert_int_equal(feed(&c, &w), 0);
        unsigned n = 0;
        for (; n < 10; n++) {
            c.now_ms += cases[i].apart_ms;
            if (cases[i].reply)
                h2_headers(&w, 2 * n + 3, "/now", H2_END_STREAM);
            pings(&w, 0);
            if (feed(&c, &w) || c.conn->fault)
                break;
        }
        if (n != cases[i].survives)
            fail_msg("case %zu: %u PINGs", i, n);
        assert_int_equal(c.conn->fault, n < 10 ? BR_FAULT_FLOOD : BR_FAULT_NONE);
        assert_true(n == 10 || sent_code(&c, H2_GOAWAY, 0, ENHANCE_YOUR_CALM));
        h2_check_release(&c);
    }
}

/* The client may acknowledge the server's PING once. If the client acknowledges PINGs that the
 * server has not sent, this counts as a flood. */
static void our_pings_are_answered_once(void **state)
{
    struct h2_check *c = *state;
    struct wire w = {0};
    for (int i = 0; i < 300; i++) {
        assert_true(c->conn->ops->ping(c->conn));
        /* the client has not acknowledged the last PING yet */
        assert_false(c->conn->ops->ping(c->conn));
        h2_frame(&w, H2_PING, H2_ACK, 0, "\0\0\0\0\0\0\0\0", 8);
        assert_int_equal(feed(c, &w), 0);
    }
    int rc = 0;
    for (int i = 0; i < 300 && !rc; i++) {
        h2_frame(&w, H2_PING, H2_ACK, 0, "\0\0\0\0\0\0\0\0", 8);
        rc = feed(c, &w);
    }
    assert_true(rc != 0);
    assert_true(sent_code(c, H2_GOAWAY, 0, ENHANCE_YOUR_CALM));
}

/* A frame counts as incomplete until all of it has arrived, wherever it is cut. */
static void incomplete_frames_are_awaited(void **state)
{
    struct h2_check *c = *state;
    struct wire w = {0};
    h2_frame(&w, H2_PING, 0, 0, "12345678", 8);
    for (size_t cut = 1; cut < w.len; cut++) {
        c->now_ms += 1000;
        assert_int_equal(h2_check_feed(c, w.data, cut, 0), 0);
        assert_int_equal(c->conn->ops->awaits_since(c->conn, c->now_ms + 5000, BR_AWAITS_HEAD),
                         c->now_ms);
        c->now_ms += 1000;
        assert_int_equal(h2_check_feed(c, w.data + cut, w.len - cut, 0), 0);
        assert_true(c->conn->ops->awaits_since(c->conn, c->now_ms, BR_AWAITS_HEAD) == UINT64_MAX);
    }
    wire_free(&w);
}

/* Requests do not count as a flood, however many there are. grpc-go sends a PING after each
 * request, which does not count either. */
static void requests_are_not_a_flood(void **state)
{
    struct h2_check *c = *state;
    for (uint32_t n = 0; n < 3000; n++) {
        struct wire w = {0};
        h2_headers(&w, 2 * n + 1, "/", 0);
        h2_frame(&w, H2_DATA, H2_END_STREAM, 2 * n + 1, "x", 1);
        h2_frame(&w, H2_PING, 0, 0, "12345678", 8);
        assert_int_equal(feed(c, &w), 0);
        br_str_clear(&c->log);
        br_rope_release(&c->out);
    }
    assert_int_equal(c->n_replied, 3000);
}

/* --- Limits of one request -------------------------------------------------------------------- */

/* A byte that refers to HPACK's table can expand to kilobytes (CVE-2016-6581). */
static void header_bombs_are_rejected(void **state)
{
    struct h2_check *c = *state;
    struct wire w = {0}, fields = {0};
    h2_request(&fields, "/bomb", "text/plain");
    /* an entry added to the table: a name of one byte and a value of 3,000 bytes */
    wire_byte(&fields, 0x40);
    wire_byte(&fields, 1);
    wire_byte(&fields, 'x');
    wire_byte(&fields, 0x7f);
    wire_number(&fields, 3000 - 127);
    for (int i = 0; i < 3000; i++)
        wire_byte(&fields, 'a');
    for (int i = 0; i < 1000; i++)
        wire_byte(&fields, 0x80 | 62); /* many references to the entry */
    h2_frame(&w, H2_HEADERS, H2_END_HEADERS | H2_END_STREAM, 1, fields.data, fields.len);
    wire_free(&fields);
    (void)feed(c, &w);
    assert_int_equal(c->n_begun, 0);
}

/* --- Memory of a connection ------------------------------------------------------------------- */

/* Opens a connection whose whole memory is measured. The caller must end it with meter_free. */
static void meter_open(struct h2_check *c, const char *settings, size_t len)
{
    struct wire w = {0};
    wire_raw(&w, H2_PREFACE, sizeof H2_PREFACE - 1);
    h2_frame(&w, H2_SETTINGS, 0, 0, settings, len);
    mem_meter = (struct mem_meter){0};
    br_mem_set_hooks(&mem_meter_hooks);
    assert_true(h2_check_init(c));
    assert_int_equal(feed(c, &w), 0);
    br_rope_release(&c->out);
}

/* Feeds the bytes, and returns the number of streams that were reset with the code. Output that
 * was sent no longer counts as memory of the connection. */
static unsigned feed_and_send(struct h2_check *c, struct wire *w, uint32_t code)
{
    assert_int_equal(feed(c, w), 0);
    unsigned n = count_codes(c, H2_RST_STREAM, code);
    br_rope_release(&c->out);
    return n;
}

static void meter_free(struct h2_check *c)
{
    h2_check_release(c);
    assert_int_equal(mem_meter.live, 0);
    br_mem_set_hooks(NULL);
}

/* The client sends a hundred requests with 60 KiB of headers each, which are encoded in a few
 * bytes. The bodies are unfinished. */
static void headers_of_a_connection_are_limited(void **state)
{
    (void)state;
    struct h2_check c;
    struct wire w = {0}, fields = {0};
    unsigned n_reset = 0;
    meter_open(&c, NULL, 0);
    for (uint32_t i = 0; i < 100; i++) {
        h2_request(&fields, "/never", "text/plain");
        if (i == 0) {
            wire_byte(&fields, 0x40); /* an entry that is added to the table */
            wire_byte(&fields, 1);
            wire_byte(&fields, 'x');
            wire_byte(&fields, 0x7f);
            wire_number(&fields, 4000 - 127);
            for (int n = 0; n < 4000; n++)
                wire_byte(&fields, 'a');
        }
        for (int n = 0; n < 15; n++)
            wire_byte(&fields, 0x80 | 62);
        h2_frame(&w, H2_HEADERS, H2_END_HEADERS, 2 * i + 1, fields.data, fields.len);
        wire_free(&fields);
        n_reset += feed_and_send(&c, &w, ENHANCE_YOUR_CALM);
    }
    assert_in_range(c.n_begun, 5, 20);
    assert_int_equal(n_reset, 100 - c.n_begun);
    assert_in_range(c.conn->ops->held(c.conn), 300 << 10, 1 << 20);
    assert_in_range(mem_meter.peak, 300 << 10, 1 << 20);
    /* When requests end, their headers are freed, so new requests are accepted. */
    for (uint32_t i = 0; i < 100; i++)
        h2_frame(&w, H2_RST_STREAM, 0, 2 * i + 1, "\0\0\0\10", 4);
    h2_headers(&w, 201, "/now", H2_END_STREAM);
    assert_int_equal(feed(&c, &w), 0);
    assert_int_equal(c.n_replied, 1);
    assert_int_equal(c.conn->ops->held(c.conn), 0);
    meter_free(&c);
}

/* The client's window is 0, and it sends the maximum number of requests, so all answers must
 * wait. */
static void waiting_answers_hold_little_memory(void **state)
{
    (void)state;
    struct h2_check c;
    struct wire w = {0};
    meter_open(&c, "\0\4\0\0\0\0", 6);
    for (uint32_t i = 0; i < 100; i++) {
        h2_headers(&w, 2 * i + 1, "/body", 0);
        h2_frame(&w, H2_DATA, H2_END_STREAM, 2 * i + 1, "body", 4);
    }
    assert_int_equal(feed(&c, &w), 0);
    assert_int_equal(c.n_replied, 100);
    br_rope_release(&c.out);
    assert_in_range(mem_meter.live, 10 << 10, 256 << 10);
    meter_free(&c);
}

/* Large answers do not accumulate: if the answers of a connection that wait exceed a limit, further
 * requests are rejected as retryable. */
static void replies_of_a_connection_are_limited(void **state)
{
    (void)state;
    struct h2_check c;
    struct wire w = {0};
    meter_open(&c, "\0\4\0\0\0\0", 6);
    c.reply_bytes = 40000;
    unsigned n_reset = 0, n = 0;
    for (uint32_t i = 0; i < 50; i++) {
        h2_headers(&w, 2 * i + 1, "/now", H2_END_STREAM);
        n_reset += feed_and_send(&c, &w, REFUSED_STREAM);
    }
    n = c.n_replied;
    assert_in_range(n, 5, 8);
    assert_int_equal(n_reset, 50 - n);
    assert_in_range(mem_meter.peak, 200 << 10, 400 << 10);
    for (uint32_t i = 0; i < n; i++) { /* the client finally reads the answers */
        h2_frame(&w, H2_WINDOW_UPDATE, 0, 2 * i + 1, "\0\0\377\377", 4);
        h2_frame(&w, H2_WINDOW_UPDATE, 0, 0, "\0\0\377\377", 4);
    }
    assert_int_equal(feed(&c, &w), 0);
    h2_headers(&w, 201, "/now", H2_END_STREAM);
    assert_int_equal(feed(&c, &w), 0);
    assert_int_equal(c.n_replied, n + 1);
    meter_free(&c);
}

#define IDLE_MAX 32768 /* bytes; nghttp2 holds most of this memory, and uses half of it */

/* Between requests, a connection holds very little memory. */
static void idle_connections_are_small(void **state)
{
    (void)state;
    struct h2_check c;
    struct wire w = {0};
    meter_open(&c, NULL, 0);
    for (uint32_t i = 0; i < 50; i++) {
        h2_headers(&w, 2 * i + 1, "/body", 0);
        h2_frame(&w, H2_DATA, H2_END_STREAM, 2 * i + 1, "body", 4);
        assert_int_equal(feed(&c, &w), 0);
    }
    br_rope_release(&c.out);
    print_message("an idle connection: %zu bytes\n", mem_meter.live - c.log.cap);
    assert_in_range(mem_meter.live - c.log.cap, 1000, IDLE_MAX);
    meter_free(&c);
}

static void send_fields(struct h2_check *c, uint32_t stream, unsigned n, size_t len)
{
    struct wire w = {0}, fields = {0};
    h2_request(&fields, "/", "text/plain");
    for (unsigned i = 0; i < n; i++)
        h2_long_field(&fields, "x", len);
    const uint8_t *p = fields.data;
    unsigned type = H2_HEADERS;
    while (fields.len > 0) {
        size_t most = fields.len < 16384 ? fields.len : 16384;
        unsigned flags =
            (most == fields.len ? H2_END_HEADERS : 0) | (type == H2_HEADERS ? H2_END_STREAM : 0);
        h2_frame(&w, type, flags, stream, p, most);
        p += most;
        fields.len -= most;
        type = H2_CONTINUATION;
    }
    wire_free(&fields);
    (void)feed(c, &w);
}

static void sizes_and_numbers_of_headers_are_limited(void **state)
{
    struct h2_check *c = *state;
    send_fields(c, 1, 100, 200);
    assert_int_equal(c->n_begun, 1);
    /* :method, :path and other pseudo-headers are five */
    send_fields(c, 3, BR_REQUEST_HEADERS_MAX - 5, 128);
    assert_int_equal(c->n_begun, 2);
    send_fields(c, 5, BR_REQUEST_HEADERS_MAX - 4, 128);
    assert_int_equal(c->n_begun, 2);
    send_fields(c, 7, 4, 15000);
    assert_int_equal(c->n_begun, 3);
    send_fields(c, 9, 5, 15000);
    assert_int_equal(c->n_begun, 3);
}

static void a_skipped_stream_stays_closed(void **state)
{
    struct h2_check *c = *state;
    struct wire w = {0};
    h2_headers(&w, 7, "/", H2_END_STREAM);
    assert_int_equal(feed(c, &w), 0);
    h2_headers(&w, 3, "/", H2_END_STREAM); /* RFC 9113 section 5.1.1 */
    assert_true(feed(c, &w) != 0);
    assert_true(sent_code(c, H2_GOAWAY, 0, PROTOCOL_ERROR));
    assert_int_equal(c->n_begun, 1);
}

static void bodies_over_the_maximum_end_early(void **state)
{
    struct h2_check *c = *state;
    char data[3000];
    struct wire w = {0};
    memset(data, 'x', sizeof data);
    h2_headers(&w, 1, "/later", 0);
    h2_frame(&w, H2_DATA, 0, 1, data, 3000);
    h2_frame(&w, H2_DATA, 0, 1, data, 1096); /* 4,096 bytes in total, which is the maximum */
    assert_int_equal(feed(c, &w), 0);
    assert_log(c, "begin /later; ");
    h2_frame(&w, H2_DATA, 0, 1, "y", 1);
    assert_int_equal(feed(c, &w), 0);
    assert_log(c, "begin /later; error 1; ");
    h2_frame(&w, H2_DATA, H2_END_STREAM, 1, data, 3000); /* discarded */
    assert_int_equal(feed(c, &w), 0);
    assert_log(c, "begin /later; error 1; ");
    h2_check_answer(c);
}

/* --- gRPC framing ----------------------------------------------------------------------------- */

/* Sends a request for /grpc with this body. If `cut` is not 0, the body is divided into two frames
 * at this offset. */
static void grpc(struct h2_check *c, uint32_t stream, const struct wire *body, size_t cut)
{
    struct wire w = {0};
    h2_headers(&w, stream, "/grpc", 0);
    if (cut)
        h2_frame(&w, H2_DATA, 0, stream, body->data, cut);
    h2_frame(&w, H2_DATA, H2_END_STREAM, stream, body->len ? body->data + cut : NULL,
             body->len - cut);
    assert_int_equal(feed(c, &w), 0);
}

static void a_message_may_be_cut_anywhere(void **state)
{
    struct h2_check *c = *state;
    struct wire body = {0}, bytes = {0};
    uint32_t stream = 1;
    h2_message(&body, 0, "hello", 5);
    for (size_t cut = 0; cut <= body.len; cut++, stream += 2) {
        br_str_clear(&c->log);
        grpc(c, stream, &body, cut);
        assert_log(c, "begin /grpc; body 5 hello; ");
    }
    /* the result is the same if the frames arrive one byte at a time */
    br_str_clear(&c->log);
    h2_headers(&bytes, stream, "/grpc", 0);
    for (size_t i = 0; i < body.len; i++)
        h2_frame(&bytes, H2_DATA, i + 1 == body.len, stream, body.data + i, 1);
    assert_int_equal(h2_check_feed(c, bytes.data, bytes.len, 1), 0);
    assert_log(c, "begin /grpc; body 5 hello; ");
    wire_free(&bytes);
    wire_free(&body);
}

static void check_message(const char *bytes, size_t len, const char *want)
{
    for (size_t cut = 0; cut < len || cut == 0; cut++) {
        struct h2_check *c;
        struct wire body = {0};
        setup((void **)&c);
        wire_raw(&body, bytes, len);
        grpc(c, 1, &body, cut);
        if (!c->log.data || strcmp(c->log.data + strlen("begin /grpc; "), want) != 0)
            fail_msg("%zu bytes: %s, not %s", len, c->log.data ? c->log.data : "", want);
        wire_free(&body);
        teardown((void **)&c);
    }
}

#define TOO_BIG "error 1; "
#define MALFORMED "error 2; "

static void a_request_has_one_message(void **state)
{
    (void)state;
    check_message("", 0, MALFORMED);
    check_message("\0", 1, MALFORMED);
    check_message("\0\0\0\0", 4, MALFORMED);
    check_message("\0\0\0\0\0", 5, "body 0 ; ");
    check_message("\0\0\0\0\1", 5, MALFORMED);  /* the message is missing */
    check_message("\0\0\0\0\2a", 6, MALFORMED); /* the end of the message is missing */
    check_message("\0\0\0\0\1a", 6, "body 1 a; ");
    check_message("\0\0\0\0\1ab", 7, MALFORMED); /* bytes after the message */
    check_message("\0\0\0\0\0b", 6, MALFORMED);
    check_message("\0\0\0\0\1a\0\0\0\0\1b", 12, MALFORMED); /* two messages */
    check_message("\0\0\0\0\0\0\0\0\0\0", 10, MALFORMED);   /* two empty messages */
    /* the server passes on the flag "compressed"; the service checks the encoding */
    check_message("\1\0\0\0\1a", 6, "body 1 packed a; ");
    check_message("\2\0\0\0\1a", 6, MALFORMED);
    check_message("\xff\0\0\0\1a", 6, MALFORMED);
    check_message("\0\xff\xff\xff\xff", 5, TOO_BIG);
    check_message("\0\xff\xff\xff\xff"
                  "abc",
                  8, TOO_BIG);
    check_message("\0\x7f\xff\xff\xff", 5, TOO_BIG);
    check_message("\0\0\0\x10\1", 5, TOO_BIG);   /* 4,097 */
    check_message("\0\0\0\x10\0", 5, MALFORMED); /* 4,096 bytes, which is the maximum */
}

/* --- With a client ---------------------------------------------------------------------------- */

/* A client on nghttp2, which is independent of Braid's HTTP/2 code. */
struct peer {
    struct h2_check *c;
    nghttp2_session *session;
    struct br_str log; /* such as "1 :status=200; 1 data 4 done; 1 closed 0; " */
    int result;        /* the server's result for its last input */
};

static int on_header(nghttp2_session *s, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct peer *p = user;
    (void)s;
    (void)flags;
    br_str_printf(&p->log, "%d %.*s=%.*s; ", frame->hd.stream_id, (int)name_len, (const char *)name,
                  (int)value_len, (const char *)value);
    return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *user)
{
    struct peer *p = user;
    (void)s;
    (void)flags;
    br_str_printf(&p->log, "%d data ", id);
    for (size_t i = 0; i < len; i++)
        br_str_putc(&p->log, data[i] < ' ' ? (char)('0' + data[i]) : (char)data[i]);
    br_str_puts(&p->log, "; ");
    return 0;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t code, void *user)
{
    struct peer *p = user;
    (void)s;
    br_str_printf(&p->log, "%d closed %u; ", id, code);
    return 0;
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *frame, void *user)
{
    struct peer *p = user;
    (void)s;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        br_str_printf(&p->log, "goaway %d %u; ", frame->goaway.last_stream_id,
                      frame->goaway.error_code);
    return 0;
}

static void peer_init(struct peer *p, struct h2_check *c)
{
    nghttp2_session_callbacks *cb;
    *p = (struct peer){.c = c};
    nghttp2_session_callbacks_new(&cb);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_client_new(&p->session, cb, p);
    nghttp2_session_callbacks_del(cb);
    nghttp2_submit_settings(p->session, NGHTTP2_FLAG_NONE, NULL, 0);
}

static void peer_free(struct peer *p)
{
    nghttp2_session_del(p->session);
    br_str_release(&p->log);
}

/* Transfers bytes in both directions until both sides are idle. */
static void carry(struct peer *p)
{
    for (bool more = true; more && !p->result;) {
        const uint8_t *data;
        ssize_t n;
        more = false;
        while ((n = nghttp2_session_mem_send(p->session, &data)) > 0 && !p->result) {
            p->result = h2_check_feed(p->c, data, (size_t)n, 0);
            more = true;
        }
        (void)h2_check_pull(p->c);
        for (uint32_t i = 0; i < p->c->out.count; i++) {
            (void)nghttp2_session_mem_recv(p->session, p->c->out.slices[i].data,
                                           p->c->out.slices[i].len);
            more = true;
        }
        br_rope_release(&p->c->out);
    }
}

struct upload {
    const char *data;
    size_t len;
    bool open; /* the body is not complete yet */
};

static ssize_t read_upload(nghttp2_session *s, int32_t id, uint8_t *buf, size_t len,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct upload *u = source->ptr;
    (void)s;
    (void)id;
    (void)user;
    if (u->len == 0 && u->open)
        return NGHTTP2_ERR_DEFERRED;
    size_t n = u->len < len ? u->len : len;
    memcpy(buf, u->data, n);
    u->data += n;
    u->len -= n;
    if (u->len == 0 && !u->open)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int32_t request(struct peer *p, const char *method, const char *path, struct upload *u)
{
#define NV(n, v) {(uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), strlen(v), 0}
    nghttp2_nv nv[] = {NV(":method", method), NV(":scheme", "http"), NV(":path", path),
                       NV(":authority", "localhost"), NV("te", "trailers")};
    nghttp2_data_provider provider = {{.ptr = u}, read_upload};
    int32_t id = nghttp2_submit_request(p->session, NULL, nv, 5, u ? &provider : NULL, NULL);
    carry(p);
    return id;
}

static void a_unary_call_has_its_status_in_trailers(void **state)
{
    struct peer p;
    struct upload u = {"\0\0\0\0\5hello", 10, false};
    peer_init(&p, *state);
    request(&p, "POST", "/grpc", &u);
    assert_string_equal(p.log.data, "1 :status=200; 1 content-type=application/grpc; 1 x-more=1; "
                                    "1 data 00004done; 1 grpc-status=0; 1 closed 0; ");
    peer_free(&p);
}

static void replies_over_http(void **state)
{
    struct peer p;
    struct upload u = {"hello", 5, false};
    peer_init(&p, *state);
    request(&p, "POST", "/x?a=b", &u);
    assert_string_equal(p.log.data, "1 :status=200; 1 content-type=text/plain; 1 x-more=1; "
                                    "1 content-length=4; 1 data done; 1 closed 0; ");
    br_str_clear(&p.log);
    request(&p, "HEAD", "/y", NULL);
    assert_string_equal(p.log.data, "3 :status=200; 3 content-type=text/plain; 3 x-more=1; "
                                    "3 content-length=4; 3 closed 0; ");
    br_str_clear(&p.log);
    request(&p, "GET", "/empty", NULL);
    assert_string_equal(p.log.data, "5 :status=200; 5 content-type=text/plain; 5 x-more=1; "
                                    "5 content-length=0; 5 closed 0; ");
    assert_log(p.c, "begin /x; body 5 hello; begin /y; body 0 ; begin /empty; body 0 ; ");
    peer_free(&p);
}

static void failures_are_trailers_only(void **state)
{
    struct peer p;
    struct upload u = {"\0\0\0\0\0", 5, false};
    peer_init(&p, *state);
    request(&p, "POST", "/grpc/fail", &u);
    assert_string_equal(p.log.data, "1 :status=200; 1 content-type=application/grpc; 1 x-more=1; "
                                    "1 grpc-status=3; 1 grpc-message=no; 1 closed 0; ");
    peer_free(&p);
}

/* The server answers before it has received the whole request. It then reads up to 64 KiB of the
 * rest of the request. If there is more, it resets the stream with NO_ERROR (RFC 9113 section
 * 8.1). */
static void early_answers_wait_for_the_rest_of_the_request(void **state)
{
    struct peer p;
    static char data[70000];
    struct upload u = {"some", 4, true}, large = {data, sizeof data, true};
    memset(data, 'x', sizeof data);
    peer_init(&p, *state);
    int32_t id = request(&p, "POST", "/now", &u);
    assert_true(!p.log.data || !strstr(p.log.data, "data"));
    u.open = false;
    nghttp2_session_resume_data(p.session, id);
    carry(&p);
    assert_non_null(strstr(p.log.data, "1 data done; 1 closed 0; "));
    request(&p, "POST", "/now", &large);
    assert_non_null(strstr(p.log.data, "3 data done; 3 closed 0; "));
    assert_log(p.c, "begin /now; begin /now; ");
    assert_true(p.c->conn->ops->idle(p.c->conn));
    peer_free(&p);
}

static void a_client_may_reset_its_request(void **state)
{
    struct peer p;
    struct upload u = {"all", 3, false}, part = {"some", 4, true};
    peer_init(&p, *state);
    int32_t a = request(&p, "POST", "/later", &u), b = request(&p, "POST", "/later", &part);
    assert_false(p.c->conn->ops->idle(p.c->conn));
    /* The server still waits for the rest of the second request. */
    assert_int_equal(p.c->conn->ops->awaits_since(p.c->conn, p.c->now_ms, BR_AWAITS_BODY),
                     p.c->now_ms);
    nghttp2_submit_rst_stream(p.session, 0, a, NGHTTP2_CANCEL);
    nghttp2_submit_rst_stream(p.session, 0, b, NGHTTP2_CANCEL);
    carry(&p);
    assert_int_equal(p.c->n_gone, 2);
    assert_true(p.c->conn->ops->idle(p.c->conn));
    assert_true(p.c->conn->ops->awaits_since(p.c->conn, p.c->now_ms, BR_AWAITS_BODY) == UINT64_MAX);
    h2_check_answer(p.c); /* no request remains */
    peer_free(&p);
}

static void many_streams_at_once(void **state)
{
    struct peer p;
    static struct upload uploads[100];
    peer_init(&p, *state);
    for (int i = 0; i < 100; i++) {
        uploads[i] = (struct upload){"hello", 5, false};
        request(&p, "POST", "/later", &uploads[i]);
    }
    assert_int_equal(p.c->n_bodies, 100);
    h2_check_answer(p.c);
    carry(&p);
    assert_int_equal(p.c->n_replied, 100);
    unsigned n = 0;
    for (const char *at = p.log.data; (at = strstr(at, "data done;")); at++)
        n++;
    assert_int_equal(n, 100);
    peer_free(&p);
}

static void shutdown_finishes_requests_in_progress(void **state)
{
    struct peer p;
    struct upload u = {"hello", 5, false};
    peer_init(&p, *state);
    request(&p, "POST", "/later", &u);
    p.c->conn->ops->shutdown(p.c->conn);
    carry(&p);
    assert_non_null(strstr(p.log.data, "goaway 1 0; "));
    assert_false(p.c->conn->ops->finished(p.c->conn));
    h2_check_answer(p.c);
    p.result = 0;
    carry(&p);
    assert_non_null(strstr(p.log.data, "1 data done; "));
    assert_true(p.c->conn->ops->idle(p.c->conn));
    assert_true(p.c->conn->ops->finished(p.c->conn));
    peer_free(&p);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void scenario(void *arg)
{
    static struct h2_check c;
    struct wire w = {0};
    (void)arg;
    h2_preface(&w);
    for (uint32_t i = 0; i < 4; i++) {
        static const char *const paths[] = {"/grpc", "/grpc/fail", "/x", "/later"};
        h2_headers(&w, 2 * i + 1, paths[i], 0);
        h2_frame(&w, H2_DATA, 0, 2 * i + 1, "\0\0\0", 3);
        h2_frame(&w, H2_DATA, H2_END_STREAM, 2 * i + 1, "\0\5hello", 7);
    }
    fault_start();
    if (h2_check_init(&c)) {
        int rc = h2_check_feed(&c, w.data, w.len, 50);
        if (!rc) {
            h2_check_answer(&c);
            rc = h2_check_pull(&c);
        }
        assert_true(rc == 0 || fault_failed());
    } else {
        assert_true(fault_failed());
    }
    h2_check_release(&c);
    fault_stop();
    wire_free(&w);
}

static void streams_end_without_memory(void **state)
{
    (void)state;
    fault_each("h2 server", scenario, NULL);
}

SUITE(h2)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floods_end_the_connection),
        cmocka_unit_test(the_rate_of_pings_is_limited),
        TEST(our_pings_are_answered_once),
        cmocka_unit_test(headers_of_a_connection_are_limited),
        cmocka_unit_test(waiting_answers_hold_little_memory),
        cmocka_unit_test(replies_of_a_connection_are_limited),
        cmocka_unit_test(idle_connections_are_small),
        TEST(incomplete_frames_are_awaited),
        TEST(floods_end_with_enhance_your_calm),
        TEST(moderate_use_is_allowed),
        TEST(requests_are_not_a_flood),
        TEST(header_bombs_are_rejected),
        TEST(sizes_and_numbers_of_headers_are_limited),
        TEST(a_skipped_stream_stays_closed),
        TEST(bodies_over_the_maximum_end_early),
        TEST(a_message_may_be_cut_anywhere),
        cmocka_unit_test(a_request_has_one_message),
        cmocka_unit_test_setup_teardown(a_unary_call_has_its_status_in_trailers, setup_bare,
                                        teardown),
        cmocka_unit_test_setup_teardown(replies_over_http, setup_bare, teardown),
        cmocka_unit_test_setup_teardown(failures_are_trailers_only, setup_bare, teardown),
        cmocka_unit_test_setup_teardown(early_answers_wait_for_the_rest_of_the_request, setup_bare,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_client_may_reset_its_request, setup_bare, teardown),
        cmocka_unit_test_setup_teardown(many_streams_at_once, setup_bare, teardown),
        cmocka_unit_test_setup_teardown(shutdown_finishes_requests_in_progress, setup_bare,
                                        teardown),
        cmocka_unit_test(streams_end_without_memory),
    };
    return RUN(tests, NULL, NULL);
}
