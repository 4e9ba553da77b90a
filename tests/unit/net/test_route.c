/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a proxy for a server. The rules and their results are those of Go's
 * golang.org/x/net/http/httpproxy, proxy_test.go. */
#include <stdlib.h>

#include "net/route.h"
#include "tests/support/test.h"

#define NO_PROXY                                                                                   \
    "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, "        \
    "10.0.0.0/30, 2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, "               \
    "2002:db8:a::45/64"

static const struct {
    const char *host;
    bool uses_proxy;
} hosts[] = {
    {"localhost", false},
    {"127.0.0.1", false},
    {"127.0.0.2", false},
    {"::1", false},
    {"::2", true},
    {"192.168.1.1", false},
    {"192.168.1.2", true},
    {"192.168.1.3", false},
    {"192.168.1.4", true},
    {"10.0.0.2", false},
    {"2001:db8::52:0:1", false},
    {"2001:db8::52:0:2", true},
    {"2001:db8::52:0:3", false},
    {"2002:db8:a::123", false},
    {"fe80::424b:c8be:1643:a1b6", true},
    {"barbaz.net", true},
    {"www.barbaz.net", false},
    {"foobar.com", false},
    {"www.foobar.com", false},
    {"foofoobar.com", true},
    {"baz.com", true},
    {"localhost.net", true},
    {"local.localhost", true},
    {"barbarbaz.net", true},
    {"wildcard.io", true},
    {"nested.wildcard.io", false},
    {"awildcard.io", true},
};

/* TestUseProxy, TestAllNoProxy, TestInvalidNoProxy. */
static void no_proxy_works_like_go(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(hosts); i++) {
        if (br_proxies_skip(NO_PROXY, hosts[i].host, 80) == hosts[i].uses_proxy)
            fail_msg("%s", hosts[i].host);
        assert_true(br_proxies_skip("*", hosts[i].host, 80));
    }
    assert_false(br_proxies_skip(":1", "example.com", 80));
    assert_false(br_proxies_skip(NULL, "example.com", 80));
}

static void no_proxy_accepts_unusual_entries(void **state)
{
    static const struct {
        const char *no_proxy, *host;
        unsigned port;
        bool skip;
    } cases[] = {
        /* letter case does not matter; empty entries are ignored */
        {" , ,\tEXAMPLE.com ,", "Example.COM", 80, true},
        {"a.example,*", "b", 80, true},
        {"example.com:443", "example.com", 443, true},
        {"example.com:443", "example.com", 80, false},
        {"*.example.com:443", "a.example.com", 443, true},
        {"*.example.com:443", "a.example.com", 80, false},
        {"10.0.0.0/8", "10.255.255.255", 1, true},
        {"10.0.0.0/8", "11.0.0.0", 1, false},
        {"10.0.0.0/31", "10.0.0.1", 1, true},
        {"10.0.0.0/31", "10.0.0.2", 1, false},
        {"0.0.0.0/0", "8.8.8.8", 1, true},
        {"0.0.0.0/0", "2001:db8::1", 1, false}, /* a network of the other IP version */
        {"::/0", "8.8.8.8", 1, false},
        {"10.0.0.0/33", "10.0.0.0", 1, false}, /* not a network */
        {"10.0.0.0/", "10.0.0.0", 1, false},
        {"10.0.0.0/0x8", "10.0.0.0", 1, false},
        {"0.0.1", "10.0.0.1", 1, false}, /* a name does not match the end of an address */
        {"[2001:db8::1]", "2001:db8::1", 1, false}, /* brackets are only allowed with a port */
        {"::ffff:10.0.0.1", "10.0.0.1", 1, true},
        {"::ffff:10.0.0.0/104", "10.1.2.3", 1, true},
    };
    char many[4096];
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        if (br_proxies_skip(cases[i].no_proxy, cases[i].host, cases[i].port) != cases[i].skip)
            fail_msg("\"%s\" and %s:%u", cases[i].no_proxy, cases[i].host, cases[i].port);
    memset(many, 'x', sizeof many);
    (void)snprintf(many + 1000, sizeof many - 1000, ",example.com");
    assert_true(br_proxies_skip(many, "example.com", 80));
}

struct choice {
    const char *http, *https, *none, *proxy_url;
    const char *endpoint;
    bool grpc;
    enum br_route_kind kind;
    const char *proxy, *authorization;
};

