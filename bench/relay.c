/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain TCP relay, to measure the cost of forwarding a byte. Each connection to FROM is connected
 * to TO, and bytes are copied in both directions. One thread, poll, one buffer per direction.
 *
 *     relay FROM TO          ports on 127.0.0.1; until SIGTERM
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS 1024u
#define BUFFER (256u << 10)

struct direction {
    int from, to;
    size_t at, len; /* range of the buffer that was read and not yet written */
    bool ended;     /* `from` has reached its end, and `to` was shut down */
    unsigned char data[BUFFER];
};

struct pair {
    struct direction there, back;
};

static struct sockaddr_in address_of(const char *port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(port)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int must(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

static int socket_on(const char *port)
{
    const struct sockaddr_in address = address_of(port);
    int on = 1, fd = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    must(bind(fd, (const struct sockaddr *)&address, sizeof address), "bind");
    must(listen(fd, 1024), "listen");
    return fd;
}

static void prepare(int fd)
{
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    must(fcntl(fd, F_SETFL, O_NONBLOCK), "fcntl");
}

static struct pair *pair_new(int listener, const struct sockaddr_in *to)
{
    struct pair *pair = calloc(1, sizeof *pair);
    int client = must(accept(listener, NULL, NULL), "accept");
    int server = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(connect(server, (const struct sockaddr *)to, sizeof *to), "connect");
    prepare(client);
    prepare(server);
    if (!pair)
        exit(1);
    pair->there.from = pair->back.to = client;
    pair->there.to = pair->back.from = server;
    return pair;
}

static bool is_later(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

/* Reads if the buffer is empty, then writes. Returns false if the connection is broken. */
static bool direction_move(struct direction *d)
{
    if (!d->len && !d->ended) {
        ssize_t n = read(d->from, d->data, sizeof d->data);
        if (n < 0)
            return is_later(n);
        d->at = 0;
        d->len = (size_t)n;
        d->ended = n == 0;
        if (d->ended)
            (void)shutdown(d->to, SHUT_WR);
    }
    if (d->len) {
        ssize_t n = write(d->to, d->data + d->at, d->len);
        if (n < 0)
            return is_later(n);
        d->at += (size_t)n;
        d->len -= (size_t)n;
    }
    return true;
}

static bool pair_is_over(struct pair *pair)
{
    bool good = direction_move(&pair->there) && direction_move(&pair->back);
    return !good || (pair->there.ended && pair->back.ended);
}

static void pair_free(struct pair *pair)
{
    close(pair->there.from);
    close(pair->there.to);
    free(pair);
}

static short events_of(const struct direction *in, const struct direction *out)
{
    return (short)((!in->len && !in->ended ? POLLIN : 0) | (out->len ? POLLOUT : 0));
}

int main(int argc, char **argv)
{
    static struct pollfd polled[2 * PAIRS + 1];
    static struct pair *pairs[PAIRS];
    unsigned n = 0;
    if (argc != 3) {
        fputs("usage: relay FROM TO\n", stderr);
        return 2;
    }
    const struct sockaddr_in to = address_of(argv[2]);
    int listener = socket_on(argv[1]);
    for (;;) {
        for (unsigned i = 0; i < n; i++) {
            const struct pair *pair = pairs[i];
            polled[2 * i] = (struct pollfd){.fd = pair->there.from,
                                            .events = events_of(&pair->there, &pair->back)};
            polled[2 * i + 1] = (struct pollfd){.fd = pair->there.to,
                                                .events = events_of(&pair->back, &pair->there)};
        }
        polled[2 * n] = (struct pollfd){.fd = listener, .events = n < PAIRS ? POLLIN : 0};
        must(poll(polled, 2 * n + 1, -1), "poll");
        bool is_new = polled[2 * n].revents != 0;
        for (unsigned i = n; i-- > 0;)
            if ((polled[2 * i].revents || polled[2 * i + 1].revents) && pair_is_over(pairs[i])) {
                pair_free(pairs[i]);
                pairs[i] = pairs[--n];
            }
        if (is_new)
            pairs[n++] = pair_new(listener, &to);
    }
}
