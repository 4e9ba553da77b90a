/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "receivers/kafka/consumer.h"

struct kafka_partition *kafka_partition_new(const char *topic, int32_t number,
                                            enum br_signal signal)
{
    size_t len = strlen(topic) + 1;
    struct kafka_partition *partition = br_calloc(1, sizeof *partition + len);
    if (!partition)
        return NULL;
    br_list_init(&partition->link);
    br_list_init(&partition->messages);
    partition->number = number;
    partition->signal = signal;
    memcpy(partition->topic, topic, len);
    return partition;
}

struct kafka_partition *kafka_partition_find(const struct br_list *partitions, const char *topic,
                                             int32_t number)
{
    for (struct br_list *link = partitions->next; link != partitions; link = link->next) {
        struct kafka_partition *partition = br_container_of(link, struct kafka_partition, link);
        if (partition->number == number && strcmp(partition->topic, topic) == 0)
            return partition;
    }
    return NULL;
}

int64_t kafka_partition_advance(struct kafka_partition *partition)
{
    int64_t next = -1;
    while (!br_list_empty(&partition->messages)) {
        struct kafka_message *message =
            br_container_of(partition->messages.next, struct kafka_message, link);
        if (message->state != KAFKA_ENDED)
            break;
        next = message->offset + 1;
        kafka_message_free(message);
    }
    return next;
}

void kafka_partition_free(struct kafka_partition *partition, struct br_list *orphans)
{
    struct br_list *link;
    while ((link = br_list_shift(&partition->messages))) {
        struct kafka_message *message = br_container_of(link, struct kafka_message, link);
        message->partition = NULL;
        if (message->state == KAFKA_IN_PIPELINE)
            br_list_append(orphans, &message->link);
        else
            kafka_message_free(message);
    }
    br_list_remove(&partition->link);
    br_free(partition);
}
