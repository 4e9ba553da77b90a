/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/kafka/producer.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "egress/call.h"
#include "exporters/kafka/division.h"

/* estimated memory in bytes that librdkafka allocates for each message in addition to the
 * payload */
#define MESSAGE_OVERHEAD 256
#define BUFFER_LEAST (4u << 20)
#define BUFFER_MOST (64u << 20)
/* The producers of all workers may together buffer 1/8 of the soft memory limit. One producer may
 * buffer at least BUFFER_LEAST and at most BUFFER_MOST bytes. */
#define BUFFER_DIVISOR 8
/* pause in milliseconds before the retry of a request that failed because memory was short */
#define DELAY_MS 200
/* first (REOPEN_MS) and longest (REOPEN_MOST_MS) pause, in milliseconds, before the librdkafka
 * handle is replaced after a fatal error */
#define REOPEN_MS 1000
#define REOPEN_MOST_MS 30000

struct kafka_producer {
    struct br_kafka kafka;
    struct br_consumer input;
    struct br_node *node;
    const struct kafka_exporter_config *config;
    struct br_codec *codec;
    struct br_list sendings; /* messages that librdkafka has accepted or that are being converted */
    struct br_list waiting;  /* messages that wait for space in librdkafka's buffer */
    bool failed;             /* a fatal error occurred; the handle sends no more messages */
    struct br_timer reopen_timer;
    /* current pause before the handle is replaced; 0: no fatal error since the last delivery */
    uint64_t reopen_ms;
    struct br_log_limit fatal_limit;
};

/* A message whose result is not known yet. */
struct sending {
    struct br_list link;
    struct kafka_producer *producer;
    struct br_item *item;
    /* job of the thread that converts the payload; NULL: no thread is working */
    struct br_packing_job *job;
    struct br_buf *buf;  /* buffer with the payload; NULL: the payload does not exist yet */
    const uint8_t *data; /* the payload */
    size_t len;          /* length of the payload in bytes */
    size_t counted;      /* memory of librdkafka, in bytes, that was added with br_mem_count */
};

static const char *const compressions[] = {"none", "gzip", "snappy", "lz4", "zstd"};

/* --- One message -------------------------------------------------------------------------------
 */

static void producer_finish(struct sending *sending, const struct br_outcome *outcome)
{
    br_mem_count(-(int64_t)sending->counted);
    br_buf_unref(sending->buf);
    br_list_remove(&sending->link);
    br_item_finish(sending->item, outcome);
    br_free(sending);
}

static void producer_fail(struct sending *sending, int rc)
{
    struct br_outcome outcome =
        rc == BR_ENOMEM
            ? br_outcome_retry(BR_STATUS_UNAVAILABLE, DELAY_MS, "out of memory")
            : br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "the request cannot be encoded");
    producer_finish(sending, &outcome);
}

static const struct kafka_topic *producer_topic(const struct kafka_producer *producer,
                                                enum br_signal signal)
{
    return signal == BR_TRACES ? &producer->config->traces : &producer->config->profiles;
}

static void producer_add_header(rd_kafka_headers_t *headers, const char *name, const char *value)
{
    (void)rd_kafka_header_add(headers, name, -1, value, -1);
}

/* Returns the headers of a message: the headers from the config, and the client metadata that
 * include_metadata_keys names. Returns NULL if the message has no headers or memory is short. */
static rd_kafka_headers_t *producer_headers(const struct kafka_producer *producer,
                                            const struct br_item *item)
{
    const struct kafka_exporter_config *config = producer->config;
    const struct br_strings *keys = &config->include_metadata_keys;
    const struct br_headers *fixed = &config->record_headers;
    if (!keys->count && !fixed->count && !config->signal_header)
        return NULL;
    rd_kafka_headers_t *headers = rd_kafka_headers_new(keys->count + fixed->count + 1);
    if (!headers)
        return NULL;
    for (size_t i = 0; i < keys->count; i++) {
        const char *value = br_item_metadata(item, keys->items[i]);
        if (value)
            producer_add_header(headers, keys->items[i], value);
    }
    for (size_t i = 0; i < fixed->count; i++)
        producer_add_header(headers, fixed->names[i], fixed->values[i].text);
    if (config->signal_header)
        producer_add_header(headers, "otelcol.signal", br_signal_name(item->signal));
    return headers;
}

