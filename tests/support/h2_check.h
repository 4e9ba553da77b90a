/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service on an HTTP/2 server that records its callbacks, and checks their order against
 * wire/request.h. The path selects the behaviour: /grpc expects one gRPC message; /now is answered
 * by `begin`; /later by h2_check_answer; /never is not answered; all other paths are answered after
 * the body.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "wire/conn.h"
#include "wire/request.h"

#define H2_CHECK_MAX 4096 /* largest number of requests on one connection */

struct h2_check {
    struct br_handler service; /* must be the first member */
    struct br_pool *pool;
    struct br_conn *conn;
    struct br_rope out; /* bytes sent by the server */
    struct br_str log;  /* the callbacks as text, such as "begin /path; body 5 abcde; gone; " */
    size_t max_body;    /* 0: 4,096 */
    size_t reply_bytes; /* length of each response body in bytes; 0: the body is "done" */
    unsigned n_begun, n_bodies, n_gone, n_replied;
    struct br_request *waiting[H2_CHECK_MAX]; /* requests that h2_check_answer will answer */
    unsigned n_waiting;
    uint64_t now_ms;
};

static inline void h2_check_require(bool ok)
{
    if (!ok)
        abort();
}

static inline bool h2_check_is(const struct br_request *r, const char *path)
{
    return strncmp(r->path, path, strlen(path)) == 0;
}

static inline void h2_check_reply(struct h2_check *c, struct br_request *r)
{
    static const struct br_header more = {"x-more", "1"};
    static const char body[65536];
    bool fail = h2_check_is(r, "/grpc/fail");
    const char *text = h2_check_is(r, "/empty") ? NULL : "done";
    if (c->reply_bytes)
        text = body;
    r->user = NULL;
    c->n_replied++;
    br_request_reply(r, &(struct br_response){.status = 200,
                                              .content_type = "text/plain",
                                              .headers = &more,
                                              .n_headers = 1,
                                              .text = text,
                                              .text_len = c->reply_bytes,
                                              .grpc_status = fail ? 3 : 0,
                                              .grpc_message = fail ? "no" : NULL});
}

static inline void h2_check_begin(struct br_handler *self, struct br_request *r)
{
    struct h2_check *c = (struct h2_check *)(void *)self;
    h2_check_require(r->method && r->path && r->query && r->peer[0]);
    h2_check_require(!r->replied && !r->body);
    br_str_printf(&c->log, "begin %.64s; ", r->path);
    c->n_begun++;
    r->max_body = c->max_body ? c->max_body : 4096;
    r->grpc = h2_check_is(r, "/grpc");
    r->user = c; /* not NULL: the request waits for h2_check_answer */
    if (h2_check_is(r, "/now"))
        h2_check_reply(c, r);
}

static inline void h2_check_body(struct br_handler *self, struct br_request *r)
{
    struct h2_check *c = (struct h2_check *)(void *)self;
    h2_check_require(r->user == c && !r->replied);
    h2_check_require(!r->body_error || !r->body);
    h2_check_require(!r->body || r->body->len <= r->max_body);
    c->n_bodies++;
    if (r->body_error)
        br_str_printf(&c->log, "error %d; ", (int)r->body_error);
    else
        br_str_printf(&c->log, "body %u%s %.*s; ", r->body ? r->body->len : 0,
                      r->grpc_compressed ? " packed" : "",
                      r->body && r->body->len < 64 ? (int)r->body->len : 0,
                      r->body ? (const char *)r->body->data : "");
    if (h2_check_is(r, "/later") && c->n_waiting < H2_CHECK_MAX)
        c->waiting[c->n_waiting++] = r;
    else if (!h2_check_is(r, "/never"))
        h2_check_reply(c, r);
}

static inline void h2_check_gone(struct br_handler *self, struct br_request *r)
{
    struct h2_check *c = (struct h2_check *)(void *)self;
    h2_check_require(r->user == c && !r->replied);
    r->user = NULL;
    c->n_gone++;
    for (unsigned i = 0; i < c->n_waiting; i++)
        if (c->waiting[i] == r)
            c->waiting[i] = NULL;
}

