/* SPDX-License-Identifier: Apache-2.0 */
#include "kafka/kafka.h"

#include <stdio.h>

#define TICK_MS 1000 /* longest time between two calls of `serve` */
/* time between two calls of `serve` on a host without a loop, which cannot be woken */
#define POLL_MS 20

/* --- Callbacks of librdkafka in the worker -----------------------------------------------------
 */

static void handle_on_error(rd_kafka_t *rk, int error, const char *reason, void *opaque)
{
    struct br_kafka *kafka = opaque;
    (void)rk;
    /* keep the error of the connection, which is more useful than "all brokers are down" */
    if (error != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || !kafka->reason[0])
        (void)snprintf(kafka->reason, sizeof kafka->reason, "%s", reason);
    if (error != RD_KAFKA_RESP_ERR__FATAL) /* the owner of the handle reports fatal errors */
        br_node_warn(kafka->node, &kafka->limit, "%s", reason);
}

static void handle_on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    const struct br_kafka *kafka = rd_kafka_opaque(rk);
    (void)level;
    br_debug(&kafka->node->log, "librdkafka: %s: %s", facility, text);
}

/* --- Waking ------------------------------------------------------------------------------------
 */

/* Runs in a thread of librdkafka. */
static void handle_on_events(rd_kafka_t *rk, void *opaque)
{
    struct br_kafka *kafka = opaque;
    (void)rk;
    br_wake_ring(kafka->wake);
}

static void handle_on_wake(void *arg)
{
    struct br_kafka *kafka = arg;
    kafka->serve(kafka);
}

static void handle_on_timer(struct br_timer *timer)
{
    struct br_kafka *kafka = br_container_of(timer, struct br_kafka, timer);
    (void)br_host_timer(kafka->node->host, timer, kafka->wake ? TICK_MS : POLL_MS, handle_on_timer);
    kafka->serve(kafka);
}

void br_kafka_again(struct br_kafka *kafka)
{
    if (kafka->wake)
        br_wake_ring(kafka->wake);
}

void br_kafka_watch(struct br_kafka *kafka, rd_kafka_queue_t *queue)
{
    if (kafka->wake)
        rd_kafka_queue_cb_event_enable(queue, handle_on_events, kafka);
}

/* --- Life --------------------------------------------------------------------------------------
 */

static int handle_make(struct br_kafka *kafka, rd_kafka_type_t type, rd_kafka_conf_t *conf,
                       struct br_err *err)
{
    char text[256];
    rd_kafka_conf_set_opaque(conf, kafka);
    rd_kafka_conf_set_error_cb(conf, handle_on_error);
    rd_kafka_conf_set_log_cb(conf, handle_on_log);
    kafka->rk = rd_kafka_new(type, conf, text, sizeof text);
    if (!kafka->rk) {
        rd_kafka_conf_destroy(conf);
        return br_err_set(err, BR_EINVAL, "the Kafka client cannot start: %s", text);
    }
    return 0;
}

int br_kafka_open(struct br_kafka *kafka, struct br_node *node, rd_kafka_type_t type,
                  rd_kafka_conf_t *conf, void (*serve)(struct br_kafka *kafka), struct br_err *err)
{
    kafka->node = node;
    kafka->serve = serve;
    kafka->wake = br_wake_new(node->host, handle_on_wake, kafka);
    int rc = handle_make(kafka, type, conf, err);
    if (rc)
        return rc;
    if (type == RD_KAFKA_CONSUMER)
        (void)rd_kafka_poll_set_consumer(kafka->rk);
    kafka->events = type == RD_KAFKA_CONSUMER ? rd_kafka_queue_get_consumer(kafka->rk)
                                              : rd_kafka_queue_get_main(kafka->rk);
    (void)rd_kafka_set_log_queue(kafka->rk, NULL);
    br_kafka_watch(kafka, kafka->events);
    if (!br_host_timer_park(node->host, &kafka->timer, handle_on_timer))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    (void)br_host_timer(node->host, &kafka->timer, POLL_MS, handle_on_timer);
    return 0;
}

void br_kafka_close(struct br_kafka *kafka)
{
    if (!kafka->node)
        return;
    br_host_timer_stop(kafka->node->host, &kafka->timer);
    if (kafka->events) {
        rd_kafka_queue_cb_event_enable(kafka->events, NULL, NULL);
        rd_kafka_queue_destroy(kafka->events);
    }
    if (kafka->rk)
        rd_kafka_destroy_flags(kafka->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    br_wake_free(kafka->wake);
    kafka->events = NULL;
    kafka->rk = NULL;
    kafka->wake = NULL;
}
