/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/kafka/consumer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/str.h"

/* One loop iteration takes at most TAKE_MESSAGES messages, and stops after about TAKE_BYTES
 * bytes. */
#define TAKE_MESSAGES 64
#define TAKE_BYTES (1u << 20)
/* IN_PIPELINE_DIVISOR: the messages in the pipelines of all workers use at most 1/8 of the soft
 * memory limit. The limit is divided among the workers. The limit of one worker is at least
 * IN_PIPELINE_LEAST and at most IN_PIPELINE_MOST bytes. */
#define IN_PIPELINE_DIVISOR 8
#define IN_PIPELINE_LEAST (2u << 20)
#define IN_PIPELINE_MOST (64u << 20)
/* FETCHED_DIVISOR: the messages that librdkafka fetches in advance use at most 1/32 of the soft
 * memory limit. The limit is divided among the workers. The limit of one worker is at least
 * FETCHED_LEAST and at most FETCHED_MOST bytes. */
#define FETCHED_DIVISOR 32
#define FETCHED_LEAST (1u << 20)
#define FETCHED_MOST (16u << 20)
/* Estimated memory in bytes that a message needs in addition to its body. */
#define MESSAGE_OVERHEAD 1024
#define FULL_MS 1000        /* time above the memory limit after which all partitions are paused */
#define RETRY_MS 1000       /* first delay before a refused message is sent again */
#define RETRY_MOST_MS 30000 /* longest delay before a refused message is sent again */
/* longest delay of the release of a revoked partition, until its messages are finished */
#define REVOKE_WAIT_MS 5000
/* longest time that a reload waits until the consumer has left its group */
#define LEAVE_WAIT_MS 4000
#define CLOSE_WAIT_MS 1000 /* longest wait for the brokers when the consumer is freed */
#define METADATA_MAX 16384 /* maximum size of a message's client metadata in bytes */

enum result { DELIVERED, REJECTED, UNREADABLE, REFUSED, RESULTS };

struct kafka_consumer {
    struct br_kafka kafka;
    struct br_node *node;
    const struct kafka_receiver_config *config;
    struct br_otlp_handler handler;
    struct br_workbench bench;
    struct br_meter meter;
    struct br_list readings;   /* requests that are being decoded in threads */
    struct br_list partitions; /* list of struct kafka_partition */
    /* messages that are still in the pipeline although their partition now belongs to another
     * consumer of the group */
    struct br_list orphans;
    struct kafka_partition *last; /* partition of the last message; NULL: unknown */
    /* message that could not be processed because memory was short; NULL: there is no such message.
     * The consumer processes this message before it takes another one. */
    rd_kafka_message_t *kept;
    size_t n_bytes, max_bytes; /* bytes of all unfinished messages, and their limit */
    /* time since which the limit has been exceeded, so that no message is taken; 0: the limit is
     * not exceeded */
    uint64_t full_since_ms;
    bool all_paused, stopping;
    /* partitions that will be released when no message of them is in the pipeline any longer; NULL:
     * no partition has to be released */
    rd_kafka_topic_partition_list_t *revoking;
    struct br_timer revoke_timer;
    /* called once when the consumer has left its group; NULL: not called */
    void (*on_left)(void *arg);
    void *on_left_arg;
    struct br_timer leave_timer; /* calls `on_left` even if the consumer has not left its group */
    /* queue for events while the consumer leaves its group; NULL: not leaving */
    rd_kafka_queue_t *leaving;
    struct br_log_limit unread_limit, reject_limit, refuse_limit, commit_limit, partial_limit;
    double *results[RESULTS];
};

static void consumer_serve(struct br_kafka *kafka);
static void consumer_start_reading(struct kafka_message *message);

/* --- Pausing -----------------------------------------------------------------------------------
 */

static void consumer_pause(struct kafka_consumer *consumer, struct kafka_partition *partition,
                           bool pause)
{
    if (partition->paused == pause || partition->revoked)
        return;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    if (!list)
        return;
    partition->paused = pause;
    rd_kafka_topic_partition_list_add(list, partition->topic, partition->number);
    (void)(pause ? rd_kafka_pause_partitions : rd_kafka_resume_partitions)(consumer->kafka.rk,
                                                                           list);
    rd_kafka_topic_partition_list_destroy(list);
}