static inline void h2_check_answer(struct h2_check *c)
{
    for (unsigned i = 0; i < c->n_waiting; i++)
        if (c->waiting[i])
            h2_check_reply(c, c->waiting[i]);
    c->n_waiting = 0;
}

static inline void h2_check_wake(struct br_conn *conn, void *owner)
{
    (void)conn;
    (void)owner;
}

/* Returns false if memory is exhausted. */
static inline bool h2_check_init_with(struct h2_check *c, const struct br_conn_limits *limits)
{
    *c = (struct h2_check){
        .service = {.begin = h2_check_begin, .body = h2_check_body, .gone = h2_check_gone},
        .now_ms = 1000000};
    c->pool = br_pool_new(0);
    c->conn = c->pool ? br_h2_server_new(&c->service, c->pool, "192.0.2.1:1234", limits) : NULL;
    if (!c->conn)
        return false;
    c->conn->wake = h2_check_wake;
    return true;
}

static inline bool h2_check_init(struct h2_check *c)
{
    return h2_check_init_with(c, &(struct br_conn_limits){0});
}

/* Appends the output of the server to c->out. Returns 0, or the error of the connection's
 * `output`. */
static inline int h2_check_pull(struct h2_check *c)
{
    size_t before;
    do {
        before = c->out.len;
        int rc = c->conn->ops->output(c->conn, &c->out, before + (1u << 20));
        if (rc)
            return rc;
    } while (c->out.len > before);
    return 0;
}

/* Feeds bytes to the server as a socket would: in pieces of at most `piece` bytes (0: all at once).
 * Reads the output of the server after each piece. Returns 0, or the code that ended the
 * connection. */
static inline int h2_check_feed(struct h2_check *c, const uint8_t *data, size_t len, size_t piece)
{
    while (len > 0) {
        size_t n = piece && piece < len ? piece : len;
        int rc = c->conn->ops->input(c->conn, data, n, c->now_ms);
        int sent = h2_check_pull(c);
        if (rc || sent)
            return rc ? rc : sent;
        if (c->conn->ops->finished(c->conn))
            return BR_ECLOSED;
        data += n;
        len -= n;
    }
    return 0;
}

/* Frees the connection; every request must have been answered or closed. */
static inline void h2_check_release(struct h2_check *c)
{
    if (c->conn)
        c->conn->ops->free(c->conn);
    h2_check_require(c->n_begun == c->n_replied + c->n_gone);
    h2_check_require(c->n_bodies <= c->n_begun);
    br_rope_release(&c->out);
    br_str_release(&c->log);
    if (c->pool)
        h2_check_require(br_pool_live(c->pool) == 0);
    br_pool_free(c->pool);
}

/* Feeds the preface and then arbitrary bytes. The first byte selects how the other bytes are
 * divided into reads. As long as the connection is open, the callbacks of the service must not
 * depend on this division. */
static inline void h2_fuzz(const uint8_t *data, size_t len)
{
    static const uint8_t preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    struct h2_check whole, cut;
    if (len == 0)
        return;
    h2_check_require(h2_check_init(&whole) && h2_check_init(&cut));
    int rc = h2_check_feed(&whole, preface, sizeof preface, 0);
    h2_check_require(rc == 0 && h2_check_feed(&cut, preface, sizeof preface, 7) == 0);
    int rc_whole = h2_check_feed(&whole, data + 1, len - 1, 0);
    int rc_cut = h2_check_feed(&cut, data + 1, len - 1, data[0] % 64 + 1u);
    h2_check_answer(&whole);
    h2_check_answer(&cut);
    (void)h2_check_pull(&whole);
    (void)h2_check_pull(&cut);
    if (rc_whole == 0 && rc_cut == 0)
        h2_check_require(whole.log.len == cut.log.len &&
                         (!cut.log.len || strcmp(whole.log.data, cut.log.data) == 0));
    h2_check_release(&whole);
    h2_check_release(&cut);
}
