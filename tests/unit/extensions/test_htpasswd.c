/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/basicauth/htpasswd.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/support/test.h"

static struct htpasswd *read_users(const char *text, const char *wanted_faults)
{
    struct htpasswd *users = basicauth_htpasswd_new();
    struct br_str faults = {0};
    assert_non_null(users);
    assert_int_equal(basicauth_htpasswd_read(users, text, &faults), 0);
    assert_string_equal(faults.data ? faults.data : "", wanted_faults);
    br_str_release(&faults);
    return users;
}

/* Each hash belongs to the password beside it. The sources are the documentation of Apache httpd
 * 2.4 ("Password Formats"), the tests of Openwall's crypt_blowfish 1.3 (wrapper.c), and `openssl
 * passwd` with the examples of the specification of SHA-crypt. */
static const struct {
    const char *hash, *password;
    bool costly;
} known[] = {
    {"$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC", "myPassword", true},
    {"$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/", "myPassword", true},
    {"{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=", "myPassword", false},
    {"$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U", true},
    {"$2a$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK", "U*U*", true},
    {"$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5", "Hello world!", true},
    {"$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnI"
     "FNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
     "Hello world!", true},
    {"plain text", "plain text", false},
};

static void known_hashes(void **state)
{
    (void)state;
    for (size_t i = 0; i < BR_COUNT(known); i++) {
        char line[512];
        (void)snprintf(line, sizeof line, "user:%s\n", known[i].hash);
        struct htpasswd *users = read_users(line, "");
        assert_int_equal(basicauth_htpasswd_count(users), 1);
        assert_int_equal(basicauth_htpasswd_is_costly(users), known[i].costly);
        if (!basicauth_htpasswd_check(users, "user", known[i].password))
            fail_msg("%s", known[i].hash);
        assert_false(basicauth_htpasswd_check(users, "user", "other"));
        assert_false(basicauth_htpasswd_check(users, "user", ""));
        if (strcmp(known[i].hash, known[i].password) != 0)
            assert_false(basicauth_htpasswd_check(users, "user", known[i].hash));
        assert_false(basicauth_htpasswd_check(users, "User", known[i].password));
        assert_false(basicauth_htpasswd_check(users, "", known[i].password));
        basicauth_htpasswd_free(users);
    }
}

/* In these values, the salt follows the digest. The digest is SHA1("secret" + "salt"), computed
 * with Python. */
static void salted_sha(void **state)
{
    (void)state;
    struct htpasswd *users = read_users("user:{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0", "");
    assert_true(basicauth_htpasswd_check(users, "user", "secret"));
    assert_false(basicauth_htpasswd_check(users, "user", "secre"));
    basicauth_htpasswd_free(users);
}

static void lines_of_a_file(void **state)
{
    (void)state;
    struct htpasswd *users =
        read_users("# users\r\n\r\n  a:first  \n\tb:x:y\na:second\nc:no newline", "");
    assert_int_equal(basicauth_htpasswd_count(users), 3);
    assert_true(basicauth_htpasswd_check(users, "a", "second"));
    assert_false(basicauth_htpasswd_check(users, "a", "first"));
    assert_true(basicauth_htpasswd_check(users, "b", "x:y"));
    assert_true(basicauth_htpasswd_check(users, "c", "no newline"));
    basicauth_htpasswd_free(users);
}

static void lines_that_cannot_be_used(void **state)
{
    (void)state;
    char text[1024];
    memset(text, 'n', 300);
    (void)snprintf(text + 300, sizeof text - 300,
                   ":x\nnobody\n:x\na:\nb:$9$unknown$x\nc:{MD5}x\nok:x");
    struct htpasswd *users = read_users(
        text, "line 1: the name or the hash is too long; line 2: the line is not USER:HASH; "
              "line 3: the line is not USER:HASH; line 4: the line is not USER:HASH; "
              "line 5: the hash is malformed, or its type is not supported; "
              "line 6: the type of the hash is not supported");
    assert_int_equal(basicauth_htpasswd_count(users), 1);
    assert_true(basicauth_htpasswd_check(users, "ok", "x"));
    basicauth_htpasswd_free(users);
}

SUITE(htpasswd)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_hashes),
        cmocka_unit_test(salted_sha),
        cmocka_unit_test(lines_of_a_file),
        cmocka_unit_test(lines_that_cannot_be_used),
    };
    return RUN(tests, NULL, NULL);
}