/* Pauses the partitions that must not be read now, and resumes all other partitions. */
static void consumer_set_pauses(struct kafka_consumer *consumer)
{
    for (struct br_list *link = consumer->partitions.next; link != &consumer->partitions;
         link = link->next) {
        struct kafka_partition *partition = br_container_of(link, struct kafka_partition, link);
        consumer_pause(consumer, partition,
                       consumer->all_paused || consumer->stopping || partition->n_waiting);
    }
}

static bool consumer_is_full(const struct kafka_consumer *consumer)
{
    /* resume only when the messages use less than half of the limit, because each pause discards
     * the messages that were fetched in advance */
    size_t max = consumer->all_paused ? consumer->max_bytes / 2 : consumer->max_bytes;
    return consumer->kept || consumer->n_bytes >= max || br_host_over_limit(consumer->node->host);
}

/* Returns true if messages may be taken. Pauses all partitions if no message may be taken for
 * FULL_MS, and resumes them when messages may be taken again. */
static bool consumer_may_take(struct kafka_consumer *consumer)
{
    uint64_t now = br_host_mono_ms(consumer->node->host);
    bool full = consumer_is_full(consumer), pause;
    if (full && !consumer->full_since_ms)
        consumer->full_since_ms = now;
    if (!full)
        consumer->full_since_ms = 0;
    pause = full && now - consumer->full_since_ms >= FULL_MS;
    if (pause != consumer->all_paused && (pause || !full)) {
        consumer->all_paused = pause;
        consumer_set_pauses(consumer);
    }
    return !full;
}

/* --- The end of a message ----------------------------------------------------------------------
 */

void kafka_message_free(struct kafka_message *message)
{
    struct kafka_consumer *consumer = message->consumer;
    consumer->n_bytes -= MESSAGE_OVERHEAD + (message->body ? message->body->len : 0);
    br_host_timer_stop(consumer->node->host, &message->timer);
    br_reading_cancel(&message->reading);
    br_buf_unref(message->body);
    br_free(message->metadata);
    br_list_remove(&message->link);
    br_free(message);
}

static void consumer_store_offset(struct kafka_consumer *consumer,
                                  const struct kafka_partition *partition, int64_t offset)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    if (!list)
        /* the offset is not stored; storing a later offset of the partition has the same effect */
        return;
    rd_kafka_topic_partition_list_add(list, partition->topic, partition->number)->offset = offset;
    (void)rd_kafka_offsets_store(consumer->kafka.rk, list);
    rd_kafka_topic_partition_list_destroy(list);
}

static void consumer_advance(struct kafka_consumer *consumer, struct kafka_partition *partition)
{
    int64_t offset = kafka_partition_advance(partition);
    if (offset >= 0)
        consumer_store_offset(consumer, partition, offset);
}

static void consumer_check_revoked(struct kafka_consumer *consumer);

static void consumer_end(struct kafka_message *message, enum result result)
{
    struct kafka_consumer *consumer = message->consumer;
    struct kafka_partition *partition = message->partition;
    ++*consumer->results[result];
    if (!partition) {
        kafka_message_free(message);
    } else {
        partition->n_in_pipeline--;
        message->state = KAFKA_ENDED;
        consumer_advance(consumer, partition);
    }
    if (consumer->revoking)
        consumer_check_revoked(consumer);
    if (consumer->full_since_ms || consumer->stopping)
        br_kafka_again(&consumer->kafka);
}

static void consumer_on_retry(struct br_timer *timer)
{
    struct kafka_message *message = br_container_of(timer, struct kafka_message, timer);
    struct kafka_consumer *consumer = message->consumer;
    struct kafka_partition *partition = message->partition;
    message->state = KAFKA_IN_PIPELINE;
    partition->n_in_pipeline++;
    if (--partition->n_waiting == 0)
        consumer_set_pauses(consumer);
    consumer_start_reading(message);
}

/* Keeps a refused message and sends it again after a delay. If another member has got the
 * partition, frees the message instead. If the receiver is stopping or another member will get the
 * partition, does not send the message again. The offset of a message that is not sent again is not
 * committed, so the message will be read again later. */
