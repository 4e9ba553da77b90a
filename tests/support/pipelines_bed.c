/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/pipelines_bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#define HEAD "receivers: {in: }\nexporters: {sink/0: , sink/1: , sink/2: , sink/3: }\n"

static struct pipelines_bed *the_bed;

static const struct br_option options[] = {BR_OPT_END};

static int on_create(struct br_node *node, struct br_err *err)
{
    (void)err;
    the_bed->receiver = node;
    return 0;
}

static struct fake_sink *sink_of(const struct br_node *node)
{
    return &the_bed->sinks[node->id[strlen(node->id) - 1] - '0'];
}

static void sink_consume(struct br_node *node, struct br_item *item)
{
    br_consume(&sink_of(node)->consumer, item);
}

static void sink_destroy(struct br_node *node)
{
    fake_sink_release(sink_of(node), FAKE_RETRY);
}

static const struct br_component receiver = {.name = "in",
                                             .kind = BR_RECEIVER,
                                             .signals = BR_BOTH_SIGNALS,
                                             .options = options,
                                             .config_size = 1,
                                             .state_size = 1,
                                             .create = on_create};
static const struct br_component sink = {.name = "sink",
                                         .kind = BR_EXPORTER,
                                         .signals = BR_BOTH_SIGNALS,
                                         .options = options,
                                         .config_size = 1,
                                         .state_size = 1,
                                         .consume = sink_consume,
                                         .destroy = sink_destroy};

static int load(const char *yaml, struct br_config **ret, struct br_errs *errs)
{
    const struct br_component *registry[64] = {&receiver, &sink};
    size_t n = 2;
    char uri[8192];
    const char *uris[] = {uri};
    struct br_config_sources sources = {.uris = uris, .n_uris = 1};
    for (size_t i = 0; br_components[i]; i++)
        if (br_components[i]->kind == BR_CONNECTOR)
            registry[n++] = br_components[i];
    (void)snprintf(uri, sizeof uri, "yaml:" HEAD "%s", yaml);
    return br_config_load(&sources, registry, ret, errs);
}

const char *pipelines_error(const char *yaml)
{
    static char text[1024];
    struct br_config *config = NULL;
    struct br_errs errs = {0};
    text[0] = '\0';
    if (load(yaml, &config, &errs))
        (void)snprintf(text, sizeof text, "%s: %s", errs.errors[0].path, errs.errors[0].text);
    br_errs_release(&errs);
    br_config_free(config);
    return text;
}

struct pipelines_bed *pipelines_new(const char *yaml)
{
    struct pipelines_bed *bed = calloc(1, sizeof *bed);
    struct br_errs errs = {0};
    struct br_err err = {0};
    assert_non_null(bed);
    the_bed = bed;
    bed->h = fake_host_new();
    for (int i = 0; i < PIPELINES_SINKS; i++)
        fake_sink_init(&bed->sinks[i], &bed->h->host);
    if (load(yaml, &bed->config, &errs))
        fail_msg("%s: %s", errs.errors[0].path, errs.errors[0].text);
    br_errs_release(&errs);
    if (br_graph_new(bed->config, &bed->h->host, &bed->graph, &err) ||
        br_graph_start(bed->graph, &err))
        fail_msg("%s", err.text);
    return bed;
}

void pipelines_send(struct pipelines_bed *bed, enum br_signal signal, uint32_t n)
{
    struct br_item *item =
        fake_tally_item(&bed->tally, &bed->h->host, signal, bed->next[signal], n);
    bed->next[signal] += n;
    if (item)
        br_node_forward(bed->receiver, item);
    fake_host_iterate(bed->h);
}

static void on_drained(void *arg)
{
    struct pipelines_bed *bed = arg;
    bed->n_drained++;
}

void pipelines_free(struct pipelines_bed *bed)
{
    br_graph_drain(bed->graph, 60000, on_drained, bed);
    fake_host_advance(bed->h, 100000);
    br_graph_free(bed->graph);
    fake_host_iterate(bed->h);
    br_config_free(bed->config);
    for (int i = 0; i < PIPELINES_SINKS; i++)
        fake_sink_free(&bed->sinks[i]);
    fake_host_check_ledger(bed->h);
    fake_host_free(bed->h);
    free(bed);
}
