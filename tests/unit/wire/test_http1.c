/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "tests/support/corpus.h"
#include "tests/support/http1_cases.h"
#include "tests/support/http1_events.h"
#include "tests/support/mem_meter.h"
#include "tests/support/test.h"

/* Returns all events of these bytes. Checks that the events are the same if the bytes arrive
 * together, one by one, or in two pieces with any cut. */
static struct br_str events(char kind, const char *bytes, size_t len)
{
    const uint8_t *data = (const uint8_t *)bytes;
    struct br_str whole = {0};
    http1_events((enum http1_kind)kind, data, len, 0, 0, &whole);
    br_str_putc(&whole, '\0');
    for (size_t cut = 0; cut < len && (cut == 0 || len < 2000); cut++) {
        struct br_str other = {0};
        http1_events((enum http1_kind)kind, data, len, cut, cut == 0, &other);
        br_str_putc(&other, '\0');
        if (other.len != whole.len || memcmp(other.data, whole.data, whole.len) != 0)
            fail_msg("cut at %zu: %s\nwhole: %s\nof: %s", cut, other.data, whole.data, bytes);
        br_str_release(&other);
    }
    return whole;
}

static void assert_events(char kind, const char *bytes, size_t len, const char *want)
{
    struct br_str got = events(kind, bytes, len);
    assert_string_equal(got.data, want);
    br_str_release(&got);
}

/* Checks that the bytes are rejected with this status because of their content, not because they
 * end early. Ignores the events before the error. */
static void assert_refused(char kind, const char *bytes, size_t len, unsigned status,
                           const char *what)
{
    struct br_str got = events(kind, bytes, len);
    char want[16];
    snprintf(want, sizeof want, "!%u ", status);
    const char *at = memrchr(got.data, '!', got.len);
    if (!at || strncmp(at, want, strlen(want)) != 0)
        fail_msg("%s: should be %u: %s", what, status, got.data);
    if (strstr(at, "the connection closed") && !strstr(what, "connection closes"))
        fail_msg("%s: is only rejected because it ends", what);
    br_str_release(&got);
}

static void test_invalid(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(http1_invalid); i++) {
        const struct http1_case *c = &http1_invalid[i];
        assert_refused(c->kind, c->bytes, c->len, c->status, c->what);
    }
}

/* A message is not complete before its last byte has arrived. */
static void test_cut_off(void **state)
{
    (void)state;
    static const char request[] = CHUNKED "3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n";
    for (size_t len = 1; len < sizeof request - 1; len++) {
        struct br_str got = events('q', request, len);
        assert_non_null(strstr(got.data, "!400 the connection closed"));
        assert_null(strstr(got.data, ";\n"));
        br_str_release(&got);
    }
    assert_events('q', request, sizeof request - 1,
                  "POST / 1.1 keep chunked|host:a|transfer-encoding:chunked\nabc;\n");
}

struct valid_case {
    char kind;
    const char *bytes;
    const char *want;
};