static void consumer_wait(struct kafka_message *message, uint32_t delay_ms)
{
    struct kafka_consumer *consumer = message->consumer;
    struct kafka_partition *partition = message->partition;
    ++*consumer->results[REFUSED];
    if (!partition) {
        kafka_message_free(message);
        return;
    }
    partition->n_in_pipeline--;
    partition->n_waiting++;
    message->state = KAFKA_WAITS;
    if (consumer->revoking)
        consumer_check_revoked(consumer);
    else if (!consumer->stopping) {
        message->delay_ms = message->delay_ms ? message->delay_ms * 2 : RETRY_MS;
        if (message->delay_ms > RETRY_MOST_MS)
            message->delay_ms = RETRY_MOST_MS;
        (void)br_host_timer(consumer->node->host, &message->timer,
                            delay_ms > message->delay_ms ? delay_ms : message->delay_ms,
                            consumer_on_retry);
        consumer_pause(consumer, partition, true);
    }
}

static void consumer_log(const struct kafka_message *message, struct br_log_limit *limit,
                         const char *what, const char *why)
{
    const struct kafka_partition *partition = message->partition;
    br_node_warn(message->consumer->node, limit, "%s partition %d offset %lld: %s: %s",
                 partition ? partition->topic : "?", partition ? (int)partition->number : -1,
                 (long long)message->offset, what, why);
}

static void consumer_on_item_done(struct br_item *item, void *arg)
{
    struct kafka_message *message = arg;
    struct kafka_consumer *consumer = message->consumer;
    const struct kafka_marking *marking = &consumer->config->message_marking;
    const struct br_outcome *outcome = &item->outcome;
    br_item_answered(item);
    br_meter_count_outcome(&consumer->meter, item);
    message->item = NULL;
    if (outcome->verdict == BR_DONE) {
        br_node_log_partial(consumer->node, item, outcome, &consumer->partial_limit);
        consumer_end(message, DELIVERED);
    } else if (outcome->verdict == BR_REJECT) {
        consumer_log(message, &consumer->reject_limit, "rejected", outcome->text);
        if (marking->on_permanent_error || !marking->after)
            consumer_end(message, REJECTED);
        else
            consumer_wait(message, 0);
    } else {
        consumer_log(message, &consumer->refuse_limit, "refused", outcome->text);
        if (marking->on_error || !marking->after)
            consumer_end(message, REJECTED);
        else
            consumer_wait(message, outcome->delay_ms);
    }
}

/* --- Reading a message -------------------------------------------------------------------------
 */

static void consumer_on_read(void *owner, struct br_reading *reading, int rc)
{
    struct kafka_message *message = owner;
    struct kafka_consumer *consumer = message->consumer;
    message->reading = NULL;
    if (rc == BR_ENOMEM) {
        consumer_wait(message, 0);
        return;
    }
    if (rc) {
        consumer_log(message, &consumer->unread_limit, "cannot be read",
                     br_reading_why(reading, rc));
        consumer_end(message, UNREADABLE);
        return;
    }
    *consumer->handler.repaired += reading->n_repaired + (double)reading->repaired_json;
    *consumer->handler.corrected += reading->n_corrected;
    struct br_item *item = reading->item;
    reading->item = NULL;
    if (message->metadata)
        item->metadata = br_arena_strndup(
            &item->arena, message->metadata,
            br_item_metadata_len(&(struct br_item){.metadata = message->metadata}));
    br_item_received(item);
    item->done = consumer_on_item_done;
    item->done_arg = message;
    if (consumer->config->message_marking.after)
        item->sender = BR_SENDER_WAITS;
    message->item = item;
    br_node_forward(consumer->node, item);
}

