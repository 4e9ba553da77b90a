/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

/* Tests connections between Braid's TLS client and server. The bytes are passed in memory, without
 * sockets. */

static void test_handshake(void **state)
{
    (void)state;
    struct tls_pair p = tls_pair();
    assert_false(br_tls_ready(p.client.tls));
    assert_string_equal(br_tls_alpn(p.client.tls), "");
    tls_talk(&p, SIZE_MAX);
    assert_tls_ready(&p);
    assert_string_equal(br_tls_alpn(p.client.tls), "h2");
    assert_string_equal(br_tls_alpn(p.server.tls), "h2");
    tls_exchange(&p, 5, 5, SIZE_MAX);
    tls_pair_free(&p);
}

static void test_handshake_in_any_pieces(void **state)
{
    (void)state;
    static const size_t chunks[] = {1, 2, 3, 5, 6, 7, 100, 1000};
    for (size_t i = 0; i < BR_COUNT(chunks); i++) {
        struct tls_pair p = tls_pair();
        tls_talk(&p, chunks[i]);
        assert_tls_ready(&p);
        tls_pair_free(&p);
    }
}

/* Tests data whose size is close to a multiple of the record size of OpenSSL or Braid. The data is
 * sent in slices, and received in pieces, of different sizes. */
static void test_data(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,     8,     9,     10,    16319, 16320, 16321, 16328,
                                   16329, 16383, 16384, 16385, 32640, 32768, 50000, 300000};
    static const size_t slices[] = {1, 16311, 16320, 16384, 40000};
    static const size_t chunks[] = {5, 1000, 16384, SIZE_MAX};
    static const char *const versions[] = {"1.2", "1.3"};
    for (size_t v = 0; v < 2; v++) {
        struct br_tls_config server = tls_server_config(), client = tls_client_config();
        client.min_version = client.max_version = versions[v];
        struct tls_pair p = tls_pair_of(&client, &server, "localhost");
        tls_talk(&p, SIZE_MAX);
        for (size_t i = 0; i < BR_COUNT(sizes); i++) {
            for (size_t j = 0; j < BR_COUNT(slices); j++) {
                for (size_t k = 0; k < BR_COUNT(chunks); k++)
                    tls_exchange(&p, sizes[i], slices[j], chunks[k]);
            }
        }
        tls_exchange(&p, 3000, 100, 1);
        assert_true(p.client.largest <= 16384);
        tls_pair_free(&p);
    }
}

/* A record of RFC 8446 has a header of 5 bytes, a type of 1 byte and a tag of 16 bytes. The buffers
 * of full records have hardly any unused bytes. */
static void test_output_is_compact(void **state)
{
    (void)state;
    struct tls_pair p = tls_pair();
    tls_talk(&p, SIZE_MAX);
    size_t live = br_pool_live(tls_pool);
    assert_int_equal(live, 0);
    tls_send_bytes(&p.client, 1 << 20, 16384);
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(p.client.tls, tls_pool, &out), 0);
    size_t records = ((1 << 20) + 16319) / 16320;
    assert_int_equal(out.len, (1 << 20) + records * 22);
    assert_true(br_pool_live(tls_pool) <= out.len + out.len / 100 + 16384);
    br_rope_release(&out);
    assert_int_equal(br_tls_output(p.client.tls, tls_pool, &out), 0);
    assert_int_equal(out.len, 0);
    tls_pair_free(&p);
}

static int refuse_plain(void *arg, const uint8_t *data, size_t len)
{
    (void)data;
    (void)len;
    ++*(int *)arg;
    return BR_ETOOBIG;
}

