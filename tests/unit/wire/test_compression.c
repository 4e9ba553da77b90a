/* SPDX-License-Identifier: Apache-2.0 */
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include "base/mem.h"
#include "tests/support/compression_check.h"
#include "tests/support/corpus.h"
#include "tests/support/mem_meter.h"
#include "tests/support/test.h"
#include "wire/compression.h"

/* The tests compare Braid with other implementations: zlib, and zstd's one-shot API. Braid must
 * read their output, and they must read Braid's output. */

struct fixture {
    struct br_pool *pool;
    struct br_codec *codec;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->pool = br_pool_new(1 << 20);
    f->codec = br_codec_new();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    br_codec_free(f->codec);
    br_pool_free(f->pool); /* fails if a test did not release a buffer */
    free(f);
    return 0;
}

struct bytes {
    uint8_t *data;
    size_t len;
};

/* Returns text-like bytes that compress to about a fifth, from a deterministic generator. */
static struct bytes sample(size_t len)
{
    static const char *words[] = {"http.route", "checkout", "GET ", "500",
                                  "span",       "\x0a\x10", "ms"};
    struct bytes b = {malloc(len ? len : 1), 0};
    uint32_t x = 12345;
    while (b.len < len) {
        x = x * 1664525u + 1013904223u;
        const char *w = words[(x >> 16) % 7];
        size_t n = strlen(w);
        if (n > len - b.len)
            n = len - b.len;
        memcpy(b.data + b.len, w, n);
        b.len += n;
        if (b.len < len)
            b.data[b.len++] = (uint8_t)(x >> 24);
    }
    return b;
}

/* Encodes with zlib and appends to `out`. window_bits 31 writes gzip, 15 zlib, -15 raw deflate. */
static void zlib_encode(struct bytes *out, const uint8_t *data, size_t len, int window_bits)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t bound = deflateBound(&z, len) + 64;
    out->data = realloc(out->data, out->len + bound);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)len;
    z.next_out = out->data + out->len;
    z.avail_out = (uInt)bound;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->len += z.total_out;
    deflateEnd(&z);
}

static struct bytes zlib_encoded(const uint8_t *data, size_t len, int window_bits)
{
    struct bytes out = {0};
    zlib_encode(&out, data, len, window_bits);
    return out;
}

/* Encodes with zstd and appends to `out`. The header of the frame contains the content size, unless
 * `streamed`. */
static void zstd_encode(struct bytes *out, const uint8_t *data, size_t len, bool streamed)
{
    size_t bound = ZSTD_compressBound(len);
    out->data = realloc(out->data, out->len + bound);
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, !streamed);
    size_t n = ZSTD_compress2(c, out->data + out->len, bound, data, len);
    assert_false(ZSTD_isError(n));
    out->len += n;
    ZSTD_freeCCtx(c);
}

static struct bytes zstd_encoded(const uint8_t *data, size_t len, bool streamed)
{
    struct bytes out = {0};
    zstd_encode(&out, data, len, streamed);
    return out;
}

static int decode(struct fixture *f, enum br_encoding e, struct bytes in, size_t max,
                  struct br_buf **ret)
{
    /* allocated with exactly the size of the input, so that ASan detects a read beyond it */
    uint8_t *exact = malloc(in.len ? in.len : 1);
    if (in.len)
        memcpy(exact, in.data, in.len);
    struct br_err err = {0};
    int rc = br_decompress(f->codec, e, exact, in.len, max, f->pool, ret, &err);
    assert_int_equal(err.code, rc);
    assert_true(rc == 0 || err.text[0]);
    free(exact);
    return rc;
}

static void assert_decodes(struct fixture *f, enum br_encoding e, struct bytes in,
                           struct bytes want)
{
    struct br_buf *out = NULL;
    assert_int_equal(decode(f, e, in, want.len, &out), 0);
    assert_int_equal(out->len, want.len);
    assert_memory_equal(out->data, want.data, want.len);
    br_buf_unref(out);
}

