/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/compression.h"

#include <libdeflate.h>
#include <string.h>
#include <strings.h>

/* For the allocator hooks only. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#include "base/mem.h"
#include "wire/protobuf.h"

#define DEFLATE_LEVEL_DEFAULT 1
#define DEFLATE_LEVEL_MAX 12
#define ZSTD_LEVEL_DEFAULT 1
#define ZSTD_WINDOW_LOG_MAX 24

/* What a body without a size of its own is first taken to be: telemetry is 12 to 16 times its
 * compressed size. */
#define RATIO_GUESS 16u
/* Without a size; what its blocks can hold is mostly less, and near what they do. */
#define ZSTD_RATIO_GUESS 32u
/* RFC 1951: 258 bytes from two bits at the best. */
#define RATIO_DEFLATE_MAX 1032u
/* RFC 8878 section 3.1.1.2: a block is at least three bytes and at most 128 KiB of content. */
#define ZSTD_BLOCK_CONTENT_MAX (128u << 10)
#define ZSTD_BLOCK_MIN 3u
#define ZSTD_FRAME_MAGIC 0xFD2FB528u
#define ZSTD_SKIPPABLE_MAGIC 0x184D2A50u
#define ZSTD_SKIPPABLE_MASK 0xFFFFFFF0u

struct br_codec {
    struct libdeflate_compressor *deflate[DEFLATE_LEVEL_MAX + 1];
    struct libdeflate_decompressor *inflate;
    ZSTD_CCtx *zstd_c;
    ZSTD_DCtx *zstd_d;
};

/* libdeflate 1.14 has one allocator for the whole process, so it is set before a thread can be. */
__attribute__((constructor)) static void set_deflate_allocator(void)
{
    libdeflate_set_memory_allocator(br_malloc, br_free);
}

static void *zstd_alloc(void *opaque, size_t size)
{
    (void)opaque;
    return br_malloc(size);
}

static void zstd_free(void *opaque, void *p)
{
    (void)opaque;
    br_free(p);
}

static ZSTD_customMem zstd_allocator(void)
{
    return (ZSTD_customMem){zstd_alloc, zstd_free, NULL};
}

bool br_encoding_parse(const char *name, size_t len, enum br_encoding *ret)
{
    static const struct {
        const char *name;
        enum br_encoding encoding;
    } names[] = {
        {"", BR_ENCODING_NONE},        {"identity", BR_ENCODING_NONE},   {"none", BR_ENCODING_NONE},
        {"gzip", BR_ENCODING_GZIP},    {"x-gzip", BR_ENCODING_GZIP},     {"zstd", BR_ENCODING_ZSTD},
        {"zlib", BR_ENCODING_DEFLATE}, {"deflate", BR_ENCODING_DEFLATE},
    };
    for (size_t i = 0; i < BR_COUNT(names); i++) {
        if (len == strlen(names[i].name) && strncasecmp(name, names[i].name, len) == 0) {
            *ret = names[i].encoding;
            return true;
        }
    }
    return false;
}

const char *br_encoding_name(enum br_encoding encoding)
{
    switch (encoding) {
    case BR_ENCODING_GZIP:
        return "gzip";
    case BR_ENCODING_DEFLATE:
        return "deflate";
    case BR_ENCODING_ZSTD:
        return "zstd";
    case BR_ENCODING_NONE:
        break;
    }
    return "identity";
}

struct br_codec *br_codec_new(void)
{
    return br_calloc(1, sizeof(struct br_codec));
}

void br_codec_free(struct br_codec *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < BR_COUNT(c->deflate); i++)
        libdeflate_free_compressor(c->deflate[i]);
    libdeflate_free_decompressor(c->inflate);
    ZSTD_freeCCtx(c->zstd_c);
    ZSTD_freeDCtx(c->zstd_d);
    br_free(c);
}

