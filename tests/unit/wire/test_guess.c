/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/test.h"
#include "wire/conn.h"

#define GUESS(text) br_guess((const uint8_t *)(text), sizeof(text) - 1)

static void protocols_by_their_first_bytes(void **state)
{
    (void)state;
    assert_int_equal(br_guess(NULL, 0), BR_GUESS_NOTHING);
    /* RFC 8446 section 5.1: the start of a ClientHello, an alert, and only the first byte of a
     * record. */
    assert_int_equal(GUESS("\x16\x03\x01\x02\x00\x01"), BR_GUESS_TLS);
    assert_int_equal(GUESS("\x15\x03\x03\x00\x02\x02\x46"), BR_GUESS_TLS);
    assert_int_equal(GUESS("\x16"), BR_GUESS_TLS);
    assert_int_equal(GUESS("\x16\x04\x01"), BR_GUESS_OTHER);
    assert_int_equal(GUESS("\x18\x03\x01"), BR_GUESS_OTHER);
    /* RFC 9113 sections 3.4 and 6.5: the preface of a client is text, and the preface of a server
     * is a SETTINGS frame. */
    assert_int_equal(GUESS("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), BR_GUESS_HTTP1);
    assert_int_equal(GUESS("\0\0\0\4\0\0\0\0\0"), BR_GUESS_HTTP2);
    assert_int_equal(GUESS("\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x64"), BR_GUESS_HTTP2);
    /* the length is not a multiple of 6 bytes, the size of a setting */
    assert_int_equal(GUESS("\0\0\5\4\0\0\0\0\0"), BR_GUESS_OTHER);
    /* the stream of SETTINGS must be 0 */
    assert_int_equal(GUESS("\0\0\0\4\0\0\0\0\1"), BR_GUESS_OTHER);
    assert_int_equal(GUESS("\0\0\0\4"), BR_GUESS_OTHER);
    assert_int_equal(GUESS("HTTP/1.1 200 OK\r\n\r\n"), BR_GUESS_HTTP1);
    assert_int_equal(GUESS("POST / HTTP/1.1\r\n"), BR_GUESS_HTTP1);
    assert_int_equal(GUESS("<!DOCTYPE HTML>"), BR_GUESS_HTTP1);
    assert_int_equal(GUESS("\r\n"), BR_GUESS_HTTP1);
    assert_int_equal(GUESS("\x80\x2e\x01"), BR_GUESS_OTHER);
}

/* Texts with which servers reject plaintext on a TLS port: Go net/http server.go, nginx
 * ngx_http_special_response.c, Apache httpd protocol.c. */
static void tls_ports_that_answer_in_plaintext(void **state)
{
    (void)state;
    assert_int_equal(
        GUESS("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS "
              "server.\n"),
        BR_GUESS_TLS);
    assert_int_equal(GUESS("HTTP/1.1 400 Bad Request\r\n\r\n<title>400 The plain HTTP request was "
                           "sent to HTTPS port</title>"),
                     BR_GUESS_TLS);
    assert_int_equal(
        GUESS("HTTP/1.1 400 Bad Request\r\n\r\nReason: You're speaking plain HTTP to an "
              "SSL-enabled server port.<br />"),
        BR_GUESS_TLS);
    assert_int_equal(GUESS("HTTP/1.1 200 OK\r\n\r\nsent to HTTPS port"), BR_GUESS_HTTP1);
    assert_int_equal(GUESS("HTTP/1.1 400 Bad Request\r\n\r\nuse HTTPS"), BR_GUESS_HTTP1);
    assert_int_equal(GUESS("HTTP/1.1 400"), BR_GUESS_HTTP1);
    assert_int_equal(GUESS("HTTP/1.1 40"), BR_GUESS_HTTP1);
}

SUITE(guess)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protocols_by_their_first_bytes),
        cmocka_unit_test(tls_ports_that_answer_in_plaintext),
    };
    return RUN(tests, NULL, NULL);
}