static void assert_refused(struct fixture *f, enum br_encoding e, struct bytes in, size_t max,
                           int rc)
{
    struct br_buf *out = (void *)f;
    assert_int_equal(decode(f, e, in, max, &out), rc);
    assert_ptr_equal(out, f);
    assert_int_equal(br_pool_live(f->pool), 0);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum br_encoding want;
    } known[] = {{"", BR_ENCODING_NONE},
                 {"identity", BR_ENCODING_NONE},
                 {"none", BR_ENCODING_NONE},
                 {"gzip", BR_ENCODING_GZIP},
                 {"GZip", BR_ENCODING_GZIP},
                 {"x-gzip", BR_ENCODING_GZIP},
                 {"zlib", BR_ENCODING_DEFLATE},
                 {"Deflate", BR_ENCODING_DEFLATE},
                 {"zstd", BR_ENCODING_ZSTD},
                 {"snappy", BR_ENCODING_SNAPPY},
                 {"x-snappy-framed", BR_ENCODING_SNAPPY}};
    for (size_t i = 0; i < BR_COUNT(known); i++) {
        enum br_encoding e = BR_ENCODING_ZSTD;
        assert_true(br_encoding_parse(known[i].name, strlen(known[i].name), &e));
        assert_int_equal(e, known[i].want);
    }
    static const char *const unknown[] = {"br",  "snappy-framed", "gzip ",
                                          "gzi", "gzip, gzip",    "lz4"};
    for (size_t i = 0; i < BR_COUNT(unknown); i++) {
        enum br_encoding e = BR_ENCODING_ZSTD;
        assert_false(br_encoding_parse(unknown[i], strlen(unknown[i]), &e));
        assert_int_equal(e, BR_ENCODING_ZSTD);
    }
    assert_string_equal(br_encoding_name(BR_ENCODING_NONE), "identity");
    assert_string_equal(br_encoding_name(BR_ENCODING_GZIP), "gzip");
    assert_string_equal(br_encoding_name(BR_ENCODING_DEFLATE), "deflate");
    assert_string_equal(br_encoding_name(BR_ENCODING_ZSTD), "zstd");
    assert_string_equal(br_encoding_name(BR_ENCODING_SNAPPY), "snappy");
}

static void test_reading_the_peers_output(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {0, 1, 2, 100, 4096, 65535, 65536, 1 << 20};
    for (size_t i = 0; i < BR_COUNT(sizes); i++) {
        struct bytes plain = sample(sizes[i]);
        struct bytes in[] = {
            zlib_encoded(plain.data, plain.len, 31), zlib_encoded(plain.data, plain.len, 15),
            zlib_encoded(plain.data, plain.len, -15), zstd_encoded(plain.data, plain.len, false),
            zstd_encoded(plain.data, plain.len, true)};
        static const enum br_encoding as[] = {BR_ENCODING_GZIP, BR_ENCODING_DEFLATE,
                                              BR_ENCODING_DEFLATE, BR_ENCODING_ZSTD,
                                              BR_ENCODING_ZSTD};
        for (size_t k = 0; k < BR_COUNT(in); k++) {
            assert_decodes(f, as[k], in[k], plain); /* the limit is exactly the size of the data */
            if (plain.len)
                assert_refused(f, as[k], in[k], plain.len - 1, BR_ETOOBIG);
            free(in[k].data);
        }
        free(plain.data);
    }
}

/* --- Snappy ----------------------------------------------------------------------------------- */

#define STREAM "\xff\6\0\0sNaPpY"

static struct bytes snappy_block(struct bytes plain)
{
    struct bytes b = {malloc(snappy_max_compressed_length(plain.len)),
                      snappy_max_compressed_length(plain.len)};
    assert_int_equal(snappy_compress((const char *)plain.data, plain.len, (char *)b.data, &b.len),
                     SNAPPY_OK);
    return b;
}

/* Returns the CRC-32C of the data (RFC 3720 appendix B.4), masked as in framing_format.txt section
 * 3. Computes the CRC bit by bit. */
static uint32_t masked_sum(const uint8_t *data, size_t len)
{
    uint32_t sum = UINT32_MAX;
    for (size_t i = 0; i < len; i++) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0);
    }
    sum = ~sum;
    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}

static void put_chunk(struct bytes *into, uint8_t type, const void *sum, struct bytes data)
{
    size_t len = data.len + (sum ? 4 : 0);
    const uint8_t head[] = {type, (uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16)};
    into->data = realloc(into->data, into->len + sizeof head + len);
    memcpy(into->data + into->len, head, sizeof head);
    into->len += sizeof head;
    if (sum)
        memcpy(into->data + into->len, sum, 4);
    into->len += sum ? 4 : 0;
    memcpy(into->data + into->len, data.data, data.len);
    into->len += data.len;
}

/* Encodes chunks of 64 KiB. Every second chunk is compressed, and chunks of all other kinds are in
 * between. */
static struct bytes snappy_framed(struct bytes plain)
{
    struct bytes b = {malloc(10), 10}, padding = {(uint8_t *)(uintptr_t) "padding", 7};
    memcpy(b.data, STREAM, 10);
    for (size_t at = 0, n; at < plain.len; at += n) {
        n = plain.len - at < 65536 ? plain.len - at : 65536;
        struct bytes part = {plain.data + at, n};
        uint32_t sum = masked_sum(part.data, part.len);
        struct bytes packed = snappy_block(part);
        put_chunk(&b, at >> 16 & 1, &sum, at >> 16 & 1 ? part : packed);
        put_chunk(&b, 0xfe, NULL, padding);
        put_chunk(&b, 0x80, NULL, padding);
        free(packed.data);
    }
    return b;
}