/* Decoded bytes on their way: never more than `limit`. */
struct sink {
    struct br_pool *pool;
    struct br_buf *buf;
    size_t limit;
    struct br_err *err;
};

static int sink_open(struct sink *s, size_t guess)
{
    s->buf = br_buf_new(s->pool, guess < s->limit ? guess : s->limit);
    return s->buf ? 0 : br_err_set(s->err, BR_ENOMEM, "no memory to decompress into");
}

/* The size up to which the buffer may be filled. */
static size_t sink_size(const struct sink *s)
{
    return s->buf->cap < s->limit ? s->buf->cap : s->limit;
}

static int too_big(const struct sink *s)
{
    return br_err_set(s->err, BR_ETOOBIG, "decompresses to more than %zu bytes", s->limit);
}

/* Makes room for `size` bytes in all, at most the limit. An empty buffer is given back first, so
 * that a bomb never holds two. */
static int sink_reserve(struct sink *s, size_t size)
{
    if (size <= s->buf->cap)
        return 0;
    if (s->buf->len == 0) {
        s->buf = br_buf_discard(s->buf);
        return sink_open(s, size);
    }
    if (br_buf_reserve(&s->buf, size))
        return br_err_set(s->err, BR_ENOMEM, "no memory to decompress into");
    return 0;
}

/* Twice the room, which bounds what decoding the last member again costs: the sizes tried add up to
 * less than twice the last one. */
static int sink_grow(struct sink *s)
{
    size_t size = sink_size(s);
    if (size == s->limit)
        return too_big(s);
    return sink_reserve(s, size > s->limit / 2 ? s->limit : size * 2);
}

typedef enum libdeflate_result inflate_fn(struct libdeflate_decompressor *, const void *, size_t,
                                          void *, size_t, size_t *, size_t *);

/* Decodes the one stream at `data`; `*ret_used` is where it ends. */
static int inflate_one(struct br_codec *c, inflate_fn *fn, const uint8_t *data, size_t len,
                       struct sink *s, size_t *ret_used)
{
    for (;;) {
        size_t used, made;
        struct br_buf *b = s->buf;
        enum libdeflate_result r =
            fn(c->inflate, data, len, b->data + b->len, sink_size(s) - b->len, &used, &made);
        if (r == LIBDEFLATE_SUCCESS) {
            b->len += (uint32_t)made;
            *ret_used = used;
            return 0;
        }
        if (r != LIBDEFLATE_INSUFFICIENT_SPACE)
            return br_err_set(s->err, BR_EINVAL, "the compressed body is damaged or cut off");
        int rc = sink_grow(s);
        if (rc)
            return rc;
    }
}

static int make_inflate(struct br_codec *c, struct sink *s)
{
    if (!c->inflate)
        c->inflate = libdeflate_alloc_decompressor();
    return c->inflate ? 0 : br_err_set(s->err, BR_ENOMEM, "no memory for a decoder");
}

/* A multiple of the input that cannot overflow. */
static size_t times(size_t len, size_t factor)
{
    size_t product;
    return br_size_mul(len, factor, &product) ? product : SIZE_MAX;
}

/* The last member's size (RFC 1952 section 2.3.1) is its sender's word, modulo 2^32, and says
 * nothing of the members before: a place to start from. */
static size_t gzip_guess(const uint8_t *data, size_t len)
{
    size_t most = times(len, RATIO_DEFLATE_MAX);
    size_t size = len < 4 ? 0 : br_load32(data + len - 4);
    if (size < len)
        size = len;
    return size < most ? size : most;
}

static int decode_gzip(struct br_codec *c, const uint8_t *data, size_t len, struct sink *s)
{
    /* A member that is larger than it states is damaged: what it can be, and states to be, is not made
     * when that is too much. */
    size_t stated = len < 4 ? 0 : br_load32(data + len - 4);
    if (stated > s->limit && stated <= times(len, RATIO_DEFLATE_MAX))
        return too_big(s);
    int rc = make_inflate(c, s);
    if (!rc)
        rc = sink_open(s, gzip_guess(data, len));
    size_t at = 0;
    while (!rc && (at == 0 || at < len)) {
        size_t used = 0;
        rc = inflate_one(c, libdeflate_gzip_decompress_ex, data + at, len - at, s, &used);
        at += used;
    }
    return rc;
}