static const struct valid_case valid[] = {
    {'q', GET "\r\n", "GET / 1.1 keep|host:a\n;\n"},
    /* RFC 9112 section 2.2: an empty line before a request is ignored. */
    {'q', "\r\n" GET "\r\n", "GET / 1.1 keep|host:a\n;\n"},
    {'q', GET "\r\n\r\n" GET "\r\n", "GET / 1.1 keep|host:a\n;\nGET / 1.1 keep|host:a\n;\n"},
    {'q', "\r\n", ""},
    {'q', "", ""},
    /* RFC 9112 section 5.1: white space around a value does not belong to it. RFC 9110 section
     * 5.5: white space and bytes above ASCII are allowed inside. Names become lower-case. */
    {'q', GET "X-Trace_ID:\t a \tb \t\r\nEmpty:\r\nBlank:  \r\nY:\xc3\xa9\r\n\r\n",
     "GET / 1.1 keep|host:a|x-trace_id:a \tb|empty:|blank:|y:\xc3\xa9\n;\n"},
    {'q', POST "Content-Length: 3\r\n\r\nabc" GET "\r\n",
     "POST / 1.1 keep length=3|host:a|content-length:3\nabc;\nGET / 1.1 keep|host:a\n;\n"},
    {'q', POST "content-length: 0\r\n\r\n",
     "POST / 1.1 keep length=0|host:a|content-length:0\n;\n"},
    {'q', POST "Content-Length: 003\r\n\r\nabc",
     "POST / 1.1 keep length=3|host:a|content-length:003\nabc;\n"},
    /* The greatest allowed length is 2^63 - 1. The connection closes long before the body is
     * complete. */
    {'q', POST "Content-Length: 9223372036854775807\r\n\r\nabc",
     "POST / 1.1 keep length=9223372036854775807|host:a|content-length:9223372036854775807\n"
     "abc!400 the connection closed in the middle of a message\n"},
    /* RFC 9112 section 7: coding names are case-insensitive; 7.1: so are chunk sizes. */
    {'q', POST "Transfer-Encoding: Chunked\r\n\r\na\r\n0123456789\r\nA\r\n0123456789\r\n00\r\n\r\n",
     "POST / 1.1 keep chunked|host:a|transfer-encoding:Chunked\n01234567890123456789;\n"},
    /* RFC 9112 section 7.1.1, with all its optional white space; section 7.1.2: trailers. */
    {'q',
     CHUNKED
     "3 ; a ; b = c;d=\"\t;\\\"\\\\\"\r\nabc\r\n0;x\r\nContent-Length: 7\r\nX: y\r\n\r\n" GET
     "\r\n",
     "POST / 1.1 keep chunked|host:a|transfer-encoding:chunked\nabc;\nGET / 1.1 keep|host:a\n;\n"},
    {'q', CHUNKED "0\r\n\r\n", "POST / 1.1 keep chunked|host:a|transfer-encoding:chunked\n;\n"},
    {'q', CHUNKED "7fffffffffffffff\r\nabc",
     "POST / 1.1 keep chunked|host:a|transfer-encoding:chunked\nabc"
     "!400 the connection closed in the middle of a message\n"},
    /* RFC 9112 section 3.2: the forms of a target. */
    {'q', "POST /v1/traces?a=%20&b={c|d} HTTP/1.1\r\nHost: a\r\n\r\n",
     "POST /v1/traces?a=%20&b={c|d} 1.1 keep|host:a\n;\n"},
    {'q', "GET http://a:80/x?y HTTP/1.1\r\nHost: A:80\r\n\r\n", "GET /x?y 1.1 keep|host:A:80\n;\n"},
    {'q', "GET HTTPS://a HTTP/1.1\r\nHost: a\r\n\r\n", "GET / 1.1 keep|host:a\n;\n"},
    {'q', "GET http://a?b/c HTTP/1.1\r\nHost: a\r\n\r\n", "GET /?b/c 1.1 keep|host:a\n;\n"},
    {'q', "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * 1.1 keep|host:a\n;\n"},
    {'q', "OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS / 1.1 keep|host:a\n;\n"},
    {'q', "M-SEARCH / HTTP/1.1\r\nHost: a\r\n\r\n", "M-SEARCH / 1.1 keep|host:a\n;\n"},
    {'q', "GET / HTTP/1.1\r\nHost: [::1]:4318\r\n\r\n", "GET / 1.1 keep|host:[::1]:4318\n;\n"},
    {'q', "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / 1.1 keep|host:\n;\n"},
    /* RFC 9112 section 9.3: when a connection stays open. Bytes after the last message are
     * ignored. */
    {'q', "GET / HTTP/1.0\r\n\r\n" GET "\r\n", "GET / 1.0 close\n;\n"},
    {'q', "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
     "GET / 1.0 keep|connection:Keep-Alive\n;\n"},
    {'q', "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
     "GET / 1.0 close|connection:keep-alive, close\n;\n"},
    {'q', GET "Connection: close\r\n\r\n\0\0\n", "GET / 1.1 close|host:a|connection:close\n;\n"},
    {'q', GET "Connection: te , ,\tCLOSE\r\n\r\n",
     "GET / 1.1 close|host:a|connection:te , ,\tCLOSE\n;\n"},
    {'q', GET "Connection: te\r\nConnection: close\r\n\r\n",
     "GET / 1.1 close|host:a|connection:te|connection:close\n;\n"},
    {'q', GET "Connection: closed\r\n\r\n", "GET / 1.1 keep|host:a|connection:closed\n;\n"},
    /* RFC 9110 section 7.8: Upgrade may be ignored. The body then has its stated length. */
    {'q', POST "Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab" GET "\r\n",
     "POST / 1.1 keep length=2|host:a|connection:upgrade|upgrade:h2c|content-length:2\n"
     "ab;\nGET / 1.1 keep|host:a\n;\n"},
    /* RFC 9110 section 10.1.1: "100-continue" has no effect if the request has no content, or uses
     * HTTP/1.0. */
    {'q', POST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
     "POST / 1.1 keep length=1 continue|host:a|expect:100-Continue|content-length:1\nx;\n"},
    {'q', GET "Expect: 100-continue\r\n\r\n", "GET / 1.1 keep|host:a|expect:100-continue\n;\n"},
    {'q', "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
     "POST / 1.0 close length=1|expect:100-continue|content-length:1\nx;\n"},
    /* Responses. RFC 9112 section 6.3: the ways to state a length, by precedence. */
    {'r', "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 No Content\r\n\r\n",
     "200 1.1 keep length=3|content-length:3\nabc;\n204 1.1 keep\n;\n"},
    {'r', OK_CHUNKED "3\r\nabc\r\n0\r\n\r\n",
     "200 1.1 keep chunked|transfer-encoding:chunked\nabc;\n"},
    {'r', "HTTP/1.1 200 OK\r\n\r\nabc\r\nHTTP/1.1 200", "200 1.1 close\nabc\r\nHTTP/1.1 200;\n"},
    {'r', "HTTP/1.0 200 OK\r\n\r\n", "200 1.0 close\n;\n"},
    {'r', "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204\r\n\r\n",
     "304 1.1 keep length=9|content-length:9\n;\n204 1.1 keep\n;\n"},
    /* RFC 9112 section 4: the reason phrase may be any text, or empty. */
    {'r', "HTTP/1.1 503 \r\nContent-Length: 0\r\n\r\n",
     "503 1.1 keep length=0|content-length:0\n;\n"},
    {'r', "HTTP/1.1 429 Too\tmany \xe2\x98\x83\r\nContent-Length: 0\r\n\r\n",
     "429 1.1 keep length=0|content-length:0\n;\n"},
    /* RFC 9110 section 15.2: any number of interim responses may precede the final response. */
    {'r',
     "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
     "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
     "200 1.1 keep length=0|content-length:0\n;\n"},
};

