/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/net_internal.h"

#define IOV_PER_SEND 1024
#define READS_PER_EVENT 4
#define PULLS_PER_TURN 2 /* of a server's stream; then the others go first */
#define PULLS_IN_CROWD 1 /* of one that has more to ask for */
#define CROWD 16 /* of more streams that had their share only a few go on in a millisecond */
#define CROWD_PER_MS 8
#define IDLE_SLICES 16 /* a longer list of slices is not kept while there is nothing to send */
#define TICK_MS 20
#define TURN_BYTES_MIN (64u << 10) /* who reads less in a tick gives its turn away */
#define TURN_TICKS_MAX 50

static void on_poll(uv_poll_t *p, int status, int events);

static void on_wake(struct br_conn *c, void *owner)
{
    (void)c;
    br_stream_wake(owner);
}

void br_stream_wake(struct br_stream *s)
{
    bool waits = !br_list_empty(&s->greed) && !s->closing;
    if (br_list_empty(&s->dirty) && !s->freed && !waits)
        br_list_append(&s->loop->dirty, &s->dirty);
}

void br_stream_set_conn(struct br_stream *s, struct br_conn *conn)
{
    s->conn = conn;
    conn->wake = on_wake;
    conn->owner = s;
    br_stream_wake(s);
}

static bool may_read(const struct br_stream *s)
{
    return !s->connecting && !s->eof && br_list_empty(&s->pause) &&
           !(s->conn && s->conn->paused && !s->shut) && !(s->server && s->out.len > BR_OUT_MAX);
}

/* Tells the poller what to wait for, when it changed. */
static void watch(struct br_stream *s)
{
    int events = 0;
    if (s->connecting || s->full)
        events |= UV_WRITABLE;
    if (may_read(s))
        events |= UV_READABLE;
    if (events == s->polled)
        return;
    s->polled = events;
    if (events)
        uv_poll_start(&s->poll, events, on_poll);
    else
        uv_poll_stop(&s->poll);
}

struct br_stream *br_stream_new(struct br_loop *loop, int fd, const struct br_stream_events *events,
                                void *owner, bool server, bool connecting)
{
    struct br_stream *s = br_calloc(1, sizeof *s);
    int first = connecting ? UV_WRITABLE : UV_READABLE;
    if (!s || br_watchers_poll(loop, &s->poll, fd, first, on_poll)) {
        br_free(s);
        close(fd);
        return NULL;
    }
    s->loop = loop;
    s->fd = fd;
    s->events = events;
    s->owner = owner;
    s->server = server;
    s->connecting = connecting;
    s->polled = first;
    s->poll.data = s;
    s->opened_ms = s->read_ms = uv_now(&loop->uv);
    br_list_init(&s->link);
    br_list_init(&s->dirty);
    br_list_init(&s->greed);
    br_list_init(&s->pause);
    return s;
}

/* The first reason is the one that is told. */
void br_stream_note(struct br_stream *s, enum br_ending reason, const char *why)
{
    if (s->reason)
        return;
    s->reason = reason;
    (void)snprintf(s->why, sizeof s->why, "%.*s", (int)sizeof s->why - 1, why);
}

void br_stream_close_for(struct br_stream *s, enum br_ending reason, const char *why)
{
    s->closing = true;
    br_stream_note(s, reason, why);
    br_stream_wake(s);
}

void br_stream_close(struct br_stream *s, const char *why)
{
    br_stream_close_for(s, BR_END_DONE, why);
}

static void on_uv_closed(uv_handle_t *h)
{
    br_free(h->data);
}

static void count_held(struct br_stream *s);

static void greed_end(struct br_stream *s)
{
    s->loop->n_greedy -= !br_list_empty(&s->greed);
    br_list_remove(&s->greed);
}

/* The end of a stream; from here only libuv knows it. */
static void destroy(struct br_stream *s)
{
    if (s->freed)
        return;
    s->freed = true;
    count_held(s);
    if (s->loop->turn == s)
        s->loop->turn = NULL;
    br_list_remove(&s->dirty);
    greed_end(s);
    br_list_remove(&s->pause);
    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, on_uv_closed);
    s->events->on_closed(s, s->why[0] ? s->why : "closed");
    if (s->conn)
        s->conn->ops->free(s->conn);
    s->conn = NULL;
    br_tls_free(s->tls);
    br_rope_release(&s->out);
    close(s->fd);
}

/* --- Reading -------------------------------------------------------------------------------- */

