/* SPDX-License-Identifier: Apache-2.0 */
/* Receives the packets of Jaeger's clients, which are calls of Agent.emitBatch. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ingest/pieces.h"
#include "receivers/jaeger/jaeger.h"

/* A packet that is being read, or whose item is in the pipeline. */
struct jaeger_packet {
    struct br_list link;
    struct jaeger_udp *udp;
    struct br_item *item;
    struct br_reading_task *reading;
};

static void jaeger_udp_end(struct jaeger_packet *packet)
{
    packet->udp->n_packets--;
    br_list_remove(&packet->link);
    br_free(packet);
}

/* Counts packets that were dropped before they were read. */
static void jaeger_udp_drop(struct jaeger_udp *udp, double *counter, unsigned count,
                            const char *why)
{
    if (!count)
        return;
    *counter += count;
    br_node_warn(udp->jaeger->ingest.node, &udp->lost_limit, "packets were dropped: %s", why);
}

static void jaeger_udp_on_done(struct br_item *item, void *arg)
{
    struct jaeger_packet *packet = arg;
    br_meter_count_outcome(&packet->udp->meter, item);
    jaeger_udp_end(packet);
}

static void jaeger_udp_on_read(void *owner, struct br_reading *reading, int rc)
{
    struct jaeger_packet *packet = owner;
    struct jaeger_udp *udp = packet->udp;
    struct br_node *node = udp->jaeger->ingest.node;
    packet->reading = NULL;
    if (rc == BR_ENOMEM) {
        *udp->meter.refused[BR_TRACES] += 1;
        jaeger_udp_drop(udp, udp->dropped_memory, 1, "memory limit reached");
    } else if (rc) {
        *udp->meter.failed[BR_TRACES] += 1;
        br_node_warn(node, &udp->invalid_limit, "rejected a packet: %s",
                     br_reading_why(reading, rc));
    }
    if (rc) {
        jaeger_udp_end(packet);
        return;
    }
    br_otlp_count_repaired(&udp->jaeger->otlp, reading);
    *udp->meter.failed[BR_TRACES] += reading->n_left_out;
    if (reading->n_left_out)
        br_node_warn(node, &udp->invalid_limit, "%s", reading->left_out);
    packet->item = reading->item;
    reading->item = NULL;
    br_item_received(packet->item);
    br_item_answered(packet->item); /* the sender of a packet does not expect an answer */
    packet->item->done = jaeger_udp_on_done;
    packet->item->done_arg = packet;
    if (br_shed_drops(node->host, BR_TRACES)) {
        br_pieces_free(&reading->pieces);
        br_shed_item(packet->item);
    } else if (!br_list_empty(&reading->pieces)) {
        br_pieces_send(node, packet->item, &reading->pieces, &udp->jaeger->ingest.sendings);
    } else {
        br_node_forward(node, packet->item);
    }
}

static void jaeger_udp_read(struct jaeger_udp *udp, struct br_buf *body)
{
    static const struct br_request request = {.query = ""};
    struct jaeger *jaeger = udp->jaeger;
    struct br_host *host = jaeger->ingest.node->host;
    struct jaeger_packet *packet = br_malloc(sizeof *packet);
    if (!packet) {
        br_buf_unref(body);
        jaeger_udp_drop(udp, udp->dropped_memory, 1, "memory limit reached");
        return;
    }
    *packet = (struct jaeger_packet){.udp = udp};
    br_list_append(&udp->packets, &packet->link);
    udp->n_packets++;
    const struct br_reading how = {.arg = jaeger,
                                   .request = &request,
                                   .signal = BR_TRACES,
                                   .format = BR_UPLOAD_OTHER,
                                   .max_body = BR_UDP_PACKET_MAX,
                                   .now_ns = br_host_unix_ns(host),
                                   .max_now = BR_UDP_PACKET_MAX,
                                   .host = host,
                                   .bench = &jaeger->ingest.bench,
                                   .body = body,
                                   .invalid = BR_STATUS_INVALID_ARGUMENT};
    br_reading_start(&how, udp->read, jaeger_udp_on_read, packet, &jaeger->ingest.readings,
                     &packet->reading);
}