static rd_kafka_resp_err_t producer_produce(struct sending *sending)
{
    const struct kafka_producer *producer = sending->producer;
    rd_kafka_headers_t *headers = producer_headers(producer, sending->item);
    rd_kafka_vu_t parts[6] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC,
         .u.cstr = producer_topic(producer, sending->item->signal)->topic},
        {.vtype = RD_KAFKA_VTYPE_VALUE,
         .u.mem = {.ptr = (void *)(uintptr_t)sending->data, .size = sending->len}},
        {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = sending},
    };
    size_t n = 3;
    const char *key = kafka_key(sending->item);
    if (key)
        parts[n++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_KEY,
                                     .u.mem = {.ptr = (void *)(uintptr_t)key, .size = strlen(key)}};
    if (headers)
        parts[n++] = (rd_kafka_vu_t){.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers};
    rd_kafka_error_t *error = rd_kafka_produceva(producer->kafka.rk, parts, n);
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    if (code && headers)
        rd_kafka_headers_destroy(headers);
    rd_kafka_error_destroy(error);
    return code;
}

/* Passes a message to librdkafka. Returns false if librdkafka's buffer is full. */
static bool producer_try(struct sending *sending)
{
    struct kafka_producer *producer = sending->producer;
    rd_kafka_resp_err_t code = producer_produce(sending);
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL)
        return false;
    sending->counted = sending->len + MESSAGE_OVERHEAD;
    br_mem_count((int64_t)sending->counted);
    br_list_remove(&sending->link);
    br_list_append(&producer->sendings, &sending->link);
    if (code) {
        struct br_outcome outcome = br_kafka_outcome(code, producer->kafka.reason);
        producer_finish(sending, &outcome);
    }
    return true;
}

static void producer_send(struct sending *sending)
{
    struct kafka_producer *producer = sending->producer;
    if (br_list_empty(&producer->waiting) && producer_try(sending))
        return;
    br_list_remove(&sending->link);
    br_list_append(&producer->waiting, &sending->link);
}

/* Passes waiting messages to librdkafka until its buffer is full. */
static void producer_send_waiting(struct kafka_producer *producer)
{
    while (!br_list_empty(&producer->waiting)) {
        struct sending *sending = br_container_of(producer->waiting.next, struct sending, link);
        if (!producer_try(sending))
            return;
    }
}

/* Finishes all messages of a list with BR_RETRY. */
static void producer_give_back(struct br_list *list, const char *why)
{
    while (!br_list_empty(list)) {
        struct sending *sending = br_container_of(list->next, struct sending, link);
        struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, REOPEN_MS, "%s", why);
        if (sending->job)
            br_packing_job_cancel(sending->job);
        producer_finish(sending, &outcome);
    }
}

/* --- Payloads ----------------------------------------------------------------------------------
 */

static void producer_on_packed(void *arg, int rc, struct br_rope *body)
{
    struct sending *sending = arg;
    sending->job = NULL;
    sending->len = body->len;
    if (!rc) {
        sending->buf = br_rope_flat(body, sending->producer->node->host->pool, &sending->data);
        rc = sending->buf ? 0 : BR_ENOMEM;
    }
    br_rope_release(body);
    if (rc)
        producer_fail(sending, rc);
    else
        producer_send(sending);
}

static void producer_pack(struct sending *sending, struct br_rope *body)
{
    struct kafka_producer *producer = sending->producer;
    struct br_host *host = producer->node->host;
    enum br_signal signal = sending->item->signal;
    const struct br_packing packing = {.translate = br_packing_to_json};
    if (producer_topic(producer, signal)->encoding == KAFKA_OTLP_PROTO) {
        producer_on_packed(sending, 0, body);
    } else if (body->len <= BR_PACKING_NOW) {
        int rc = br_packing_write(&packing, signal, producer->codec, host->pool, body);
        producer_on_packed(sending, rc, body);
    } else {
        sending->job =
            br_packing_job_new(host, &packing, signal, body, producer_on_packed, sending);
        if (sending->job)
            br_packing_job_start(sending->job);
        else
            producer_on_packed(sending, BR_ENOMEM, body);
    }
}