static int feed(void *arg, const uint8_t *data, size_t len)
{
    struct br_stream *s = arg;
    if (!s->conn) {
        int rc = s->events->detect(s, data, len);
        if (rc)
            return rc == BR_EAGAIN ? 0 : rc;
        /* What was held back while it was not clear which protocol this is. */
        if (s->n_first) {
            rc = s->conn->ops->input(s->conn, s->first, s->n_first, uv_now(&s->loop->uv));
            if (rc)
                return rc;
        }
    }
    return s->conn->ops->input(s->conn, data, len, uv_now(&s->loop->uv));
}

/* Nothing more is wanted from the peer. A client goes at once; a server sends what it has to say
 * and lets the peer read that. */
static void wind_down(struct br_stream *s, enum br_ending reason, const char *why)
{
    if (!s->server) {
        br_stream_close(s, why);
        return;
    }
    br_stream_note(s, reason, why);
    s->ending = true;
}

/* The peer sent its last byte: an HTTP/1.1 client may still wait for its answers. */
static void on_eof(struct br_stream *s, bool cut_off)
{
    s->eof = true;
    if (s->conn && !s->shut && !s->ending && !cut_off) {
        s->conn->ops->eof(s->conn);
        if (s->server && !s->conn->ops->finished(s->conn)) {
            br_stream_wake(s);
            return;
        }
    }
    br_stream_close_for(s, BR_END_PEER, "the peer closed the connection");
}

/* --- What unfinished requests hold ------------------------------------------------------------ */

static size_t large_part(size_t held)
{
    return held > BR_HELD_SMALL ? held : 0;
}

static void count_held(struct br_stream *s)
{
    struct br_loop *loop = s->loop;
    size_t now = s->server && s->conn && !s->freed ? s->conn->ops->held(s->conn) : 0;
    loop->held += now - s->held;
    loop->held_large += large_part(now) - large_part(s->held);
    loop->n_large += (unsigned)(large_part(now) > 0) - (unsigned)(large_part(s->held) > 0);
    s->held = now;
}

static bool over_mark(const struct br_loop *loop)
{
    return loop->mark && loop->held > loop->mark;
}

/* What a connection may hold while the loop is above its mark. As the sum is above it, somebody
 * holds more, unless all are small. */
static size_t fair_share(const struct br_loop *loop)
{
    size_t small = loop->held - loop->held_large;
    size_t left = small < loop->mark ? loop->mark - small : 0;
    size_t share = loop->n_large ? left / loop->n_large : left;
    return share > BR_HELD_SMALL ? share : BR_HELD_SMALL;
}

static bool holds_too_much(const struct br_stream *s)
{
    return over_mark(s->loop) && s->held > fair_share(s->loop);
}

static void unpause(struct br_stream *s)
{
    br_list_remove(&s->pause);
    s->resumed_ms = uv_now(&s->loop->uv);
    watch(s);
}

static void on_next_turn(struct br_timer *t);

static void give_turn(struct br_loop *loop, struct br_stream *s)
{
    loop->turn = s;
    loop->turn_ticks = 0;
    loop->turn_bytes = 0;
    if (!loop->next_turn.slot)
        (void)br_host_timer(&loop->host, &loop->next_turn, TICK_MS, on_next_turn);
}

static void next_turn(struct br_loop *loop)
{
    loop->turn = NULL;
    while (!loop->turn && !br_list_empty(&loop->paused)) {
        struct br_stream *s = br_container_of(loop->paused.next, struct br_stream, pause);
        unpause(s);
        if (holds_too_much(s))
            give_turn(loop, s);
    }
}

/* A turn lasts as long as its owner makes use of it, up to a bound. */
static void on_next_turn(struct br_timer *t)
{
    struct br_loop *loop = br_container_of(t, struct br_loop, next_turn);
    bool used = loop->turn_bytes >= TURN_BYTES_MIN && ++loop->turn_ticks < TURN_TICKS_MAX;
    loop->turn_bytes = 0;
    if (!loop->turn || !used)
        next_turn(loop);
    if (loop->turn || !br_list_empty(&loop->paused))
        (void)br_host_timer(&loop->host, &loop->next_turn, TICK_MS, on_next_turn);
}

void br_loop_resume(struct br_loop *loop)
{
    while (!br_list_empty(&loop->paused) && !over_mark(loop))
        unpause(br_container_of(loop->paused.next, struct br_stream, pause));
    if (loop->turn && !holds_too_much(loop->turn))
        next_turn(loop);
}

/* True when a stream has to wait until others are done, or until its turn. */
static bool hold_back(struct br_stream *s)
{
    struct br_loop *loop = s->loop;
    if (!s->server || s->shut || s == loop->turn || !holds_too_much(s))
        return false;
    if (!loop->turn)
        give_turn(loop, s);
    if (loop->turn == s || !loop->next_turn.slot) /* without its timer, it would wait for ever */
        return false;
    br_list_append(&loop->paused, &s->pause);
    *loop->n_pauses += 1;
    return true;
}