static void test_snappy(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {0, 1, 100, 65535, 65536, 65537, 1 << 20};
    assert_int_equal(masked_sum((const uint8_t *)"123456789", 9),
                     (0xe3069283u >> 15 | 0xe3069283u << 17) + 0xa282ead8u);
    for (size_t i = 0; i < BR_COUNT(sizes); i++) {
        struct bytes plain = sample(sizes[i]);
        struct bytes in[] = {snappy_block(plain), snappy_framed(plain)};
        for (size_t k = 0; k < BR_COUNT(in); k++) {
            assert_decodes(f, BR_ENCODING_SNAPPY, in[k], plain);
            if (plain.len)
                assert_refused(f, BR_ENCODING_SNAPPY, in[k], plain.len - 1, BR_ETOOBIG);
            for (size_t cut = 1; plain.len && cut < in[k].len; cut += 1 + cut / 2) {
                struct bytes shorter = {in[k].data, in[k].len - cut};
                struct br_buf *out = NULL;
                int rc = br_decompress(f->codec, BR_ENCODING_SNAPPY, shorter.data, shorter.len,
                                       plain.len, f->pool, &out, NULL);
                /* in the framed format, a prefix of whole chunks is a valid stream */
                assert_true(rc == BR_EINVAL || (k == 1 && !rc));
                br_buf_unref(out);
            }
            free(in[k].data);
        }
        free(plain.data);
    }
}

static void test_damaged_snappy(void **state)
{
    struct fixture *f = *state;
#define BYTES(text) ((struct bytes){(uint8_t *)(uintptr_t)(text), sizeof(text) - 1})
    const struct bytes damaged[] = {
        BYTES(""),
        BYTES("\x80"),                    /* a truncated length */
        BYTES("\xff\xff\xff\xff\x0f\0a"), /* a length of 4 GiB and one byte of data */
        /* a length of 64 MiB and one byte of data: no buffer is allocated for it */
        BYTES("\x80\x80\x80\x20\0a"),
        BYTES("\1\0ab"), /* more bytes than the stated size */
        BYTES("\2\0a"),  /* fewer bytes than the stated size */
        /* a copy from a position before the start of the output */
        BYTES("\4\x0d\1"),
        BYTES(STREAM "\1\1\0\0a"),         /* no room for the checksum */
        BYTES(STREAM "\1\5\0\0\0\0\0\0a"), /* a wrong checksum */
        BYTES(STREAM "\2\0\0\0"),          /* a reserved chunk, which must not be skipped */
        BYTES(STREAM "\xff\6\0\0sNaPpZ"),  /* an unknown stream identifier */
        BYTES(STREAM "\0\xff\xff\xff"),    /* a chunk longer than the input */
        BYTES(STREAM "\1\0"),
    };
    for (size_t i = 0; i < BR_COUNT(damaged); i++)
        assert_refused(f, BR_ENCODING_SNAPPY, damaged[i], 1 << 20, BR_EINVAL);
    assert_decodes(f, BR_ENCODING_SNAPPY, BYTES(STREAM), BYTES(""));
    assert_decodes(f, BR_ENCODING_SNAPPY, BYTES(STREAM STREAM), BYTES(""));
    /* A chunk of more than 64 KiB. */
    struct bytes plain = sample(65537), b = {malloc(10), 10};
    uint32_t sum = masked_sum(plain.data, plain.len);
    memcpy(b.data, STREAM, 10);
    put_chunk(&b, 1, &sum, plain);
    assert_refused(f, BR_ENCODING_SNAPPY, b, 1 << 20, BR_EINVAL);
    free(b.data);
    free(plain.data);
}

/* Decodes with the other implementation: zlib for gzip and zlib streams, one-shot zstd. */
static void assert_peer_reads(enum br_encoding e, const uint8_t *data, size_t len,
                              struct bytes want)
{
    uint8_t *out = malloc(want.len + 1);
    if (e == BR_ENCODING_ZSTD) {
        assert_int_equal(ZSTD_decompress(out, want.len + 1, data, len), want.len);
    } else {
        z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)len};
        assert_int_equal(inflateInit2(&z, e == BR_ENCODING_GZIP ? 31 : 15), Z_OK);
        z.next_out = out;
        z.avail_out = (uInt)want.len + 1;
        assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
        assert_int_equal(z.avail_in, 0);
        assert_int_equal(z.total_out, want.len);
        inflateEnd(&z);
    }
    assert_memory_equal(out, want.data, want.len);
    free(out);
}

/* Adds the plain bytes to the rope as `n` slices of different lengths. Some slices are constants,
 * which do not belong to a buffer. */
