/* SPDX-License-Identifier: Apache-2.0 */
/* The types and functions that the files of src/net share. libuv is known in this folder only. */
#pragma once

#include <stdatomic.h>
#include <uv.h>

#include "base/list.h"
#include "net/loop.h"
#include "net/tls.h"
#include "wire/conn.h"
#include "wire/guess.h"

#define BR_READ_SIZE (256u << 10)
#define BR_WRITE_SIZE (1u << 20)
#define BR_ITERATION_READ_MAX (1u << 20) /* of all server streams, but for the last */
#define BR_OUT_MAX (256u << 10)          /* a client that leaves more unread is not read from */

struct br_stream;

struct br_net {
    struct br_list listeners;
    _Atomic unsigned n_connections; /* of all servers */
    unsigned connections_mark;      /* of them, above which idle ones make room; 0: none */
    pthread_mutex_t works_lock;     /* of `works` */
    pthread_cond_t works_ended;
    struct br_net_works works; /* that threads of the pool have, or will have next */
};

/* Set up and release what work.c has in a br_net. */
void br_net_works_init(struct br_net *net);
void br_net_works_release(struct br_net *net);

/* Why a connection of a server ended, as the metric says it. */
enum br_ending {
    BR_END_NONE,
    BR_END_PEER,          /* the client closed it */
    BR_END_DONE,          /* all was said: Connection: close, HTTP/1.0 */
    BR_END_IDLE,          /* idle_timeout, max_connection_idle */
    BR_END_AGE,           /* max_connection_age */
    BR_END_HANDSHAKE,     /* no protocol in time */
    BR_END_FIRST_REQUEST, /* no request in time */
    BR_END_SLOW_REQUEST,  /* a head, or a frame, without progress */
    BR_END_SLOW_BODY,     /* min_body_rate */
    BR_END_SLOW_READER,   /* an answer that is not read */
    BR_END_KEEPALIVE,     /* a PING without an answer */
    BR_END_EVICTED,       /* it made room for another one */
    BR_END_LIMIT,         /* there was no room for it */
    BR_END_FLOOD,         /* ENHANCE_YOUR_CALM */
    BR_END_PROTOCOL,      /* what came was no HTTP, or none that is taken */
    BR_END_TLS,
    BR_END_NETWORK, /* reset, unreachable, cut off */
    BR_END_MEMORY,
    BR_END_STOP, /* the server stops */
    BR_ENDINGS,
};

struct br_loop {
    struct br_host host;
    struct br_net *net;
    uv_loop_t uv;
    uv_prepare_t prepare;
    uv_timer_t timer;
    uv_async_t doorbell;
    uint64_t timer_due;
    pthread_mutex_t lock; /* of the mailbox */
    struct br_list mailbox;
    unsigned n_mail;
    struct br_list dirty; /* streams with something to send */
    struct br_list busy;  /* server streams that had their share of this turn, and ask for more */
    unsigned n_busy;
    uint64_t busy_resumed_ms; /* when a crowd of them was given its last share */
    struct br_list paused;    /* server streams that hold too much to read on for now */
    struct br_stream *active; /* the one that reads on meanwhile */
    struct br_list unread;    /* server streams with bytes for which this turn had no room */
    unsigned n_unread;
    struct br_list
        slow_senders; /* server streams that send a request byte by byte, and have bytes */
    unsigned n_slow_senders;
    size_t read_bytes; /* by server streams, in this turn */
    struct br_timer rotation;
    unsigned active_ticks; /* how long it has had it */
    size_t active_bytes;   /* what it read since the last tick */
    size_t mark;           /* of `held`; see br_loop_set_mark */
    size_t held,
        held_large;   /* by unfinished requests; the part of streams with over BR_HELD_SMALL */
    unsigned n_large; /* so many streams they are */
    double *n_pauses;
    int watchable;                               /* descriptors below have room in libuv's table */
    struct br_list works_waiting[BR_WORK_KINDS]; /* of work.c: they wait for a thread */
    unsigned n_works[BR_WORK_KINDS];             /* that libuv has */
    uint8_t *read_buffer;                        /* BR_READ_SIZE */
};

struct br_loop *br_loop_of(struct br_host *host);

/* How the owner of a stream is told about it. */
struct br_stream_events {
    /* Server streams without a protocol yet: the first bytes (the plaintext) are here, or ALPN
     * chose. Sets s->conn and returns 0, or BR_EAGAIN for more bytes, or a code that closes. */
    int (*detect)(struct br_stream *stream, const uint8_t *data, size_t len);
    /* It is connected, or bytes came from the peer. */
    void (*on_progress)(struct br_stream *stream);
    /* It is closed and about to be freed; `why` is never NULL. */
    void (*on_closed)(struct br_stream *stream, const char *why);
    /* Server streams: the peer speaks another protocol, and `complaint` is the answer. */
    void (*on_complaint)(struct br_stream *stream, const char *complaint);
};