static enum br_ending ending_of(int rc, const struct br_err *err)
{
    if (rc == BR_ENOMEM)
        return BR_END_MEMORY;
    return err->text[0] ? BR_END_TLS : BR_END_PROTOCOL;
}

static void take(struct br_stream *s, const uint8_t *data, size_t len)
{
    struct br_err err = {0};
    int rc = s->tls ? br_tls_input(s->tls, data, len, feed, s, &err) : feed(s, data, len);
    if (rc == BR_ECLOSED && s->tls)
        on_eof(s, false);
    else if (rc)
        wind_down(s, ending_of(rc, &err), err.text[0] ? err.text : br_strerror(rc));
    br_stream_wake(s); /* acknowledgements, window updates, what they made room for */
    if (!s->closing)
        s->events->on_progress(s);
}

/* False when there is nothing more to read for now. */
static bool read_once(struct br_stream *s)
{
    struct br_loop *loop = s->loop;
    if (s->closing || !may_read(s) || hold_back(s))
        return false;
    ssize_t n = recv(s->fd, loop->read_buffer, BR_READ_SIZE, 0);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            br_stream_close_for(s, BR_END_NETWORK, strerror(errno));
        return false;
    }
    if (n == 0) {
        on_eof(s, s->tls != NULL); /* TLS says goodbye before, or it is a truncation */
        return false;
    }
    s->read_ms = uv_now(&loop->uv);
    if (s == loop->turn)
        loop->turn_bytes += (size_t)n;
    if (!s->shut && !s->ending)
        take(s, loop->read_buffer, (size_t)n);
    count_held(s);
    return (size_t)n == BR_READ_SIZE;
}

static void read_some(struct br_stream *s)
{
    for (int i = 0; i < READS_PER_EVENT && read_once(s); i++)
        ;
}

/* The socket broke. What the peer had said before is still heard, above all a server's answer to a
 * request that it did not read to the end. */
static void on_broken(struct br_stream *s, int error)
{
    while (!s->server && !s->connecting && read_once(s))
        ;
    br_stream_close_for(s, BR_END_NETWORK, error ? strerror(error) : "the connection broke");
}

/* --- Writing -------------------------------------------------------------------------------- */

/* What to hold for the socket at most: a server's clients are many, and some do not read. */
static size_t out_max(const struct br_stream *s)
{
    return s->server ? BR_OUT_MAX : BR_WRITE_SIZE;
}

/* Asks the protocol for more to send. */
static int pull(struct br_stream *s)
{
    struct br_pool *pool = s->loop->host.pool;
    size_t max = out_max(s) - s->out.len; /* it is called with a quarter of that at most */
    if (!s->tls)
        return s->conn ? s->conn->ops->output(s->conn, &s->out, out_max(s)) : 0;
    if (s->conn && br_tls_ready(s->tls)) {
        struct br_rope plain = {0};
        int rc = s->conn->ops->output(s->conn, &plain, max);
        if (!rc && plain.len)
            rc = br_tls_send(s->tls, &plain);
        br_rope_release(&plain);
        if (rc) {
            (void)br_tls_output(s->tls, pool, &s->out); /* the alert */
            return rc;
        }
    }
    return br_tls_output(s->tls, pool, &s->out);
}

