/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "profile/jfr/jfr.h"

/* A name being matched from its left to its right. */
struct cursor {
    const char *p, *end;
};

static bool eat(struct cursor *c, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, text, n) != 0)
        return false;
    c->p += n;
    return true;
}

static size_t digits(struct cursor *c)
{
    const char *from = c->p;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9')
        c->p++;
    return (size_t)(c->p - from);
}

static size_t hex(struct cursor *c)
{
    const char *from = c->p;
    while (c->p < c->end && ((*c->p >= '0' && *c->p <= '9') || (*c->p >= 'a' && *c->p <= 'f')))
        c->p++;
    return (size_t)(c->p - from);
}

static bool done(const struct cursor *c)
{
    return c->p == c->end;
}

/* Where the last `mark` in the name ends, if there is something before it; else NULL. */
static const char *after_last(const char *name, size_t len, const char *mark)
{
    size_t n = strlen(mark);
    for (size_t i = len; i > n; i--)
        if (memcmp(name + i - n, mark, n) == 0)
            return memchr(name, '\n', i - n) ? NULL : name + i;
    return NULL;
}

/* jdk/internal/reflect/GeneratedMethodAccessor31 */
static size_t accessor(struct cursor c, const char *name)
{
    if (!eat(&c, "jdk/internal/reflect/GeneratedMethodAccessor"))
        return 0;
    size_t keep = (size_t)(c.p - name);
    return digits(&c) && done(&c) ? keep : 0;
}

/* A$$Lambda$669.0x0000000800fd7318, A$$Lambda.0x00007ffa600c4da0, A$$Lambda/0x1, A$$Lambda12 */
static size_t lambda(struct cursor c, const char *name)
{
    c.p = after_last(name, (size_t)(c.end - name), "$$Lambda");
    if (!c.p)
        return 0;
    size_t keep = (size_t)(c.p - name);
    bool dollar = eat(&c, "$");
    size_t n = digits(&c);
    if (!dollar && n && done(&c))
        return keep;
    if (!eat(&c, ".") && !eat(&c, "/"))
        return 0;
    (void)eat(&c, "0x");
    return hex(&c) && done(&c) ? keep : 0;
}

static size_t spring_proxy(struct cursor c, const char *name)
{
    const char *p = after_last(name, (size_t)(c.end - name), "$$EnhancerBySpringCGLIB$$");
    return p && !memchr(p, '\n', (size_t)(c.end - p)) ? (size_t)(p - name) : 0;
}

static void temporary_folder(struct cursor *c)
{
    if (!eat(c, "./tmp/"))
        (void)eat(c, "/tmp/");
}

static bool library_end(struct cursor *c)
{
    if (!eat(c, ".so"))
        return false;
    (void)eat(c, " (deleted)");
    return done(c);
}

/* libzstd-jni-1.5.1-16931311898282279136.so */
static bool zstd(struct cursor c)
{
    temporary_folder(&c);
    return eat(&c, "libzstd-jni-") && digits(&c) && eat(&c, ".") && digits(&c) && eat(&c, ".") &&
           digits(&c) && eat(&c, "-") && digits(&c) && library_end(&c);
}

/* amazonCorrettoCryptoProviderNativeLibraries.7382c2f79097f415/libcrypto.so (deleted) */
static bool corretto(struct cursor c)
{
    temporary_folder(&c);
    (void)eat(&c, "lib");
    if (!eat(&c, "amazonCorrettoCryptoProvider"))
        return false;
    (void)eat(&c, "NativeLibraries.");
    if (hex(&c) != 16)
        return false;
    if (!eat(&c, "/libcrypto"))
        (void)eat(&c, "/libamazonCorrettoCryptoProvider");
    return library_end(&c);
}

/* The hash is of one release: the one that was unpacked under such a name. */
static bool async_profiler(struct cursor c)
{
    temporary_folder(&c);
    return eat(&c, "libasyncProfiler-") &&
           (eat(&c, "linux-arm64") || eat(&c, "linux-musl-x64") || eat(&c, "linux-x64") ||
            eat(&c, "macos")) &&
           eat(&c, "-17b9a1d8156277a98ccc871afa9a8f69215f92") && library_end(&c);
}

static size_t replace(char *name, const char *with)
{
    size_t n = strlen(with);
    memcpy(name, with, n);
    return n;
}

/* What comes after the first `keep` bytes becomes "_"; 0: the name stays. */
static size_t cut(char *name, size_t len, size_t keep)
{
    if (!keep)
        return len;
    name[keep] = '_';
    return keep + 1;
}

size_t br_jfr_merge_name(char *name, size_t len)
{
    struct cursor c = {name, name + len};
    if (zstd(c))
        return replace(name, "libzstd-jni-_.so");
    if (corretto(c))
        return replace(name, "libamazonCorrettoCryptoProvider_.so");
    if (async_profiler(c))
        return replace(name, "libasyncProfiler-_.so");
    len = cut(name, len, accessor(c, name));
    /* A lambda of a proxy is cut twice. */
    len = cut(name, len, lambda((struct cursor){name, name + len}, name));
    return cut(name, len, spring_proxy((struct cursor){name, name + len}, name));
}