static void slice_up(struct fixture *f, struct bytes plain, size_t n, struct br_rope *rope)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = i + 1 == n ? plain.len - at : (plain.len - at) / (i % 3 + 2);
        if (i % 2) {
            assert_int_equal(br_rope_add(rope, NULL, plain.data + at, len), 0);
        } else {
            struct br_buf *b = br_buf_new(f->pool, len);
            assert_int_equal(br_buf_append(&b, plain.data + at, len, len), 0);
            assert_int_equal(br_rope_add(rope, b, b->data, len), 0);
            br_buf_unref(b);
        }
        at += len;
    }
}

static void test_peers_read_our_output(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {0, 1, 300, 70000, 3 << 20};
    static const int levels[] = {0, 1, 6, 9, -1, 1000};
    for (size_t i = 0; i < BR_COUNT(sizes); i++) {
        struct bytes plain = sample(sizes[i]);
        for (int e = BR_ENCODING_GZIP; e <= BR_ENCODING_ZSTD; e++) {
            size_t n_levels = sizes[i] > 100000 ? 2 : BR_COUNT(levels);
            for (size_t k = 0; k < 3 * n_levels; k++) {
                struct br_rope rope = {0};
                slice_up(f, plain, k % 3 == 0 ? 1 : k % 3 * 5, &rope);
                struct br_buf *out;
                size_t reserve = k % 2 ? 5 : 0;
                assert_int_equal(br_compress(f->codec, (enum br_encoding)e, levels[k / 3], &rope,
                                             reserve, f->pool, &out),
                                 0);
                assert_peer_reads((enum br_encoding)e, out->data + reserve, out->len - reserve,
                                  plain);
                assert_true(out->cap <= 512 || out->len >= out->cap / 2);
                br_buf_unref(out);
                br_rope_release(&rope);
                assert_int_equal(br_pool_live(f->pool), 0);
            }
        }
        free(plain.data);
    }
}

/* Random bytes do not compress, so the output is larger than the input, and the buffers must have
 * room for it. */
static void test_incompressible(void **state)
{
    struct fixture *f = *state;
    struct bytes plain = {malloc(500000), 500000};
    for (size_t i = 0, x = 88172645463325252u; i < plain.len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        plain.data[i] = (uint8_t)x;
    }
    for (int e = BR_ENCODING_GZIP; e <= BR_ENCODING_ZSTD; e++) {
        struct br_rope rope = {0};
        slice_up(f, plain, 4, &rope);
        struct br_buf *out;
        assert_int_equal(br_compress(f->codec, (enum br_encoding)e, 0, &rope, 9, f->pool, &out), 0);
        assert_peer_reads((enum br_encoding)e, out->data + 9, out->len - 9u, plain);
        assert_decodes(f, (enum br_encoding)e, (struct bytes){out->data + 9, out->len - 9u}, plain);
        br_buf_unref(out);
        br_rope_release(&rope);
    }
    free(plain.data);
}

/* RFC 1952 section 2.2: "A gzip file consists of a series of members". RFC 8878 section 3: "one
 * or more frames", whose content is concatenated. Skippable frames do not have content. */
static void test_concatenated(void **state)
{
    struct fixture *f = *state;
    struct bytes plain = sample(200000);
    struct bytes gz = {0}, zs = {0};
    static const size_t cuts[] = {0, 10, 10, 150000, 150001, 200000, 200000};
    for (size_t i = 0; i + 1 < BR_COUNT(cuts); i++) {
        zlib_encode(&gz, plain.data + cuts[i], cuts[i + 1] - cuts[i], 31);
        zstd_encode(&zs, plain.data + cuts[i], cuts[i + 1] - cuts[i], i % 2);
        static const uint8_t skippable[] = {0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'x', 'y', 'z'};
        zs.data = realloc(zs.data, zs.len + sizeof skippable);
        memcpy(zs.data + zs.len, skippable, sizeof skippable);
        zs.len += sizeof skippable;
    }
    assert_decodes(f, BR_ENCODING_GZIP, gz, plain);
    assert_decodes(f, BR_ENCODING_ZSTD, zs, plain);
    assert_refused(f, BR_ENCODING_GZIP, gz, plain.len - 1, BR_ETOOBIG);
    assert_refused(f, BR_ENCODING_ZSTD, zs, plain.len - 1, BR_ETOOBIG);
    free(gz.data);
    free(zs.data);
    free(plain.data);
}

/* Returns true if the size at the end of the gzip stream (four bytes, RFC 1952 section 2.3.1) is
 * above `max` and the stream is long enough for this size. Deflate encodes at most 258 bytes in two
 * bits. */
