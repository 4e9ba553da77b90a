/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of the web page, embedded in the program. web/embed.js generates them at build time;
 * page_absent.c replaces them in builds without the page.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct query_page_file {
    const char *path; /* below "/"; "" is the page itself; NULL ends the list */
    const char *type;
    const char *etag; /* weak, because all codings share it */
    bool is_fixed;    /* the name contains a hash, so the file never changes */
    const unsigned char *gzip, *brotli;
    size_t gzip_len, brotli_len, plain_len;
};

extern const struct query_page_file query_page_files[];

/* The reason why the page is missing. "" if it is there, or the build disabled it. */
extern const char query_page_why_absent[];