static void test_reader_may_stop(void **state)
{
    (void)state;
    struct tls_pair p = tls_pair();
    tls_talk(&p, SIZE_MAX);
    tls_send_bytes(&p.client, 40000, 16384);
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(p.client.tls, tls_pool, &out), 0);
    const uint8_t *data;
    struct br_buf *flat = br_rope_flat(&out, tls_pool, &data);
    int calls = 0;
    struct br_err err = {0};
    assert_int_equal(br_tls_input(p.server.tls, data, out.len, refuse_plain, &calls, &err),
                     BR_ETOOBIG);
    assert_int_equal(br_tls_input(p.server.tls, data, 5, refuse_plain, &calls, &err), BR_ETOOBIG);
    assert_int_equal(calls, 1);
    br_buf_unref(flat);
    br_rope_release(&out);
    /* The server can still send data, such as the reason of the error. */
    tls_send_bytes(&p.server, 100, 100);
    tls_carry(&p.server, &p.client, SIZE_MAX);
    assert_tls_got(&p.client, 100);
    tls_pair_free(&p);
}

static void test_send_needs_a_handshake(void **state)
{
    (void)state;
    struct tls_pair p = tls_pair();
    struct br_rope rope = {0};
    assert_int_equal(br_rope_add(&rope, NULL, "early", 5), 0);
    assert_int_equal(br_tls_send(p.client.tls, &rope), BR_EPROTO);
    br_tls_close(p.server.tls);
    struct br_rope out = {0};
    assert_int_equal(br_tls_output(p.server.tls, tls_pool, &out), 0);
    assert_int_equal(out.len, 0);
    br_rope_release(&rope);
    tls_pair_free(&p);
}

static void test_close_notify(void **state)
{
    (void)state;
    struct tls_pair p = tls_pair();
    tls_talk(&p, SIZE_MAX);
    tls_send_bytes(&p.client, 20000, 5000);
    br_tls_close(p.client.tls);
    struct br_rope rope = {0};
    assert_int_equal(br_rope_add(&rope, NULL, "late", 4), 0);
    assert_int_equal(br_tls_send(p.client.tls, &rope), BR_EPROTO);
    br_rope_release(&rope);
    tls_carry(&p.client, &p.server, 777);
    assert_int_equal(p.server.rc, BR_ECLOSED);
    assert_tls_got(&p.server, 20000);
    assert_false(tls_carry(&p.client, &p.server, SIZE_MAX));
    /* RFC 8446 section 6.1: the other direction is still open. */
    tls_send_bytes(&p.server, 100, 100);
    br_tls_close(p.server.tls);
    tls_carry(&p.server, &p.client, SIZE_MAX);
    assert_tls_got(&p.client, 100);
    assert_int_equal(p.client.rc, BR_ECLOSED);
    tls_pair_free(&p);
}

/* --- ALPN ------------------------------------------------------------------------------------ */

static const char *const only_h2[] = {"h2", NULL};
static const char *const only_h1[] = {"http/1.1", NULL};
static const char *const h1_first[] = {"http/1.1", "h2", NULL};
static const char *const other[] = {"spdy/3", NULL};

static struct tls_pair alpn_pair(const char *const *client_alpn, const char *const *server_alpn)
{
    struct br_tls_config server = tls_server_config(), client = tls_client_config();
    struct tls_pair p = {0};
    p.server.ctx = tls_context(&server, true, server_alpn);
    p.client.ctx = tls_context(&client, false, client_alpn);
    tls_connect(&p, "localhost");
    tls_talk(&p, SIZE_MAX);
    return p;
}

static void test_alpn(void **state)
{
    (void)state;
    static const struct {
        const char *const *client, *const *server;
        const char *chosen;
    } rows[] = {
        {only_h1, tls_both_protocols, "http/1.1"},
        {only_h2, tls_both_protocols, "h2"},
        {h1_first, tls_both_protocols, "h2"},
        {tls_both_protocols, h1_first, "http/1.1"},
        {NULL, tls_both_protocols, ""},
        {tls_both_protocols, NULL, ""},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct tls_pair p = alpn_pair(rows[i].client, rows[i].server);
        assert_tls_ready(&p);
        assert_string_equal(br_tls_alpn(p.client.tls), rows[i].chosen);
        assert_string_equal(br_tls_alpn(p.server.tls), rows[i].chosen);
        tls_pair_free(&p);
    }
}