static bool states_more(struct bytes gz, size_t max)
{
    if (gz.len < 4)
        return false;
    const uint8_t *at = gz.data + gz.len - 4;
    size_t size = (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
    return size > max && size <= gz.len * 258 * 4;
}

static void test_truncated_at_every_byte(void **state)
{
    struct fixture *f = *state;
    struct bytes plain = sample(3000);
    struct bytes in[] = {
        zlib_encoded(plain.data, plain.len, 31), zlib_encoded(plain.data, plain.len, 15),
        zlib_encoded(plain.data, plain.len, -15), zstd_encoded(plain.data, plain.len, false),
        zstd_encoded(plain.data, plain.len, true)};
    static const enum br_encoding as[] = {BR_ENCODING_GZIP, BR_ENCODING_DEFLATE,
                                          BR_ENCODING_DEFLATE, BR_ENCODING_ZSTD, BR_ENCODING_ZSTD};
    for (size_t k = 0; k < BR_COUNT(in); k++) {
        for (size_t cut = 0; cut < in[k].len; cut++) {
            struct bytes part = {in[k].data, cut};
            bool too_large = as[k] == BR_ENCODING_GZIP && states_more(part, plain.len * 2);
            assert_refused(f, as[k], part, plain.len * 2, too_large ? BR_ETOOBIG : BR_EINVAL);
            struct br_buf *out = NULL;
            int rc = decode(f, as[k], part, plain.len, &out);
            assert_true(rc == BR_EINVAL || (rc == BR_ETOOBIG && as[k] != BR_ENCODING_ZSTD));
            assert_null(out);
        }
        free(in[k].data);
    }
    free(plain.data);
}

static void test_damage(void **state)
{
    struct fixture *f = *state;
    struct bytes plain = sample(1000);
    struct bytes gz = zlib_encoded(plain.data, plain.len, 31);
    struct bytes zl = zlib_encoded(plain.data, plain.len, 15);
    struct bytes raw = zlib_encoded(plain.data, plain.len, -15);
    struct bytes zs = zstd_encoded(plain.data, plain.len, false);
    struct bytes *all[] = {&gz, &zl, &raw, &zs};
    static const enum br_encoding as[] = {BR_ENCODING_GZIP, BR_ENCODING_DEFLATE,
                                          BR_ENCODING_DEFLATE, BR_ENCODING_ZSTD};
    /* Data in one coding is not valid in another. */
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++) {
            if (as[i] != as[k])
                assert_refused(f, as[i], *all[k], 1 << 20, BR_EINVAL);
        }
        assert_refused(f, as[i], (struct bytes){NULL, 0}, 1 << 20, BR_EINVAL);
        assert_refused(f, as[i], plain, 1 << 20, BR_EINVAL);
    }
    /* One more byte follows the data. */
    for (size_t i = 0; i < 4; i++) {
        struct bytes more = {malloc(all[i]->len + 1), all[i]->len + 1};
        memcpy(more.data, all[i]->data, all[i]->len);
        more.data[all[i]->len] = 0;
        assert_refused(f, as[i], more, 1 << 20, BR_EINVAL);
        free(more.data);
    }
    /* Flips a bit of the data, of the checksum, and of the size after it. */
    gz.data[gz.len - 5] ^= 1;
    assert_refused(f, BR_ENCODING_GZIP, gz, 1 << 20, BR_EINVAL);
    gz.data[gz.len - 5] ^= 1;
    gz.data[gz.len - 1] ^= 1;
    assert_refused(f, BR_ENCODING_GZIP, gz, 1 << 20, BR_EINVAL);
    gz.data[gz.len - 1] ^= 1;
    gz.data[gz.len / 2] ^= 1;
    assert_refused(f, BR_ENCODING_GZIP, gz, 1 << 20, BR_EINVAL);
    zl.data[zl.len - 1] ^= 1;
    assert_refused(f, BR_ENCODING_DEFLATE, zl, 1 << 20, BR_EINVAL);
    zs.data[zs.len - 1] ^= 1;
    assert_refused(f, BR_ENCODING_ZSTD, zs, 1 << 20, BR_EINVAL);
    for (size_t i = 0; i < 4; i++)
        free(all[i]->data);
    free(plain.data);
}

/* The library reads formats older than RFC 8878 (this is the magic of version 0.7). Braid does
 * not. */
static void test_old_zstd(void **state)
{
    struct fixture *f = *state;
    struct bytes plain = sample(1000);
    struct bytes in = zstd_encoded(plain.data, plain.len, false);
    in.data[0] = 0x27;
    struct br_buf *out = NULL;
    struct br_err err = {0};
    assert_int_equal(
        br_decompress(f->codec, BR_ENCODING_ZSTD, in.data, in.len, 1 << 20, f->pool, &out, &err),
        BR_EINVAL);
    assert_string_equal(err.text, "the body is not zstd, or is truncated");
    free(in.data);
    free(plain.data);
}

static void test_no_coding(void **state)
{
    struct fixture *f = *state;
    struct bytes plain = sample(10);
    assert_refused(f, BR_ENCODING_NONE, plain, 100, BR_EINVAL);
    free(plain.data);
}

/* Returns a gzip member of zeros. It repeats one piece, which a full flush makes independent of
 * earlier pieces. */
