/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/corpus.h"
#include "support/http1_cases.h"
#include "support/http1_events.h"

/* All there is to say about these bytes, which must be the same however they are cut: whole, in single
 * bytes, and in two at every place. */
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

/* Refused with this status, whatever was said before. */
static void assert_refused(char kind, const char *bytes, size_t len, unsigned status,
                           const char *what)
{
    struct br_str got = events(kind, bytes, len);
    char want[16];
    snprintf(want, sizeof want, "!%u ", status);
    const char *at = memrchr(got.data, '!', got.len);
    if (!at || strncmp(at, want, strlen(want)) != 0)
        fail_msg("%s: should be %u: %s", what, status, got.data);
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

/* A prefix of a message is never a message: nothing complete is reported before the last byte. */
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
    /* RFC 9112 section 2.2: one empty line before a request. */
    {'q', "\r\n" GET "\r\n", "GET / 1.1 keep|host:a\n;\n"},
    {'q', GET "\r\n\r\n" GET "\r\n", "GET / 1.1 keep|host:a\n;\nGET / 1.1 keep|host:a\n;\n"},
    {'q', "\r\n", ""},
    {'q', "", ""},
    /* RFC 9112 section 5.1: white space around a value is not part of it; RFC 9110 section 5.5: inside
     * it is, and bytes over ASCII are. Names are lower-cased. */
    {'q', GET "X-Trace_ID:\t a \tb \t\r\nEmpty:\r\nBlank:  \r\nY:\xc3\xa9\r\n\r\n",
     "GET / 1.1 keep|host:a|x-trace_id:a \tb|empty:|blank:|y:\xc3\xa9\n;\n"},
    {'q', POST "Content-Length: 3\r\n\r\nabc" GET "\r\n",
     "POST / 1.1 keep length=3|host:a|content-length:3\nabc;\nGET / 1.1 keep|host:a\n;\n"},
    {'q', POST "content-length: 0\r\n\r\n", "POST / 1.1 keep length=0|host:a|content-length:0\n;\n"},
    {'q', POST "Content-Length: 003\r\n\r\nabc",
     "POST / 1.1 keep length=3|host:a|content-length:003\nabc;\n"},
    /* The largest length: 2^63 - 1; the connection closes long before. */
    {'q', POST "Content-Length: 9223372036854775807\r\n\r\nabc",
     "POST / 1.1 keep length=9223372036854775807|host:a|content-length:9223372036854775807\n"
     "abc!400 the connection closed in the middle of a message\n"},
    /* RFC 9112 section 7: coding names are case-insensitive; 7.1: so are chunk sizes. */
    {'q', POST "Transfer-Encoding: Chunked\r\n\r\na\r\n0123456789\r\nA\r\n0123456789\r\n00\r\n\r\n",
     "POST / 1.1 keep chunked|host:a|transfer-encoding:Chunked\n01234567890123456789;\n"},
    /* RFC 9112 section 7.1.1, with all its optional white space; section 7.1.2: trailers. */
    {'q',
     CHUNKED "3 ; a ; b = c;d=\"\t;\\\"\\\\\"\r\nabc\r\n0;x\r\nContent-Length: 7\r\nX: y\r\n\r\n" GET
             "\r\n",
     "POST / 1.1 keep chunked|host:a|transfer-encoding:chunked\nabc;\nGET / 1.1 keep|host:a\n;\n"},
    {'q', CHUNKED "0\r\n\r\n",
     "POST / 1.1 keep chunked|host:a|transfer-encoding:chunked\n;\n"},
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
    /* RFC 9112 section 9.3: who keeps the connection. What follows the last message does not count. */
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
    /* RFC 9110 section 7.8: Upgrade may be ignored, and then the body is what its length says. */
    {'q', POST "Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab" GET "\r\n",
     "POST / 1.1 keep length=2 upgrade|host:a|connection:upgrade|upgrade:h2c|content-length:2\n"
     "ab;\nGET / 1.1 keep|host:a\n;\n"},
    /* RFC 9110 section 10.1.1: not without content, and not from HTTP/1.0. */
    {'q', POST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
     "POST / 1.1 keep length=1 continue|host:a|expect:100-Continue|content-length:1\nx;\n"},
    {'q', GET "Expect: 100-continue\r\n\r\n", "GET / 1.1 keep|host:a|expect:100-continue\n;\n"},
    {'q', "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
     "POST / 1.0 close length=1|expect:100-continue|content-length:1\nx;\n"},
    /* Responses. RFC 9112 section 6.3: lengths in their order. */
    {'r', "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 No Content\r\n\r\n",
     "200 1.1 keep length=3|content-length:3\nabc;\n204 1.1 keep\n;\n"},
    {'r', OK_CHUNKED "3\r\nabc\r\n0\r\n\r\n",
     "200 1.1 keep chunked|transfer-encoding:chunked\nabc;\n"},
    {'r', "HTTP/1.1 200 OK\r\n\r\nabc\r\nHTTP/1.1 200", "200 1.1 close\nabc\r\nHTTP/1.1 200;\n"},
    {'r', "HTTP/1.0 200 OK\r\n\r\n", "200 1.0 close\n;\n"},
    {'r', "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204\r\n\r\n",
     "304 1.1 keep length=9|content-length:9\n;\n204 1.1 keep\n;\n"},
    {'h', "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
     "200 1.1 keep length=9|content-length:9\n;\n200 1.1 keep length=1|content-length:1\nx;\n"},
    {'h', "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
     "200 1.1 keep chunked|transfer-encoding:chunked\n;\n"},
    {'h', "HTTP/1.1 200 OK\r\n\r\n", "200 1.1 keep\n;\n"},
    /* RFC 9112 section 4: the reason may be anything, or nothing. */
    {'r', "HTTP/1.1 503 \r\nContent-Length: 0\r\n\r\n",
     "503 1.1 keep length=0|content-length:0\n;\n"},
    {'r', "HTTP/1.1 429 Too\tmany \xe2\x98\x83\r\nContent-Length: 0\r\n\r\n",
     "429 1.1 keep length=0|content-length:0\n;\n"},
    /* RFC 9110 section 15.2: any number of interim responses. */
    {'r', "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
          "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
     "200 1.1 keep length=0|content-length:0\n;\n"},
    {'h', "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
     "200 1.1 keep length=5|content-length:5\n;\n"},
};

static void test_valid(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(valid); i++)
        assert_events(valid[i].kind, valid[i].bytes, strlen(valid[i].bytes), valid[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