static void jaeger_udp_on_packet(void *arg, const struct br_udp_packet *packet)
{
    struct jaeger_udp *udp = arg;
    struct br_node *node = udp->jaeger->ingest.node;
    jaeger_udp_drop(udp, udp->dropped_socket, packet->n_lost,
                    "the system's buffer was full; raise socket_buffer_size");
    if (!packet->data) {
        jaeger_udp_drop(udp, udp->dropped_size, 1, "a packet is larger than max_packet_size");
        return;
    }
    if (udp->n_packets >= (unsigned)udp->config->queue_size) {
        jaeger_udp_drop(udp, udp->dropped_full, 1, "the pipeline holds queue_size packets");
        return;
    }
    struct br_buf *body =
        br_host_over_limit(node->host) || !br_pool_fits(node->host->pool, packet->len)
            ? NULL
            : br_buf_new(node->host->pool, packet->len + 1);
    if (!body) {
        jaeger_udp_drop(udp, udp->dropped_memory, 1, "memory limit reached");
        return;
    }
    memcpy(body->data, packet->data, packet->len);
    body->len = (uint32_t)packet->len;
    jaeger_udp_read(udp, body);
}

/* Returns the counter of packets that were dropped for a reason. */
static double *jaeger_udp_counter(struct br_node *node, const char *transport, const char *reason)
{
    struct br_str labels = {.max = 2048};
    br_label(&labels, "receiver", node->id);
    br_label(&labels, "reason", reason);
    br_label(&labels, "transport", transport);
    double *counter = br_metric(node->host->metrics, BR_COUNTER, "braid_receiver_dropped_packets",
                                labels.data ? labels.data : "");
    br_str_release(&labels);
    return counter;
}

void jaeger_udp_init(struct jaeger_udp *udp, struct jaeger *jaeger,
                     const struct jaeger_udp_config *config, const char *transport,
                     br_read_fn *read)
{
    struct br_node *node = jaeger->ingest.node;
    br_list_init(&udp->packets);
    udp->jaeger = jaeger;
    udp->config = config;
    udp->read = read;
    if (!config)
        return;
    br_meter_init(&udp->meter, node, transport, BR_SIGNAL_BIT(BR_TRACES));
    udp->dropped_full = jaeger_udp_counter(node, transport, "queue_full");
    udp->dropped_memory = jaeger_udp_counter(node, transport, "memory");
    udp->dropped_size = jaeger_udp_counter(node, transport, "too_large");
    udp->dropped_socket = jaeger_udp_counter(node, transport, "socket_full");
}

int jaeger_udp_start(struct jaeger_udp *udp, const char *what, struct br_err *err)
{
    struct br_node *node = udp->jaeger->ingest.node;
    char name[160];
    if (!udp->config || node->host->worker)
        return 0;
    (void)snprintf(name, sizeof name, "receiver/%s %s", node->id, what);
    const struct br_udp_config config = {.name = name,
                                         .what = what,
                                         .endpoint = udp->config->endpoint,
                                         .packet_max = (size_t)udp->config->max_packet_size,
                                         .buffer_size = (size_t)udp->config->socket_buffer_size,
                                         .log = &node->log};
    return br_udp_open(node->host, &config, jaeger_udp_on_packet, udp, &udp->socket, err);
}

void jaeger_udp_stop(struct jaeger_udp *udp)
{
    br_udp_close(udp->socket);
    udp->socket = NULL;
}

void jaeger_udp_release(struct jaeger_udp *udp)
{
    jaeger_udp_stop(udp);
    while (udp->packets.next && !br_list_empty(&udp->packets)) {
        struct jaeger_packet *packet =
            br_container_of(udp->packets.next, struct jaeger_packet, link);
        if (packet->item)
            packet->item->done = NULL;
        br_reading_cancel(&packet->reading);
        jaeger_udp_end(packet);
    }
}