static struct bytes gzip_bomb(size_t total, uint8_t *piece, size_t piece_len)
{
    static const uint8_t header[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}, last[] = {3, 0};
    uint8_t *block = malloc(piece_len);
    z_stream z = {.next_in = piece,
                  .avail_in = (uInt)piece_len,
                  .next_out = block,
                  .avail_out = (uInt)piece_len};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FULL_FLUSH), Z_OK);
    size_t times = total / piece_len;
    struct bytes out = {malloc(z.total_out * times + 20), sizeof header};
    memcpy(out.data, header, sizeof header);
    uLong crc = 0, piece_crc = crc32(0, piece, (uInt)piece_len);
    for (size_t i = 0; i < times; i++) {
        memcpy(out.data + out.len, block, z.total_out);
        out.len += z.total_out;
        crc = crc32_combine(crc, piece_crc, (z_off_t)piece_len);
    }
    memcpy(out.data + out.len, last, sizeof last);
    memcpy(out.data + out.len + 2, &(uint32_t){(uint32_t)crc}, 4);
    memcpy(out.data + out.len + 6, &(uint32_t){(uint32_t)total}, 4);
    out.len += 10;
    deflateEnd(&z);
    free(block);
    return out;
}

static struct bytes zstd_bomb(size_t total, uint8_t *piece, size_t piece_len, bool sized)
{
    struct bytes out = {malloc(4 << 20), 0};
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, 24);
    if (sized)
        ZSTD_CCtx_setPledgedSrcSize(c, total);
    ZSTD_outBuffer o = {out.data, 4 << 20, 0};
    for (size_t done = 0; done < total; done += piece_len) {
        ZSTD_inBuffer in = {piece, piece_len, 0};
        ZSTD_compressStream2(c, &o, &in, done + piece_len == total ? ZSTD_e_end : ZSTD_e_continue);
        assert_int_equal(in.pos, in.size);
    }
    out.len = o.pos;
    ZSTD_freeCCtx(c);
    return out;
}

static void test_bombs(void **state)
{
    /* Each bomb encodes at least a gibibyte of zeros. First, a small gzip member is decoded to
     * check that gzip_bomb writes valid members. */
    size_t piece_len = 4 << 20, total = 1u << 30, limit = 22u << 20;
    uint8_t *piece = calloc(1, piece_len);
    struct {
        enum br_encoding e;
        struct bytes in;
        /* most memory at a time, in bytes; a buffer may be up to 25 % larger than requested */
        size_t most;
    } bombs[] = {
        /* The memory consists of one buffer and the tables of the decoder. Empty buffers are not
         * kept. */
        {BR_ENCODING_GZIP, gzip_bomb(total, piece, piece_len), limit * 5 / 4 + (1 << 20)},
        /* The stream states the size 0, because gzip states the size modulo 2^32. */
        {BR_ENCODING_GZIP, gzip_bomb((size_t)1 << 32, piece, piece_len), limit * 5 / 4 + (1 << 20)},
        /* The bomb is rejected because of the size in its header. */
        {BR_ENCODING_ZSTD, zstd_bomb(total, piece, piece_len, true), 4 << 20},
        /* The header does not state a size, so the decoder fills its window first. A buffer for
         * `limit` bytes takes 24 MiB. */
        {BR_ENCODING_ZSTD, zstd_bomb(total, piece, piece_len, false), (24 << 20) + (1 << 20)}};
    struct bytes whole = {piece, piece_len};
    struct bytes small = gzip_bomb(piece_len, piece, piece_len / 4);
    assert_decodes(*state, BR_ENCODING_GZIP, small, whole);
    free(small.data);
    for (size_t i = 0; i < BR_COUNT(bombs); i++) {
        assert_true(bombs[i].in.len < 8 << 20);
        mem_meter.live = mem_meter.peak = 0;
        br_mem_set_hooks(&mem_meter_hooks);
        struct fixture f = {br_pool_new(64 << 20), br_codec_new()};
        assert_refused(&f, bombs[i].e, bombs[i].in, limit, BR_ETOOBIG);
        assert_int_equal(br_pool_idle(f.pool), 0);
        br_codec_free(f.codec);
        br_pool_free(f.pool);
        br_mem_set_hooks(NULL);
        assert_int_equal(mem_meter.live, 0);
        assert_true(mem_meter.peak > 0);
        assert_true(mem_meter.peak <= bombs[i].most);
        free(bombs[i].in.data);
    }
    free(piece);
}

/* gzip states the size of the data at its end (RFC 1952 section 2.3.1), and zstd in its header (RFC
 * 8878 section 3.1.1.1). Both sizes are wrong here. */
