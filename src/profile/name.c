/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/name.h"

#include <ctype.h>
#include <string.h>

#include "base/bytes.h"
#include "base/str.h"
#include "wire/protobuf.h"

#define SHOWN 100 /* largest number of bytes of a name quoted in a message */

/* --- Grammar of names ------------------------------------------------------------------------- */

struct span {
    const char *p;
    size_t len;
};

static bool name_is_space(char letter)
{
    return letter == ' ' || (letter >= '\t' && letter <= '\r');
}

static struct span name_trim(const char *p, const char *end)
{
    while (p < end && name_is_space(*p))
        p++;
    while (end > p && name_is_space(end[-1]))
        end--;
    return (struct span){p, (size_t)(end - p)};
}

static bool name_equals(struct span span, const char *text)
{
    return br_bytes_are(span.p, span.len, text);
}

static bool name_allowed(char letter, bool app)
{
    if (isalnum((unsigned char)letter) || letter == '_' || letter == '.')
        return true;
    return app && (letter == '-' || letter == '/');
}

static int name_check(struct span span, bool app, struct br_err *err)
{
    const char *what = app ? "service name" : "label name";
    if (span.len == 0)
        return br_err_set(err, BR_EINVAL, "%s is required", what);
    for (size_t i = 0; i < span.len; i++) {
        unsigned char c = (unsigned char)span.p[i];
        if (name_allowed(span.p[i], app))
            continue;
        if (c > ' ' && c < 0x7f)
            return br_err_set(err, BR_EINVAL, "invalid %s: %.*s: character is not allowed: '%c'",
                              what, (int)(span.len < SHOWN ? span.len : SHOWN), span.p, c);
        return br_err_set(err, BR_EINVAL, "invalid %s: byte %zu is not allowed: 0x%02x", what, i,
                          c);
    }
    return 0;
}

/* Reads the label at `*p`, which is at the start of a key. Returns false after the last label. */
static bool name_next_label(const char **p, const char *end, struct span *ret_key,
                            struct span *ret_value)
{
    const char *key = *p, *at = key;
    while (at < end && *at != '=' && *at != '}')
        at++;
    if (at == end || *at == '}')
        return false;
    const char *value = at + 1, *stop = value;
    while (stop < end && *stop != ',' && *stop != '}')
        stop++;
    if (stop == end)
        return false;
    *ret_key = name_trim(key, at);
    *ret_value = name_trim(value, stop);
    *p = stop + 1;
    return true;
}

static int name_put_label(struct br_app_name *name, struct span key, struct span value,
                          struct br_arena *arena, struct br_err *err)
{
    struct br_label label = {key.p, key.len, value.p, value.len};
    for (size_t i = 0; i < name->n_labels; i++) {
        if (name->labels[i].name_len != key.len ||
            memcmp(name->labels[i].name, key.p, key.len) != 0)
            continue;
        name->labels[i] = label;
        return 0;
    }
    if (name->n_labels == BR_LABELS_MAX)
        return br_err_set(err, BR_EINVAL, "more than %d labels", BR_LABELS_MAX);
    if (!name->labels)
        name->labels = br_arena_alloc(arena, BR_LABELS_MAX * sizeof *name->labels);
    if (!name->labels)
        return br_err_set(err, BR_ENOMEM, "no memory for labels");
    name->labels[name->n_labels++] = label;
    return 0;
}

int br_app_name_parse(const char *text, size_t len, struct br_arena *arena, struct br_app_name *ret,
                      struct br_err *err)
{
    struct br_app_name name = {0};
    struct span key, value;
    if (len > BR_APP_NAME_MAX)
        return br_err_set(err, BR_EINVAL, "longer than %d bytes", BR_APP_NAME_MAX);
    const char *brace = len ? memchr(text, '{', len) : NULL;
    struct span app = name_trim(text, brace ? brace : text + len);
    int rc = name_check(app, true, err);
    const char *p = brace ? brace + 1 : text + len;
    while (rc == 0 && name_next_label(&p, text + len, &key, &value)) {
        bool renames = name_equals(key, "__name__");
        rc = name_check(renames ? value : key, renames, err);
        if (rc == 0 && renames)
            app = value;
        else if (rc == 0)
            rc = name_put_label(&name, key, value, arena, err);
    }
    if (rc != 0)
        return rc;
    name.app = app.p;
    name.app_len = app.len;
    *ret = name;
    return 0;
}