/* RFC 1950 section 2.2. A raw stream that starts like this would be a stored block with its padding
 * bits set, which nothing writes. */
static bool has_zlib_header(const uint8_t *data, size_t len)
{
    return len >= 2 && (data[0] & 0x0f) == 8 && data[0] >> 4 <= 7 &&
           ((unsigned)data[0] << 8 | data[1]) % 31 == 0;
}

static int decode_deflate(struct br_codec *c, const uint8_t *data, size_t len, struct sink *s)
{
    inflate_fn *fn = has_zlib_header(data, len) ? libdeflate_zlib_decompress_ex
                                                : libdeflate_deflate_decompress_ex;
    size_t used = 0;
    int rc = make_inflate(c, s);
    if (!rc)
        rc = sink_open(s, times(len, RATIO_GUESS));
    if (!rc)
        rc = inflate_one(c, fn, data, len, s, &used);
    if (!rc && used != len)
        rc = br_err_set(s->err, BR_EINVAL, "bytes follow the end of the compressed body");
    return rc;
}

static int make_zstd_decoder(struct br_codec *c, struct sink *s)
{
    if (!c->zstd_d)
        c->zstd_d = ZSTD_createDCtx_advanced(zstd_allocator());
    return c->zstd_d ? 0 : br_err_set(s->err, BR_ENOMEM, "no memory for a decoder");
}

static int zstd_damaged(size_t code, struct sink *s)
{
    return br_err_set(s->err, BR_EINVAL, "the compressed body is damaged or cut off: %s",
                      ZSTD_getErrorName(code));
}

/* Looks at the start of a frame of `len` bytes. The formats from before RFC 8878, which the library
 * also reads, are not let through. A frame that says its size is its own window. */
static int check_frame(const uint8_t *data, size_t len, struct sink *s, ZSTD_frameHeader *ret)
{
    uint32_t magic = len < 4 ? 0 : br_load32(data);
    if (magic != ZSTD_FRAME_MAGIC && (magic & ZSTD_SKIPPABLE_MASK) != ZSTD_SKIPPABLE_MAGIC)
        return br_err_set(s->err, BR_EINVAL, "the body is not zstd, or cut off");
    size_t r = ZSTD_getFrameHeader(ret, data, len);
    if (ZSTD_isError(r))
        return zstd_damaged(r, s);
    if (r == 0 && ret->frameType == ZSTD_frame &&
        ret->frameContentSize == ZSTD_CONTENTSIZE_UNKNOWN &&
        ret->windowSize > (size_t)1 << ZSTD_WINDOW_LOG_MAX)
        return br_err_set(s->err, BR_EINVAL, "the compressed body needs a window of %llu bytes",
                          ret->windowSize);
    return r == 0 ? 0 : br_err_set(s->err, BR_EINVAL, "the compressed body is cut off");
}

/* Makes room for a whole frame of `len` bytes: what it says that it holds, or the most that its blocks
 * can, within what frames usually hold. A size that its blocks cannot have is a lie. */
static int reserve_frame(const uint8_t *data, size_t len, uint64_t size, struct sink *s)
{
    uint64_t most = ZSTD_decompressBound(data, len);
    size_t left = s->limit - s->buf->len;
    if (size != ZSTD_CONTENTSIZE_UNKNOWN) {
        if (size > times(len / ZSTD_BLOCK_MIN, ZSTD_BLOCK_CONTENT_MAX))
            return br_err_set(s->err, BR_EINVAL, "the compressed body is damaged or cut off");
        return size > left ? too_big(s) : sink_reserve(s, s->buf->len + (size_t)size);
    }
    size_t usual = times(len, ZSTD_RATIO_GUESS);
    size_t want = most < usual ? (size_t)most : usual;
    return sink_reserve(s, want < left ? s->buf->len + want : s->limit);
}

