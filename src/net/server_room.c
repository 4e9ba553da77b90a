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
#define SPARE_CONNECTIONS 8 /* of a server on a worker: probes and scrapes get through */

static bool server_room_same_address(const struct br_address *address,
                                     const struct br_address *other)
{
    return address->known && other->known &&
           memcmp(address->bytes, other->bytes, sizeof address->bytes) == 0;
}

static bool server_room_may_go(const struct br_stream *stream, const struct br_address *address)
{
    const struct br_peer *peer = stream->owner;
    if (stream->closing || (address && !server_room_same_address(&peer->address, address)))
        return false;
    return stream->shut || br_server_stream_idle(stream);
}

bool br_server_make_room(struct br_net_server *server, const struct br_address *address)
{
    unsigned looked_at = 0;
    for (struct br_list *list = server->streams.next; list != &server->streams; list = list->next) {
        struct br_stream *stream = br_container_of(list, struct br_stream, link);
        if (++looked_at > LOOK_AT_MOST)
            return false;
        if (!server_room_may_go(stream, address))
            continue;
        if (stream->conn && !stream->shut)
            stream->conn->ops->shutdown(stream->conn);
        br_stream_close_for(stream, BR_END_ROOM, "it made room for another one");
        return true;
    }
    return false;
}

/* --- Places of an address --------------------------------------------------------------------- */

bool br_listener_note_address(struct br_listener *listener, const struct br_address *address,
                              unsigned *ret)
{
    *ret = 0;
    if (!listener->max_per_address || !address->known)
        return true;
    pthread_mutex_lock(&listener->lock);
    uintptr_t n =
        (uintptr_t)br_map_get(listener->addresses, address->bytes, sizeof address->bytes) + 1;
    int rc =
        br_map_put(listener->addresses, address->bytes, sizeof address->bytes, (void *)n, NULL);
    pthread_mutex_unlock(&listener->lock);
    *ret = (unsigned)n;
    return rc == 0;
}

unsigned br_listener_address_count(struct br_listener *listener, const struct br_address *address)
{
    pthread_mutex_lock(&listener->lock);
    uintptr_t n = (uintptr_t)br_map_get(listener->addresses, address->bytes, sizeof address->bytes);
    pthread_mutex_unlock(&listener->lock);
    return (unsigned)n;
}

void br_listener_forget_address(struct br_listener *listener, const struct br_address *address)
{
    if (!listener->max_per_address || !address->known)
        return;
    pthread_mutex_lock(&listener->lock);
    uintptr_t n = (uintptr_t)br_map_get(listener->addresses, address->bytes, sizeof address->bytes);
    if (n > 1)
        (void)br_map_put(listener->addresses, address->bytes, sizeof address->bytes,
                         (void *)(n - 1), NULL);
    else
        (void)br_map_remove(listener->addresses, address->bytes, sizeof address->bytes);
    pthread_mutex_unlock(&listener->lock);
}

/* --- From worker to worker -------------------------------------------------------------------- */

static void server_room_refuse(struct br_net_server *server, const struct br_arrival *arrival,
                               enum br_ending why, const char *text)
{
    br_server_drop(server, arrival, why);
    uint64_t held;
    if (br_log_allow(&server->refusals, uv_now(&server->loop->uv), WARN_EVERY_MS, &held))
        br_warn(server->config.log, "%s: a connection of %s was refused (%llu before): %s",
                server->config.what, arrival->peer, (unsigned long long)held, text);
}

bool br_server_refuse_over(struct br_net_server *server, const struct br_arrival *arrival)
{
    if (br_server_load(server) <= SPARE_CONNECTIONS || !br_pool_is_over(server->loop->host.pool))
        return false;
    server_room_refuse(server, arrival, BR_END_MEMORY, "the memory limit is reached");
    return true;
}

void br_server_pass_on(struct br_net_server *server, const struct br_arrival *arrival)
{
    struct br_listener *listener = server->listener;
    struct br_arrival next = *arrival;
    unsigned at = server->loop->host.worker;
    for (next.n_asked++; next.n_asked < listener->n_targets; next.n_asked++) {
        struct br_net_server *other =
            listener->targets[(at + next.n_asked - arrival->n_asked) % listener->n_targets];
        if (!other)
            continue;
        br_server_add_load(server, -1);
        br_listener_hand_over(other, &next);
        return;
    }
    server_room_refuse(server, arrival, BR_END_LIMIT,
                       "there are as many as there may be, and none is idle");
}

/* --- Descriptors ------------------------------------------------------------------------------ */

/* Asks a server of another worker for descriptors. */
struct plea {
    struct br_message message;
    struct br_net_server *server;
    unsigned count;
};

static void server_room_shed(struct br_net_server *server, unsigned count)
{
    for (unsigned i = 0; i < count && br_server_make_room(server, NULL); i++)
        ;
}

static void server_room_on_plea(struct br_message *message, struct br_loop *loop)
{
    struct plea *p = br_container_of(message, struct plea, message);
    (void)loop;
    server_room_shed(p->server, p->count);
    br_free(p);
}

static void server_room_ask(struct br_loop *here, struct br_net_server *server, unsigned count)
{
    if (br_server_loop(server) == here) {
        server_room_shed(server, count);
        return;
    }
    struct plea *p = br_malloc(sizeof *p);
    if (!p)
        return;
    *p = (struct plea){.message.run = server_room_on_plea, .server = server, .count = count};
    if (!br_loop_post(br_server_loop(server), &p->message))
        br_free(p);
}

static unsigned server_room_most_load(const struct br_list *listeners)
{
    unsigned most = 0;
    for (const struct br_list *list = listeners->next; list != listeners; list = list->next) {
        const struct br_listener *of = br_container_of(list, struct br_listener, link);
        for (unsigned i = 0; i < of->n_targets; i++) {
            unsigned load = of->targets[i] ? br_server_load(of->targets[i]) : 0;
            most = load > most ? load : most;
        }
    }
    return most;
}

void br_net_shed(struct br_loop *here, unsigned count)
{
    struct br_list *listeners = br_net_listeners(here->net);
    unsigned most = server_room_most_load(listeners);
    for (struct br_list *list = listeners->next; list != listeners; list = list->next) {
        struct br_listener *of = br_container_of(list, struct br_listener, link);
        for (unsigned i = 0; i < of->n_targets; i++) {
            struct br_net_server *server = of->targets[i];
            if (server && br_server_load(server) && br_server_load(server) >= most - most / 2)
                server_room_ask(here, server, count);
        }
    }
}