static int choose(const struct choice *choice, struct br_route *ret, struct br_err *err)
{
    const struct br_proxies proxies = {.proxy_url = choice->proxy_url,
                                       .http = choice->http,
                                       .https = choice->https,
                                       .none = choice->none,
                                       .http_name = "HTTP_PROXY",
                                       .https_name = "HTTPS_PROXY"};
    struct br_endpoint endpoint;
    assert_int_equal(br_endpoint_read(choice->endpoint, choice->grpc, &endpoint, err), 0);
    return br_route_choose(&proxies, &endpoint, choice->grpc, ret, err);
}

static void the_scheme_chooses_the_proxy(void **state)
{
    /* Cases without `grpc` and `proxy_url` are from Go's proxyForURLTests. */
    static const struct choice cases[] = {
        {"127.0.0.1:8080", NULL, NULL, NULL, "http://example.com", false, BR_ROUTE_FORWARD,
         "127.0.0.1:8080", ""},
        {"cache.corp.example.com:1234", NULL, NULL, NULL, "http://example.com", false,
         BR_ROUTE_FORWARD, "cache.corp.example.com:1234", ""},
        {"cache.corp.example.com", NULL, NULL, NULL, "http://example.com", false, BR_ROUTE_FORWARD,
         "cache.corp.example.com:80", ""},
        {"localhost", NULL, NULL, NULL, "http://example.com", false, BR_ROUTE_FORWARD,
         "localhost:80", ""},
        {"http://127.0.0.1:8080", NULL, NULL, NULL, "http://example.com", false, BR_ROUTE_FORWARD,
         "127.0.0.1:8080", ""},
        {"http.proxy.tld", "secure.proxy.tld", NULL, NULL, "http://insecure.tld/", false,
         BR_ROUTE_FORWARD, "http.proxy.tld:80", ""},
        {"http.proxy.tld", "secure.proxy.tld", NULL, NULL, "https://secure.tld/", false,
         BR_ROUTE_TUNNEL, "secure.proxy.tld:80", ""},
        {"http.proxy.tld", NULL, NULL, NULL, "https://secure.tld/", false, BR_ROUTE_DIRECT, "", ""},
        {NULL, NULL, NULL, NULL, "http://example.com", false, BR_ROUTE_DIRECT, "", ""},
        {"", "", "", "", "http://example.com", false, BR_ROUTE_DIRECT, "", ""},
        {"proxy", NULL, "example.com", NULL, "http://example.com/", false, BR_ROUTE_DIRECT, "", ""},
        {"proxy", NULL, ".example.com", NULL, "http://example.com/", false, BR_ROUTE_FORWARD,
         "proxy:80", ""},
        {"proxy", NULL, "ample.com", NULL, "http://example.com/", false, BR_ROUTE_FORWARD,
         "proxy:80", ""},
        {"proxy", NULL, "example.com", NULL, "http://foo.example.com/", false, BR_ROUTE_DIRECT, "",
         ""},
        {"proxy", NULL, ".foo.com", NULL, "http://example.com/", false, BR_ROUTE_FORWARD,
         "proxy:80", ""},
        /* grpc-go uses the proxy for https, also for plaintext. */
        {"http.proxy.tld", "secure.proxy.tld", NULL, NULL, "tempo:4317", true, BR_ROUTE_TUNNEL,
         "secure.proxy.tld:80", ""},
        {"http.proxy.tld", "secure.proxy.tld:1", NULL, NULL, "http://tempo:4317", true,
         BR_ROUTE_TUNNEL, "secure.proxy.tld:1", ""},
        {"http.proxy.tld", NULL, NULL, NULL, "http://tempo:4317", true, BR_ROUTE_DIRECT, "", ""},
        {NULL, "proxy", "tempo:4317", NULL, "tempo:4317", true, BR_ROUTE_DIRECT, "", ""},
        {"proxy", "proxy", NULL, NULL, "unix:///run/x", true, BR_ROUTE_DIRECT, "", ""},
        {"proxy", "proxy", NULL, NULL, "http://127.0.0.1:4318", false, BR_ROUTE_DIRECT, "", ""},
        /* proxy_url does not have exceptions (http.ProxyURL). */
        {"env", "env", "*", "http://own:3128/", "http://localhost:4318", false, BR_ROUTE_FORWARD,
         "own:3128", ""},
        {"env", "env", "*", "http://own:3128", "https://x", false, BR_ROUTE_TUNNEL, "own:3128", ""},
        /* RFC 7617 section 2: "Aladdin" and "open sesame". */
        {NULL, NULL, NULL, "http://Aladdin:open%20sesame@own:1", "http://x", false,
         BR_ROUTE_FORWARD, "own:1", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="},
        {"u:p%40ss@own:1", NULL, NULL, NULL, "http://x", false, BR_ROUTE_FORWARD, "own:1",
         "Basic dTpwQHNz"}, /* base64 of "u:p@ss" */
        {NULL, NULL, NULL, "http://u@[::1]:1", "http://x", false, BR_ROUTE_FORWARD, "[::1]:1",
         "Basic dTo="}, /* base64 of "u:" */
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_route route;
        struct br_err err = {0};
        if (choose(&cases[i], &route, &err))
            fail_msg("%zu: %s", i, err.text);
        if (route.kind != cases[i].kind)
            fail_msg("%zu: %s has route %d", i, cases[i].endpoint, (int)route.kind);
        assert_string_equal(route.proxy.authority, cases[i].proxy);
        assert_string_equal(route.authorization, cases[i].authorization);
    }
}

static void a_wrong_proxy_is_an_error(void **state)
{
    static const struct {
        struct choice choice;
        int rc;
        const char *words;
    } cases[] = {
        {{.proxy_url = "own:3128"}, BR_EINVAL, "proxy_url: must be http://"},
        {{.proxy_url = "http://"}, BR_EINVAL, "proxy_url: must be http://"},
        {{.proxy_url = "http://own:0"}, BR_EINVAL, "proxy_url: must be http://"},
        {{.proxy_url = "http://own:x"}, BR_EINVAL, "proxy_url: must be http://"},
        {{.proxy_url = "http://own/path"}, BR_EINVAL, "proxy_url: must be http://"},
        {{.proxy_url = "http://own?q"}, BR_EINVAL, "proxy_url: must be http://"},
        {{.proxy_url = "http://secret%4@own"}, BR_EINVAL, "two hex digits"},
        {{.proxy_url = "https://u:secret@own"}, BR_EUNSUPPORTED, "https:// proxies"},
        {{.proxy_url = "socks5://u:secret@own"}, BR_EUNSUPPORTED, "socks5:// proxies"},
        {{.proxy_url = "foo://u:secret@own"}, BR_EINVAL, "foo:// proxies"},
        {{.http = "http://u:secret@"}, BR_EINVAL, "HTTP_PROXY: must be http://"},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct choice choice = cases[i].choice;
        struct br_route route;
        struct br_err err = {0};
        choice.endpoint = "http://example.com";
        assert_int_equal(choose(&choice, &route, &err), cases[i].rc);
        if (!strstr(err.text, cases[i].words) || strstr(err.text, "secret"))
            fail_msg("%zu: %s", i, err.text);
    }
}

/* Go's TestFromEnvironment and similar cases. */
static void reads_the_environment(void **state)
{
    static const char *const names[] = {"http_proxy",  "HTTP_PROXY", "https_proxy",
                                        "HTTPS_PROXY", "no_proxy",   "NO_PROXY"};
    struct br_proxies proxies = {0};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(names); i++)
        unsetenv(names[i]);
    br_proxies_read_environment(&proxies);
    assert_null(proxies.http);
    assert_null(proxies.https);
    assert_null(proxies.none);
    setenv("HTTP_PROXY", "httpproxyupper", 1);
    setenv("HTTPS_PROXY", "httpsproxyupper", 1);
    setenv("NO_PROXY", "noproxyupper", 1);
    br_proxies_read_environment(&proxies);
    assert_string_equal(proxies.http, "httpproxyupper");
    assert_string_equal(proxies.https, "httpsproxyupper");
    assert_string_equal(proxies.none, "noproxyupper");
    assert_string_equal(proxies.https_name, "HTTPS_PROXY");
    setenv("http_proxy", "httpproxylower", 1);
    setenv("https_proxy", "httpsproxylower", 1);
    setenv("no_proxy", "", 1);
    br_proxies_read_environment(&proxies);
    assert_string_equal(proxies.http, "httpproxylower");
    assert_string_equal(proxies.https, "httpsproxylower");
    assert_string_equal(proxies.none, "noproxyupper");
    assert_string_equal(proxies.https_name, "https_proxy");
    for (size_t i = 0; i < BR_COUNT(names); i++)
        unsetenv(names[i]);
}

SUITE(route)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_proxy_works_like_go),
        cmocka_unit_test(no_proxy_accepts_unusual_entries),
        cmocka_unit_test(the_scheme_chooses_the_proxy),
        cmocka_unit_test(a_wrong_proxy_is_an_error),
        cmocka_unit_test(reads_the_environment),
    };
    return RUN(tests, NULL, NULL);
}
