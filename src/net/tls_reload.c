/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include "base/mem.h"

/* Reloads a context when the configuration is reloaded, and periodically. After br_tls_reload_stop,
 * the struct may exist until the `done` callback of its work. */
struct br_tls_reload {
    struct br_work work;
    struct br_reread reread;
    struct br_timer timer;
    struct br_host *host;
    struct br_tls_context *ctx; /* the context to reload; NULL after br_tls_reload_stop */
    const struct br_log *log;
    bool runs;
    bool all;   /* true: checks all files; false: checks only the files with periodic checks */
    bool again; /* tls_reload_on_reread was called while the work ran, so the work must run again */
};

static void tls_reload_on_timer(struct br_timer *timer);
static void tls_reload_on_reread(struct br_reread *reread);

static void tls_reload_wait(struct br_tls_reload *reload)
{
    if (br_tls_context_interval_ms(reload->ctx))
        (void)br_host_timer(reload->host, &reload->timer, br_tls_context_interval_ms(reload->ctx),
                            tls_reload_on_timer);
}

static void tls_reload_on_run(struct br_work *work)
{
    struct br_tls_reload *reload = br_container_of(work, struct br_tls_reload, work);
    br_tls_context_reload(reload->ctx, reload->all);
    br_mem_flush();
}

static void tls_reload_on_ran(struct br_work *work)
{
    struct br_tls_reload *reload = br_container_of(work, struct br_tls_reload, work);
    struct br_err err;
    reload->runs = false;
    if (!reload->ctx) {
        br_free(reload);
        return;
    }
    if (br_tls_context_reload_error(reload->ctx, &err))
        br_warn(reload->log, "TLS files were not reloaded, the old ones stay in use: %s", err.text);
    tls_reload_wait(reload);
    if (reload->again)
        tls_reload_on_reread(&reload->reread);
}

static void tls_reload_start(struct br_tls_reload *reload, bool all)
{
    (void)br_host_timer_park(reload->host, &reload->timer, tls_reload_on_timer);
    reload->work =
        (struct br_work){.run = tls_reload_on_run, .done = tls_reload_on_ran, .kind = BR_WORK_DISK};
    reload->runs = true;
    reload->all = all;
    reload->again = false;
    br_host_work(reload->host, &reload->work);
}

static void tls_reload_on_timer(struct br_timer *timer)
{
    tls_reload_start(br_container_of(timer, struct br_tls_reload, timer), false);
}

static void tls_reload_on_reread(struct br_reread *reread)
{
    struct br_tls_reload *reload = br_container_of(reread, struct br_tls_reload, reread);
    if (reload->runs)
        reload->again = true;
    else
        tls_reload_start(reload, true);
}

int br_tls_reload_start(struct br_host *host, struct br_tls_context *ctx, const struct br_log *log,
                        struct br_tls_reload **ret)
{
    *ret = NULL;
    if (!ctx)
        return 0;
    struct br_tls_reload *reload = br_calloc(1, sizeof *reload);
    if (!reload)
        return BR_ENOMEM;
    reload->host = host;
    reload->ctx = ctx;
    reload->log = log;
    if (!br_host_timer_park(host, &reload->timer, tls_reload_on_timer)) {
        br_free(reload);
        return BR_ENOMEM;
    }
    tls_reload_wait(reload);
    reload->reread.fn = tls_reload_on_reread;
    br_list_append(&host->rereads, &reload->reread.link);
    *ret = reload;
    return 0;
}

void br_tls_reload_stop(struct br_tls_reload *reload)
{
    if (!reload)
        return;
    br_host_timer_stop(reload->host, &reload->timer);
    br_list_remove(&reload->reread.link);
    if (reload->runs) {
        br_host_work_cancel(reload->host, &reload->work);
        br_host_work_wait(reload->host, &reload->work);
    }
    reload->ctx = NULL;
    if (!reload->runs)
        br_free(reload);
}