struct br_stream {
    struct br_loop *loop;
    const struct br_stream_events *events;
    void *owner;
    struct br_conn *conn; /* owned */
    struct br_tls *tls;   /* owned; NULL: plaintext */
    uv_poll_t poll;
    int fd;
    int polled;            /* what the poll waits for now */
    struct br_rope out;    /* bytes for the socket */
    struct br_list link;   /* the owner's */
    struct br_list dirty;  /* loop->dirty */
    struct br_list busy;   /* loop->busy */
    struct br_list pause;  /* loop->paused */
    struct br_list unread; /* loop->unread, or loop->slow_senders with `sends_slowly` */
    bool sends_slowly;
    unsigned n_small_reads; /* reads of little in the middle of a request, one after another */
    size_t held;            /* by its unfinished requests, as the loop counts it */
    uint8_t first[24];
    unsigned n_first;
    /* By br_guess: a sentence for the protocols that end the stream, and for a client's that ends
     * before a byte came; NULL: none. */
    const char *const *complaints;
    enum br_guess guess;
    bool server; /* obeys the loop's mark, and lets the peer read its last words */
    bool connecting;
    bool full;         /* the socket takes nothing now; `writing` says since when */
    bool eof;          /* the peer sent its last byte */
    bool ending;       /* the peer is not listened to any more; when all is sent, it ends */
    bool half_closed;  /* all is sent and our half is closed: what comes is thrown away */
    bool close_notify; /* TLS's close_notify is asked for */
    bool closing, freed;
    enum br_ending reason; /* the first that was noted */
    char why[160];         /* the same in words */
    struct br_progress writing;
    uint64_t opened_ms, read_ms, half_closed_ms,
        resumed_ms; /* resumed: the end of the last pause */
};

/* Makes a stream on a non-blocking socket, which it takes. Returns NULL (and closes the socket)
 * when there is no memory or the loop refuses it. */
struct br_stream *br_stream_new(struct br_loop *loop, int fd, const struct br_stream_events *events,
                                void *owner, bool server, bool connecting);

/* Marks it as having output; it is flushed at the end of the turn. */
void br_stream_wake(struct br_stream *stream);

/* Gives the stream its protocol, which it then owns. */
void br_stream_set_conn(struct br_stream *stream, struct br_conn *conn);

/* Takes bytes of the peer: decrypts them, and gives them to the protocol. */
void br_stream_receive(struct br_stream *stream, const uint8_t *data, size_t len);

/* Closes and frees at the end of the turn; `why` is kept for on_closed. Safe at any time, also
 * twice. */
void br_stream_close(struct br_stream *stream, const char *why);
void br_stream_close_for(struct br_stream *stream, enum br_ending reason, const char *why);

/* Notes why it will be closed, unless that is known. */
void br_stream_note(struct br_stream *stream, enum br_ending reason, const char *why);

/* Sends what the socket takes, closes and frees at once. Not from a callback of the same stream. */
void br_stream_end(struct br_stream *stream, const char *why);

/* Reads and writes what it can; called by the loop. */
void br_loop_flush(struct br_loop *loop);

/* Reads server streams for which earlier turns had no room, those first that have waited longest,
 * until this turn has read BR_ITERATION_READ_MAX. A turn that read from all streams would send once
 * for the bytes of hundreds, and what waits for the destination would grow, however fast that is.
 */
void br_loop_read_unread(struct br_loop *loop);

/* Reads a few of the streams that are in the middle of a request and sent little twice, those
 * first that have waited longest, until this turn has read BR_ITERATION_READ_MAX; then the next
 * turn begins to count. Called after br_loop_read_unread, when the others have their answers. A
 * thousand of them would be a turn of milliseconds, for nothing that could be done yet. */
void br_loop_read_slow_senders(struct br_loop *loop);

/* Gives streams that have had their share of a turn another one in the next: one of them; or, where
 * they are a crowd, a few each millisecond. True when there was one. */
bool br_loop_resume_busy(struct br_loop *loop);

/* They are a crowd, and the rest waits for the next millisecond. */
bool br_loop_has_many_busy(const struct br_loop *loop);

void br_loop_resume(struct br_loop *loop);

/* Serve and connect: entries of host->ops, in server.c and client.c. */
int br_net_serve(struct br_host *host, const struct br_server_config *config,
                 struct br_handler *service, struct br_server **ret, struct br_err *err);
int br_net_connect(struct br_host *host, const struct br_client_config *config,
                   struct br_client **ret, struct br_err *err);
bool br_net_work(struct br_host *host, struct br_work *work); /* work.c */
void br_net_work_leave(struct br_host *host, struct br_work *work);
void br_net_work_wait(struct br_host *host, struct br_work *work);

/*
 * Where libuv's table of descriptors grows (watchers.c). All that libuv allocates is from
 * br_malloc, from br_watchers_init on, which is called before any loop there is.
 */
void br_watchers_init(void);

/* Starts the loop's libuv loop. Returns 0, BR_ENOMEM, or BR_EIO (no descriptors). */
int br_watchers_start(struct br_loop *loop);

/* Calls `fn` for `events` of a descriptor that the loop has not watched so far, from the next turn
 * on. Returns 0, BR_ENOMEM, or BR_EIO (what cannot be polled); on failure `poll` needs no uv_close.
 */
int br_watchers_poll(struct br_loop *loop, uv_poll_t *poll, int fd, int events, uv_poll_cb fn);

/* Returns how much work of one kind one of so many workers has in threads at a time: all of them
 * together leave one for names. */
unsigned br_net_works_max(unsigned n_workers, enum br_work_kind kind);

/* Says to libuv how many threads that takes, unless UV_THREADPOOL_SIZE does; before the first work.
 */
void br_net_size_pool(unsigned n_workers);
struct br_listener;
struct br_list *br_net_listeners(struct br_net *net);
