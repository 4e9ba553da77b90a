/* SPDX-License-Identifier: Apache-2.0 */
/* The web page at "/" and its assets, which were compressed when the program was built. */
#include "extensions/query/page.h"

#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "extensions/query/query.h"
#include "wire/compression.h"

/* Content security policy of the page: allows nothing from other servers, no inline scripts or
 * styles, and no evaluation of text as code. */
#define PAGE_POLICY                                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "              \
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "                   \
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

static const struct query_page_file *page_find(const char *path)
{
    for (const struct query_page_file *file = query_page_files; file->path; file++)
        if (strcmp(file->path, path) == 0)
            return file;
    return NULL;
}

static void page_set_headers(struct query_job *job, const struct query_page_file *file)
{
    query_job_header(job, "content-security-policy", PAGE_POLICY);
    query_job_header(job, "referrer-policy", "no-referrer");
    query_job_header(job, "cross-origin-opener-policy", "same-origin");
    if (!file)
        return;
    query_job_header(job, "cache-control",
                     file->is_fixed ? "public, max-age=31536000, immutable" : "no-cache");
    query_job_header(job, "etag", file->etag);
    query_job_header(job, "vary", "accept-encoding");
}

/* Responds with the decompressed file, for clients that accept neither Brotli nor gzip. */
static void page_put_plain(struct query_job *job, const struct query_page_file *file)
{
    struct br_err err = {0};
    struct br_buf *plain = NULL;
    struct br_codec *codec = br_codec_new();
    int rc = codec ? br_decompress(codec, BR_ENCODING_GZIP, file->gzip, file->gzip_len,
                                   file->plain_len, job->task.host.pool, &plain, &err)
                   : BR_ENOMEM;
    br_codec_free(codec);
    if (!rc)
        br_str_add(&job->out, plain->data, plain->len);
    br_buf_unref(plain);
    if (rc)
        query_job_fail_rc(job, rc, &err);
}

/* Returns true if the header Accept-Encoding names the coding "br", and not with q=0. */
static bool page_accepts_brotli(const char *accepted)
{
    for (const char *at = accepted; *at; at += strcspn(at, ","), at += *at == ',') {
        at += strspn(at, " \t");
        size_t len = strcspn(at, ",; \t");
        const char *weight = at + len + strspn(at + len, " \t;");
        if (br_bytes_are_nocase(at, len, "br"))
            return !br_text_starts_nocase(weight, "q=0") ||
                   strcspn(weight, "123456789") < strcspn(weight, ",");
    }
    return false;
}

static void page_respond(struct query_job *job, const struct query_page_file *file)
{
    job->type = file->type;
    page_set_headers(job, file);
    if (strstr(job->if_none_match, file->etag)) {
        job->status = 304;
        job->type = NULL;
        return;
    }
    job->is_packed = true;
    if (page_accepts_brotli(job->accept_encoding)) {
        query_job_header(job, "content-encoding", "br");
        br_str_add(&job->out, file->brotli, file->brotli_len);
    } else if (job->accepts_gzip) {
        query_job_header(job, "content-encoding", "gzip");
        br_str_add(&job->out, file->gzip, file->gzip_len);
    } else {
        page_put_plain(job, file);
    }
}

static void page_index(struct query_job *job)
{
    const struct query_page_file *file = page_find("");
    if (file) {
        page_respond(job, file);
        return;
    }
    page_set_headers(job, NULL);
    job->type = "text/plain; charset=utf-8";
    br_str_puts(&job->out, "Braid is running. This build does not include the page: npm was "
                           "missing when it was built, "
                           "or it was configured with -Dpage=disabled.\n");
    if (query_page_why_absent[0])
        br_str_printf(&job->out, "The page could not be built: %s\n", query_page_why_absent);
    br_str_puts(&job->out, "The data of the page is available at /api/braid/ (see "
                           "/api/braid/openapi.json), and with `braid query` in a terminal.\n");
}

static void page_asset(struct query_job *job)
{
    const struct query_page_file *file = page_find(job->path + 1);
    if (file)
        page_respond(job, file);
    else
        query_job_fail(job, 404, "the page does not have this file");
}

const struct query_route query_page_routes[] = {
    {.methods = QUERY_GET, .path = "/", .handle = page_index, .on_loop = true},
    {.methods = QUERY_GET, .path = "/assets/*", .handle = page_asset, .on_loop = true},
    {0},
};
