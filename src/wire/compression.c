/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/compression.h"

#include <isa-l/igzip_lib.h>
#include <libdeflate.h>

/* Declares the functions that set zstd's allocator. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>
#include <zstd_errors.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/sum.h"
#include "wire/protobuf.h"

#define DEFLATE_LEVEL_DEFAULT 1
#define DEFLATE_LEVEL_MAX 12
#define FRAME_GUESS 64u /* approximate size of an empty compressed body, in bytes */
/* Minimum size of a body, in bytes, that is encoded slice by slice. A smaller body is first
 * joined to one slice, because ISA-L would size its hash table by the last slice. */
#define FAST_SLICES_FROM (64u << 10)
#define ZSTD_LEVEL_DEFAULT 1
#define ZSTD_WINDOW_LOG_MAX 24

/* First guess of the decoded size, as a multiple of the compressed size, for a body that does
 * not state its size. Telemetry usually decompresses to 12 to 16 times its compressed size. */
#define RATIO_GUESS 16u
/* First guess for zstd, which is used in the same way as RATIO_GUESS. If a frame's blocks cannot
 * contain that much, the maximum that they can contain is used instead. The maximum is usually
 * close to the decoded size. */
#define ZSTD_RATIO_GUESS 32u
/* Largest ratio of decoded to compressed size (RFC 1951): two bits can stand for at most 258
 * bytes. */
#define RATIO_DEFLATE_MAX 1032u
/* Maximum content of a zstd block in bytes (RFC 8878 section 3.1.1.2). A block takes at least
 * three bytes. */
#define ZSTD_BLOCK_CONTENT_MAX (128u << 10)
#define ZSTD_BLOCK_MIN 3u
#define ZSTD_FRAME_MAGIC 0xFD2FB528u
#define ZSTD_SKIPPABLE_MAGIC 0x184D2A50u
#define ZSTD_SKIPPABLE_MASK 0xFFFFFFF0u

/* ISA-L's encoder with its tables. */
struct fast_deflate {
    struct isal_zstream stream;
    uint8_t level_buf[ISAL_DEF_LVL1_DEFAULT];
};

struct br_codec {
    struct fast_deflate *fast;
    struct libdeflate_compressor *deflate[DEFLATE_LEVEL_MAX + 1];
    struct libdeflate_decompressor *inflate;
    ZSTD_CCtx *zstd_c;
    ZSTD_DCtx *zstd_d;
};

/* Sets libdeflate's allocator before any thread starts, because libdeflate 1.14 has one
 * allocator per process. */
__attribute__((constructor)) static void compression_set_deflate_allocator(void)
{
    libdeflate_set_memory_allocator(br_malloc, br_free);
}

static void *compression_zstd_alloc(void *opaque, size_t size)
{
    (void)opaque;
    return br_malloc(size);
}

static void compression_zstd_free(void *opaque, void *memory)
{
    (void)opaque;
    br_free(memory);
}

static ZSTD_customMem compression_zstd_allocator(void)
{
    return (ZSTD_customMem){compression_zstd_alloc, compression_zstd_free, NULL};
}