/* Sends once. 1: everything went out; 0: the socket is full; -1: it is broken. */
static int send_once(struct br_stream *s)
{
    struct iovec iov[IOV_PER_SEND];
    uint32_t n = 0;
    size_t bytes = 0;
    for (; n < s->out.n && n < IOV_PER_SEND && bytes < BR_WRITE_SIZE; n++) {
        iov[n].iov_base = (void *)(uintptr_t)s->out.v[n].data;
        iov[n].iov_len = s->out.v[n].len;
        bytes += iov[n].iov_len;
    }
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
    ssize_t sent = sendmsg(s->fd, &msg, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    br_progress_add(&s->writing, (size_t)sent, uv_now(&s->loop->uv));
    br_rope_drop(&s->out, (size_t)sent);
    return (size_t)sent == bytes ? 1 : 0;
}

/* What a server's stream may pull in a turn: requests that came ahead make a connection paused. */
static unsigned pulls_max(const struct br_stream *s)
{
    bool more = s->conn && s->conn->paused;
    return more && s->loop->n_greedy > CROWD ? PULLS_IN_CROWD : PULLS_PER_TURN;
}

/* True when a server's stream has to wait for its next share: what it pulls may be the answers to
 * thousands of requests that came ahead. */
static bool had_its_share(struct br_stream *s, unsigned n_pulls)
{
    if (!s->server || s->closing || s->shut || n_pulls < pulls_max(s))
        return false;
    if (br_list_empty(&s->greed)) {
        br_list_append(&s->loop->greedy, &s->greed);
        s->loop->n_greedy++;
    }
    br_list_remove(&s->dirty); /* what it pulled may have woken it */
    return true;
}

/* Sends until all went out, the socket is full, or others come first; pulls only what it has room
 * for. */
static void send_all(struct br_stream *s)
{
    for (unsigned n_pulls = 0; !s->connecting && !s->full; n_pulls++) {
        if (s->out.len == 0 && had_its_share(s, n_pulls))
            return;
        if (s->out.len < out_max(s) / 4 && pull(s)) {
            br_stream_close_for(s, BR_END_MEMORY, "no memory, or the protocol is broken");
            return;
        }
        if (s->out.len == 0)
            return;
        int rc = send_once(s);
        if (rc < 0) {
            int error = errno;
            br_rope_release(&s->out);
            on_broken(s, error);
            return;
        }
        if (rc == 0) {
            s->full = true;
            br_progress_start(&s->writing, uv_now(&s->loop->uv));
        }
    }
}

/* All is said. A server closes its half and gives the peer time to read the last words: closing
 * with unread input would reset the connection and take them away. Its sweep ends it. */
static void half_close(struct br_stream *s)
{
    if (s->server && !s->eof && shutdown(s->fd, SHUT_WR) == 0) {
        s->shut = true;
        s->shut_ms = uv_now(&s->loop->uv);
    } else {
        br_stream_close(s, s->why[0] ? s->why : "done");
    }
}

static bool all_said(const struct br_stream *s)
{
    if (s->closing || s->connecting || s->shut || !br_list_empty(&s->greed))
        return false;
    if (!s->ending && !(s->conn && s->conn->ops->finished(s->conn)))
        return false;
    return s->out.len == 0 || !s->server; /* a client that is done owes nothing */
}

static void flush(struct br_stream *s)
{
    send_all(s);
    if (s->out.len == 0 && s->out.cap > IDLE_SLICES)
        br_rope_release(&s->out);
    count_held(s); /* answers end requests, also such as had not come as a whole */
    if (!all_said(s))
        return;
    if (s->tls && !s->goodbye) {
        s->goodbye = true;
        br_tls_close(s->tls);
        send_all(s);
        if (s->server && s->out.len)
            return;
    }
    if (!s->closing)
        half_close(s);
}

void br_stream_end(struct br_stream *s, const char *why)
{
    br_stream_close(s, why);
    flush(s);
    destroy(s);
}

void br_loop_flush(struct br_loop *loop)
{
    struct br_list now;
    br_list_init(&now);
    while (!br_list_empty(&loop->dirty))
        br_list_append(&now, br_list_shift(&loop->dirty));
    struct br_list *l;
    while ((l = br_list_shift(&now))) {
        struct br_stream *s = br_container_of(l, struct br_stream, dirty);
        flush(s);
        if (s->closing)
            destroy(s);
        else
            watch(s);
    }
}

bool br_loop_has_crowd(const struct br_loop *loop)
{
    return loop->n_greedy > CROWD;
}

bool br_loop_indulge(struct br_loop *loop)
{
    bool crowd = br_loop_has_crowd(loop), any = false;
    if (crowd && loop->indulged_ms == uv_now(&loop->uv))
        return false;
    loop->indulged_ms = uv_now(&loop->uv);
    for (int i = 0; i < (crowd ? CROWD_PER_MS : 1) && !br_list_empty(&loop->greedy); i++) {
        struct br_stream *s = br_container_of(loop->greedy.next, struct br_stream, greed);
        greed_end(s);
        br_stream_wake(s);
        any = true;
    }
    return any;
}

static int socket_error(const struct br_stream *s)
{
    int error = 0;
    socklen_t len = sizeof error;
    return getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len) ? errno : error;
}

static void on_connected(struct br_stream *s, int status)
{
    int error = socket_error(s);
    if (error || status < 0) {
        br_stream_close(s, error ? strerror(error) : uv_strerror(status));
        return;
    }
    s->connecting = false;
    s->events->on_progress(s);
    br_stream_wake(s);
}

static void on_poll(uv_poll_t *p, int status, int events)
{
    struct br_stream *s = p->data;
    if (s->freed || s->closing)
        return;
    if (s->connecting) {
        on_connected(s, status);
        return;
    }
    if (status < 0) { /* libuv has stopped polling it */
        on_broken(s, socket_error(s));
        return;
    }
    if (events & UV_READABLE)
        read_some(s);
    if (events & UV_WRITABLE) {
        s->full = false;
        br_stream_wake(s);
    }
    if (!s->closing)
        watch(s);
}
