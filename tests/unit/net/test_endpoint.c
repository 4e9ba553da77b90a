/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "net/client.h"
#include "tests/support/test.h"

struct want {
    const char *text;
    bool grpc;
    const char *host, *authority, *path;
    unsigned port;
    bool tls, has_scheme, unix_socket;
};

static void valid_endpoints(void **state)
{
    (void)state;
    static const struct want cases[] = {
        {"localhost:4317", true, "localhost", "localhost:4317", "", 4317, false, false, false},
        {"http://tempo:4317", true, "tempo", "tempo:4317", "", 4317, false, true, false},
        {"https://tempo:4317", true, "tempo", "tempo:4317", "", 4317, true, true, false},
        {"https://tempo", true, "tempo", "tempo:443", "", 443, true, true, false},
        {"http://tempo:4317/", true, "tempo", "tempo:4317", "", 4317, false, true, false},
        {"dns:///tempo:4317", true, "tempo", "tempo:4317", "", 4317, false, false, false},
        {"dns:///tempo", true, "tempo", "tempo:443", "", 443, false, false, false},
        {"passthrough:///10.0.0.1:5", true, "10.0.0.1", "10.0.0.1:5", "", 5, false, false, false},
        {"[::1]:4317", true, "::1", "[::1]:4317", "", 4317, false, false, false},
        {"https://[2001:db8::1]", false, "2001:db8::1", "[2001:db8::1]:443", "", 443, true, true,
         false},
        {"http://h/otlp/", false, "h", "h:80", "/otlp", 80, false, true, false},
        {"http://h:1/a/b", false, "h", "h:1", "/a/b", 1, false, true, false},
        {"http://h:65535///", false, "h", "h:65535", "", 65535, false, true, false},
        {"unix:///run/braid.sock", true, "/run/braid.sock", "localhost", "", 0, false, false, true},
        {"unix:/run/braid.sock", true, "/run/braid.sock", "localhost", "", 0, false, false, true},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const struct want *w = &cases[i];
        struct br_endpoint e;
        struct br_err err = {0};
        if (br_endpoint_read(w->text, w->grpc, &e, &err))
            fail_msg("%s: %s", w->text, err.text);
        assert_string_equal(e.host, w->host);
        assert_string_equal(e.authority, w->authority);
        assert_string_equal(e.path, w->path);
        assert_int_equal(e.port, w->port);
        assert_int_equal(e.tls, w->tls);
        assert_int_equal(e.has_scheme, w->has_scheme);
        assert_int_equal(e.unix_socket, w->unix_socket);
    }
}

static void invalid_endpoints(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool grpc;
    } cases[] = {
        {"", true},
        {"", false},
        {"localhost", true},
        {"localhost:", true},
        {"localhost:x", true},
        {"localhost:0", true},
        {"localhost:65536", true},
        {"localhost:99999999999999999999", true},
        {"localhost:-1", true},
        {"localhost:+1", true},
        {"localhost: 1", true},
        {"localhost:1x", true},
        {":4317", true},
        {"[::1", true},
        {"[::1]x:1", true},
        {"[]:1", true},
        {"[host]:1", true},
        {"ho[st:1", true},
        {"::1:4317", true},
        {"localhost:4318", false},
        {"ftp://h", false},
        {"http://", false},
        {"http:///path", false},
        {"https://:1", false},
        {"unix://", true},
        {"unix:", true},
        {"http://a b:1", false},
        {"http://h\n:1", false},
        {"http://user@h:1", false},
        {"http://h:1/a", true},
        {"h:1/a", true},
        {"h:1?a", true},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_endpoint e = {.port = 12345};
        struct br_err err = {0};
        if (br_endpoint_read(cases[i].text, cases[i].grpc, &e, &err) != BR_EINVAL)
            fail_msg("\"%s\" was accepted as %s port %u", cases[i].text, e.host, e.port);
        assert_true(err.text[0]);
        assert_int_equal(e.port, 12345); /* unchanged */
    }
}

static void endpoints_that_are_too_long(void **state)
{
    (void)state;
    char text[1200];
    struct br_endpoint e;
    memset(text, 'a', sizeof text);
    memcpy(text, "http://", 7);
    text[7 + 255] = '\0';
    assert_int_equal(br_endpoint_read(text, false, &e, NULL), 0);
    assert_int_equal(strlen(e.host), 255);
    text[7 + 255] = 'a';
    text[7 + 256] = '\0';
    assert_int_equal(br_endpoint_read(text, false, &e, NULL), BR_EINVAL);
    text[7 + 256] = 'a';
    text[8] = '/';
    text[8 + 511] = '\0';
    assert_int_equal(br_endpoint_read(text, false, &e, NULL), 0);
    text[8 + 511] = 'a';
    text[8 + 512] = '\0';
    assert_int_equal(br_endpoint_read(text, false, &e, NULL), BR_EINVAL);
    memset(text, 'a', sizeof text);
    memcpy(text, "unix:///", 8);
    text[7 + 107] = '\0'; /* the size of a path in sockaddr_un, including its terminator */
    assert_int_equal(br_endpoint_read(text, true, &e, NULL), 0);
    text[7 + 107] = 'a';
    text[7 + 108] = '\0';
    assert_int_equal(br_endpoint_read(text, true, &e, NULL), BR_EINVAL);
}

/* RFC 9112 section 3.2: a request target has neither white space nor a fragment. */
static void invalid_paths(void **state)
{
    (void)state;
    static const char *const bad[] = {"http://h/a#b",          "http://h#b",    "http://h/a b",
                                      "http://h/a\r\nHost: x", "http://h/\x7f", "http://h?a=b"};
    struct br_endpoint e;
    for (size_t i = 0; i < BR_COUNT(bad); i++)
        if (br_endpoint_read(bad[i], false, &e, NULL) != BR_EINVAL)
            fail_msg("\"%s\" was accepted", bad[i]);
    assert_int_equal(br_endpoint_read("http://h/a?b=c", false, &e, NULL), 0);
    assert_string_equal(e.path, "/a?b=c");
}

SUITE(endpoint)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_endpoints),
        cmocka_unit_test(invalid_endpoints),
        cmocka_unit_test(endpoints_that_are_too_long),
        cmocka_unit_test(invalid_paths),
    };
    return RUN(tests, NULL, NULL);
}