static void consumer_start_reading(struct kafka_message *message)
{
    static const struct br_request request = {.query = ""};
    struct kafka_consumer *consumer = message->consumer;
    const struct kafka_receiver_config *config = consumer->config;
    bool traces = message->signal == BR_TRACES;
    int encoding = traces ? config->traces.encoding : config->profiles.encoding;
    const struct br_reading how = {.arg = &consumer->handler,
                                   .request = &request,
                                   .signal = message->signal,
                                   .format = encoding == KAFKA_READS_JSON ? BR_UPLOAD_JSON
                                                                          : BR_UPLOAD_PROTOBUF,
                                   .encoding = BR_ENCODING_NONE,
                                   .max_body = BR_BUF_MAX - 1,
                                   .max_now = TAKE_BYTES,
                                   .now_ns = br_host_unix_ns(consumer->node->host),
                                   .host = consumer->node->host,
                                   .bench = &consumer->bench,
                                   .body = br_buf_ref(message->body),
                                   .invalid = BR_STATUS_INVALID_ARGUMENT};
    br_reading_start(&how, br_otlp_read, consumer_on_read, message, &consumer->readings,
                     &message->reading);
}

/* Returns the headers of a message that are client metadata, which are the headers that some
 * component names in its metadata keys. Returns NULL if the message has none of these headers, or
 * if memory is short. */
static char *consumer_metadata(const struct kafka_consumer *consumer,
                               const rd_kafka_message_t *from)
{
    const struct br_strings *keys = consumer->node->metadata_keys;
    struct br_str text = {.max = METADATA_MAX};
    rd_kafka_headers_t *headers;
    if (!keys || rd_kafka_message_headers(from, &headers))
        return NULL;
    for (size_t i = 0; i < keys->count; i++) {
        const void *value;
        size_t len;
        for (size_t k = 0; !rd_kafka_header_get(headers, k, keys->items[i], &value, &len); k++) {
            if (!value || memchr(value, '\0', len))
                continue;
            br_str_add(&text, keys->items[i], strlen(keys->items[i]) + 1);
            br_str_add(&text, value, len);
            br_str_putc(&text, '\0');
        }
    }
    if (text.len)
        br_str_putc(&text, '\0');
    char *copy = text.len && !text.failed ? br_malloc(text.len + 1) : NULL;
    if (copy)
        memcpy(copy, text.data, text.len + 1);
    br_str_release(&text);
    return copy;
}

static struct kafka_partition *consumer_partition_of(struct kafka_consumer *consumer,
                                                     const rd_kafka_message_t *from)
{
    const char *topic = rd_kafka_topic_name(from->rkt);
    struct kafka_partition *last = consumer->last;
    if (!last || last->number != from->partition || strcmp(last->topic, topic) != 0)
        consumer->last = kafka_partition_find(&consumer->partitions, topic, from->partition);
    return consumer->last;
}

/* Copies a message and starts to read it. Returns false if memory is short. */
static bool consumer_take(struct kafka_consumer *consumer, const rd_kafka_message_t *from)
{
    struct kafka_partition *partition = consumer_partition_of(consumer, from);
    if (!partition || partition->revoked || consumer->stopping)
        /* the message is not processed; the next owner of the partition will read it */
        return true;
    struct kafka_message *message = br_calloc(1, sizeof *message);
    struct br_buf *body = br_buf_new(consumer->node->host->pool, from->len ? from->len : 1);
    if (!message || !body) {
        br_free(message);
        br_buf_unref(body);
        return false;
    }
    if (from->len)
        memcpy(body->data, from->payload, from->len);
    body->len = (uint32_t)from->len;
    *message = (struct kafka_message){.consumer = consumer,
                                      .partition = partition,
                                      .offset = from->offset,
                                      .signal = partition->signal,
                                      .body = body,
                                      .metadata = consumer_metadata(consumer, from)};
    consumer->n_bytes += MESSAGE_OVERHEAD + from->len;
    br_list_append(&partition->messages, &message->link);
    partition->n_in_pipeline++;
    if (!consumer->config->message_marking.after)
        consumer_store_offset(consumer, partition, from->offset + 1);
    consumer_start_reading(message);
    return true;
}

/* --- Assignment of partitions ------------------------------------------------------------------
 */

static bool consumer_is_cooperative(const struct kafka_consumer *consumer)
{
    const char *protocol = rd_kafka_rebalance_protocol(consumer->kafka.rk);
    return protocol && strcmp(protocol, "COOPERATIVE") == 0;
}

static bool consumer_list_has(const struct br_strings *topics, const char *topic)
{
    for (size_t i = 0; i < topics->count; i++)
        if (strcmp(topics->items[i], topic) == 0)
            return true;
    return false;
}

