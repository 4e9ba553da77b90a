/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of the web page, embedded in the program. web/embed.js generates them at build time;
 * page_absent.c replaces them in builds without the page.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct query_page_file {
    /* path of the file below "/"; "" is the page itself; NULL ends the list of files */
    const char *path;
    const char *type;
    const char *etag; /* weak ETag, because all codings of the file share it */
    bool is_fixed;    /* the name contains a hash, so the file never changes */
    const unsigned char *gzip, *brotli;
    size_t gzip_len, brotli_len, plain_len;
};

extern const struct query_page_file query_page_files[];

/* Text that explains why the page is missing. "" if the page is present, or the build disabled
 * it. */
extern const char query_page_why_absent[];