static void test_valid(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(valid); i++)
        assert_events(valid[i].kind, valid[i].bytes, strlen(valid[i].bytes), valid[i].want);
}

/* Returns `head`, padded with x to `len` bytes, and `tail`. */
static struct br_str padded(const char *head, size_t len, const char *tail)
{
    struct br_str s = {0};
    br_str_puts(&s, head);
    while (s.len + strlen(tail) < len)
        br_str_putc(&s, 'x');
    br_str_puts(&s, tail);
    assert_int_equal(s.len, len);
    return s;
}

static struct br_str repeated(const char *head, const char *line, size_t n, const char *tail)
{
    struct br_str s = {0};
    br_str_puts(&s, head);
    for (size_t i = 0; i < n; i++)
        br_str_puts(&s, line);
    br_str_puts(&s, tail);
    return s;
}

/* Checks that the last message is complete (`status` 0), or that `status` is the error. */
static void assert_limit(char kind, struct br_str s, unsigned status)
{
    if (status) {
        assert_refused(kind, s.data, s.len, status, "over the limit");
    } else {
        struct br_str got = events(kind, s.data, s.len);
        assert_non_null(got.data);
        assert_null(memchr(got.data, '!', got.len));
        assert_string_equal(got.data + got.len - 3, ";\n");
        br_str_release(&got);
    }
    br_str_release(&s);
}