static void producer_consume(struct br_consumer *self, struct br_item *item)
{
    struct kafka_producer *producer = br_container_of(self, struct kafka_producer, input);
    struct sending *sending;
    struct br_rope body = {0};
    if (item->size > (size_t)producer->config->producer.max_message_bytes) {
        br_item_reject(item, BR_STATUS_RESOURCE_EXHAUSTED,
                       "the request is larger than producer::max_message_bytes");
        return;
    }
    if (producer->failed || !producer->kafka.rk) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, REOPEN_MS,
                      producer->kafka.reason[0] ? producer->kafka.reason
                                                : "the Kafka client is restarting");
        return;
    }
    sending = br_calloc(1, sizeof *sending);
    if (!sending) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, DELAY_MS, "out of memory");
        return;
    }
    sending->producer = producer;
    sending->item = item;
    br_list_append(&producer->sendings, &sending->link);
    if (br_item_write(item, &body) == 0) {
        producer_pack(sending, &body);
    } else {
        br_rope_release(&body);
        producer_fail(sending, BR_ENOMEM);
    }
}

/* --- Events ------------------------------------------------------------------------------------
 */

static void producer_on_report(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
    struct kafka_producer *producer = br_container_of(opaque, struct kafka_producer, kafka);
    struct br_outcome outcome = br_kafka_outcome(message->err, producer->kafka.reason);
    (void)rk;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        producer->kafka.reason[0] = '\0';
        producer->reopen_ms = 0;
    }
    producer_finish(message->_private, &outcome);
}

static int producer_open(struct kafka_producer *producer, struct br_err *err);

static void producer_on_reopen(struct br_timer *timer);

/* Replaces the handle after a fatal error of librdkafka. The result of every message of the old
 * handle must be known. */
static void producer_reopen(struct kafka_producer *producer)
{
    struct br_err err = {0};
    br_kafka_close(&producer->kafka);
    producer->failed = producer_open(producer, &err) != 0;
    if (!producer->failed)
        return;
    br_node_warn(producer->node, &producer->fatal_limit, "%s", err.text);
    (void)br_host_timer(producer->node->host, &producer->reopen_timer, REOPEN_MOST_MS,
                        producer_on_reopen);
}

static void producer_on_reopen(struct br_timer *timer)
{
    struct kafka_producer *producer = br_container_of(timer, struct kafka_producer, reopen_timer);
    if (br_list_empty(&producer->sendings))
        producer_reopen(producer);
    else
        (void)br_host_timer(producer->node->host, timer, REOPEN_MS, producer_on_reopen);
}

/* Checks for a fatal error, after which librdkafka sends no messages, for example if the client may
 * not write to the cluster. The handle is replaced after a pause. The pause doubles at each error
 * until a message is delivered. */
static void producer_check_fatal(struct kafka_producer *producer)
{
    char text[sizeof producer->kafka.reason - 8];
    rd_kafka_resp_err_t code = rd_kafka_fatal_error(producer->kafka.rk, text, sizeof text);
    if (!code || producer->failed)
        return;
    producer->failed = true;
    (void)snprintf(producer->kafka.reason, sizeof producer->kafka.reason, "%s", text);
    producer->reopen_ms = producer->reopen_ms ? producer->reopen_ms * 2 : REOPEN_MS;
    if (producer->reopen_ms > REOPEN_MOST_MS)
        producer->reopen_ms = REOPEN_MOST_MS;
    br_node_warn(producer->node, &producer->fatal_limit,
                 "the Kafka client restarts because of a fatal error: %s", text);
    (void)rd_kafka_purge(producer->kafka.rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT |
                                                 RD_KAFKA_PURGE_F_NON_BLOCKING);
    producer_give_back(&producer->waiting, producer->kafka.reason);
    (void)br_host_timer(producer->node->host, &producer->reopen_timer, producer->reopen_ms,
                        producer_on_reopen);
}

static void producer_serve(struct br_kafka *kafka)
{
    struct kafka_producer *producer = br_container_of(kafka, struct kafka_producer, kafka);
    (void)rd_kafka_poll(kafka->rk, 0);
    producer_check_fatal(producer);
    if (!producer->failed)
        producer_send_waiting(producer);
}

/* --- Life --------------------------------------------------------------------------------------
 */

static bool producer_waits_for_all(const struct kafka_producer_options *options)
{
    return strcmp(options->required_acks, "all") == 0 || strcmp(options->required_acks, "-1") == 0;
}

/* Returns the name of the partitioner in librdkafka. The Collector's `sarama_compat` reads the
 * FNV-1a hash as a signed number and takes the absolute value modulo the number of partitions. */
static const char *producer_partitioner(const struct kafka_exporter_config *config)
{
    const struct kafka_sticky_key *sticky = config->record_partitioner.sticky_key;
    if (config->record_partitioner.round_robin)
        return "random";
    return sticky && sticky->hasher ? "murmur2_random" : "fnv1a_random";
}