static void test_wrong_sizes(void **state)
{
    struct fixture *f = *state;
    struct bytes plain = sample(100000);
    struct bytes gz = zlib_encoded(plain.data, plain.len, 31);
    static const uint8_t lies[] = {0xff, 0xff, 0xff, 0xff};
    memcpy(gz.data + gz.len - 4, lies, 4);
    assert_refused(f, BR_ENCODING_GZIP, gz, 1 << 20, BR_EINVAL);
    memset(gz.data + gz.len - 4, 0, 4);
    assert_refused(f, BR_ENCODING_GZIP, gz, 1 << 20, BR_EINVAL);
    /* The frame consists of the magic number, a descriptor (a size of 8 bytes, single segment), the
     * size, and an empty last block. */
    uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0};
    assert_decodes(f, BR_ENCODING_ZSTD, (struct bytes){frame, sizeof frame},
                   (struct bytes){frame, 0});
    frame[5] = 1; /* the header states one byte, but the frame does not contain data */
    assert_refused(f, BR_ENCODING_ZSTD, (struct bytes){frame, sizeof frame}, 1 << 20, BR_EINVAL);
    /* the header states 256 MiB and one byte, more than a frame of 16 bytes can contain */
    frame[8] = 16;
    assert_refused(f, BR_ENCODING_ZSTD, (struct bytes){frame, sizeof frame}, SIZE_MAX, BR_EINVAL);
    memset(frame + 5, 0xff, 7);
    assert_refused(f, BR_ENCODING_ZSTD, (struct bytes){frame, sizeof frame}, SIZE_MAX, BR_EINVAL);
    free(gz.data);
    free(plain.data);
}

/* An encoder that flushes after each line makes many small blocks, each of which could hold 128
 * KiB. */
static void test_zstd_of_many_blocks(void **state)
{
    struct fixture *f = *state;
    struct bytes plain = sample(200000), in = {malloc(4 << 20), 0};
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_outBuffer o = {in.data, 4 << 20, 0};
    for (size_t done = 0; done < plain.len; done += 100) {
        ZSTD_inBuffer i = {plain.data + done, 100, 0};
        assert_int_equal(ZSTD_compressStream2(c, &o, &i, ZSTD_e_flush), 0);
    }
    assert_int_equal(ZSTD_compressStream2(c, &o, &(ZSTD_inBuffer){0}, ZSTD_e_end), 0);
    ZSTD_freeCCtx(c);
    in.len = o.pos;
    mem_meter.live = mem_meter.peak = 0;
    br_mem_set_hooks(&mem_meter_hooks);
    struct fixture own = {br_pool_new(0), br_codec_new()};
    struct br_buf *out;
    assert_int_equal(
        br_decompress(own.codec, BR_ENCODING_ZSTD, in.data, in.len, 64 << 20, own.pool, &out, NULL),
        0);
    assert_int_equal(out->len, plain.len);
    assert_memory_equal(out->data, plain.data, plain.len);
    br_buf_unref(out);
    br_codec_free(own.codec);
    br_pool_free(own.pool);
    br_mem_set_hooks(NULL);
    assert_true(mem_meter.peak <=
                /* 32 times the input plus a quarter, because a buffer may be larger than
                 * requested; and 1 MiB */
                in.len * 40 + (1 << 20));
    assert_decodes(f, BR_ENCODING_ZSTD, in, plain);
    free(in.data);
    free(plain.data);
}

/* A frame that needs a window of 2^24 bytes is read, a frame that needs 2^25 bytes is not (RFC 8878
 * section 3.1.1.1.2). */
static void test_zstd_window(void **state)
{
    struct fixture *f = *state;
    struct bytes plain = sample(5000);
    for (int log = 24; log <= 25; log++) {
        size_t bound = ZSTD_compressBound(plain.len);
        struct bytes in = {malloc(bound), 0};
        ZSTD_CCtx *c = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, log);
        ZSTD_inBuffer i = {plain.data, plain.len, 0};
        ZSTD_outBuffer o = {in.data, bound, 0};
        /* a flush before the end makes the encoder omit the content size */
        ZSTD_compressStream2(c, &o, &i, ZSTD_e_flush);
        assert_int_equal(ZSTD_compressStream2(c, &o, &i, ZSTD_e_end), 0);
        in.len = o.pos;
        ZSTD_freeCCtx(c);
        if (log == 24)
            assert_decodes(f, BR_ENCODING_ZSTD, in, plain);
        else
            assert_refused(f, BR_ENCODING_ZSTD, in, 1 << 20, BR_EINVAL);
        free(in.data);
    }
    free(plain.data);
}

/* The memory of the libraries also comes from Braid's allocator; otherwise the other tests could
 * not measure this memory or let its allocation fail. After the first use of a coding, the codec
 * keeps the tables of this coding. */