/* Decodes one frame of `len` bytes at once, so that what was decoded is the window. */
static int decode_frame(struct br_codec *c, const uint8_t *data, size_t len, struct sink *s)
{
    for (;;) {
        struct br_buf *b = s->buf;
        size_t made =
            ZSTD_decompressDCtx(c->zstd_d, b->data + b->len, sink_size(s) - b->len, data, len);
        if (!ZSTD_isError(made)) {
            b->len += (uint32_t)made;
            return 0;
        }
        if (ZSTD_getErrorCode(made) != ZSTD_error_dstSize_tooSmall)
            return zstd_damaged(made, s);
        int rc = sink_grow(s);
        if (rc)
            return rc;
    }
}

static int next_frame(struct br_codec *c, const uint8_t *data, size_t len, struct sink *s,
                      size_t *ret_used)
{
    ZSTD_frameHeader head;
    int rc = check_frame(data, len, s, &head);
    if (rc)
        return rc;
    size_t used = ZSTD_findFrameCompressedSize(data, len);
    if (ZSTD_isError(used))
        return zstd_damaged(used, s);
    *ret_used = used;
    if (head.frameType == ZSTD_skippableFrame)
        return 0;
    rc = reserve_frame(data, used, head.frameContentSize, s);
    return rc ? rc : decode_frame(c, data, used, s);
}

static int decode_zstd(struct br_codec *c, const uint8_t *data, size_t len, struct sink *s)
{
    int rc = make_zstd_decoder(c, s);
    if (!rc)
        rc = sink_open(s, 0);
    size_t at = 0;
    while (!rc && (at == 0 || at < len)) {
        size_t used = 0;
        rc = next_frame(c, data + at, len - at, s, &used);
        at += used;
    }
    return rc;
}

int br_decompress(struct br_codec *c, enum br_encoding encoding, const uint8_t *data, size_t len,
                  size_t max, struct br_pool *pool, struct br_buf **ret, struct br_err *err)
{
    struct sink s = {.pool = pool, .limit = max < BR_BUF_MAX ? max : BR_BUF_MAX, .err = err};
    int rc = BR_EINVAL;
    switch (encoding) {
    case BR_ENCODING_GZIP:
        rc = decode_gzip(c, data, len, &s);
        break;
    case BR_ENCODING_DEFLATE:
        rc = decode_deflate(c, data, len, &s);
        break;
    case BR_ENCODING_ZSTD:
        rc = decode_zstd(c, data, len, &s);
        break;
    case BR_ENCODING_NONE:
        br_err_set(err, rc, "the body has no content coding to undo");
        break;
    }
    if (rc) {
        br_buf_discard(s.buf); /* as large as a peer wanted it */
        return rc;
    }
    br_buf_shrink(&s.buf); /* slack would be paid for as long as the item lives */
    *ret = s.buf;
    return 0;
}

static struct libdeflate_compressor *deflate_of_level(struct br_codec *c, int level)
{
    if (level <= 0)
        level = DEFLATE_LEVEL_DEFAULT;
    if (level > DEFLATE_LEVEL_MAX)
        level = DEFLATE_LEVEL_MAX;
    if (!c->deflate[level])
        c->deflate[level] = libdeflate_alloc_compressor(level);
    return c->deflate[level];
}

/* libdeflate wants its input in one piece, and room for the worst case. Both are buffers that the
 * pool has at hand; copying is a hundredth of what compressing costs. */
