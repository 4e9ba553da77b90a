/* SPDX-License-Identifier: Apache-2.0 */
/* Cases from RFC 2046 section 5.1, RFC 7578 and the example of RFC 2388. Queries follow the
 * WHATWG URL standard, section 5.1. */
#include "base/mem.h"
#include "base/sanitize.h"
#include "base/steps.h"
#include "tests/support/corpus.h"
#include "tests/support/multipart_check.h"
#include "tests/support/test.h"
#include "wire/multipart.h"

#define FIELDS 4
#define PART(name) "Content-Disposition: form-data; name=\"" name "\"\r\n\r\n"

static void test_recognition(void **state)
{
    (void)state;
    assert_true(br_multipart_is("multipart/form-data; boundary=x"));
    assert_true(br_multipart_is("Multipart/Form-Data"));
    assert_true(br_multipart_is("multipart/form-data ;boundary=x"));
    assert_false(br_multipart_is("multipart/form-datax; boundary=x"));
    assert_false(br_multipart_is("multipart/mixed; boundary=x"));
    assert_false(br_multipart_is(""));
    assert_false(br_multipart_is(NULL));
}

static void test_boundary(void **state)
{
    (void)state;
    static const struct {
        const char *type, *expected; /* expected: NULL if the type is invalid */
    } cases[] = {
        {"multipart/form-data; boundary=AaB03x", "AaB03x"},
        {"multipart/form-data;boundary=AaB03x", "AaB03x"},
        {"multipart/form-data; charset=utf-8; Boundary=AaB03x", "AaB03x"},
        {"multipart/form-data; boundary=AaB03x; charset=utf-8", "AaB03x"},
        {"multipart/form-data; boundary=AaB03x;", "AaB03x"},
        /* RFC 2046: a boundary with a colon must be quoted, and may then contain spaces */
        {"multipart/form-data; boundary=\"gc0pJq0M:08jU534c0p\"", "gc0pJq0M:08jU534c0p"},
        {"multipart/form-data; boundary=\"simple boundary\"", "simple boundary"},
        /* a quote is not allowed in a boundary */
        {"multipart/form-data; boundary=\"a\\\"b\"", NULL},
        {"multipart/form-data; boundary=\"ends in space \"", NULL},
        {"multipart/form-data; boundary=\"\"", NULL},
        {"multipart/form-data; boundary=", NULL},
        {"multipart/form-data; boundary", NULL},
        {"multipart/form-data", NULL},
        {"multipart/form-data; boundary=a; boundary=b", NULL},
        {"multipart/form-data; boundary=\"a", NULL},
        {"multipart/form-data; boundary=\"a\"b", NULL},
        {"multipart/form-data; boundary=a*b", NULL},
        {"multipart/form-data, boundary=a", NULL},
        {"text/plain; boundary=a", NULL},
        /* a boundary of the maximum length, 70 characters, and one of 71 characters */
        {"multipart/form-data; "
         "boundary=1234567890123456789012345678901234567890123456789012345678901234567890",
         "1234567890123456789012345678901234567890123456789012345678901234567890"},
        {"multipart/form-data; "
         "boundary=12345678901234567890123456789012345678901234567890123456789012345678901",
         NULL},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        char boundary[BR_BOUNDARY_MAX + 1] = "untouched";
        struct br_err err = {0};
        int rc = br_multipart_boundary(cases[i].type, boundary, &err);
        assert_int_equal(rc, cases[i].expected ? 0 : BR_EINVAL);
        assert_string_equal(boundary, cases[i].expected ? cases[i].expected : "untouched");
        assert_true(cases[i].expected || err.text[0]);
    }
}

/* Parses a form. The form is copied to a block of exactly its size, so that ASan detects a read
 * beyond it. Returns "name=content;" of each field, or "!" and the error. */
static const char *parse(const char *boundary, const void *data, size_t len)
{
    static char out[2048];
    struct br_form_field fields[FIELDS];
    struct br_err err = {0};
    size_t n = 99;
    uint8_t *copy = malloc(len ? len : 1);
    memcpy(copy, data, len);
    int rc = br_multipart_parse(boundary, copy, len, fields, FIELDS, &n, &err);
    out[0] = '\0';
    if (rc) {
        assert_int_equal(rc, BR_EINVAL);
        assert_int_equal(n, 99);
        (void)snprintf(out, sizeof out, "!%.500s", err.text);
    }
    for (size_t i = 0, at = 0; !rc && i < n; i++)
        at += (size_t)snprintf(out + at, sizeof out - at, "%s=%.*s;", fields[i].name,
                               (int)fields[i].len, (const char *)fields[i].data);
    free(copy);
    return out;
}

