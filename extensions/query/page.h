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
    const char *etag; /* weak ETag, because the compressed and plain forms of the file share it */
    /* the file's name contains a hash of its content, so the file never changes */
    bool is_fixed;
    const unsigned char *gzip, *brotli;
    size_t gzip_len, brotli_len, plain_len;
};

extern const struct query_page_file query_page_files[];

/* Explains why the page is missing. The text is "" if the page is present, or if it was disabled
 * when Braid was built. */
extern const char query_page_why_absent[];
