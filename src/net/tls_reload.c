/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include "base/mem.h"

/* A periodic reload. After br_tls_reload_stop, the struct may exist until the `done` callback of
 * its work. */
struct br_tls_reload {
    struct br_work work;
    struct br_timer timer;
    struct br_host *host;
    struct br_tls_context *ctx; /* the context to reload; NULL after br_tls_reload_stop */
    const struct br_log *log;
    bool runs;
};

static void tls_reload_on_timer(struct br_timer *timer);

static void tls_reload_wait(struct br_tls_reload *reload)
{
    (void)br_host_timer(reload->host, &reload->timer, br_tls_context_interval_ms(reload->ctx),
                        tls_reload_on_timer);
}

static void tls_reload_on_run(struct br_work *work)
{
    br_tls_context_reload(br_container_of(work, struct br_tls_reload, work)->ctx);
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
}

static void tls_reload_on_timer(struct br_timer *timer)
{
    struct br_tls_reload *reload = br_container_of(timer, struct br_tls_reload, timer);
    (void)br_host_timer_park(reload->host, timer, tls_reload_on_timer);
    reload->work =
        (struct br_work){.run = tls_reload_on_run, .done = tls_reload_on_ran, .kind = BR_WORK_DISK};
    reload->runs = true;
    br_host_work(reload->host, &reload->work);
}

int br_tls_reload_start(struct br_host *host, struct br_tls_context *ctx, const struct br_log *log,
                        struct br_tls_reload **ret)
{
    *ret = NULL;
    if (!ctx || !br_tls_context_interval_ms(ctx))
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
    *ret = reload;
    return 0;
}

void br_tls_reload_stop(struct br_tls_reload *reload)
{
    if (!reload)
        return;
    br_host_timer_stop(reload->host, &reload->timer);
    if (reload->runs) {
        br_host_work_cancel(reload->host, &reload->work);
        br_host_work_wait(reload->host, &reload->work);
    }
    reload->ctx = NULL;
    if (!reload->runs)
        br_free(reload);
}