static void producer_set_delivery(const struct kafka_producer *producer, struct br_kafka_conf *conf)
{
    const struct kafka_producer_options *options = &producer->config->producer;
    unsigned linger_ms = br_kafka_ms(options->linger, 0, 900000);
    unsigned timeout_ms = br_kafka_ms(producer->config->common.timeout, 0, 2147483647);
    bool all = producer_waits_for_all(options);
    br_kafka_set_text(conf, "acks", all ? "all" : options->required_acks);
    br_kafka_set_text(conf, "enable.idempotence", all ? "true" : "false");
    br_kafka_set(conf, "linger.ms", "%u", linger_ms);
    /* librdkafka requires that message.timeout.ms is greater than linger.ms */
    if (timeout_ms && timeout_ms <= linger_ms)
        timeout_ms = linger_ms + 1;
    br_kafka_set(conf, "message.timeout.ms", "%u", timeout_ms);
    br_kafka_set_text(conf, "partitioner", producer_partitioner(producer->config));
    br_kafka_set_text(conf, "compression.codec", compressions[options->compression]);
    if (options->compression && options->compression_params.level)
        br_kafka_set(conf, "compression.level", "%d", (int)options->compression_params.level);
    br_kafka_set_text(conf, "allow.auto.create.topics",
                      options->allow_auto_topic_creation ? "true" : "false");
}

static void producer_set_sizes(const struct kafka_producer *producer, struct br_kafka_conf *conf)
{
    const struct kafka_producer_options *options = &producer->config->producer;
    size_t buffer =
        br_kafka_budget(producer->node->host, BUFFER_DIVISOR, BUFFER_LEAST, BUFFER_MOST);
    br_kafka_set(conf, "message.max.bytes", "%lld", (long long)options->max_message_bytes);
    br_kafka_set(conf, "batch.size", "%lld", (long long)options->max_message_bytes);
    br_kafka_set(conf, "queue.buffering.max.messages", "%lld",
                 (long long)options->flush_max_messages);
    if (buffer < 2 * (size_t)options->max_message_bytes)
        buffer = 2 * (size_t)options->max_message_bytes;
    br_kafka_set(conf, "queue.buffering.max.kbytes", "%zu", buffer >> 10);
}

static int producer_make_conf(const struct kafka_producer *producer, rd_kafka_conf_t **ret,
                              struct br_err *err)
{
    struct br_kafka_conf conf;
    br_kafka_conf_begin(&conf, &producer->config->client, err);
    producer_set_delivery(producer, &conf);
    producer_set_sizes(producer, &conf);
    int rc = br_kafka_conf_end(&conf);
    if (!rc)
        *ret = conf.conf;
    return rc;
}

static int producer_open(struct kafka_producer *producer, struct br_err *err)
{
    rd_kafka_conf_t *conf;
    int rc = producer_make_conf(producer, &conf, err);
    if (rc)
        return rc;
    if (producer->node->host->checking) {
        rd_kafka_conf_destroy(conf);
        return 0;
    }
    rd_kafka_conf_set_dr_msg_cb(conf, producer_on_report);
    return br_kafka_open(&producer->kafka, producer->node, RD_KAFKA_PRODUCER, conf, producer_serve,
                         err);
}

struct kafka_producer *kafka_producer_new(struct br_node *node)
{
    struct kafka_producer *producer = br_calloc(1, sizeof *producer);
    if (!producer)
        return NULL;
    producer->node = node;
    producer->config = node->config;
    producer->input.consume = producer_consume;
    br_list_init(&producer->sendings);
    br_list_init(&producer->waiting);
    producer->codec = br_codec_new();
    if (!producer->codec) {
        br_free(producer);
        return NULL;
    }
    return producer;
}

int kafka_producer_start(struct kafka_producer *producer, struct br_err *err)
{
    return producer_open(producer, err);
}

struct br_consumer *kafka_producer_input(struct kafka_producer *producer)
{
    return &producer->input;
}

void kafka_producer_free(struct kafka_producer *producer)
{
    if (!producer)
        return;
    br_host_timer_stop(producer->node->host, &producer->reopen_timer);
    br_kafka_close(&producer->kafka);
    producer_give_back(&producer->sendings, "the exporter is stopping");
    producer_give_back(&producer->waiting, "the exporter is stopping");
    br_codec_free(producer->codec);
    br_free(producer);
}
