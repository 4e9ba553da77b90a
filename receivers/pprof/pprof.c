/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/pprof/pprof.h"

#include "base/mem.h"

struct pprof {
    struct pprof_reader reader; /* reader for scraped profiles and files */
    struct pprof_scraper *scraper;
    struct pprof_directory *directory;
    struct pprof_upload upload;
    struct br_node *node;
    unsigned n_stopping;
};

static int pprof_receiver_create_upload(struct pprof *pprof, const struct br_http_config *http,
                                        struct br_err *err)
{
    int rc = br_ingest_init(&pprof->upload.ingest, pprof->node, err);
    if (rc)
        return rc;
    pprof_upload_init(&pprof->upload, http);
    return 0;
}

static int pprof_receiver_create(struct br_node *node, struct br_err *err)
{
    struct pprof *p = node->state;
    const struct pprof_config *config = node->config;
    p->node = node;
    if (pprof_reader_init(&p->reader, node->host, (size_t)config->max_profile_size))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    int rc = config->targets.count ? pprof_scraper_new(node, &p->reader, &p->scraper, err) : 0;
    if (rc == 0 && config->file && node->host->worker == 0)
        rc = pprof_directory_new(node, &p->reader, &p->directory, err);
    return rc == 0 && config->http ? pprof_receiver_create_upload(p, config->http, err) : rc;
}

static int pprof_receiver_start(struct br_node *node, struct br_err *err)
{
    struct pprof *p = node->state;
    int rc = p->scraper ? pprof_scraper_start(p->scraper, err) : 0;
    if (rc == 0 && p->directory)
        rc = pprof_directory_start(p->directory, err);
    if (rc == 0 && p->upload.ingest.node) {
        struct br_server_config config = br_http_server(p->upload.listener.http);
        rc = br_ingest_listen(&p->upload.ingest, &p->upload.listener, "http", &config, err);
    }
    return rc;
}

static void pprof_receiver_on_stopped(void *arg)
{
    struct pprof *p = arg;
    if (--p->n_stopping > 0)
        return;
    /* If the upload server exists, br_ingest_drain reports the node as drained. */
    if (p->upload.ingest.node)
        br_ingest_drain(&p->upload.ingest);
    else
        br_node_drained(p->node);
}

static void pprof_receiver_drain(struct br_node *node)
{
    struct pprof *p = node->state;
    p->n_stopping = 1u + (p->scraper != NULL) + (p->directory != NULL);
    if (p->scraper)
        pprof_scraper_stop(p->scraper, pprof_receiver_on_stopped, p);
    if (p->directory)
        pprof_directory_stop(p->directory, pprof_receiver_on_stopped, p);
    pprof_receiver_on_stopped(p);
}

static void pprof_receiver_destroy(struct br_node *node)
{
    struct pprof *p = node->state;
    br_ingest_release(&p->upload.ingest);
    pprof_scraper_free(p->scraper);
    pprof_directory_free(p->directory);
    pprof_reader_release(&p->reader);
}

extern const struct br_component br_pprof_receiver;
const struct br_component br_pprof_receiver = {
    .name = "pprof",
    .kind = BR_RECEIVER,
    .signals = BR_SIGNAL_BIT(BR_PROFILES),
    .stability = "alpha",
    .help = "scrapes profiles from programs that serve pprof, reads them from a directory, and "
            "accepts uploads",
    .options = pprof_options,
    .config_size = sizeof(struct pprof_config),
    .state_size = sizeof(struct pprof),
    .check = pprof_check,
    .create = pprof_receiver_create,
    .start = pprof_receiver_start,
    .drain = pprof_receiver_drain,
    .destroy = pprof_receiver_destroy,
};