bool br_encoding_parse(const char *name, size_t len, enum br_encoding *ret)
{
    static const struct {
        const char *name;
        enum br_encoding encoding;
    } names[] = {
        {"", BR_ENCODING_NONE},         {"identity", BR_ENCODING_NONE},
        {"none", BR_ENCODING_NONE},     {"gzip", BR_ENCODING_GZIP},
        {"x-gzip", BR_ENCODING_GZIP},   {"zstd", BR_ENCODING_ZSTD},
        {"zlib", BR_ENCODING_DEFLATE},  {"deflate", BR_ENCODING_DEFLATE},
        {"snappy", BR_ENCODING_SNAPPY}, {"x-snappy-framed", BR_ENCODING_SNAPPY},
    };
    for (size_t i = 0; i < BR_COUNT(names); i++) {
        if (br_bytes_are_nocase(name, len, names[i].name)) {
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
    case BR_ENCODING_SNAPPY:
        return "snappy";
    case BR_ENCODING_NONE:
        break;
    }
    return "identity";
}

struct br_codec *br_codec_new(void)
{
    return br_calloc(1, sizeof(struct br_codec));
}

void br_codec_free(struct br_codec *codec)
{
    if (!codec)
        return;
    for (size_t i = 0; i < BR_COUNT(codec->deflate); i++)
        libdeflate_free_compressor(codec->deflate[i]);
    libdeflate_free_decompressor(codec->inflate);
    br_free(codec->fast);
    ZSTD_freeCCtx(codec->zstd_c);
    ZSTD_freeDCtx(codec->zstd_d);
    br_free(codec);
}

/* The output of a decoder, at most `limit` bytes. */
struct sink {
    struct br_pool *pool;
    struct br_buf *buf;
    size_t limit;
    struct br_err *err;
};

static int compression_sink_open(struct sink *sink, size_t guess)
{
    sink->buf = br_buf_new(sink->pool, guess < sink->limit ? guess : sink->limit);
    return sink->buf ? 0
                     : br_err_set(sink->err, BR_ENOMEM, "out of memory for the decompressed body");
}

/* Returns how many bytes the output buffer may contain: its capacity or the limit, whichever is
 * less. */
static size_t compression_sink_size(const struct sink *sink)
{
    return sink->buf->cap < sink->limit ? sink->buf->cap : sink->limit;
}

static int compression_too_big(const struct sink *sink)
{
    return br_err_set(sink->err, BR_ETOOBIG, "decompresses to more than %zu bytes", sink->limit);
}

/* Makes room for `size` bytes of output in total. An empty buffer is freed before a larger buffer
 * is allocated, so that a decompression bomb never occupies two buffers. */
static int compression_sink_reserve(struct sink *sink, size_t size)
{
    if (size <= sink->buf->cap)
        return 0;
    if (sink->buf->len == 0) {
        sink->buf = br_buf_discard(sink->buf);
        return compression_sink_open(sink, size);
    }
    if (br_buf_reserve(&sink->buf, size))
        return br_err_set(sink->err, BR_ENOMEM, "out of memory for the decompressed body");
    return 0;
}

/* Doubles the output buffer. After each doubling the last member is decoded again, so all sizes
 * that were tried add up to less than twice the last size. */
static int compression_sink_grow(struct sink *sink)
{
    size_t size = compression_sink_size(sink);
    if (size == sink->limit)
        return compression_too_big(sink);
    return compression_sink_reserve(sink, size > sink->limit / 2 ? sink->limit : size * 2);
}

typedef enum libdeflate_result inflate_fn(struct libdeflate_decompressor *, const void *, size_t,
                                          void *, size_t, size_t *, size_t *);

/* Decodes the stream at `data`. `*ret_used` receives the compressed length of the stream. */
static int compression_inflate_one(struct br_codec *codec, inflate_fn *fn, const uint8_t *data,
                                   size_t len, struct sink *sink, size_t *ret_used)
{
    for (;;) {
        size_t used, made;
        struct br_buf *buf = sink->buf;
        enum libdeflate_result r = fn(codec->inflate, data, len, buf->data + buf->len,
                                      compression_sink_size(sink) - buf->len, &used, &made);
        if (r == LIBDEFLATE_SUCCESS) {
            buf->len += (uint32_t)made;
            *ret_used = used;
            return 0;
        }
        if (r != LIBDEFLATE_INSUFFICIENT_SPACE)
            return br_err_set(sink->err, BR_EINVAL, "the compressed body is damaged or truncated");
        int rc = compression_sink_grow(sink);
        if (rc)
            return rc;
    }
}

static int compression_make_inflate(struct br_codec *codec, struct sink *sink)
{
    if (!codec->inflate)
        codec->inflate = libdeflate_alloc_decompressor();
    return codec->inflate ? 0 : br_err_set(sink->err, BR_ENOMEM, "out of memory for a decoder");
}

/* Returns a first guess of the decoded size, from the size in the trailer of the last member
 * (RFC 1952 section 2.3.1). The guess can be wrong: the sender may state any size, the trailer
 * has only the lowest 32 bits of the size, and earlier members are not included. */
static size_t compression_gzip_guess(const uint8_t *data, size_t len)
{
    size_t most = br_product_unsigned(len, RATIO_DEFLATE_MAX);
    size_t size = len < 4 ? 0 : br_load32(data + len - 4);
    if (size < len)
        size = len;
    return size < most ? size : most;
}

static int compression_decode_gzip(struct br_codec *codec, const uint8_t *data, size_t len,
                                   struct sink *sink)
{
    /* A member that is larger than its stated size is damaged. If the size that a body states is
     * plausible and above the limit, the body is therefore rejected without decompression. */
    size_t stated = len < 4 ? 0 : br_load32(data + len - 4);
    if (stated > sink->limit && stated <= br_product_unsigned(len, RATIO_DEFLATE_MAX))
        return compression_too_big(sink);
    int rc = compression_make_inflate(codec, sink);
    if (!rc)
        rc = compression_sink_open(sink, compression_gzip_guess(data, len));
    size_t at = 0;
    while (!rc && (at == 0 || at < len)) {
        size_t used = 0;
        rc = compression_inflate_one(codec, libdeflate_gzip_decompress_ex, data + at, len - at,
                                     sink, &used);
        at += used;
    }
    return rc;
}

/* Returns true if a body begins with a zlib header (RFC 1950 section 2.2). A raw stream with the
 * same first bytes would be a stored block with nonzero padding bits, which no encoder writes. */
static bool compression_has_zlib_header(const uint8_t *data, size_t len)
{
    return len >= 2 && (data[0] & 0x0f) == 8 && data[0] >> 4 <= 7 &&
           ((unsigned)data[0] << 8 | data[1]) % 31 == 0;
}

static int compression_decode_deflate(struct br_codec *codec, const uint8_t *data, size_t len,
                                      struct sink *sink)
{
    inflate_fn *fn = compression_has_zlib_header(data, len) ? libdeflate_zlib_decompress_ex
                                                            : libdeflate_deflate_decompress_ex;
    size_t used = 0;
    int rc = compression_make_inflate(codec, sink);
    if (!rc)
        rc = compression_sink_open(sink, br_product_unsigned(len, RATIO_GUESS));
    if (!rc)
        rc = compression_inflate_one(codec, fn, data, len, sink, &used);
    if (!rc && used != len)
        rc = br_err_set(sink->err, BR_EINVAL, "bytes follow the end of the compressed body");
    return rc;
}

static int compression_make_zstd_decoder(struct br_codec *codec, struct sink *sink)
{
    if (!codec->zstd_d)
        codec->zstd_d = ZSTD_createDCtx_advanced(compression_zstd_allocator());
    return codec->zstd_d ? 0 : br_err_set(sink->err, BR_ENOMEM, "out of memory for a decoder");
}

static int compression_zstd_damaged(size_t code, struct sink *sink)
{
    return br_err_set(sink->err, BR_EINVAL, "the compressed body is damaged or truncated: %s",
                      ZSTD_getErrorName(code));
}

/* Parses the start of a frame of `len` bytes. Rejects the formats from before RFC 8878, which
 * the zstd library also reads. The window is only limited for frames that do not state their
 * size, because other frames need no window besides the output. */
static int compression_check_frame(const uint8_t *data, size_t len, struct sink *sink,
                                   ZSTD_frameHeader *ret)
{
    uint32_t magic = len < 4 ? 0 : br_load32(data);
    if (magic != ZSTD_FRAME_MAGIC && (magic & ZSTD_SKIPPABLE_MASK) != ZSTD_SKIPPABLE_MAGIC)
        return br_err_set(sink->err, BR_EINVAL, "the body is not zstd, or is truncated");
    size_t r = ZSTD_getFrameHeader(ret, data, len);
    if (ZSTD_isError(r))
        return compression_zstd_damaged(r, sink);
    if (r == 0 && ret->frameType == ZSTD_frame &&
        ret->frameContentSize == ZSTD_CONTENTSIZE_UNKNOWN &&
        ret->windowSize > (size_t)1 << ZSTD_WINDOW_LOG_MAX)
        return br_err_set(sink->err, BR_EINVAL, "the compressed body needs a window of %llu bytes",
                          ret->windowSize);
    return r == 0 ? 0 : br_err_set(sink->err, BR_EINVAL, "the compressed body is truncated");
}

/* Makes room for the output of a frame of `len` bytes. If the frame states its size, that size
 * is used; a stated size that the blocks cannot contain is an error. If the frame does not state
 * its size, room is made for the most that the blocks can contain, but at most for
 * ZSTD_RATIO_GUESS times `len`. */
static int compression_reserve_frame(const uint8_t *data, size_t len, uint64_t size,
                                     struct sink *sink)
{
    uint64_t most = ZSTD_decompressBound(data, len);
    size_t left = sink->limit - sink->buf->len;
    if (size != ZSTD_CONTENTSIZE_UNKNOWN) {
        if (size > br_product_unsigned(len / ZSTD_BLOCK_MIN, ZSTD_BLOCK_CONTENT_MAX))
            return br_err_set(sink->err, BR_EINVAL, "the compressed body is damaged or truncated");
        return size > left ? compression_too_big(sink)
                           : compression_sink_reserve(sink, sink->buf->len + (size_t)size);
    }
    size_t usual = br_product_unsigned(len, ZSTD_RATIO_GUESS);
    size_t want = most < usual ? (size_t)most : usual;
    return compression_sink_reserve(sink, want < left ? sink->buf->len + want : sink->limit);
}

/* Decodes a frame of `len` bytes in one call, so that the output buffer also serves as the
 * decoder's window. */
static int compression_decode_frame(struct br_codec *codec, const uint8_t *data, size_t len,
                                    struct sink *sink)
{
    for (;;) {
        struct br_buf *buf = sink->buf;
        size_t made = ZSTD_decompressDCtx(codec->zstd_d, buf->data + buf->len,
                                          compression_sink_size(sink) - buf->len, data, len);
        if (!ZSTD_isError(made)) {
            buf->len += (uint32_t)made;
            return 0;
        }
        if (ZSTD_getErrorCode(made) != ZSTD_error_dstSize_tooSmall)
            return compression_zstd_damaged(made, sink);
        int rc = compression_sink_grow(sink);
        if (rc)
            return rc;
    }
}

static int compression_next_frame(struct br_codec *codec, const uint8_t *data, size_t len,
                                  struct sink *sink, size_t *ret_used)
{
    ZSTD_frameHeader head;
    int rc = compression_check_frame(data, len, sink, &head);
    if (rc)
        return rc;
    size_t used = ZSTD_findFrameCompressedSize(data, len);
    if (ZSTD_isError(used))
        return compression_zstd_damaged(used, sink);
    *ret_used = used;
    if (head.frameType == ZSTD_skippableFrame)
        return 0;
    rc = compression_reserve_frame(data, used, head.frameContentSize, sink);
    return rc ? rc : compression_decode_frame(codec, data, used, sink);
}

static int compression_decode_zstd(struct br_codec *codec, const uint8_t *data, size_t len,
                                   struct sink *sink)
{
    int rc = compression_make_zstd_decoder(codec, sink);
    if (!rc)
        rc = compression_sink_open(sink, 0);
    size_t at = 0;
    while (!rc && (at == 0 || at < len)) {
        size_t used = 0;
        rc = compression_next_frame(codec, data + at, len - at, sink, &used);
        at += used;
    }
    return rc;
}

/* Decodes a Snappy body. The size that the body states is used for the output buffer, because
 * br_snappy_size rejects sizes that the body cannot contain. */
static int compression_decode_snappy(const uint8_t *data, size_t len, struct sink *sink)
{
    size_t size;
    int rc = br_snappy_size(data, len, &size);
    if (!rc && size > sink->limit)
        return compression_too_big(sink);
    if (!rc && compression_sink_open(sink, size))
        return BR_ENOMEM;
    if (!rc)
        rc = br_snappy_decode(data, len, sink->buf->data, size);
    if (rc)
        return br_err_set(sink->err, rc, "the compressed body is damaged or truncated");
    sink->buf->len = (uint32_t)size;
    return 0;
}

int br_decompress(struct br_codec *codec, enum br_encoding encoding, const uint8_t *data,
                  size_t len, size_t max, struct br_pool *pool, struct br_buf **ret,
                  struct br_err *err)
{
    struct sink sink = {.pool = pool, .limit = max < BR_BUF_MAX ? max : BR_BUF_MAX, .err = err};
    int rc = BR_EINVAL;
    switch (encoding) {
    case BR_ENCODING_GZIP:
        rc = compression_decode_gzip(codec, data, len, &sink);
        break;
    case BR_ENCODING_DEFLATE:
        rc = compression_decode_deflate(codec, data, len, &sink);
        break;
    case BR_ENCODING_ZSTD:
        rc = compression_decode_zstd(codec, data, len, &sink);
        break;
    case BR_ENCODING_SNAPPY:
        rc = compression_decode_snappy(data, len, &sink);
        break;
    case BR_ENCODING_NONE:
        br_err_set(err, rc, "the body is not compressed");
        break;
    }
    if (rc) {
        /* the buffer is not kept for reuse, because the peer determined its size */
        br_buf_discard(sink.buf);
        return rc;
    }
    /* unused capacity would count as used memory for the lifetime of the item */
    br_buf_shrink(&sink.buf);
    *ret = sink.buf;
    return 0;
}

/* --- Encoding slice by slice ------------------------------------------------------------------ */

/* Encodes one slice, and enlarges the output as needed. Returns 0 or BR_ENOMEM; encoders do not
 * fail for other reasons. */
typedef int encode_slice_fn(struct br_codec *codec, const struct br_slice *slice, bool last,
                            struct br_buf **out);

static int compression_encode_slices(struct br_codec *codec, encode_slice_fn *encode,
                                     const struct br_slice *slices, uint32_t count, size_t len,
                                     size_t reserve, struct br_pool *pool, struct br_buf **ret)
{
    static const struct br_slice nothing = {0};
    size_t size;
    struct br_buf *out = br_size_add(len / (RATIO_GUESS / 2), reserve + FRAME_GUESS, &size)
                             ? br_buf_new(pool, size)
                             : NULL;
    if (!out)
        return BR_ENOMEM;
    out->len = (uint32_t)reserve;
    int rc = count ? 0 : encode(codec, &nothing, true, &out);
    for (uint32_t i = 0; !rc && i < count; i++)
        rc = encode(codec, &slices[i], i + 1 == count, &out);
    if (rc) {
        br_buf_unref(out);
        return rc;
    }
    br_buf_shrink(&out);
    *ret = out;
    return 0;
}

static int compression_room(struct br_buf **out)
{
    return (*out)->len < (*out)->cap ? 0 : br_buf_reserve(out, (size_t)(*out)->cap * 2);
}

static int compression_fast_slice(struct br_codec *codec, const struct br_slice *slice, bool last,
                                  struct br_buf **out)
{
    struct isal_zstream *stream = &codec->fast->stream;
    /* the field next_in is not const, but ISA-L only reads the input */
    stream->next_in = (uint8_t *)(uintptr_t)slice->data;
    stream->avail_in = (uint32_t)slice->len;
    stream->end_of_stream = last;
    do {
        if (compression_room(out))
            return BR_ENOMEM;
        stream->next_out = (*out)->data + (*out)->len;
        stream->avail_out = (*out)->cap - (*out)->len;
        if (isal_deflate(stream) != COMP_OK)
            return BR_ENOMEM;
        (*out)->len = (*out)->cap - stream->avail_out;
    } while (stream->avail_in || (last && stream->internal_state.state != ZSTATE_END));
    return 0;
}

static int compression_open_fast(struct br_codec *codec, bool gzip)
{
    if (!codec->fast)
        codec->fast = br_malloc(sizeof *codec->fast);
    if (!codec->fast)
        return BR_ENOMEM;
    struct isal_zstream *stream = &codec->fast->stream;
    isal_deflate_init(stream);
    stream->level = 1;
    stream->level_buf = codec->fast->level_buf;
    stream->level_buf_size = sizeof codec->fast->level_buf;
    stream->gzip_flag = gzip ? IGZIP_GZIP : IGZIP_ZLIB;
    stream->flush = NO_FLUSH;
    return 0;
}

/* Encodes gzip or deflate at level 1. */
static int compression_encode_fast(struct br_codec *codec, bool gzip, const struct br_rope *payload,
                                   size_t reserve, struct br_pool *pool, struct br_buf **ret)
{
    if (compression_open_fast(codec, gzip))
        return BR_ENOMEM;
    if (payload->len >= FAST_SLICES_FROM)
        return compression_encode_slices(codec, compression_fast_slice, payload->slices,
                                         payload->count, payload->len, reserve, pool, ret);
    struct br_buf *copy = NULL;
    const struct br_slice whole = {.data = br_rope_bytes(payload, pool, &copy),
                                   .len = payload->len};
    int rc = whole.data ? compression_encode_slices(codec, compression_fast_slice, &whole, 1,
                                                    whole.len, reserve, pool, ret)
                        : BR_ENOMEM;
    br_buf_unref(copy);
    return rc;
}

static struct libdeflate_compressor *compression_deflate_of_level(struct br_codec *codec, int level)
{
    if (level > DEFLATE_LEVEL_MAX)
        level = DEFLATE_LEVEL_MAX;
    if (!codec->deflate[level])
        codec->deflate[level] = libdeflate_alloc_compressor(level);
    return codec->deflate[level];
}

/* Encodes gzip or deflate by libdeflate, which needs its input in one piece and an output buffer
 * for the worst case. The joined input and the output buffer are taken from the pool. Joining
 * the input to one piece takes about 1 % of the time of the compression. */
static int compression_encode_deflate(struct br_codec *codec, bool gzip, int level,
                                      const struct br_rope *payload, size_t reserve,
                                      struct br_pool *pool, struct br_buf **ret)
{
    struct libdeflate_compressor *compressor = compression_deflate_of_level(codec, level);
    struct br_buf *copy = NULL;
    const uint8_t *in = compressor ? br_rope_bytes(payload, pool, &copy) : NULL;
    if (!in)
        return BR_ENOMEM;
    size_t n = payload->len;
    size_t bound = gzip ? libdeflate_gzip_compress_bound(compressor, n)
                        : libdeflate_zlib_compress_bound(compressor, n);
    size_t size;
    struct br_buf *out = br_size_add(bound, reserve, &size) ? br_buf_new(pool, size) : NULL;
    if (!out) {
        br_buf_unref(copy);
        return BR_ENOMEM;
    }
    uint8_t *at = out->data + reserve;
    size_t made = gzip ? libdeflate_gzip_compress(compressor, in, n, at, bound)
                       : libdeflate_zlib_compress(compressor, in, n, at, bound);
    br_buf_unref(copy);
    out->len = (uint32_t)(reserve + made);
    br_buf_shrink(&out);
    *ret = out;
    return 0;
}

static int compression_open_zstd_encoder(struct br_codec *codec, int level, size_t len)
{
    if (!codec->zstd_c)
        codec->zstd_c = ZSTD_createCCtx_advanced(compression_zstd_allocator());
    if (!codec->zstd_c)
        return BR_ENOMEM;
    if (level <= 0)
        level = ZSTD_LEVEL_DEFAULT;
    (void)ZSTD_CCtx_reset(codec->zstd_c, ZSTD_reset_session_only);
    (void)ZSTD_CCtx_setParameter(codec->zstd_c, ZSTD_c_compressionLevel,
                                 level < ZSTD_maxCLevel() ? level : ZSTD_maxCLevel());
    (void)ZSTD_CCtx_setPledgedSrcSize(codec->zstd_c, len);
    return 0;
}

static int compression_zstd_slice(struct br_codec *codec, const struct br_slice *slice, bool last,
                                  struct br_buf **out)
{
    ZSTD_inBuffer in = {slice->data, slice->len, 0};
    size_t left;
    do {
        if (compression_room(out))
            return BR_ENOMEM;
        ZSTD_outBuffer o = {(*out)->data, (*out)->cap, (*out)->len};
        left = ZSTD_compressStream2(codec->zstd_c, &o, &in, last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left))
            return BR_ENOMEM;
        (*out)->len = (uint32_t)o.pos;
    } while (last ? left != 0 : in.pos < in.size);
    return 0;
}

static int compression_encode_zstd(struct br_codec *codec, int level, const struct br_rope *payload,
                                   size_t reserve, struct br_pool *pool, struct br_buf **ret)
{
    if (compression_open_zstd_encoder(codec, level, payload->len))
        return BR_ENOMEM;
    return compression_encode_slices(codec, compression_zstd_slice, payload->slices, payload->count,
                                     payload->len, reserve, pool, ret);
}

int br_compress(struct br_codec *codec, enum br_encoding encoding, int level,
                const struct br_rope *payload, size_t reserve, struct br_pool *pool,
                struct br_buf **ret)
{
    if (encoding == BR_ENCODING_ZSTD)
        return compression_encode_zstd(codec, level, payload, reserve, pool, ret);
    bool gzip = encoding == BR_ENCODING_GZIP;
    return level <= DEFLATE_LEVEL_DEFAULT
               ? compression_encode_fast(codec, gzip, payload, reserve, pool, ret)
               : compression_encode_deflate(codec, gzip, level, payload, reserve, pool, ret);
}
