/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "net/hosts.h"
#include "tests/support/test.h"

static const char *const loopback[] = {
    "localhost",     "localhost:8888", "LocalHost:1", "localhost.",
    "localhost.:80", "127.0.0.1",      "127.0.0.1:9", "127.1.2.3",
    "[::1]",         "[::1]:8888",     "::1",         "[::ffff:127.0.0.1]:1",
};
static const char *const addresses[] = {"10.0.0.1", "10.0.0.1:1", "[2001:db8::1]:1", "0.0.0.0",
                                        "[::]"};
/* Names that a web page may have. Some look like an address. */
static const char *const foreign[] = {
    "evil.example",
    "evil.example:8888",
    "localhost.evil.example",
    "xlocalhost",
    "127.0.0.1.example",
    "127.0.0.1.nip.io:8888",
    "2130706433",
    "0x7f.1",
    "127.1",
    ":8888",
    ".",
    "localhost:1:2",
};

/* Fails unless the server accepts all of the hosts (`wanted`), or rejects all of them. */
static void expect(const struct br_hosts *hosts, bool wanted, const char *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct br_request r = {.scheme_host = v[i]};
        if (br_hosts_allow(hosts, &r) != wanted)
            fail_msg("%s: %s", hosts->endpoint, v[i]);
    }
}

#define EXPECT(hosts, wanted, list) expect(hosts, wanted, list, BR_COUNT(list))

static void loopback_allows_local_names_only(void **state)
{
    static const char *const endpoints[] = {"localhost:8888", "127.0.0.1:0", "127.9.9.9:1",
                                            "[::1]:8888"};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(endpoints); i++) {
        const struct br_strings none = {0};
        const struct br_hosts hosts = {.endpoint = endpoints[i],
                                       .transport = i % 2 ? "tcp" : NULL,
                                       .allowed = i % 2 ? &none : NULL};
        EXPECT(&hosts, true, loopback);
        EXPECT(&hosts, false, addresses);
        EXPECT(&hosts, false, foreign);
    }
}

static void other_listeners_allow_any_name(void **state)
{
    static const char *const endpoints[] = {":8888", "0.0.0.0:8888", "[::]:1", "10.0.0.1:8888",
                                            "node-7:8888"};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(endpoints); i++) {
        const struct br_hosts hosts = {.endpoint = endpoints[i]};
        EXPECT(&hosts, true, loopback);
        EXPECT(&hosts, true, addresses);
        EXPECT(&hosts, true, foreign);
    }
}

static void a_list_names_the_allowed_hosts(void **state)
{
    static const char *names[] = {"braid.example", "Pod_7.local", "10.9.9.9", "2001:db8::9"};
    static const char *const listed[] = {"braid.example", "BRAID.example:80", "braid.example.",
                                         "pod_7.local:8888"};
    static const char *const others[] = {"x.braid.example", "braid.example.x", "braid"};
    static const char *const further[] = {"10.9.9.9:1", "[2001:db8::9]:1"};
    static const char *const own[] = {"node-7", "NODE-7:8888"};
    const struct br_strings list = {.items = names, .count = BR_COUNT(names)};
    const struct br_hosts local = {.endpoint = "localhost:1", .allowed = &list};
    const struct br_hosts wide = {.endpoint = ":8888", .allowed = &list};
    const struct br_hosts named = {.endpoint = "node-7:8888", .allowed = &list};
    const struct br_hosts *const all[] = {&local, &wide, &named};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(all); i++) {
        EXPECT(all[i], true, loopback);
        EXPECT(all[i], true, listed);
        EXPECT(all[i], true, further);
        EXPECT(all[i], i > 0, addresses);
        EXPECT(all[i], i == 2, own);
        EXPECT(all[i], false, others);
        EXPECT(all[i], false, foreign);
    }
}

static void requests_without_a_host_are_allowed(void **state)
{
    const struct br_hosts local = {.endpoint = "localhost:1"};
    const struct br_hosts path = {.endpoint = "/run/braid.sock", .transport = "unix"};
    const struct br_header header = {"host", "evil.example"};
    const struct br_request nameless = {.scheme_host = ""};
    const struct br_request beside = {.scheme_host = "", .headers = &header, .n_headers = 1};
    (void)state;
    assert_true(br_hosts_allow(&local, &nameless));
    assert_false(br_hosts_allow(&local, &beside)); /* HTTP/2 without :authority */
    EXPECT(&path, true, foreign);
}

static void entries_are_names_or_addresses(void **state)
{
    static const struct {
        const char *text;
        bool valid;
    } cases[] = {
        {"braid", true},    {"a.b-c.example", true},     {"a_b", true},
        {"10.0.0.1", true}, {"2001:db8::1", true},       {"[::1]", true},
        {"", false},        {"braid:8888", false},       {"10.0.0.1:1", false},
        {"[::1]:1", false}, {"http://braid", false},     {"braid/", false},
        {"*", false},       {"*.example", false},        {"a b", false},
        {"[braid]", false}, {"\xc3\xbc.example", false},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const char *v[] = {"good.example", cases[i].text};
        const struct br_strings list = {.items = v, .count = 2};
        struct br_errs errs = {0};
        br_hosts_check(&list, NULL, "extensions::x", &errs);
        if (errs.n_errors != !cases[i].valid)
            fail_msg("%s", cases[i].text);
        if (errs.n_errors)
            assert_string_equal(errs.errors[0].path, "extensions::x::allowed_hosts");
        br_errs_release(&errs);
    }
}

SUITE(hosts)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loopback_allows_local_names_only),
        cmocka_unit_test(other_listeners_allow_any_name),
        cmocka_unit_test(a_list_names_the_allowed_hosts),
        cmocka_unit_test(requests_without_a_host_are_allowed),
        cmocka_unit_test(entries_are_names_or_addresses),
    };
    return RUN(tests, NULL, NULL);
}
