/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

const char *br_strerror(int code)
{
    switch (code) {
    case BR_OK:
        return "no error";
#define X(name, text)                                                                              \
    case BR_##name:                                                                                \
        return text;
        BR_CODES(X)
#undef X
    default:
        return "unknown error";
    }
}

#undef br_err_set
int br_err_set(struct br_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        (void)vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return code;
}

void br_err_prefix(struct br_err *err, const char *fmt, ...)
{
    if (!err)
        return;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->text)
        (void)snprintf(err->text + n, sizeof err->text - (size_t)n, "%s", old);
}

const char *br_err_format(const struct br_err *err, char *out, size_t size)
{
    char at[sizeof err->file + 32] = "";
    if (err->file[0] && err->line > 0)
        (void)snprintf(at, sizeof at, "%s:%d:%d: ", err->file, err->line, err->col);
    else if (err->file[0])
        (void)snprintf(at, sizeof at, "%s: ", err->file);
    (void)snprintf(out, size, "%s%s%s%s", at, err->path, err->path[0] ? ": " : "", err->text);
    return out;
}