/* --- Labels ----------------------------------------------------------------------------------- */

static bool name_is_named(const struct br_label *label, const char *name)
{
    return name_equals((struct span){label->name, label->name_len}, name);
}

static bool name_has(const struct br_label *labels, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (name_is_named(&labels[i], name))
            return true;
    return false;
}

int br_app_labels(const struct br_app_name *name, size_t app_len, bool app_name,
                  struct br_arena *arena, struct br_label **ret, size_t *ret_n)
{
    struct br_label *label = br_arena_alloc(arena, (name->n_labels + 1) * sizeof *label);
    size_t n = 0;
    if (!label)
        return BR_ENOMEM;
    for (size_t i = 0; i < name->n_labels; i++) {
        const struct br_label *from = &name->labels[i];
        bool private = from->name_len >= 2 && memcmp(from->name, "__", 2) == 0;
        if (!private || name_is_named(from, "__session_id__"))
            label[n++] = *from;
    }
    if (!name_has(label, n, "service_name"))
        label[n++] = (struct br_label){"service_name", strlen("service_name"), name->app, app_len};
    else if (app_name && !name_has(label, n, "app_name"))
        label[n++] = (struct br_label){"app_name", strlen("app_name"), name->app, app_len};
    *ret = label;
    *ret_n = n;
    return 0;
}

/* Copies text into the arena, with a terminating NUL and U+FFFD in place of invalid UTF-8. */
static char *name_repaired(struct br_arena *arena, const char *p, size_t len, size_t *ret_len)
{
    char *out = br_arena_alloc(arena, 3 * len + 1);
    if (!out)
        return NULL;
    size_t n = 0;
    while (len > 0) {
        size_t valid = br_utf8_valid((const uint8_t *)p, len);
        memcpy(out + n, p, valid);
        n += valid;
        if (valid == len)
            break;
        memcpy(out + n, "\xef\xbf\xbd", 3);
        n += 3;
        p += valid + 1;
        len -= valid + 1;
    }
    out[n] = '\0';
    *ret_len = n;
    return out;
}

/* Returns true if a later label has the same name as label `index`. */
static bool name_is_overridden(const struct br_label *labels, size_t count, size_t index)
{
    for (size_t k = index + 1; k < count; k++)
        if (br_bytes_equal(labels[k].name, labels[k].name_len, labels[index].name,
                           labels[index].name_len))
            return true;
    return false;
}

static int name_encode_label(struct br_arena *arena, const struct br_label *label, bool has_service,
                             struct br_addition *ret)
{
    size_t name_len, value_len;
    const char *name;
    if (name_is_named(label, "service_name"))
        name = "service.name";
    else if (has_service && name_is_named(label, "service.name"))
        name = BR_LABEL_SERVICE_NAME;
    else
        name = name_repaired(arena, label->name, label->name_len, &name_len);
    const char *value = name_repaired(arena, label->value, label->value_len, &value_len);
    return name && value ? br_add_string(arena, ret, 1, name, value, value_len) : BR_ENOMEM;
}

/* Concatenates additions with one copy. Appending the labels one by one to one addition would
 * take quadratic time. */
static int name_concatenate(struct br_arena *arena, const struct br_addition *addition,
                            size_t count, struct br_addition *ret)
{
    size_t len = 0;
    for (size_t i = 0; i < count; i++)
        len += addition[i].len;
    uint8_t *out = br_arena_alloc(arena, len);
    if (!out)
        return BR_ENOMEM;
    *ret = (struct br_addition){out, len};
    for (size_t i = 0; i < count; i++)
        out = br_put_bytes(out, addition[i].data, addition[i].len);
    return 0;
}