static void test_tables_are_counted(void **state)
{
    (void)state;
    struct bytes plain = sample(1000);
    mem_meter.live = 0;
    br_mem_set_hooks(&mem_meter_hooks);
    struct br_pool *pool = br_pool_new(0);
    struct br_codec *codec = br_codec_new();
    struct br_rope rope = {0};
    assert_int_equal(br_rope_add(&rope, NULL, plain.data, plain.len), 0);
    static const enum br_encoding as[] = {BR_ENCODING_GZIP, BR_ENCODING_ZSTD};
    for (size_t i = 0; i < BR_COUNT(as); i++) {
        struct br_buf *coded = NULL, *back = NULL;
        size_t before = mem_meter.live;
        assert_int_equal(br_compress(codec, as[i], 0, &rope, 0, pool, &coded), 0);
        size_t encoder = mem_meter.live - before - coded->cap;
        assert_int_equal(
            br_decompress(codec, as[i], coded->data, coded->len, 1 << 20, pool, &back, NULL), 0);
        size_t decoder = mem_meter.live - before - encoder - coded->cap - back->cap;
        assert_true(encoder > 8192 && decoder > 8192);
        br_buf_unref(coded);
        br_buf_unref(back);
    }
    br_rope_release(&rope);
    br_codec_free(codec);
    br_pool_free(pool);
    br_mem_set_hooks(NULL);
    assert_int_equal(mem_meter.live, 0);
    free(plain.data);
}

/* Fails the n-th allocation, for every n, until everything succeeds. */
static void fail_each_allocation(enum br_encoding e, struct bytes coded, struct bytes plain)
{
    bool done = false;
    for (long n = 1; !done; n++) {
        assert_true(n < 1000);
        mem_meter.live = 0;
        mem_meter.fail_at = n;
        br_mem_set_hooks(&mem_meter_hooks);
        struct br_pool *pool = br_pool_new(0);
        struct br_codec *codec = pool ? br_codec_new() : NULL;
        struct br_rope rope = {0};
        struct br_buf *out = NULL, *back = NULL;
        if (codec && br_rope_add(&rope, NULL, plain.data, plain.len / 2) == 0 &&
            br_rope_add(&rope, NULL, plain.data + plain.len / 2, plain.len - plain.len / 2) == 0) {
            int rc = br_compress(codec, e, 0, &rope, 0, pool, &out);
            assert_true(rc == 0 || rc == BR_ENOMEM);
            int rc2 = br_decompress(codec, e, coded.data, coded.len, plain.len, pool, &back, NULL);
            assert_true(rc2 == 0 || rc2 == BR_ENOMEM);
            assert_true(rc == 0 || !out);
            assert_true(rc2 == 0 || !back);
            if (back) {
                assert_int_equal(back->len, plain.len);
                assert_memory_equal(back->data, plain.data, plain.len);
            }
            done = rc == 0 && rc2 == 0 && mem_meter.fail_at > 0;
        }
        br_buf_unref(out);
        br_buf_unref(back);
        br_rope_release(&rope);
        br_codec_free(codec);
        br_pool_free(pool);
        mem_meter.fail_at = 0;
        br_mem_set_hooks(NULL);
        assert_int_equal(mem_meter.live, 0);
    }
}

static void test_allocation_failures(void **state)
{
    (void)state;
    /* The data compresses better than the first estimate assumes, so the buffer must grow. */
    struct bytes plain = {calloc(1, 300000), 300000};
    struct bytes in[] = {
        zlib_encoded(plain.data, plain.len, 31), zlib_encoded(plain.data, plain.len, 15),
        zlib_encoded(plain.data, plain.len, -15), zstd_encoded(plain.data, plain.len, false),
        zstd_encoded(plain.data, plain.len, true)};
    static const enum br_encoding as[] = {BR_ENCODING_GZIP, BR_ENCODING_DEFLATE,
                                          BR_ENCODING_DEFLATE, BR_ENCODING_ZSTD, BR_ENCODING_ZSTD};
    for (size_t k = 0; k < BR_COUNT(in); k++) {
        fail_each_allocation(as[k], in[k], plain);
        free(in[k].data);
    }
    free(plain.data);
}

static void test_corpus(void **state)
{
    (void)state;
    assert_true(corpus_replay("compression", compression_check) >= 20);
}

SUITE(compression)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        TEST(test_snappy),
        TEST(test_damaged_snappy),
        TEST(test_reading_the_peers_output),
        TEST(test_peers_read_our_output),
        TEST(test_incompressible),
        TEST(test_concatenated),
        TEST(test_truncated_at_every_byte),
        TEST(test_damage),
        TEST(test_no_coding),
        TEST(test_bombs),
        TEST(test_wrong_sizes),
        TEST(test_zstd_window),
        TEST(test_zstd_of_many_blocks),
        TEST(test_old_zstd),
        cmocka_unit_test(test_tables_are_counted),
        cmocka_unit_test(test_allocation_failures),
        cmocka_unit_test(test_corpus),
    };
    return RUN(tests, NULL, NULL);
}