static enum br_signal consumer_signal_of(const struct kafka_consumer *consumer, const char *topic)
{
    const struct kafka_topics *profiles = &consumer->config->profiles;
    if (profiles->topics.count)
        return consumer_list_has(&profiles->topics, topic) ? BR_PROFILES : BR_TRACES;
    return strcmp(profiles->topic ? profiles->topic : "otlp_profiles", topic) == 0 ? BR_PROFILES
                                                                                   : BR_TRACES;
}

static void consumer_assign(struct kafka_consumer *consumer,
                            const rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_t *rk = consumer->kafka.rk;
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *of = &list->elems[i];
        struct kafka_partition *partition =
            kafka_partition_new(of->topic, of->partition, consumer_signal_of(consumer, of->topic));
        if (partition)
            br_list_append(&consumer->partitions, &partition->link);
        /* without memory for a partition, its messages are ignored and not committed */
    }
    if (consumer_is_cooperative(consumer))
        rd_kafka_error_destroy(rd_kafka_incremental_assign(rk, list));
    else
        (void)rd_kafka_assign(rk, list);
    br_info(&consumer->node->log, "%d partitions assigned", list->cnt);
    consumer_set_pauses(consumer);
}

static void consumer_unassign(struct kafka_consumer *consumer,
                              const rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_t *rk = consumer->kafka.rk;
    for (int i = 0; i < list->cnt; i++) {
        struct kafka_partition *partition = kafka_partition_find(
            &consumer->partitions, list->elems[i].topic, list->elems[i].partition);
        if (partition)
            kafka_partition_free(partition, &consumer->orphans);
    }
    consumer->last = NULL;
    if (consumer_is_cooperative(consumer))
        rd_kafka_error_destroy(rd_kafka_incremental_unassign(rk, list));
    else
        (void)rd_kafka_assign(rk, NULL);
    br_info(&consumer->node->log, "%d partitions revoked", list->cnt);
}

static void consumer_end_revoking(struct kafka_consumer *consumer)
{
    rd_kafka_topic_partition_list_t *list = consumer->revoking;
    consumer->revoking = NULL;
    br_host_timer_stop(consumer->node->host, &consumer->revoke_timer);
    consumer_unassign(consumer, list);
    rd_kafka_topic_partition_list_destroy(list);
}

/* Releases the revoked partitions if none of their messages is in the pipeline. */
static void consumer_check_revoked(struct kafka_consumer *consumer)
{
    for (struct br_list *link = consumer->partitions.next; link != &consumer->partitions;
         link = link->next) {
        const struct kafka_partition *partition =
            br_container_of(link, struct kafka_partition, link);
        if (partition->revoked && partition->n_in_pipeline)
            return;
    }
    consumer_end_revoking(consumer);
}

static void consumer_on_revoke_timer(struct br_timer *timer)
{
    consumer_end_revoking(br_container_of(timer, struct kafka_consumer, revoke_timer));
}

static void consumer_revoke(struct kafka_consumer *consumer,
                            const rd_kafka_topic_partition_list_t *list)
{
    if (consumer->revoking)
        consumer_end_revoking(consumer);
    if (rd_kafka_assignment_lost(consumer->kafka.rk) || consumer->stopping ||
        !br_host_timer(consumer->node->host, &consumer->revoke_timer, REVOKE_WAIT_MS,
                       consumer_on_revoke_timer)) {
        consumer_unassign(consumer, list);
        return;
    }
    for (int i = 0; i < list->cnt; i++) {
        struct kafka_partition *partition = kafka_partition_find(
            &consumer->partitions, list->elems[i].topic, list->elems[i].partition);
        if (partition)
            partition->revoked = true;
    }
    consumer->revoking = rd_kafka_topic_partition_list_copy(list);
    consumer_check_revoked(consumer);
}

static void consumer_on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t error,
                                  rd_kafka_topic_partition_list_t *list, void *opaque)
{
    struct kafka_consumer *consumer = br_container_of(opaque, struct kafka_consumer, kafka);
    if (error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS)
        consumer_assign(consumer, list);
    else if (error == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS)
        consumer_revoke(consumer, list);
    else
        (void)rd_kafka_assign(rk, NULL);
}

