/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for connections. A connection that comes when there are as many as there may be takes the
 * place of the one that has been without a request for the longest; where all have one, it is
 * refused. Whoever is asked looks among its own only, so an arrival goes from worker to worker
 * until one has such a connection.
 */
#include <string.h>

#include "base/mem.h"
#include "net/server_internal.h"

#define LOOK_AT_MOST 4096 /* streams, for one that can go */
#define WARN_EVERY_MS 60000

static bool same_address(const struct br_address *a, const struct br_address *b)
{
    return a->known && b->known && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static bool may_go(const struct br_stream *stream, const struct br_address *address)
{
    const struct br_peer *peer = stream->owner;
    if (stream->closing || (address && !same_address(&peer->address, address)))
        return false;
    return stream->shut || br_server_stream_idle(stream);
}

bool br_server_make_room(struct br_net_server *s, const struct br_address *address)
{
    unsigned looked_at = 0;
    for (struct br_list *l = s->streams.next; l != &s->streams; l = l->next) {
        struct br_stream *stream = br_container_of(l, struct br_stream, link);
        if (++looked_at > LOOK_AT_MOST)
            return false;
        if (!may_go(stream, address))
            continue;
        if (stream->conn && !stream->shut)
            stream->conn->ops->shutdown(stream->conn);
        br_stream_close_for(stream, BR_END_ROOM, "it made room for another one");
        return true;
    }
    return false;
}

/* --- Places of an address -----------------------------------------------------------------------
 */

bool br_listener_note_address(struct br_listener *l, const struct br_address *address,
                              unsigned *ret)
{
    *ret = 0;
    if (!l->max_per_address || !address->known)
        return true;
    pthread_mutex_lock(&l->lock);
    uintptr_t n = (uintptr_t)br_map_get(l->addresses, address->bytes, sizeof address->bytes) + 1;
    int rc = br_map_put(l->addresses, address->bytes, sizeof address->bytes, (void *)n, NULL);
    pthread_mutex_unlock(&l->lock);
    *ret = (unsigned)n;
    return rc == 0;
}

unsigned br_listener_address_count(struct br_listener *l, const struct br_address *address)
{
    pthread_mutex_lock(&l->lock);
    uintptr_t n = (uintptr_t)br_map_get(l->addresses, address->bytes, sizeof address->bytes);
    pthread_mutex_unlock(&l->lock);
    return (unsigned)n;
}

void br_listener_forget_address(struct br_listener *l, const struct br_address *address)
{
    if (!l->max_per_address || !address->known)
        return;
    pthread_mutex_lock(&l->lock);
    uintptr_t n = (uintptr_t)br_map_get(l->addresses, address->bytes, sizeof address->bytes);
    if (n > 1)
        (void)br_map_put(l->addresses, address->bytes, sizeof address->bytes, (void *)(n - 1),
                         NULL);
    else
        (void)br_map_remove(l->addresses, address->bytes, sizeof address->bytes);
    pthread_mutex_unlock(&l->lock);
}

/* --- From worker to worker ----------------------------------------------------------------------
 */

static void refuse(struct br_net_server *s, const struct br_arrival *a)
{
    br_server_drop(s, a, BR_END_LIMIT);
    uint64_t held;
    if (br_log_allow(&s->refusals, uv_now(&s->loop->uv), WARN_EVERY_MS, &held))
        br_warn(s->config.log,
                "%s: a connection of %s was refused (%llu before): there are as many as there may "
                "be, and "
                "none is idle",
                s->config.what, a->peer, (unsigned long long)held);
}

void br_server_pass_on(struct br_net_server *s, const struct br_arrival *a)
{
    struct br_listener *l = s->listener;
    struct br_arrival next = *a;
    unsigned at = s->loop->host.worker;
    for (next.n_asked++; next.n_asked < l->n_targets; next.n_asked++) {
        struct br_net_server *other = l->targets[(at + next.n_asked - a->n_asked) % l->n_targets];
        if (!other)
            continue;
        br_server_add_load(s, -1);
        br_listener_hand_over(other, &next);
        return;
    }
    refuse(s, a);
}

/* --- Descriptors --------------------------------------------------------------------------------
 */

/* Asks a server of another worker for descriptors. */
struct plea {
    struct br_message message;
    struct br_net_server *server;
    unsigned n;
};

static void shed(struct br_net_server *s, unsigned n)
{
    for (unsigned i = 0; i < n && br_server_make_room(s, NULL); i++)
        ;
}

static void on_plea(struct br_message *m, struct br_loop *loop)
{
    struct plea *p = br_container_of(m, struct plea, message);
    (void)loop;
    shed(p->server, p->n);
    br_free(p);
}

static void ask(struct br_loop *here, struct br_net_server *s, unsigned n)
{
    if (br_server_loop(s) == here) {
        shed(s, n);
        return;
    }
    struct plea *p = br_malloc(sizeof *p);
    if (!p)
        return;
    *p = (struct plea){.message.run = on_plea, .server = s, .n = n};
    if (!br_loop_post(br_server_loop(s), &p->message))
        br_free(p);
}

static unsigned most_load(const struct br_list *listeners)
{
    unsigned most = 0;
    for (const struct br_list *l = listeners->next; l != listeners; l = l->next) {
        const struct br_listener *of = br_container_of(l, struct br_listener, link);
        for (unsigned i = 0; i < of->n_targets; i++) {
            unsigned load = of->targets[i] ? br_server_load(of->targets[i]) : 0;
            most = load > most ? load : most;
        }
    }
    return most;
}

void br_net_shed(struct br_loop *here, unsigned n)
{
    struct br_list *listeners = br_net_listeners(here->net);
    unsigned most = most_load(listeners);
    for (struct br_list *l = listeners->next; l != listeners; l = l->next) {
        struct br_listener *of = br_container_of(l, struct br_listener, link);
        for (unsigned i = 0; i < of->n_targets; i++) {
            struct br_net_server *s = of->targets[i];
            if (s && br_server_load(s) && br_server_load(s) >= most - most / 2)
                ask(here, s, n);
        }
    }
}
