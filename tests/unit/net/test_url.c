/* SPDX-License-Identifier: Apache-2.0 */
/* Locations of redirects: the examples of RFC 3986 section 5.4, and invalid ones. */
#include "net/redirect.h"
#include "tests/support/test.h"

static const struct br_endpoint server = {
    .host = "a", .authority = "a:80", .port = 80, .has_scheme = true};

static void resolves_the_examples_of_rfc_3986(void **state)
{
    /* The base is http://a/b/c/d;p?q. Fragments are dropped, because they are not sent. */
    static const struct {
        const char *reference, *authority, *path;
    } cases[] = {
        /* 5.4.1 */
        {"g", "a:80", "/b/c/g"},
        {"./g", "a:80", "/b/c/g"},
        {"g/", "a:80", "/b/c/g/"},
        {"/g", "a:80", "/g"},
        {"//g", "g:80", "/"},
        {"?y", "a:80", "/b/c/d;p?y"},
        {"g?y", "a:80", "/b/c/g?y"},
        {"#s", "a:80", "/b/c/d;p?q"},
        {"g#s", "a:80", "/b/c/g"},
        {"g?y#s", "a:80", "/b/c/g?y"},
        {";x", "a:80", "/b/c/;x"},
        {"g;x", "a:80", "/b/c/g;x"},
        {"g;x?y#s", "a:80", "/b/c/g;x?y"},
        {"", "a:80", "/b/c/d;p?q"},
        {".", "a:80", "/b/c/"},
        {"./", "a:80", "/b/c/"},
        {"..", "a:80", "/b/"},
        {"../", "a:80", "/b/"},
        {"../g", "a:80", "/b/g"},
        {"../..", "a:80", "/"},
        {"../../", "a:80", "/"},
        {"../../g", "a:80", "/g"},
        /* 5.4.2 */
        {"../../../g", "a:80", "/g"},
        {"../../../../g", "a:80", "/g"},
        {"/./g", "a:80", "/g"},
        {"/../g", "a:80", "/g"},
        {"g.", "a:80", "/b/c/g."},
        {".g", "a:80", "/b/c/.g"},
        {"g..", "a:80", "/b/c/g.."},
        {"..g", "a:80", "/b/c/..g"},
        {"./../g", "a:80", "/b/g"},
        {"./g/.", "a:80", "/b/c/g/"},
        {"g/./h", "a:80", "/b/c/g/h"},
        {"g/../h", "a:80", "/b/c/h"},
        {"g;x=1/./y", "a:80", "/b/c/g;x=1/y"},
        {"g;x=1/../y", "a:80", "/b/c/y"},
        {"g?y/./x", "a:80", "/b/c/g?y/./x"},
        {"g?y/../x", "a:80", "/b/c/g?y/../x"},
        {"g#s/../x", "a:80", "/b/c/g"},
        /* absolute */
        {"http://h", "h:80", "/"},
        {"HTTP://h:81/x", "h:81", "/x"},
        {"https://h?q", "h:443", "/?q"},
        {"https://[::1]:4318/v1/../v2", "[::1]:4318", "/v2"},
        {"//h:8080/p//q/", "h:8080", "/p//q/"},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_url url;
        if (br_url_resolve(&server, "/b/c/d;p?q", cases[i].reference, &url))
            fail_msg("\"%s\" was rejected", cases[i].reference);
        if (strcmp(url.path, cases[i].path) != 0)
            fail_msg("\"%s\": %s", cases[i].reference, url.path);
        assert_string_equal(url.server.authority, cases[i].authority);
    }
}

static void invalid_locations_are_rejected(void **state)
{
    static const char *const cases[] = {
        "ftp://h/",     "g:h",           "http:g",         "http:///g",     "https://",
        "http://h:0/",  "http://h:x/",   "//h:65536/",     "http://u@h/",   "http://u:p@h/g",
        "javascript:x", "http://h/a b",  "/a\tb",          "/\xc3\xa4",     "http://h\x7f/",
        "//[::1",       "http://[[[[]/", "http://[host]/", "http://ho[st/", "unix:///run/x",
    };
    char text[2 * BR_URL_PATH_MAX];
    struct br_url url;
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        if (!br_url_resolve(&server, "/", cases[i], &url))
            fail_msg("\"%s\" is %s%s", cases[i], url.server.authority, url.path);
    memset(text, 'a', sizeof text);
    text[0] = '/';
    text[BR_URL_PATH_MAX] = '\0';
    assert_int_equal(br_url_resolve(&server, "/", text, &url), BR_EINVAL);
    text[BR_URL_PATH_MAX - 1] = '\0';
    assert_int_equal(br_url_resolve(&server, "/", text, &url), 0);
    assert_string_equal(url.path, text);
}

static void origins_are_compared(void **state)
{
    static const struct {
        const char *one, *other;
        bool same;
    } cases[] = {
        {"http://h", "http://H:80/x", true},     {"https://h", "https://h:443", true},
        {"http://h", "https://h", false},        {"http://h:1", "http://h:2", false},
        {"http://h", "http://h.example", false}, {"http://[::1]:1", "http://[::1]:1", true},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_endpoint one, other;
        assert_int_equal(br_endpoint_read(cases[i].one, false, &one, NULL), 0);
        assert_int_equal(br_endpoint_read(cases[i].other, false, &other, NULL), 0);
        if (br_url_same_origin(&one, &other) != cases[i].same)
            fail_msg("%s and %s", cases[i].one, cases[i].other);
    }
}

SUITE(url)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resolves_the_examples_of_rfc_3986),
        cmocka_unit_test(invalid_locations_are_rejected),
        cmocka_unit_test(origins_are_compared),
    };
    return RUN(tests, NULL, NULL);
}