static void consumer_on_commit(rd_kafka_t *rk, rd_kafka_resp_err_t error,
                               rd_kafka_topic_partition_list_t *list, void *opaque)
{
    struct kafka_consumer *consumer = br_container_of(opaque, struct kafka_consumer, kafka);
    (void)rk;
    (void)list;
    if (error && error != RD_KAFKA_RESP_ERR__NO_OFFSET)
        br_node_warn(consumer->node, &consumer->commit_limit,
                     "offsets were not committed and will be committed later: %s",
                     rd_kafka_err2str(error));
}

/* --- Leaving the group -------------------------------------------------------------------------
 */

static void consumer_report_left(struct kafka_consumer *consumer)
{
    void (*on_left)(void *arg) = consumer->on_left;
    consumer->on_left = NULL;
    br_host_timer_stop(consumer->node->host, &consumer->leave_timer);
    on_left(consumer->on_left_arg);
}

static void consumer_on_leave_timer(struct br_timer *timer)
{
    struct kafka_consumer *consumer = br_container_of(timer, struct kafka_consumer, leave_timer);
    if (consumer->on_left)
        consumer_report_left(consumer);
}

static bool consumer_is_idle(const struct kafka_consumer *consumer)
{
    if (!br_list_empty(&consumer->orphans))
        return false;
    for (struct br_list *link = consumer->partitions.next; link != &consumer->partitions;
         link = link->next)
        if (br_container_of(link, struct kafka_partition, link)->n_in_pipeline)
            return false;
    return true;
}

/* Begins to leave the consumer group. The offsets of finished messages are committed. */
static void consumer_begin_leaving(struct kafka_consumer *consumer)
{
    rd_kafka_t *rk = consumer->kafka.rk;
    if (!rk || consumer->leaving)
        return;
    consumer->leaving = rd_kafka_queue_new(rk);
    if (consumer->revoking)
        consumer_end_revoking(consumer);
    br_kafka_watch(&consumer->kafka, consumer->leaving);
    rd_kafka_error_destroy(rd_kafka_consumer_close_queue(rk, consumer->leaving));
}

static void consumer_finish_leaving(struct kafka_consumer *consumer)
{
    consumer_begin_leaving(consumer);
    if (!consumer->leaving)
        return;
    for (int i = 0; i < CLOSE_WAIT_MS / 10 && !rd_kafka_consumer_closed(consumer->kafka.rk); i++)
        (void)rd_kafka_queue_poll_callback(consumer->leaving, 10);
    rd_kafka_queue_cb_event_enable(consumer->leaving, NULL, NULL);
    rd_kafka_queue_destroy(consumer->leaving);
}

/* --- Events ------------------------------------------------------------------------------------
 */

/* Processes a message or an error from librdkafka. Returns false if the message must be kept
 * because memory is short. */
static bool consumer_handle(struct kafka_consumer *consumer, const rd_kafka_message_t *message)
{
    if (!message->err)
        return consumer_take(consumer, message);
    if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
        br_node_warn(consumer->node, &consumer->kafka.limit, "%s",
                     rd_kafka_message_errstr(message));
    return true;
}

/* Takes the next message. Returns false if there is no message, or if the memory limit forbids
 * taking one. */
static bool consumer_next(struct kafka_consumer *consumer, size_t *bytes)
{
    rd_kafka_message_t *message = consumer->kept;
    consumer->kept = NULL;
    if (!message) {
        if (!consumer_may_take(consumer) && !consumer->all_paused)
            return false;
        message = rd_kafka_consumer_poll(consumer->kafka.rk, 0);
    }
    if (!message)
        return false;
    *bytes += message->len;
    if (!consumer_handle(consumer, message)) {
        consumer->kept = message;
        (void)consumer_may_take(consumer);
        return false;
    }
    rd_kafka_message_destroy(message);
    return true;
}

static void consumer_serve(struct br_kafka *kafka)
{
    struct kafka_consumer *consumer = br_container_of(kafka, struct kafka_consumer, kafka);
    size_t bytes = 0;
    if (consumer->stopping && !consumer->leaving && consumer_is_idle(consumer))
        consumer_begin_leaving(consumer);
    if (consumer->leaving) {
        (void)rd_kafka_queue_poll_callback(consumer->leaving, 0);
        if (consumer->on_left && rd_kafka_consumer_closed(kafka->rk))
            consumer_report_left(consumer);
        return;
    }
    for (int i = 0; i < TAKE_MESSAGES && bytes < TAKE_BYTES; i++)
        if (!consumer_next(consumer, &bytes))
            return;
    br_kafka_again(kafka);
}