int br_labels_resource(struct br_arena *arena, const struct br_label *labels, size_t count,
                       struct br_addition *ret)
{
    struct br_addition encoded[BR_LABELS_MAX] = {{0}};
    size_t available = BR_APP_NAME_MAX;
    bool has_service = name_has(labels, count, "service_name");
    if (count > BR_LABELS_MAX)
        return BR_EINVAL;
    for (size_t i = 0; i < count; i++) {
        if (labels[i].name_len > available || labels[i].value_len > available - labels[i].name_len)
            return BR_EINVAL;
        available -= labels[i].name_len + labels[i].value_len;
    }
    for (size_t i = 0; i < count; i++) {
        if (labels[i].name_len == 0 || name_is_overridden(labels, count, i))
            continue;
        int rc = name_encode_label(arena, &labels[i], has_service, &encoded[i]);
        if (rc != 0)
            return rc;
    }
    return name_concatenate(arena, encoded, count, ret);
}

/* --- Types ------------------------------------------------------------------------------------ */

/* Suffixes of application names and their profile types, as in Pyroscope's function
 * convertMetadata. `type.app_len` is set by br_app_type_find. */
static const struct suffix {
    const char *suffix;
    struct br_app_type type;
} suffixes[] = {
    {"cpu", {"process_cpu", "cpu", "count", 0}},
    {"itimer", {"process_cpu", "cpu", "count", 0}},
    {"wall", {"wall", "wall", "count", 0}},
    {"seconds", {"wall", "wall", "count", 0}},
    {"milliseconds", {"wall", "wall", "count", 0}},
    {"microseconds", {"wall", "wall", "count", 0}},
    {"nanoseconds", {"wall", "wall", "count", 0}},
    {"inuse_objects", {"memory", "inuse_objects", "count", 0}},
    {"inuse_space", {"memory", "inuse_space", "bytes", 0}},
    {"alloc_objects", {"memory", "alloc_objects", "count", 0}},
    {"alloc_space", {"memory", "alloc_space", "bytes", 0}},
    {"alloc_in_new_tlab_objects", {"memory", "alloc_in_new_tlab_objects", "count", 0}},
    {"alloc_in_new_tlab_bytes", {"memory", "alloc_in_new_tlab_bytes", "bytes", 0}},
    {"alloc_outside_tlab_objects", {"memory", "alloc_outside_tlab_objects", "count", 0}},
    {"alloc_outside_tlab_bytes", {"memory", "alloc_outside_tlab_bytes", "bytes", 0}},
    {"live", {"memory", "live", "count", 0}},
    {"bytes", {"memory", "samples", "bytes", 0}},
    {"goroutines", {"goroutine", "goroutines", "count", 0}},
    {"mutex_count", {"mutex", "contentions", "count", 0}},
    {"mutex_duration", {"mutex", "delay", "nanoseconds", 0}},
    {"block_count", {"block", "contentions", "count", 0}},
    {"block_duration", {"block", "delay", "nanoseconds", 0}},
    {"lock_count", {"block", "contentions", "count", 0}},
    {"lock_duration", {"block", "delay", "nanoseconds", 0}},
    {"exceptions", {"exceptions", "samples", "count", 0}},
};

int br_app_type_find(const char *app, size_t app_len, struct br_app_type *ret, struct br_err *err)
{
    const char *dot = app_len ? memrchr(app, '.', app_len) : NULL;
    struct span last = {"cpu", 3};
    if (dot)
        last = (struct span){dot + 1, app_len - (size_t)(dot + 1 - app)};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (!name_equals(last, suffixes[i].suffix))
            continue;
        *ret = suffixes[i].type;
        ret->app_len = dot ? (size_t)(dot - app) : app_len;
        return 0;
    }
    return br_err_set(err, BR_EINVAL, "unknown profile type: %.*s",
                      (int)(last.len < SHOWN ? last.len : SHOWN), last.p);
}
