/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Kafka cluster and a Kafka client for tests, on librdkafka:
 *
 *   kafka_tool mock BROKERS             Runs librdkafka's mock cluster. Prints the addresses of its
 *                                       brokers. Then reads commands from stdin, and answers each
 *                                       with "ok":
 *                                         topic NAME PARTITIONS   create a topic
 *                                         error API CODE COUNT    fail the next COUNT requests
 *                                         topic-error NAME CODE   fail requests for the topic
 *                                         leader NAME PARTITION BROKER
 *                                         down BROKER
 *                                         up BROKER
 *   kafka_tool dump BROKERS TOPIC MS    Prints every message as JSON. Ends if no message arrives
 *                                       for MS milliseconds.
 *   kafka_tool send BROKERS TOPIC KEY   Sends the bytes of stdin as one message. KEY "-": no key
 *   kafka_tool committed BROKERS GROUP TOPIC PARTITIONS
 *                                       Prints the committed offset of the group in each partition.
 */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rd_kafka_t *make_client(rd_kafka_type_t type, const char *brokers, const char *group)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (brokers)
        rd_kafka_conf_set(conf, "bootstrap.servers", brokers, text, sizeof text);
    rd_kafka_conf_set(conf, "group.id", group, text, sizeof text);
    rd_kafka_conf_set(conf, "enable.auto.commit", "false", text, sizeof text);
    rd_kafka_conf_set(conf, "log_level", "0", text, sizeof text);
    rd_kafka_t *client = rd_kafka_new(type, conf, text, sizeof text);
    if (!client) {
        fprintf(stderr, "%s\n", text);
        exit(1);
    }
    return client;
}

static void run_command(rd_kafka_mock_cluster_t *cluster, char *line)
{
    char *words[5] = {0};
    int n = 0;
    for (char *word = strtok(line, " \n"); word && n < 5; word = strtok(NULL, " \n"))
        words[n++] = word;
    long numbers[5] = {0};
    for (int i = 1; i < n; i++)
        numbers[i] = strtol(words[i], NULL, 10);
    if (n == 3 && !strcmp(words[0], "topic"))
        rd_kafka_mock_topic_create(cluster, words[1], (int)numbers[2], 1);
    else if (n == 3 && !strcmp(words[0], "topic-error"))
        rd_kafka_mock_topic_set_error(cluster, words[1], (rd_kafka_resp_err_t)numbers[2]);
    else if (n == 4 && !strcmp(words[0], "error"))
        for (long i = 0; i < numbers[3]; i++)
            rd_kafka_mock_push_request_errors(cluster, (int16_t)numbers[1], 1,
                                              (rd_kafka_resp_err_t)numbers[2]);
    else if (n == 4 && !strcmp(words[0], "leader"))
        rd_kafka_mock_partition_set_leader(cluster, words[1], (int32_t)numbers[2],
                                           (int32_t)numbers[3]);
    else if (n == 2 && !strcmp(words[0], "down"))
        rd_kafka_mock_broker_set_down(cluster, (int32_t)numbers[1]);
    else if (n == 2 && !strcmp(words[0], "up"))
        rd_kafka_mock_broker_set_up(cluster, (int32_t)numbers[1]);
    else
        exit(2);
}

static int run_mock(int n_brokers)
{
    char line[256];
    rd_kafka_t *client = make_client(RD_KAFKA_PRODUCER, NULL, "none");
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(client, n_brokers);
    printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        run_command(cluster, line);
        printf("ok\n");
        fflush(stdout);
    }
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(client);
    return 0;
}

static void print_hex(const char *name, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    if (!data) {
        printf(", \"%s\": null", name);
        return;
    }
    printf(", \"%s\": \"", name);
    for (size_t i = 0; i < len; i++)
        printf("%02x", bytes[i]);
    printf("\"");
}

static void print_headers(const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers;
    const char *name;
    const void *value;
    size_t len;
    printf(", \"headers\": {");
    if (!rd_kafka_message_headers(message, &headers))
        for (size_t i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &len); i++)
            printf("%s\"%s\": \"%.*s\"", i ? ", " : "", name, (int)len, (const char *)value);
    printf("}");
}

static int dump(const char *brokers, const char *topic, int quiet_ms)
{
    rd_kafka_t *client = make_client(RD_KAFKA_CONSUMER, brokers, "dump");
    const struct rd_kafka_metadata *metadata;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    if (rd_kafka_metadata(client, 0, handle, &metadata, 10000))
        return 1;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    for (int i = 0; i < metadata->topics[0].partition_cnt; i++)
        rd_kafka_topic_partition_list_add(list, topic, i)->offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_assign(client, list);
    rd_kafka_message_t *message;
    while ((message = rd_kafka_consumer_poll(client, quiet_ms))) {
        if (!message->err) {
            printf("{\"partition\": %d, \"offset\": %lld", (int)message->partition,
                   (long long)message->offset);
            print_hex("key", message->key, message->key_len);
            print_hex("value", message->payload, message->len);
            print_headers(message);
            printf("}\n");
        }
        rd_kafka_message_destroy(message);
    }
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_metadata_destroy(metadata);
    rd_kafka_topic_destroy(handle);
    rd_kafka_consumer_close(client);
    rd_kafka_destroy(client);
    return 0;
}

static int send_bytes(const char *brokers, const char *topic, const char *key)
{
    static char body[8 << 20];
    rd_kafka_t *client = make_client(RD_KAFKA_PRODUCER, brokers, "none");
    size_t len = fread(body, 1, sizeof body, stdin);
    bool keyed = strcmp(key, "-") != 0;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(client, topic, NULL);
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    if (rd_kafka_produce(handle, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, body, len,
                         keyed ? key : NULL, keyed ? strlen(key) : 0, NULL))
        error = rd_kafka_last_error();
    else
        error = rd_kafka_flush(client, 10000);
    if (error)
        fprintf(stderr, "%s\n", rd_kafka_err2str(error));
    rd_kafka_topic_destroy(handle);
    rd_kafka_destroy(client);
    return error != 0;
}

static int committed(const char *brokers, const char *group, const char *topic, int n)
{
    rd_kafka_t *client = make_client(RD_KAFKA_CONSUMER, brokers, group);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(n);
    for (int i = 0; i < n; i++)
        rd_kafka_topic_partition_list_add(list, topic, i);
    rd_kafka_resp_err_t error = rd_kafka_committed(client, list, 10000);
    for (int i = 0; i < n && !error; i++)
        printf("%lld\n", (long long)list->elems[i].offset);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(client);
    return error != 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "mock"))
        return run_mock((int)strtol(argv[2], NULL, 10));
    if (argc == 5 && !strcmp(argv[1], "dump"))
        return dump(argv[2], argv[3], (int)strtol(argv[4], NULL, 10));
    if (argc == 5 && !strcmp(argv[1], "send"))
        return send_bytes(argv[2], argv[3], argv[4]);
    if (argc == 6 && !strcmp(argv[1], "committed"))
        return committed(argv[2], argv[3], argv[4], (int)strtol(argv[5], NULL, 10));
    return 2;
}