/* RFC 7301 section 3.2: no_application_protocol, alert 120. */
static void test_alpn_without_common_protocol(void **state)
{
    (void)state;
    struct tls_pair p = alpn_pair(other, tls_both_protocols);
    assert_int_equal(p.server.rc, BR_EPROTO);
    assert_int_equal(p.client.rc, BR_EPROTO);
    assert_tls_says(&p.client.err, "no application protocol");
    tls_pair_free(&p);
}

static void test_alpn_lists_are_checked(void **state)
{
    (void)state;
    static const char *const empty[] = {"", NULL};
    static const char *const exact[] = {"0123456789012345678901234567890", NULL};
    static const char *const longer[] = {"01234567890123456789012345678901", NULL};
    const char *many[9] = {0};
    struct br_tls_config config = tls_client_config();
    struct br_tls_context *ctx = NULL;
    assert_int_equal(br_tls_context_new(&config, false, empty, &ctx, NULL), BR_EINVAL);
    assert_int_equal(br_tls_context_new(&config, false, longer, &ctx, NULL), BR_EINVAL);
    for (size_t i = 0; i < 8; i++)
        many[i] = exact[0];
    assert_int_equal(br_tls_context_new(&config, false, many, &ctx, NULL), BR_EINVAL);
    assert_null(ctx);
    struct tls_pair p = alpn_pair(exact, exact);
    assert_string_equal(br_tls_alpn(p.server.tls), exact[0]);
    tls_pair_free(&p);
}

/* --- Peers that do not speak TLS ------------------------------------------------------------- */

static void test_garbage(void **state)
{
    (void)state;
    static const struct {
        const char *text, *complaint;
    } rows[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP without TLS"},
        {"POST /v1/traces HTTP/1.1\r\n\r\n", "HTTP without TLS"},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ""},
        {"\x16\x03\x01\xff\xff\x01\x02\x03\x04\x05\x06\x07", ""},
        {"\x17\x03\x03\x01\x01\x01\x02\x03\x04\x05\x06\x07\x08", ""},
    };
    for (size_t i = 0; i < BR_COUNT(rows); i++) {
        struct br_tls_config config = tls_server_config();
        struct tls_end server = tls_server_end(&config);
        char block[20000] = {0};
        memcpy(block, rows[i].text, strlen(rows[i].text));
        tls_feed(&server, (const uint8_t *)block, sizeof block);
        assert_int_equal(server.rc, BR_EPROTO);
        assert_true(server.err.text[0] != '\0');
        assert_tls_says(&server.err, rows[i].complaint);
        assert_false(br_tls_ready(server.tls));
        struct br_rope out = {0};
        assert_int_equal(br_tls_output(server.tls, tls_pool, &out), 0);
        br_rope_release(&out);
        tls_end_free(&server);
    }
}

static void test_client_meets_plain_http(void **state)
{
    (void)state;
    struct br_tls_config config = tls_client_config();
    struct tls_end client = {.ctx = tls_context(&config, false, NULL)};
    client.tls = br_tls_new(client.ctx, "localhost");
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    tls_feed(&client, (const uint8_t *)answer, sizeof answer - 1);
    assert_int_equal(client.rc, BR_EPROTO);
    assert_tls_says(&client.err, "does not speak TLS");
    tls_end_free(&client);
}

/* Damage to any bit of a record is detected: bad_record_mac (RFC 8446 section 5.2). The peer
 * gets an alert. */
static void test_damaged_records(void **state)
{
    (void)state;
    for (size_t at = 5; at < 100; at += 13) {
        struct tls_pair p = tls_pair();
        tls_talk(&p, SIZE_MAX);
        tls_send_bytes(&p.client, 100, 100);
        struct br_rope out = {0};
        assert_int_equal(br_tls_output(p.client.tls, tls_pool, &out), 0);
        uint8_t record[256];
        assert_int_equal(out.count, 1);
        memcpy(record, out.slices[0].data, out.len);
        record[at] ^= 1;
        tls_feed(&p.server, record, out.len);
        br_rope_release(&out);
        assert_int_equal(p.server.rc, BR_EPROTO);
        assert_int_equal(p.server.got.len, 0);
        struct br_rope none = {0};
        assert_int_equal(br_rope_add(&none, NULL, "x", 1), 0);
        assert_int_equal(br_tls_send(p.server.tls, &none), BR_EPROTO);
        br_rope_release(&none);
        tls_carry(&p.server, &p.client, SIZE_MAX);
        assert_int_equal(p.client.rc, BR_EPROTO);
        assert_tls_says(&p.client.err, "bad record mac");
        tls_pair_free(&p);
    }
}

