/* SPDX-License-Identifier: Apache-2.0 */
/* Tests UDP sockets on the loopback interface. */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/net_internal.h"
#include "net/udp.h"
#include "tests/support/net_rig.h"
#include "tests/support/test.h"

#define PACKET_MAX 1000

struct received {
    unsigned n_packets, n_large;
    size_t last_len;
    uint32_t n_lost;
    char last[PACKET_MAX];
};

static void on_packet(void *arg, const struct br_udp_packet *packet)
{
    struct received *r = arg;
    r->n_packets++;
    r->n_large += packet->data == NULL;
    r->n_lost += packet->n_lost;
    r->last_len = packet->len;
    if (packet->data)
        memcpy(r->last, packet->data, packet->len);
}

/* Returns a socket that is bound to a free port. */
static int bound_socket(struct sockaddr_in *ret)
{
    socklen_t len = sizeof *ret;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)ret, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)ret, &len), 0);
    return fd;
}

struct fixture {
    struct net_rig *rig;
    struct received received;
    struct br_log log;
    struct sockaddr_in addr;
    char endpoint[40];
    int client;
};

static void fixture_open(struct fixture *f, void **state)
{
    *f = (struct fixture){.rig = *state};
    f->log.name = "test";
    close(bound_socket(&f->addr)); /* a port that is free now */
    (void)snprintf(f->endpoint, sizeof f->endpoint, "127.0.0.1:%u", ntohs(f->addr.sin_port));
    f->client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(f->client >= 0);
}

static int open_udp(struct fixture *f, struct br_udp **ret, struct br_err *err)
{
    const struct br_udp_config config = {.name = "receiver/test udp",
                                         .what = "udp",
                                         .endpoint = f->endpoint,
                                         .packet_max = PACKET_MAX,
                                         .buffer_size = 8192,
                                         .log = &f->log};
    return br_udp_open(f->rig->host, &config, on_packet, &f->received, ret, err);
}

static void send_bytes(const struct fixture *f, const void *data, size_t len)
{
    assert_int_equal(
        sendto(f->client, data, len, 0, (const struct sockaddr *)&f->addr, sizeof f->addr), len);
}

static void fixture_close(struct fixture *f, struct br_udp *udp)
{
    br_udp_close(udp);
    close(f->client);
    net_idle(f->rig, 1);
}

static void packets(void **state)
{
    static const char large[PACKET_MAX + 1];
    struct fixture f;
    struct br_udp *udp = NULL;
    fixture_open(&f, state);
    assert_int_equal(open_udp(&f, &udp, NULL), 0);
    send_bytes(&f, "hello", 5);
    NET_UNTIL(f.rig, f.received.n_packets == 1);
    assert_true(f.received.last_len == 5 && memcmp(f.received.last, "hello", 5) == 0);
    send_bytes(&f, "", 0);
    send_bytes(&f, large, PACKET_MAX);
    send_bytes(&f, large, PACKET_MAX + 1);
    NET_UNTIL(f.rig, f.received.n_packets == 4);
    assert_int_equal(f.received.n_large, 1);
    assert_int_equal(f.received.last_len, PACKET_MAX + 1);
    assert_int_equal(f.received.n_lost, 0);
    fixture_close(&f, udp);
}

/* The packets that did not fit into the system's buffer are counted with the next packet. */
static void lost_packets(void **state)
{
    static const char packet[PACKET_MAX];
    enum { SENT = 1000 };
    struct fixture f;
    struct br_udp *udp = NULL;
    fixture_open(&f, state);
    assert_int_equal(open_udp(&f, &udp, NULL), 0);
    for (int i = 0; i < SENT; i++)
        send_bytes(&f, packet, sizeof packet);
    while (f.received.n_packets + f.received.n_lost < SENT) {
        unsigned before = f.received.n_packets;
        net_step(f.rig);
        if (f.received.n_packets == before)
            send_bytes(&f, "", 0);
    }
    assert_true(f.received.n_lost > 0);
    assert_true(f.received.n_packets < SENT);
    fixture_close(&f, udp);
}

static void port_in_use(void **state)
{
    struct fixture f;
    struct br_udp *udp = NULL;
    struct br_err err = {0};
    fixture_open(&f, state);
    int other = bound_socket(&f.addr);
    (void)snprintf(f.endpoint, sizeof f.endpoint, "127.0.0.1:%u", ntohs(f.addr.sin_port));
    assert_int_equal(open_udp(&f, &udp, &err), BR_EIO);
    assert_non_null(strstr(err.text, "Address already in use (by another process"));
    close(other);
    (void)snprintf(f.endpoint, sizeof f.endpoint, "no port");
    assert_int_equal(open_udp(&f, &udp, &err), BR_EINVAL);
    fixture_close(&f, udp);
}

/* A reload replaces a component, and its successor uses the same socket. The successor may be
 * opened before or after the other component is closed. Packets in the system's buffer are not
 * lost. */
static void reload(void **state)
{
    struct fixture f;
    struct br_udp *before = NULL, *after = NULL;
    fixture_open(&f, state);
    assert_int_equal(open_udp(&f, &before, NULL), 0);
    f.rig->host->generation++;
    assert_int_equal(open_udp(&f, &after, NULL), 0);
    br_udp_close(before);
    send_bytes(&f, "1", 1);
    NET_UNTIL(f.rig, f.received.n_packets == 1);
    br_net_keep_sockets(f.rig->net, true);
    br_udp_close(after);
    net_idle(f.rig, 1);
    send_bytes(&f, "2", 1);
    f.rig->host->generation++;
    assert_int_equal(open_udp(&f, &before, NULL), 0);
    br_net_keep_sockets(f.rig->net, false);
    NET_UNTIL(f.rig, f.received.n_packets == 2);
    assert_int_equal(f.received.last[0], '2');
    fixture_close(&f, before);
}

SUITE(udp)
{
    const struct CMUnitTest tests[] = {
        NET_TEST(packets),
        NET_TEST(lost_packets),
        NET_TEST(port_in_use),
        NET_TEST(reload),
    };
    return RUN(tests, NULL, NULL);
}
