/* SPDX-License-Identifier: Apache-2.0 */
#include "net/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"

#define BACKLOG 1024
#define SOCKET_MODE 0600 /* of a unix socket */
#define ACCEPTS_PER_EVENT 64
#define PUT_OFF_MS 100
#define WARN_EVERY_MS 60000

/* An accepted connection on its way to another worker. */
struct handover {
    struct br_message message;
    struct br_net_server *server;
    int fd;
    char peer[64];
};

static void on_handover(struct br_message *m, struct br_loop *loop)
{
    struct handover *h = br_container_of(m, struct handover, message);
    (void)loop;
    br_server_take(h->server, h->fd, h->peer);
    br_free(h);
}

/* The worker with the fewest connections; equal ones take turns. */
static struct br_net_server *choose(struct br_listener *l)
{
    struct br_net_server *best = NULL;
    unsigned least = 0;
    for (unsigned i = 0; i < l->n_targets; i++) {
        struct br_net_server *s = l->targets[(l->turn + i) % l->n_targets];
        unsigned load = s ? br_server_load(s) : 0;
        if (s && (!best || load < least)) {
            best = s;
            least = load;
        }
    }
    l->turn++;
    return best;
}

static void dispatch(struct br_listener *l, int fd, const char *peer)
{
    struct br_net_server *s = choose(l);
    if (!s) {
        close(fd);
        return;
    }
    br_server_add_load(s, 1);
    if (br_server_loop(s) == l->loop) {
        br_server_take(s, fd, peer);
        return;
    }
    struct handover *h = br_malloc(sizeof *h);
    if (h) {
        *h = (struct handover){.message.run = on_handover, .server = s, .fd = fd};
        (void)snprintf(h->peer, sizeof h->peer, "%s", peer);
        if (br_loop_post(br_server_loop(s), &h->message))
            return;
        br_free(h);
    }
    br_server_add_load(s, -1);
    close(fd);
}

static void peer_name(const struct sockaddr_storage *addr, char *out, size_t size)
{
    char host[48] = "";
    unsigned port = 0;
    if (addr->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)addr;
        uv_ip4_name(in, host, sizeof host);
        port = ntohs(in->sin_port);
    } else if (addr->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)addr;
        uv_ip6_name(in, host, sizeof host);
        port = ntohs(in->sin6_port);
    }
    if (host[0])
        (void)snprintf(out, size, "%s:%u", host, port);
    else
        (void)snprintf(out, size, "unix");
}

static void on_acceptable(uv_poll_t *p, int status, int events);

static void on_again(struct br_timer *t)
{
    struct br_listener *l = br_container_of(t, struct br_listener, again);
    uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
}

/* accept failed. Those who connect stay in the kernel's queue; without a pause, what it lacks would
 * keep the loop spinning. */
static void put_off(struct br_listener *l, int error)
{
    if (error == EAGAIN || error == EINTR || error == ECONNABORTED)
        return;
    uint64_t now = br_host_mono_ms(&l->loop->host);
    if (!l->warned_ms || now - l->warned_ms > WARN_EVERY_MS) {
        l->warned_ms = now;
        br_warn(l->log, "cannot accept connections: %s", strerror(error));
    }
    if (br_host_timer(&l->loop->host, &l->again, PUT_OFF_MS, on_again))
        uv_poll_stop(&l->poll);
}

static void on_acceptable(uv_poll_t *p, int status, int events)
{
    struct br_listener *l = p->data;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_EVENT && status == 0; i++) {
        struct sockaddr_storage addr = {0};
        socklen_t len = sizeof addr;
        int fd = accept4(l->fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            put_off(l, errno);
            return;
        }
        if (addr.ss_family != AF_UNIX) {
            int one = 1;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        }
        char peer[64];
        peer_name(&addr, peer, sizeof peer);
        dispatch(l, fd, peer);
    }
}

/* True when nobody listens on the socket there: what a process left that could not clean up. */
static bool is_stale(const struct sockaddr_un *addr)
{
    struct stat st;
    if (lstat(addr->sun_path, &st) || !S_ISSOCK(st.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)addr, sizeof *addr) &&
                   errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return refused;
}

static int listen_unix(struct br_listener *l, const char *path, struct br_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof addr.sun_path)
        return br_err_set(err, BR_EINVAL, "the path of a unix socket has 1 to %zu bytes",
                          sizeof addr.sun_path - 1);
    memcpy(addr.sun_path, path, strlen(path) + 1);
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd >= 0) /* Linux gives the mode of the socket to its file, so there is no moment between */
        (void)fchmod(l->fd, SOCKET_MODE);
    int rc = l->fd < 0 ? -1 : bind(l->fd, (struct sockaddr *)&addr, sizeof addr);
    if (rc && l->fd >= 0 && errno == EADDRINUSE) {
        if (is_stale(&addr) && unlink(path) == 0)
            rc = bind(l->fd, (struct sockaddr *)&addr, sizeof addr);
        else
            errno = EADDRINUSE;
    }
    if (!rc) {
        memcpy(l->path, path, strlen(path) + 1);
        (void)chmod(path, SOCKET_MODE); /* the umask may have taken from us, too */
    }
    if (rc || listen(l->fd, BACKLOG))
        return br_err_set(err, BR_EIO, "cannot listen on %s: %s", path, strerror(errno));
    return 0;
}