static int encode_deflate(struct br_codec *c, bool gzip, int level, const struct br_rope *payload,
                          size_t reserve, struct br_pool *pool, struct br_buf **ret)
{
    struct libdeflate_compressor *d = deflate_of_level(c, level);
    struct br_buf *copy = NULL;
    const uint8_t *in = d ? br_rope_bytes(payload, pool, &copy) : NULL;
    if (!in)
        return BR_ENOMEM;
    size_t n = payload->len;
    size_t bound =
        gzip ? libdeflate_gzip_compress_bound(d, n) : libdeflate_zlib_compress_bound(d, n);
    size_t size;
    struct br_buf *out = br_size_add(bound, reserve, &size) ? br_buf_new(pool, size) : NULL;
    if (!out) {
        br_buf_unref(copy);
        return BR_ENOMEM;
    }
    uint8_t *at = out->data + reserve;
    size_t made = gzip ? libdeflate_gzip_compress(d, in, n, at, bound)
                       : libdeflate_zlib_compress(d, in, n, at, bound);
    br_buf_unref(copy);
    out->len = (uint32_t)(reserve + made);
    br_buf_shrink(&out);
    *ret = out;
    return 0;
}

static int open_zstd_encoder(struct br_codec *c, int level, size_t len)
{
    if (!c->zstd_c)
        c->zstd_c = ZSTD_createCCtx_advanced(zstd_allocator());
    if (!c->zstd_c)
        return BR_ENOMEM;
    if (level <= 0)
        level = ZSTD_LEVEL_DEFAULT;
    (void)ZSTD_CCtx_reset(c->zstd_c, ZSTD_reset_session_only);
    (void)ZSTD_CCtx_setParameter(c->zstd_c, ZSTD_c_compressionLevel,
                                 level < ZSTD_maxCLevel() ? level : ZSTD_maxCLevel());
    (void)ZSTD_CCtx_setPledgedSrcSize(c->zstd_c, len);
    return 0;
}

/* Feeds one slice. Memory is the only thing that the encoder can fail for. */
static int encode_slice(ZSTD_CCtx *z, const struct br_slice *slice, bool last, struct br_buf **out)
{
    ZSTD_inBuffer in = {slice->data, slice->len, 0};
    size_t left;
    do {
        if ((*out)->len == (*out)->cap && br_buf_reserve(out, (size_t)(*out)->cap * 2))
            return BR_ENOMEM;
        ZSTD_outBuffer o = {(*out)->data, (*out)->cap, (*out)->len};
        left = ZSTD_compressStream2(z, &o, &in, last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left))
            return BR_ENOMEM;
        (*out)->len = (uint32_t)o.pos;
    } while (last ? left != 0 : in.pos < in.size);
    return 0;
}

static int encode_zstd(struct br_codec *c, int level, const struct br_rope *payload, size_t reserve,
                       struct br_pool *pool, struct br_buf **ret)
{
    size_t size;
    if (open_zstd_encoder(c, level, payload->len) ||
        !br_size_add(payload->len / (RATIO_GUESS / 2), reserve, &size))
        return BR_ENOMEM;
    struct br_buf *out = br_buf_new(pool, size);
    if (!out)
        return BR_ENOMEM;
    out->len = (uint32_t)reserve;
    static const struct br_slice nothing = {0};
    int rc = payload->n ? 0 : encode_slice(c->zstd_c, &nothing, true, &out);
    for (uint32_t i = 0; !rc && i < payload->n; i++)
        rc = encode_slice(c->zstd_c, &payload->v[i], i + 1 == payload->n, &out);
    if (rc) {
        br_buf_unref(out);
        return rc;
    }
    br_buf_shrink(&out);
    *ret = out;
    return 0;
}

int br_compress(struct br_codec *c, enum br_encoding encoding, int level,
                const struct br_rope *payload, size_t reserve, struct br_pool *pool,
                struct br_buf **ret)
{
    if (encoding == BR_ENCODING_ZSTD)
        return encode_zstd(c, level, payload, reserve, pool, ret);
    return encode_deflate(c, encoding == BR_ENCODING_GZIP, level, payload, reserve, pool, ret);
}