/* --- Life --------------------------------------------------------------------------------------
 */

static void consumer_set_group(const struct kafka_receiver_config *config,
                               struct br_kafka_conf *conf)
{
    struct br_str names = {.max = 1024};
    for (size_t i = 0; i < config->strategies.count; i++) {
        if (i)
            br_str_putc(&names, ',');
        br_str_puts(&names, config->strategies.items[i]);
    }
    if (!names.len)
        br_str_puts(&names, config->strategy ? config->strategy : "range");
    br_kafka_set_text(conf, "partition.assignment.strategy", names.len ? names.data : "range");
    br_str_release(&names);
    br_kafka_set_text(conf, "group.id", config->group_id);
    if (config->group_instance_id && config->group_instance_id[0])
        br_kafka_set_text(conf, "group.instance.id", config->group_instance_id);
    br_kafka_set(conf, "session.timeout.ms", "%u",
                 br_kafka_ms(config->session_timeout, 1, 3600000));
    br_kafka_set(conf, "heartbeat.interval.ms", "%u",
                 br_kafka_ms(config->heartbeat_interval, 1, 3600000));
    br_kafka_set_text(conf, "auto.offset.reset", config->initial_offset ? "earliest" : "latest");
    br_kafka_set_text(conf, "enable.auto.commit", "true");
    br_kafka_set_text(conf, "enable.auto.offset.store", "false");
    br_kafka_set(conf, "auto.commit.interval.ms", "%u",
                 config->autocommit.enable ? br_kafka_ms(config->autocommit.interval, 1, 86400000)
                                           : 100);
}

static void consumer_set_fetching(const struct kafka_consumer *consumer, struct br_kafka_conf *conf)
{
    const struct kafka_receiver_config *config = consumer->config;
    size_t fetched =
        br_kafka_budget(consumer->node->host, FETCHED_DIVISOR, FETCHED_LEAST, FETCHED_MOST);
    br_kafka_set(conf, "queued.max.messages.kbytes", "%zu", fetched >> 10);
    br_kafka_set(conf, "fetch.min.bytes", "%lld", (long long)config->min_fetch_size);
    br_kafka_set(conf, "fetch.max.bytes", "%lld", (long long)config->max_fetch_size);
    br_kafka_set(conf, "message.max.bytes", "%lld",
                 (long long)(config->max_fetch_size < 1000000 ? config->max_fetch_size : 1000000));
    br_kafka_set(conf, "fetch.message.max.bytes", "%lld",
                 (long long)config->max_partition_fetch_size);
    br_kafka_set(conf, "fetch.wait.max.ms", "%u", br_kafka_ms(config->max_fetch_wait, 0, 300000));
}

static int consumer_make_conf(const struct kafka_consumer *consumer, rd_kafka_conf_t **ret,
                              struct br_err *err)
{
    struct br_kafka_conf conf;
    br_kafka_conf_begin(&conf, &consumer->config->client, err);
    consumer_set_group(consumer->config, &conf);
    consumer_set_fetching(consumer, &conf);
    int rc = br_kafka_conf_end(&conf);
    if (!rc)
        *ret = conf.conf;
    return rc;
}

static void consumer_add_topics(const struct kafka_topics *topics, const char *usual,
                                rd_kafka_topic_partition_list_t *list)
{
    for (size_t i = 0; i < topics->topics.count; i++)
        rd_kafka_topic_partition_list_add(list, topics->topics.items[i], RD_KAFKA_PARTITION_UA);
    if (!topics->topics.count)
        rd_kafka_topic_partition_list_add(list, topics->topic ? topics->topic : usual,
                                          RD_KAFKA_PARTITION_UA);
}

