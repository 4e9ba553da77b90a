/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "profile/jfr/jfr.h"

/* Position in a name that is matched from left to right. */
struct cursor {
    const char *p, *end;
};

static bool jfr_names_match(struct cursor *cursor, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(cursor->end - cursor->p) < n || memcmp(cursor->p, text, n) != 0)
        return false;
    cursor->p += n;
    return true;
}

static size_t jfr_names_digits(struct cursor *cursor)
{
    const char *from = cursor->p;
    while (cursor->p < cursor->end && *cursor->p >= '0' && *cursor->p <= '9')
        cursor->p++;
    return (size_t)(cursor->p - from);
}

static size_t jfr_names_hex(struct cursor *cursor)
{
    const char *from = cursor->p;
    while (cursor->p < cursor->end &&
           ((*cursor->p >= '0' && *cursor->p <= '9') || (*cursor->p >= 'a' && *cursor->p <= 'f')))
        cursor->p++;
    return (size_t)(cursor->p - from);
}

static bool jfr_names_at_end(const struct cursor *cursor)
{
    return cursor->p == cursor->end;
}

/* Returns the position after the last `mark` in the name, or NULL if the mark is missing or
 * preceded by a line feed. The mark must not be at the start of the name. */
static const char *jfr_names_after_last(const char *name, size_t len, const char *mark)
{
    size_t n = strlen(mark);
    for (size_t i = len; i > n; i--)
        if (memcmp(name + i - n, mark, n) == 0)
            return memchr(name, '\n', i - n) ? NULL : name + i;
    return NULL;
}

/* Matches jdk/internal/reflect/GeneratedMethodAccessor31. Returns the number of bytes of the
 * name to keep, or 0 if the name does not match. */
static size_t jfr_names_accessor(struct cursor cursor, const char *name)
{
    if (!jfr_names_match(&cursor, "jdk/internal/reflect/GeneratedMethodAccessor"))
        return 0;
    size_t keep = (size_t)(cursor.p - name);
    return jfr_names_digits(&cursor) && jfr_names_at_end(&cursor) ? keep : 0;
}

/* Matches A$$Lambda$669.0x0000000800fd7318, A$$Lambda.0x00007ffa600c4da0, A$$Lambda/0x1,
 * A$$Lambda12. Returns the number of bytes of the name to keep, or 0 if the name does not match. */
static size_t jfr_names_lambda(struct cursor cursor, const char *name)
{
    cursor.p = jfr_names_after_last(name, (size_t)(cursor.end - name), "$$Lambda");
    if (!cursor.p)
        return 0;
    size_t keep = (size_t)(cursor.p - name);
    bool dollar = jfr_names_match(&cursor, "$");
    size_t n = jfr_names_digits(&cursor);
    if (!dollar && n && jfr_names_at_end(&cursor))
        return keep;
    if (!jfr_names_match(&cursor, ".") && !jfr_names_match(&cursor, "/"))
        return 0;
    (void)jfr_names_match(&cursor, "0x");
    return jfr_names_hex(&cursor) && jfr_names_at_end(&cursor) ? keep : 0;
}

static size_t jfr_names_spring_proxy(struct cursor cursor, const char *name)
{
    const char *p =
        jfr_names_after_last(name, (size_t)(cursor.end - name), "$$EnhancerBySpringCGLIB$$");
    return p && !memchr(p, '\n', (size_t)(cursor.end - p)) ? (size_t)(p - name) : 0;
}

static void jfr_names_temporary_directory(struct cursor *cursor)
{
    if (!jfr_names_match(cursor, "./tmp/"))
        (void)jfr_names_match(cursor, "/tmp/");
}

static bool jfr_names_library_end(struct cursor *cursor)
{
    if (!jfr_names_match(cursor, ".so"))
        return false;
    (void)jfr_names_match(cursor, " (deleted)");
    return jfr_names_at_end(cursor);
}

/* Matches libzstd-jni-1.5.1-16931311898282279136.so. */
static bool jfr_names_zstd(struct cursor cursor)
{
    static const char *const before_digits[] = {"libzstd-jni-", ".", ".", "-"};
    jfr_names_temporary_directory(&cursor);
    for (size_t i = 0; i < BR_COUNT(before_digits); i++)
        if (!jfr_names_match(&cursor, before_digits[i]) || !jfr_names_digits(&cursor))
            return false;
    return jfr_names_library_end(&cursor);
}

/* Matches amazonCorrettoCryptoProviderNativeLibraries.7382c2f79097f415/libcrypto.so (deleted). */
static bool jfr_names_corretto(struct cursor cursor)
{
    jfr_names_temporary_directory(&cursor);
    (void)jfr_names_match(&cursor, "lib");
    if (!jfr_names_match(&cursor, "amazonCorrettoCryptoProvider"))
        return false;
    (void)jfr_names_match(&cursor, "NativeLibraries.");
    if (jfr_names_hex(&cursor) != 16)
        return false;
    if (!jfr_names_match(&cursor, "/libcrypto"))
        (void)jfr_names_match(&cursor, "/libamazonCorrettoCryptoProvider");
    return jfr_names_library_end(&cursor);
}

/* Matches the path of the native library that one release of the Pyroscope agent unpacks. The
 * hash in the file name belongs to that release. */
static bool jfr_names_async_profiler(struct cursor cursor)
{
    static const char *const platforms[] = {"linux-arm64", "linux-musl-x64", "linux-x64", "macos"};
    size_t i = 0;
    jfr_names_temporary_directory(&cursor);
    if (!jfr_names_match(&cursor, "libasyncProfiler-"))
        return false;
    while (i < BR_COUNT(platforms) && !jfr_names_match(&cursor, platforms[i]))
        i++;
    return i < BR_COUNT(platforms) &&
           jfr_names_match(&cursor, "-17b9a1d8156277a98ccc871afa9a8f69215f92") &&
           jfr_names_library_end(&cursor);
}

static size_t jfr_names_replace(char *name, const char *with)
{
    size_t n = strlen(with);
    memcpy(name, with, n);
    return n;
}

/* Replaces everything after the first `keep` bytes with "_". With `keep` 0 the name is
 * unchanged. */
static size_t jfr_names_cut(char *name, size_t len, size_t keep)
{
    if (!keep)
        return len;
    name[keep] = '_';
    return keep + 1;
}

size_t br_jfr_merge_name(char *name, size_t len)
{
    struct cursor cursor = {name, name + len};
    if (jfr_names_zstd(cursor))
        return jfr_names_replace(name, "libzstd-jni-_.so");
    if (jfr_names_corretto(cursor))
        return jfr_names_replace(name, "libamazonCorrettoCryptoProvider_.so");
    if (jfr_names_async_profiler(cursor))
        return jfr_names_replace(name, "libasyncProfiler-_.so");
    len = jfr_names_cut(name, len, jfr_names_accessor(cursor, name));
    /* A lambda in a proxy is shortened twice: first as a lambda, then as a proxy. */
    len = jfr_names_cut(name, len, jfr_names_lambda((struct cursor){name, name + len}, name));
    return jfr_names_cut(name, len,
                         jfr_names_spring_proxy((struct cursor){name, name + len}, name));
}