static void test_limits(void **state)
{
    (void)state;
    static const char over_line[] = " HTTP/1.1\r\n";
    /* The size of the head is limited, even if the head only consists of a request line. */
    assert_limit('q', padded(GET "X: ", BR_HTTP1_HEAD_MAX, "\r\n\r\n"), 0);
    assert_limit('q', padded(GET "X: ", BR_HTTP1_HEAD_MAX + 1, "\r\n\r\n"), 431);
    assert_limit('q', padded(GET "X: ", BR_HTTP1_HEAD_MAX + 1, ""), 431);
    assert_limit('q', padded("GET /", BR_HTTP1_HEAD_MAX + 1, over_line), 414);
    assert_limit('q', padded("GET /", BR_HTTP1_HEAD_MAX, " HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
    /* The number of headers is limited. Host counts, too. */
    assert_limit('q', repeated(GET, "X: y\r\n", BR_HTTP1_HEADERS_MAX - 1, "\r\n"), 0);
    assert_limit('q', repeated(GET, "X: y\r\n", BR_HTTP1_HEADERS_MAX, "\r\n"), 431);
    /* The limit applies to the sum of all responses: interim responses of 25 bytes each, and the
     * final response of 38 bytes. */
    size_t n_interim = (BR_HTTP1_HEAD_MAX - 38) / 25;
    static const char final[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_limit('r', repeated("", "HTTP/1.1 100 Continue\r\n\r\n", n_interim, final), 0);
    assert_limit('r', repeated("", "HTTP/1.1 100 Continue\r\n\r\n", n_interim + 1, final), 431);
    /* The length of the line with a chunk's size is limited, and so is the total size of all
     * extensions. Each extension has 4 bytes here. */
    assert_limit('q', padded(CHUNKED "0;", strlen(CHUNKED) + 1024 + 2, "\r\n\r\n"), 0);
    assert_limit('q', padded(CHUNKED "0;", strlen(CHUNKED) + 1025 + 2, "\r\n\r\n"), 400);
    assert_limit('q', repeated(CHUNKED, "1;a=b\r\nx\r\n", 4096, "0\r\n\r\n"), 0);
    assert_limit('q', repeated(CHUNKED, "1;a=b\r\nx\r\n", 4096, "0;a\r\n\r\n"), 400);
    assert_limit('q', repeated(CHUNKED, "1;a=b\r\nx\r\n", 4097, "0\r\n\r\n"), 400);
    /* Trailers have the same limits as a head. */
    size_t before = strlen(CHUNKED "0\r\n");
    assert_limit('q', padded(CHUNKED "0\r\nX: ", before + BR_HTTP1_HEAD_MAX, "\r\n\r\n"), 0);
    assert_limit('q', padded(CHUNKED "0\r\nX: ", before + BR_HTTP1_HEAD_MAX + 1, "\r\n\r\n"), 431);
    assert_limit('q', repeated(CHUNKED "0\r\n", "X: y\r\n", BR_HTTP1_HEADERS_MAX, "\r\n"), 0);
    assert_limit('q', repeated(CHUNKED "0\r\n", "X: y\r\n", BR_HTTP1_HEADERS_MAX + 1, "\r\n"), 431);
}

/* The headers that the parser returns with the event HEAD are still valid at the event DONE. Later
 * lines have moved the buffer that contained the headers. */
static void test_fields_stay_until_done(void **state)
{
    (void)state;
    struct br_http1 p;
    assert_int_equal(br_http1_init(&p, false), 0);
    struct br_str in = padded(CHUNKED "1;a=", 900, "\r\nx\r\n0\r\nX: y\r\n\r\n");
    enum br_http1_event event = BR_HTTP1_MORE;
    for (size_t i = 0; i < in.len; i++) {
        const uint8_t *data = (const uint8_t *)in.data + i, *body;
        size_t len = 1, body_len;
        while ((event = br_http1_next(&p, &data, &len, &body, &body_len)) == BR_HTTP1_HEAD ||
               event == BR_HTTP1_BODY)
            continue;
        assert_int_equal(len, 0);
        assert_int_equal(event, i + 1 == in.len ? BR_HTTP1_DONE : BR_HTTP1_MORE);
    }
    assert_string_equal(p.method, "POST");
    assert_string_equal(p.target, "/");
    assert_string_equal(br_http1_header(&p, "host"), "a");
    assert_string_equal(br_http1_header(&p, "transfer-encoding"), "chunked");
    assert_null(br_http1_header(&p, "x"));
    assert_int_equal(br_http1_eof(&p), BR_HTTP1_MORE);
    br_http1_release(&p);
    br_http1_release(&p);
    br_str_release(&in);
}

static enum br_http1_event feed(struct br_http1 *p, const char *text)
{
    const uint8_t *data = (const uint8_t *)text, *body;
    size_t len = strlen(text), body_len;
    return br_http1_next(p, &data, &len, &body, &body_len);
}

static void test_errors_are_permanent(void **state)
{
    (void)state;
    struct br_http1 p;
    assert_int_equal(br_http1_init(&p, false), 0);
    assert_int_equal(feed(&p, "GET / HTTP/1.1\r\n\r\n"), BR_HTTP1_ERROR);
    assert_int_equal(feed(&p, GET "\r\n"), BR_HTTP1_ERROR);
    assert_int_equal(feed(&p, ""), BR_HTTP1_ERROR);
    assert_int_equal(br_http1_eof(&p), BR_HTTP1_ERROR);
    assert_int_equal(p.error_status, 400);
    assert_string_equal(p.error_text, "there is no Host header");
    assert_false(p.keep_alive);
    br_http1_release(&p);
}

/* A head of the maximum size arrives byte by byte. The parser holds at most the line and the
 * strings of the headers, and temporarily a second copy while a buffer grows. After the head, it
 * holds little memory. */
static void test_memory(void **state)
{
    (void)state;
    struct br_str in = padded(GET "X: ", BR_HTTP1_HEAD_MAX, "\r\n\r\n");
    mem_meter.live = mem_meter.peak = 0;
    br_mem_set_hooks(&mem_meter_hooks);
    struct br_http1 p;
    assert_int_equal(br_http1_init(&p, false), 0);
    size_t at_first = mem_meter.live;
    assert_true(at_first < 512);
    for (size_t i = 0; i < in.len; i++) {
        const uint8_t *data = (const uint8_t *)in.data + i, *body;
        size_t len = 1, body_len;
        assert_int_equal(br_http1_next(&p, &data, &len, &body, &body_len),
                         i + 1 == in.len ? BR_HTTP1_HEAD : BR_HTTP1_MORE);
    }
    assert_int_equal(feed(&p, ""), BR_HTTP1_DONE);
    assert_int_equal(feed(&p, ""), BR_HTTP1_MORE);
    assert_true(mem_meter.live <= at_first + 12 * 1024);
    assert_true(mem_meter.peak > BR_HTTP1_HEAD_MAX && mem_meter.peak < 3 * BR_HTTP1_HEAD_MAX);
    br_http1_release(&p);
    br_mem_set_hooks(NULL);
    assert_int_equal(mem_meter.live, 0);
    br_str_release(&in);
}

/* Fails the n-th allocation, for every n, until everything succeeds. */
static void test_allocation_failures(void **state)
{
    (void)state;
    struct br_str in = repeated(GET, "Name: a value of some length\r\n", 120,
                                "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    bool done = false;
    for (long n = 1; !done; n++) {
        assert_true(n < 200);
        mem_meter.live = 0;
        mem_meter.fail_at = n;
        br_mem_set_hooks(&mem_meter_hooks);
        struct br_http1 p = {0};
        int rc = br_http1_init(&p, false);
        enum br_http1_event event = BR_HTTP1_MORE;
        for (size_t i = 0; !rc && i < in.len && event != BR_HTTP1_ERROR; i++) {
            const uint8_t *data = (const uint8_t *)in.data + i, *body;
            size_t len = 1, body_len;
            while ((event = br_http1_next(&p, &data, &len, &body, &body_len)) == BR_HTTP1_HEAD ||
                   event == BR_HTTP1_BODY)
                continue;
        }
        done = mem_meter.fail_at > 0;
        assert_true(done ? event == BR_HTTP1_DONE
                         : rc == BR_ENOMEM || (event == BR_HTTP1_ERROR && p.error_status == 503));
        br_http1_release(&p);
        br_mem_set_hooks(NULL);
        mem_meter.fail_at = 0;
        assert_int_equal(mem_meter.live, 0);
    }
    br_str_release(&in);
}

static void replay(const uint8_t *data, size_t len)
{
    if (len < 2)
        return;
    struct br_str got = events((char)data[0], (const char *)data + 2, len - 2);
    br_str_release(&got);
}

static void test_corpus(void **state)
{
    (void)state;
    assert_true(corpus_replay("http1", replay) >= 20);
}

SUITE(http1)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_valid),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_fields_stay_until_done),
        cmocka_unit_test(test_errors_are_permanent),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_corpus),
    };
    return RUN(tests, NULL, NULL);
}
