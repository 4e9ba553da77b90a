/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page's files as they lie in the program. web/embed.js writes them at build time; where the
 * page is not built, page_absent.c stands for them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct query_page_file {
    const char *path; /* below "/"; "" is the page itself; NULL ends the list */
    const char *type;
    const char *etag; /* weak: the codings share it */
    bool is_fixed;    /* its name has its hash: it never changes */
    const unsigned char *gzip, *brotli;
    size_t gzip_len, brotli_len, plain_len;
};

extern const struct query_page_file query_page_files[];

/* Why there are no files; "" where there are, or where nobody asked for them. */
extern const char query_page_why_absent[];