static void test_forms(void **state)
{
    (void)state;
    static const struct {
        const char *body, *expected;
    } cases[] = {
        {"--x\r\n" PART("a") "1\r\n--x--", "a=1;"},
        {"--x\r\n" PART("a") "1\r\n--x--\r\n", "a=1;"},
        {"--x\r\n" PART("a") "1\r\n--x\r\n" PART("b") "2\r\n--x--\r\n", "a=1;b=2;"},
        /* preamble, epilogue, white space after boundaries (RFC 2046's grammar) */
        {"this is ignored\r\n--x \t\r\n" PART("a") "1\r\n--x-- \r\nso is this", "a=1;"},
        {"\r\n--x\r\n" PART("a") "1\r\n--x--", "a=1;"},
        /* the line end before a delimiter belongs to it; another one is content */
        {"--x\r\n" PART("a") "1\r\n\r\n--x--", "a=1\r\n;"},
        {"--x\r\n" PART("a") "\r\n--x--", "a=;"},
        /* body-part := MIME-part-headers [CRLF *OCTET]: the content is optional */
        {"--x\r\n" PART("a") "--x--", "a=;"},
        /* text that only begins like a delimiter is content */
        {"--x\r\n" PART("a") "\r\n--xy\r\n--\r\n--x-\r\n--x--z\r\n--x--",
         "a=\r\n--xy\r\n--\r\n--x-\r\n--x--z;"},
        {"--xy\r\n--x\r\n" PART("a") "1\r\n--x--", "a=1;"},
        {"--x\r\n" PART("a") "1--x--\n--x--\r\n--x--", "a=1--x--\n--x--;"},
        {"--x--", ""},
        /* headers in any letter case and order; other headers are skipped */
        {"--x\r\nContent-Type: text/plain\r\ncontent-disposition:form-data;name=\"a\"\r\n"
         "X-Y:\r\n\r\n1\r\n--x--",
         "a=1;"},
        {"--x\r\nContent-Disposition: form-data; filename=\"n; name=z\"; name=a\r\n\r\n1\r\n--x--",
         "a=1;"},
        {"--x\r\nContent-Disposition: form-data; name=\"a\\\"\\\\b\"\r\n\r\n1\r\n--x--",
         "a\"\\b=1;"},
        {"--x\r\nContent-Disposition: form-data; name=\"\"\r\n\r\n1\r\n--x--", "=1;"},
        {"--x\r\nContent-Transfer-Encoding: binary\r\n" PART("a") "1\r\n--x--", "a=1;"},
        {"--x\r\nContent-Transfer-Encoding: 8BIT\r\n" PART("a") "1\r\n--x--", "a=1;"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        assert_string_equal(parse("x", cases[i].body, strlen(cases[i].body)), cases[i].expected);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *body, *why;
    } cases[] = {
        {"", "no form"},
        {"no boundary at all", "no form"},
        {"--x", "no form"},
        {"--x\r\n", "are incomplete"},
        {"--x\r\n" PART("a"), "truncated"},
        {"--x\r\n" PART("a") "1", "truncated"},
        {"--x\r\n" PART("a") "1\r\n--x", "truncated"},
        {"--x\r\n" PART("a") "1\r\n--x-", "truncated"},
        {"--x\r\n" PART("a") "1\r\n--x\r\n", "are incomplete"},
        {"--x\n" PART("a") "1\n--x--", "no form"},
        {"--x\r\n\r\n1\r\n--x--", "no Content-Disposition"},
        {"--x\r\nContent-Type: text/plain\r\n\r\n1\r\n--x--", "no Content-Disposition"},
        {"--x\r\nContent-Disposition: attachment; name=\"a\"\r\n\r\n1\r\n--x--", "not form-data"},
        {"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--", "no name"},
        {"--x\r\nContent-Disposition: form-data; name=\"a\r\n\r\n1\r\n--x--", "no name"},
        {"--x\r\nContent-Disposition: form-data; name=\"a\"; name=\"b\"\r\n\r\n1\r\n--x--",
         "two names"},
        {"--x\r\nContent-Disposition: form-data; name=a\r\n" PART("b") "1\r\n--x--",
         "two dispositions"},
        {"--x\r\nno header\r\n\r\n1\r\n--x--", "malformed header"},
        {"--x\r\n: x\r\n\r\n1\r\n--x--", "malformed header"},
        {"--x\r\nX-Y: folded\r\n text\r\n" PART("a") "1\r\n--x--", "malformed header"},
        {"--x\r\nX-Y: \001\r\n" PART("a") "1\r\n--x--", "malformed header"},
        {"--x\r\nContent-Transfer-Encoding: base64\r\n" PART("a") "MQ==\r\n--x--",
         "Content-Transfer-Encoding"},
        {"--x\r\nContent-Transfer-Encoding: quoted-printable\r\n" PART("a") "=31\r\n--x--",
         "Content-Transfer-Encoding"},
        {"--x\r\n" PART(
             "1234567890123456789012345678901234567890123456789012345678901234") "1\r\n--x--",
         "longer than 63"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const char *got = parse("x", cases[i].body, strlen(cases[i].body));
        assert_int_equal(got[0], '!');
        assert_non_null(strstr(got, cases[i].why));
    }
}

/* Tests the maximum number of fields and one more field, and a head of the maximum size. */
static void test_bounds(void **state)
{
    char body[BR_FORM_HEAD_MAX + 1024];
    (void)state;
    for (int n = FIELDS; n <= FIELDS + 1; n++) {
        body[0] = '\0';
        for (int i = 0; i < n; i++)
            strcat(body, "--x\r\n" PART("a") "\r\n");
        strcat(body, "--x--");
        const char *got = parse("x", body, strlen(body));
        assert_string_equal(got, n == FIELDS ? "a=;a=;a=;a=;" : "!the form has more than 4 fields");
    }
    static const char head[] = "--x\r\n", end[] = "\r\n" PART("a") "1\r\n--x--";
    size_t other_bytes = strlen("X: ") + strlen("\r\n" PART("a"));
    for (size_t more = 0; more <= 1; more++) {
        int fill = (int)(BR_FORM_HEAD_MAX - other_bytes + more);
        (void)snprintf(body, sizeof body, "%sX: %*s%s", head, fill, "", end);
        assert_string_equal(parse("x", body, strlen(body)),
                            more ? "!the headers of a part are incomplete or too large" : "a=1;");
    }
    for (int n = BR_FORM_HEADERS_MAX; n <= BR_FORM_HEADERS_MAX + 1; n++) {
        (void)snprintf(body, sizeof body, "--x\r\n");
        for (int i = 1; i < n; i++)
            strcat(body, "A: b\r\n");
        strcat(body, PART("a") "1\r\n--x--");
        assert_int_equal(parse("x", body, strlen(body))[0], n == BR_FORM_HEADERS_MAX ? 'a' : '!');
    }
}

/* Every prefix of a form is an error, and none is read past its end. */
static void test_prefixes(void **state)
{
    static const char form[] = "--x\r\n" PART("a") "1\r\n--x\r\nX: y\r\n" PART("b") "2\r\n--x--";
    (void)state;
    for (size_t len = 0; len + 1 < sizeof form; len++)
        assert_int_equal(parse("x", form, len)[0], '!');
    assert_string_equal(parse("x", form, sizeof form - 1), "a=1;b=2;");
}

static void test_binary(void **state)
{
    struct br_form_field fields[FIELDS];
    uint8_t body[1024];
    size_t at = multipart_puts(body, 0, "--x\r\n" PART("a")), n, start = at;
    (void)state;
    for (int i = 0; i < 256; i++)
        body[at++] = (uint8_t)i;
    at = multipart_puts(body, at, "\r\n--x--");
    assert_int_equal(br_multipart_parse("x", body, at, fields, FIELDS, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_int_equal(fields[0].len, 256);
    assert_ptr_equal(fields[0].data, body + start);
    assert_ptr_equal(br_form_find(fields, n, "a"), &fields[0]);
    assert_null(br_form_find(fields, n, "A"));
}

static void test_query(void **state)
{
    (void)state;
    static const struct {
        const char *query, *expected;
    } cases[] = {
        {"name=app", "app"},
        {"a=b&name=app&name=second", "app"},
        {"name=app%7Bk%3Dv%2Cb%3D17.0.15%2B6%7D", "app{k=v,b=17.0.15+6}"},
        {"name=a+b%20c", "a b c"},
        {"name=", ""},
        {"name", ""},
        {"n%61me=x", "x"},
        {"name=a=b", "a=b"},
        {"name=%zz&name=x", "x"},
        {"name=%4", NULL},
        {"name=%", NULL},
        {"names=x", NULL},
        {"Name=x", NULL},
        {"", NULL},
        {"&&=&", NULL},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_arena arena;
        const char *value = NULL;
        size_t len = 0;
        br_arena_init(&arena, 0);
        int rc = br_query_get(cases[i].query, "name", &arena, &value, &len);
        assert_int_equal(rc, cases[i].expected ? 0 : BR_ENOTFOUND);
        if (cases[i].expected) {
            assert_string_equal(value, cases[i].expected);
            assert_int_equal(len, strlen(cases[i].expected));
        }
        br_arena_release(&arena);
    }
}

static void test_query_zero_byte(void **state)
{
    struct br_arena arena;
    const char *value;
    size_t len;
    (void)state;
    br_arena_init(&arena, 0);
    assert_int_equal(br_query_get("name=a%00b", "name", &arena, &value, &len), 0);
    assert_int_equal(len, 3);
    assert_memory_equal(value, "a\0b", 4);
    br_arena_release(&arena);
    br_arena_init(&arena, 1); /* too small */
    assert_int_equal(br_query_get("name=abc", "name", &arena, &value, &len), BR_ENOMEM);
    br_arena_release(&arena);
}

static void test_corpus(void **state)
{
    (void)state;
    assert_true(corpus_replay("multipart", multipart_check) >= 10);
}

/* Parses two fields and returns the steps. The first field has about `size` bytes, which repeat
 * `part`. `part` resembles the delimiter at the end of a field. */
static uint64_t steps_of(const char *boundary, const char *part, size_t size)
{
    char head[256], tail[256];
    struct br_form_field fields[2];
    struct br_err err = {0};
    size_t n, len = 0, each = strlen(part);
    uint8_t *body = malloc(size + sizeof head + sizeof tail);
    assert_non_null(body);
    (void)snprintf(head, sizeof head, "--%s\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n",
                   boundary);
    (void)snprintf(tail, sizeof tail,
                   "\r\n--%s\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n\r\n--%s--",
                   boundary, boundary);
    memcpy(body, head, strlen(head));
    for (len = strlen(head); len + each <= size; len += each)
        memcpy(body + len, part, each);
    memcpy(body + len, tail, strlen(tail));
    uint64_t before = br_steps();
    assert_int_equal(br_multipart_parse(boundary, body, len + strlen(tail), fields, 2, &n, &err),
                     0);
    assert_int_equal(n, 2);
    free(body);
    return br_steps() - before;
}

/* A sanitizer's memmem reads all remaining bytes at every call. */
#if BR_SANITIZED
#define FORM_SIZE ((size_t)1 << 15)
#else
#define FORM_SIZE ((size_t)1 << 20)
#endif

/* The work is proportional to the form, for any content. */
static void test_work(void **state)
{
    static const char *const parts[] = {"\r\n--xy", "\r\n--x-", "\r\n--x              y", "\r\n-",
                                        "x"};
    (void)state;
    for (size_t i = 0; i < BR_COUNT(parts); i++) {
        uint64_t first = steps_of("x", parts[i], FORM_SIZE);
        for (size_t n = 2; n <= 8; n *= 2)
            assert_true(2 * steps_of("x", parts[i], n * FORM_SIZE) <= (2 * n + 1) * first);
        assert_true(first <= 4 * FORM_SIZE);
    }
}

/* Parsing ends at the first field above the maximum. */
static void test_thousands_of_fields(void **state)
{
    static const char part[] = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n";
    enum { N = 20000, LEN = sizeof part - 1 };
    struct br_form_field fields[16];
    struct br_err err = {0};
    size_t n;
    uint8_t *body = malloc(N * LEN);
    (void)state;
    assert_non_null(body);
    for (size_t i = 0; i < N; i++)
        memcpy(body + i * LEN, part, LEN);
    uint64_t before = br_steps();
    assert_int_equal(br_multipart_parse("x", body, N * LEN, fields, 16, &n, &err), BR_EINVAL);
    assert_string_equal(err.text, "the form has more than 16 fields");
    assert_true(br_steps() - before < 17 * LEN);
    free(body);
}

SUITE(multipart)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recognition),
        cmocka_unit_test(test_boundary),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_query_zero_byte),
        cmocka_unit_test(test_corpus),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_thousands_of_fields),
    };
    return RUN(tests, NULL, NULL);
}
