/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "config/parts.h"

/* Returns the next free error, or NULL if the list is full or memory runs out. */
static struct br_err *errs_next_error(struct br_errs *errs)
{
    if (errs->n_errors >= BR_ERRS_MAX)
        return NULL;
    if (!errs->errors)
        errs->errors = br_calloc(BR_ERRS_MAX, sizeof *errs->errors);
    return errs->errors ? &errs->errors[errs->n_errors++] : NULL;
}

static struct br_err *errs_next_warning(struct br_errs *errs)
{
    if (br_grow(&errs->warnings, &errs->cap_warnings, errs->n_warnings + 1, sizeof *errs->warnings,
                BR_WARNINGS_MAX)) {
        errs->more_warnings = true;
        return NULL;
    }
    struct br_err *err = &errs->warnings[errs->n_warnings++];
    *err = (struct br_err){0};
    return err;
}

__attribute__((format(printf, 4, 0))) static void errs_fill(struct br_err *err,
                                                            const struct br_yaml *node,
                                                            const char *path, const char *fmt,
                                                            va_list ap)
{
    err->code = BR_EINVAL;
    if (node) {
        err->line = node->line;
        err->col = node->col;
        if (node->file)
            (void)snprintf(err->file, sizeof err->file, "%s", node->file);
    }
    if (path)
        (void)snprintf(err->path, sizeof err->path, "%s", path);
    (void)vsnprintf(err->text, sizeof err->text, fmt, ap);
}

__attribute__((format(printf, 4, 0))) static int errs_add(struct br_errs *errs,
                                                          const struct br_yaml *node,
                                                          const char *path, const char *fmt,
                                                          va_list ap)
{
    struct br_err *err = errs_next_error(errs);
    if (err)
        errs_fill(err, node, path, fmt, ap);
    else
        errs->more = true;
    return BR_EINVAL;
}

int br_errs_add(struct br_errs *errs, const struct br_yaml *node, const char *path, const char *fmt,
                ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = errs_add(errs, node, path, fmt, ap);
    va_end(ap);
    return rc;
}

int br_errs_lack(struct br_errs *errs, const struct br_yaml *node, const char *path,
                 const char *fmt, ...)
{
    va_list ap;
    size_t before = errs->n_errors;
    va_start(ap, fmt);
    (void)errs_add(errs, node, path, fmt, ap);
    va_end(ap);
    if (errs->n_errors > before)
        errs->errors[before].code = BR_EUNSUPPORTED;
    return BR_EINVAL;
}

int br_errs_add_key(struct br_errs *errs, const struct br_yaml *node, const char *path,
                    const char *key, const char *fmt, ...)
{
    const struct br_yaml *at = br_yaml_get(node, key);
    char where[192];
    va_list ap;
    va_start(ap, fmt);
    int rc = errs_add(errs, at ? at : node, br_path_join(where, path, key), fmt, ap);
    va_end(ap);
    return rc;
}

void br_errs_warn(struct br_errs *errs, const struct br_yaml *node, const char *path,
                  const char *fmt, ...)
{
    struct br_err *err = errs_next_warning(errs);
    if (!err)
        return;
    va_list ap;
    va_start(ap, fmt);
    errs_fill(err, node, path, fmt, ap);
    va_end(ap);
}

bool br_errs_full(struct br_errs *errs)
{
    bool full = errs->n_errors == BR_ERRS_MAX;
    errs->more = errs->more || full;
    return full;
}

#undef br_errs_no_memory
int br_errs_no_memory(struct br_errs *errs)
{
    /* Several callers may report the same failure; one error is enough. */
    if (errs->n_errors && errs->errors[errs->n_errors - 1].code == BR_ENOMEM)
        return BR_ENOMEM;
    br_errs_add(errs, NULL, NULL, "out of memory, or the configuration needs more than %u MiB",
                BR_CONFIG_ARENA_MAX >> 20);
    if (errs->n_errors && !errs->more)
        errs->errors[errs->n_errors - 1].code = BR_ENOMEM;
    return BR_ENOMEM;
}

void br_errs_release(struct br_errs *errs)
{
    br_free(errs->errors);
    br_free(errs->warnings);
    *errs = (struct br_errs){0};
}

static size_t errs_file_rank(const struct br_err *err, const char *const *files, size_t n_files)
{
    size_t len = sizeof err->file - 1;
    for (size_t i = 0; i < n_files; i++)
        if (strncmp(err->file, files[i], len) == 0)
            return i;
    return err->file[0] ? n_files : n_files + 1;
}

static bool errs_comes_before(const struct br_err *left, const struct br_err *right,
                              const char *const *files, size_t n_files)
{
    size_t rank_a = errs_file_rank(left, files, n_files),
           rank_b = errs_file_rank(right, files, n_files);
    if (rank_a != rank_b)
        return rank_a < rank_b;
    int by_name = strcmp(left->file, right->file);
    if (by_name)
        return by_name < 0;
    return left->line != right->line ? left->line < right->line : left->col < right->col;
}

/* Sorts a list of errors. Insertion sort keeps the order of errors at the same place, and a list
 * has at most BR_ERRS_MAX errors. */
static void errs_sort_list(struct br_err *list, size_t count, const char *const *files,
                           size_t n_files)
{
    for (size_t i = 1; i < count; i++) {
        struct br_err err = list[i];
        size_t j = i;
        for (; j > 0 && errs_comes_before(&err, &list[j - 1], files, n_files); j--)
            list[j] = list[j - 1];
        list[j] = err;
    }
}

void br_errs_sort(struct br_errs *errs, const char *const *files, size_t n_files)
{
    errs_sort_list(errs->errors, errs->n_errors, files, n_files);
    errs_sort_list(errs->warnings, errs->n_warnings, files, n_files);
}