/* --- No memory ------------------------------------------------------------------------------- */

static long allocations_left;

static void *limited_alloc(size_t size)
{
    return allocations_left-- > 0 ? malloc(size) : NULL;
}

static void *limited_resize(void *p, size_t size)
{
    return allocations_left-- > 0 ? realloc(p, size) : NULL;
}

/* Runs handshake, data and close_notify, up to the first error. Returns the error, or 0. */
static int run_session(const struct br_tls_config *client, const struct br_tls_config *server)
{
    struct br_tls_context *ctxs[2] = {NULL, NULL};
    struct br_tls *ends[2] = {NULL, NULL};
    struct br_rope out = {0}, plain = {0};
    struct tls_bytes none = {0};
    uint8_t *text = calloc(1, 40000);
    int rc = br_tls_context_new(client, false, tls_both_protocols, &ctxs[0], NULL);
    if (!rc)
        rc = br_tls_context_new(server, true, tls_both_protocols, &ctxs[1], NULL);
    for (int i = 0; i < 2 && !rc; i++) {
        ends[i] = br_tls_new(ctxs[i], i ? NULL : "localhost");
        rc = ends[i] ? 0 : BR_ENOMEM;
    }
    for (int round = 0; round < 8 && !rc; round++) {
        struct br_tls *from = ends[round % 2], *to = ends[1 - round % 2];
        if (round == 4) {
            rc = br_rope_add(&plain, NULL, text, 40000);
            if (!rc)
                rc = br_tls_send(from, &plain);
        }
        if (round == 5)
            br_tls_close(from);
        if (!rc)
            rc = br_tls_output(from, tls_pool, &out);
        for (uint32_t i = 0; i < out.count && !rc; i++) {
            struct tls_end sink = {.got = none};
            rc = br_tls_input(to, out.slices[i].data, out.slices[i].len, tls_on_plain, &sink, NULL);
            free(sink.got.data);
        }
        br_rope_release(&out);
    }
    for (int i = 0; i < 2; i++) {
        br_tls_free(ends[i]);
        br_tls_context_free(ctxs[i]);
    }
    br_rope_release(&plain);
    free(text);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    static const struct br_mem_hooks scarce = {limited_alloc, limited_resize, free, NULL};
    const char *suites[] = {"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, *curves[] = {"P256"};
    struct br_tls_config server = tls_server_config(), client = tls_client_config();
    server.cipher_suites = (struct br_strings){suites, 1};
    server.curve_preferences = (struct br_strings){curves, 1};
    br_pool_trim(tls_pool);
    int rc = BR_ENOMEM;
    long n = 0;
    br_mem_set_hooks(&scarce);
    for (; rc == BR_ENOMEM && n < 1000; n++) {
        allocations_left = n;
        rc = run_session(&client, &server);
        br_pool_trim(tls_pool);
    }
    br_mem_set_hooks(NULL);
    assert_int_equal(rc, BR_ECLOSED); /* the expected end */
    assert_true(n > 10);
}

SUITE(tls)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handshake),
        cmocka_unit_test(test_handshake_in_any_pieces),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_output_is_compact),
        cmocka_unit_test(test_reader_may_stop),
        cmocka_unit_test(test_send_needs_a_handshake),
        cmocka_unit_test(test_close_notify),
        cmocka_unit_test(test_alpn),
        cmocka_unit_test(test_alpn_without_common_protocol),
        cmocka_unit_test(test_alpn_lists_are_checked),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_client_meets_plain_http),
        cmocka_unit_test(test_damaged_records),
        cmocka_unit_test(test_no_memory),
    };
    return RUN(tests, tls_setup, tls_teardown);
}