static int consumer_subscribe(struct kafka_consumer *consumer, struct br_err *err)
{
    const struct kafka_receiver_config *config = consumer->config;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(2);
    if (!list)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    if (consumer->node->next[BR_TRACES])
        consumer_add_topics(&config->traces, "otlp_spans", list);
    if (consumer->node->next[BR_PROFILES])
        consumer_add_topics(&config->profiles, "otlp_profiles", list);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(consumer->kafka.rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    return code ? br_err_set(err, BR_EINVAL, "topics: %s", rd_kafka_err2str(code)) : 0;
}

int kafka_consumer_start(struct kafka_consumer *consumer, struct br_err *err)
{
    rd_kafka_conf_t *conf;
    int rc = consumer_make_conf(consumer, &conf, err);
    if (rc)
        return rc;
    if (consumer->node->host->checking) {
        rd_kafka_conf_destroy(conf);
        return 0;
    }
    rd_kafka_conf_set_rebalance_cb(conf, consumer_on_rebalance);
    rd_kafka_conf_set_offset_commit_cb(conf, consumer_on_commit);
    rc = br_kafka_open(&consumer->kafka, consumer->node, RD_KAFKA_CONSUMER, conf, consumer_serve,
                       err);
    return rc ? rc : consumer_subscribe(consumer, err);
}

struct kafka_consumer *kafka_consumer_new(struct br_node *node)
{
    static const char *const names[] = {"delivered", "rejected", "unreadable", "refused"};
    struct kafka_consumer *consumer = br_calloc(1, sizeof *consumer);
    if (!consumer)
        return NULL;
    consumer->node = node;
    consumer->config = node->config;
    br_list_init(&consumer->readings);
    br_list_init(&consumer->partitions);
    br_list_init(&consumer->orphans);
    consumer->max_bytes =
        br_kafka_budget(node->host, IN_PIPELINE_DIVISOR, IN_PIPELINE_LEAST, IN_PIPELINE_MOST);
    consumer->handler =
        (struct br_otlp_handler){.max_depth = BR_WALK_DEPTH, .utf8 = BR_UTF8_REPAIR, .whole = true};
    br_otlp_handler_init(&consumer->handler, node);
    br_meter_init(&consumer->meter, node, "kafka", BR_BOTH_SIGNALS);
    for (int i = 0; i < RESULTS; i++)
        consumer->results[i] =
            br_node_metric(node, BR_COUNTER, "braid_receiver_kafka_messages", "result", names[i]);
    if (br_workbench_init(&consumer->bench)) {
        br_free(consumer);
        return NULL;
    }
    return consumer;
}

void kafka_consumer_stop(struct kafka_consumer *consumer, void (*on_left)(void *arg), void *arg)
{
    consumer->stopping = true;
    consumer->on_left = on_left;
    consumer->on_left_arg = arg;
    bool waits = consumer->kafka.rk && br_host_timer(consumer->node->host, &consumer->leave_timer,
                                                     LEAVE_WAIT_MS, consumer_on_leave_timer);
    if (on_left && !waits)
        consumer_report_left(consumer);
    if (!consumer->kafka.rk)
        return;
    consumer_set_pauses(consumer);
    br_kafka_again(&consumer->kafka);
}

static void consumer_free_orphans(struct kafka_consumer *consumer)
{
    struct br_list *link;
    while ((link = br_list_shift(&consumer->orphans))) {
        struct kafka_message *message = br_container_of(link, struct kafka_message, link);
        if (message->item)
            /* the item is still in the pipeline and must not call back */
            message->item->done = NULL;
        kafka_message_free(message);
    }
}

void kafka_consumer_free(struct kafka_consumer *consumer)
{
    if (!consumer)
        return;
    consumer->stopping = true;
    br_host_timer_stop(consumer->node->host, &consumer->leave_timer);
    if (consumer->kept)
        rd_kafka_message_destroy(consumer->kept);
    consumer->kept = NULL;
    consumer_finish_leaving(consumer);
    while (!br_list_empty(&consumer->partitions))
        kafka_partition_free(
            br_container_of(consumer->partitions.next, struct kafka_partition, link),
            &consumer->orphans);
    consumer_free_orphans(consumer);
    br_reading_wait_all(&consumer->readings);
    br_kafka_close(&consumer->kafka);
    br_workbench_release(&consumer->bench);
    br_free(consumer);
}