static int listen_on(struct br_listener *l, const struct addrinfo *ai)
{
    int one = 1, zero = 0;
    l->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd < 0)
        return -1;
    setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (ai->ai_family == AF_INET6)
        setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(l->fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(l->fd, BACKLOG) == 0)
        return 0;
    int saved = errno;
    close(l->fd);
    l->fd = -1;
    errno = saved;
    return -1;
}

static void note_port(struct br_listener *l, char *shown, size_t size)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr;
    if (getsockname(l->fd, (struct sockaddr *)&addr, &len))
        return;
    l->port = ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                               : ((struct sockaddr_in *)&addr)->sin_port);
    peer_name(&addr, shown, size);
}

static int listen_tcp(struct br_listener *l, const char *endpoint, struct br_err *err)
{
    char host[256], port_text[8];
    unsigned port;
    if (!br_endpoint_parse(endpoint, host, &port))
        return br_err_set(err, BR_EINVAL, "\"%s\" is not host:port", endpoint);
    (void)snprintf(port_text, sizeof port_text, "%u", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host[0] ? host : NULL, port_text, &hints, &found);
    if (rc)
        return br_err_set(err, BR_EIO, "cannot resolve %s: %s", host, gai_strerror(rc));
    /* As Go's listener: an IPv4 address first where a name has both; every interface means both. */
    int order[2] = {AF_INET, AF_INET6};
    if (!host[0] || strcmp(host, "::") == 0) {
        order[0] = AF_INET6;
        order[1] = AF_INET;
    }
    rc = -1;
    errno = EAFNOSUPPORT;
    for (int i = 0; i < 2 && rc; i++)
        for (struct addrinfo *ai = found; ai && rc; ai = ai->ai_next)
            if (ai->ai_family == order[i])
                rc = listen_on(l, ai);
    int saved = errno;
    freeaddrinfo(found);
    if (rc)
        return br_err_set(err, BR_EIO, "cannot listen on %s: %s%s", endpoint, strerror(saved),
                          saved == EADDRINUSE ? " (by another process, or twice in the config)"
                                              : "");
    return 0;
}

int br_listener_open(struct br_loop *loop, const struct br_server_config *config,
                     struct br_listener **ret, struct br_err *err)
{
    struct br_listener *l = br_calloc(1, sizeof *l);
    if (!l)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    bool local = config->transport && strncmp(config->transport, "unix", 4) == 0;
    l->fd = -1;
    l->loop = loop;
    int rc = local ? listen_unix(l, config->endpoint, err) : listen_tcp(l, config->endpoint, err);
    if (!rc && uv_poll_init(&loop->uv, &l->poll, l->fd))
        rc = br_err_set(err, BR_EIO, "cannot watch the socket of %s", config->endpoint);
    if (rc) {
        if (l->fd >= 0)
            close(l->fd);
        if (l->path[0])
            (void)unlink(l->path);
        br_free(l);
        return rc;
    }
    l->log = config->log;
    (void)snprintf(l->name, sizeof l->name, "%s", config->name);
    char shown[80];
    (void)snprintf(shown, sizeof shown, "%s", config->endpoint);
    if (!local)
        note_port(l, shown, sizeof shown);
    l->poll.data = l;
    l->open = true;
    uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
    br_list_append(br_net_listeners(loop->net), &l->link);
    br_info(config->log, "%s listening on %s%s", config->what, shown, config->tls ? " (TLS)" : "");
    *ret = l;
    return 0;
}

struct br_listener *br_listener_find(struct br_net *net, const char *name)
{
    struct br_list *head = br_net_listeners(net);
    for (struct br_list *l = head->next; l != head; l = l->next) {
        struct br_listener *listener = br_container_of(l, struct br_listener, link);
        if (strcmp(listener->name, name) == 0)
            return listener;
    }
    return NULL;
}

static void on_closed(uv_handle_t *h)
{
    struct br_listener *l = h->data;
    close(l->fd);
    if (l->path[0])
        (void)unlink(l->path);
    l->fd = -1;
    if (l->n_targets == 0)
        br_free(l);
}

void br_listener_stop(struct br_listener *l)
{
    if (!l->open)
        return;
    l->open = false;
    br_host_timer_stop(&l->loop->host, &l->again);
    uv_poll_stop(&l->poll);
    uv_close((uv_handle_t *)&l->poll, on_closed);
}

void br_listener_leave(struct br_listener *l, struct br_net_server *server)
{
    unsigned left = 0;
    for (unsigned i = 0; i < l->n_targets; i++) {
        if (l->targets[i] == server)
            l->targets[i] = NULL;
        left += l->targets[i] != NULL;
    }
    if (left)
        return;
    l->n_targets = 0;
    br_list_remove(&l->link);
    if (l->open)
        br_listener_stop(l);
    else if (l->fd < 0)
        br_free(l);
}
