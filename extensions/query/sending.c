/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses that are being sent. A client that reads slowly occupies memory and one of the
 * max_concurrent places, at no cost to the client. Therefore a response counts towards
 * max_concurrent until it is sent, and all responses together may hold only a part of the memory
 * limit. If a new response needs memory, the client of the oldest response is disconnected.
 */
#include "base/mem.h"
#include "extensions/query/query.h"

/* the responses together may hold at most the memory limit divided by SENDING_SHARE */
#define SENDING_SHARE 4
/* shortest time in milliseconds for which a response is sent before its client may be
 * disconnected */
#define SENDING_MIN_MS 1000

struct query_sending {
    struct br_list link; /* link in query->sending, which begins with the oldest response */
    const struct br_buf *buf;
    /* the client's connection, which is valid until the buffer is released; NULL: the client
     * cannot be disconnected */
    struct br_conn *conn;
    uint64_t since_ms;
    size_t bytes;
    bool cut;
};

static void sending_drop(struct query *query, struct query_sending *sending)
{
    query->n_sending -= !sending->cut;
    query->sending_bytes -= sending->cut ? 0 : sending->bytes;
    br_list_remove(&sending->link);
    br_free(sending);
}

static void sending_on_freed(const struct br_buf *buf, void *arg)
{
    struct query *query = arg;
    for (struct br_list *list = query->sending.next; list != &query->sending; list = list->next) {
        struct query_sending *sending = br_container_of(list, struct query_sending, link);
        if (sending->buf == buf) {
            sending_drop(query, sending);
            return;
        }
    }
}

int query_sending_init(struct query *query)
{
    br_list_init(&query->sending);
    query->responses = br_pool_new(0);
    if (!query->responses)
        return BR_ENOMEM;
    br_pool_watch(query->responses, query->node->host->pool, sending_on_freed, query);
    return 0;
}

void query_sending_release(struct query *query)
{
    br_pool_free(query->responses);
    query->responses = NULL;
}

bool query_sending_make_room(struct query *query)
{
    uint64_t now_ms = br_host_mono_ms(query->node->host);
    for (struct br_list *list = query->sending.next; list != &query->sending; list = list->next) {
        struct query_sending *sending = br_container_of(list, struct query_sending, link);
        if (sending->cut || !sending->conn)
            continue;
        if (now_ms - sending->since_ms < SENDING_MIN_MS)
            return false;
        query->n_sending--;
        query->sending_bytes -= sending->bytes;
        sending->cut = true;
        *query->cut_off += 1;
        br_conn_cut(sending->conn);
        return true;
    }
    return false;
}

/* Returns the number of bytes that the responses of one worker may hold in total; SIZE_MAX if the
 * memory is unlimited. */
static size_t sending_max(const struct br_host *host)
{
    size_t hard = host->memory ? br_memory_hard(host->memory) : SIZE_MAX;
    return hard == SIZE_MAX ? hard : br_host_share(host, hard / SENDING_SHARE);
}

bool query_sending_add(struct query *query, const struct br_buf *buf, struct br_conn *conn)
{
    size_t max = sending_max(query->node->host);
    while (query->sending_bytes && (buf->cap > max || query->sending_bytes > max - buf->cap))
        if (!query_sending_make_room(query))
            return false;
    struct query_sending *sending = br_malloc(sizeof *sending);
    if (!sending)
        return false;
    *sending = (struct query_sending){.buf = buf,
                                      .conn = conn,
                                      .since_ms = br_host_mono_ms(query->node->host),
                                      .bytes = buf->cap};
    br_list_append(&query->sending, &sending->link);
    query->n_sending++;
    query->sending_bytes += sending->bytes;
    return true;
}

size_t query_sending_on(const struct query *query, const struct br_conn *conn)
{
    size_t n = 0;
    for (struct br_list *list = query->sending.next; list != &query->sending; list = list->next)
        n += br_container_of(list, struct query_sending, link)->conn == conn;
    return n;
}
