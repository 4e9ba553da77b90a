/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/profiles/upload. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ingest/pieces.h"
#include "receivers/pprof/pprof.h"
#include "wire/multipart.h"

#define PATH "/v1/profiles/upload"
#define RATE_MAX 1000000.0
#define LOG_EVERY_MS 60000

/* What a query says. */
struct ask {
    const char *name, *labels;
    size_t name_len, labels_len;
    bool has_format;
    enum br_profile_format format;
    uint64_t start_ns, end_ns;
    double sample_rate;
};

struct reading {
    struct br_reading *r;
    struct br_arena arena;
};

/* --- The query -------------------------------------------------------------------------------- */

/* "" where there is none. */
static int parameter(struct reading *p, const char *name, const char **ret, size_t *ret_len)
{
    *ret = "";
    *ret_len = 0;
    int rc = br_query_get(p->r->asked->query, name, &p->arena, ret, ret_len);
    return rc == BR_ENOTFOUND ? 0 : rc;
}

static int read_format(struct reading *p, struct ask *ret)
{
    static const char *const names[] = {
        [BR_FORMAT_PPROF] = "pprof",
        [BR_FORMAT_JFR] = "jfr",
        [BR_FORMAT_FOLDED] = "folded",
        [BR_FORMAT_LINES] = "lines",
        [BR_FORMAT_TRIE] = "trie",
        [BR_FORMAT_TREE] = "tree",
        [BR_FORMAT_SPEEDSCOPE] = "speedscope",
        [BR_FORMAT_PERF_SCRIPT] = "perf",
        [BR_FORMAT_CPUPROFILE] = "cpuprofile",
    };
    const char *text;
    size_t len;
    int rc = parameter(p, "format", &text, &len);
    if (rc || len == 0)
        return rc;
    for (size_t i = 0; i < BR_COUNT(names); i++) {
        if (strcmp(text, names[i]) != 0)
            continue;
        ret->format = (enum br_profile_format)i;
        ret->has_format = true;
        return 0;
    }
    return br_err_set(&p->r->err, BR_EINVAL,
                      "format must be pprof, jfr, folded, lines, trie, tree, speedscope, perf or "
                      "cpuprofile");
}

static int read_time(struct reading *p, const char *name, uint64_t now_ns, uint64_t *ret)
{
    const char *text;
    size_t len;
    int rc = parameter(p, name, &text, &len);
    if (rc == 0)
        *ret = len ? br_app_time(text, len, now_ns) : now_ns;
    return rc;
}

static int read_rate(struct reading *p, double *ret)
{
    const char *text;
    size_t len;
    char *end;
    int rc = parameter(p, "sampleRate", &text, &len);
    if (rc || len == 0)
        return rc;
    double rate = strtod(text, &end);
    if (end != text + len || !isfinite(rate) || rate <= 0 || rate > RATE_MAX)
        return br_err_set(&p->r->err, BR_EINVAL, "sampleRate must be a number of Hz, up to 1000000");
    *ret = rate;
    return 0;
}

static int read_query(struct reading *p, struct ask *ret)
{
    uint64_t now_ns = p->r->now_ns;
    int rc = parameter(p, "name", &ret->name, &ret->name_len);
    if (rc == 0)
        rc = parameter(p, "labels", &ret->labels, &ret->labels_len);
    if (rc == 0)
        rc = read_format(p, ret);
    if (rc == 0)
        rc = read_time(p, "from", now_ns, &ret->start_ns);
    if (rc == 0)
        rc = read_time(p, "until", now_ns, &ret->end_ns);
    if (rc == 0)
        rc = read_rate(p, &ret->sample_rate);
    if (ret->end_ns < ret->start_ns)
        ret->end_ns = ret->start_ns;
    return rc;
}

/* --- The source ------------------------------------------------------------------------------- */

/* `name` is an application's name with labels, `labels` further ones in the same grammar: put
 * together they are one. Without a name there is none to put before the labels. */
static int read_name(struct reading *p, const struct ask *ask, struct br_app_name *ret)
{
    static const char nobody[] = "none";
    const char *name = ask->name_len ? ask->name : nobody;
    size_t len = ask->name_len ? ask->name_len : sizeof nobody - 1;
    while (len > 0 && (name[len - 1] == ' ' || name[len - 1] == '}'))
        len--;
    const char *text =
        br_arena_printf(&p->arena, "%.*s%s%.*s}", (int)len, name,
                        memchr(name, '{', len) ? "," : "{", (int)ask->labels_len, ask->labels);
    if (!text)
        return br_err_set(&p->r->err, BR_ENOMEM, "out of memory");
    int rc = br_app_name_parse(text, strlen(text), &p->arena, ret, &p->r->err);
    if (rc)
        br_err_prefix(&p->r->err, "name or labels: ");
    else if (!ask->name_len)
        ret->app_len = 0;
    return rc;
}

/* The suffix of a name, where it has one that says a type, goes for text. */
static void read_suffix(const struct ask *ask, const struct br_app_name *name,
                        struct br_profile_source *s, size_t *ret_app_len)
{
    struct br_app_type type;
    if (ask->format == BR_FORMAT_PPROF || ask->format == BR_FORMAT_JFR ||
        ask->format >= BR_FORMAT_PERF_SCRIPT ||
        br_app_type_find(name->app, name->app_len, &type, NULL) != 0)
        return;
    s->pyroscope_name = type.name;
    s->type = type.type;
    s->units = type.units;
    *ret_app_len = type.app_len;
}

static int make_source(struct reading *p, const struct ask *ask, struct br_profile_source *s,
                       struct br_addition *resource)
{
    struct br_app_name name;
    struct br_label *labels;
    size_t n;
    int rc = read_name(p, ask, &name);
    if (rc)
        return rc;
    size_t app_len = name.app_len;
    *s = (struct br_profile_source){.resource = resource,
                                    .start_ns = ask->start_ns,
                                    .end_ns = ask->end_ns,
                                    .sample_rate = ask->sample_rate,
                                    .from_file = true};
    read_suffix(ask, &name, s, &app_len);
    if (app_len > 0) {
        rc = br_app_labels(&name, app_len, true, &p->arena, &labels, &n);
    } else {
        labels = name.labels;
        n = name.n_labels;
    }
    if (rc == 0)
        rc = br_labels_resource(&p->arena, labels, n, resource);
    return rc ? br_err_set(&p->r->err, rc, "too many labels, or no memory for them") : 0;
}

/* --- The body --------------------------------------------------------------------------------- */

static int read_plain(struct reading *p, const struct ask *ask, const struct br_buf *plain)
{
    struct br_reading *r = p->r;
    struct br_profile_source source = {0};
    struct br_addition resource = {0};
    enum br_profile_format format = ask->format;
    int rc = ask->has_format ? 0 : pprof_guess(plain->data, plain->len, &format, &r->err);
    struct ask guessed = *ask;
    guessed.format = format;
    if (rc == 0)
        rc = make_source(p, &guessed, &source, &resource);
    source.data = plain->data;
    source.len = plain->len;
    return rc ? rc : pprof_read(r, format, &source);
}

static int read_request(struct br_reading *r)
{
    struct reading p = {.r = r};
    struct ask ask = {0};
    int rc = read_query(&p, &ask);
    if (rc == 0)
        rc = pprof_unpack(r);
    if (rc == 0)
        rc = read_plain(&p, &ask, br_reading_bytes(r));
    if (rc == 0 && !r->item) /* a profile without samples is taken, too */
        rc = (r->item = br_item_new(r->host, BR_PROFILES)) ? 0 : BR_ENOMEM;
    if (rc == 0)
        rc = br_pieces_cut(r, NULL);
    br_arena_release(&p.arena);
    return rc;
}

/* --- The answer ------------------------------------------------------------------------------- */

static void answer(const struct br_upload *x, struct br_request *r, const struct br_outcome *o)
{
    unsigned status = br_outcome_http(o);
    char text[300];
    int len = snprintf(text, sizeof text, "%s\n", o->text);
    struct br_http_answer a = {.status = status, .delay_ms = br_retry_delay_ms(o)};
    if (o->verdict != BR_DONE && len > 1) {
        a.type = "text/plain; charset=utf-8";
        a.data = text;
        a.len = (size_t)len < sizeof text ? (size_t)len : sizeof text - 1;
    }
    br_http_reply(x->listener->http, r, &a);
}

static void on_read(struct br_upload *x, const struct br_reading *r)
{
    struct pprof_upload *u = x->arg;
    struct br_node *node = u->ingest.node;
    uint64_t held;
    *x->meter->failed[BR_PROFILES] += r->n_lost;
    if (r->n_lost && br_log_allow(&u->lost_limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
        br_warn(&node->log, "%u samples of an upload are left out: %s (%llu more such uploads)",
                r->n_lost, r->lost, (unsigned long long)held);
}

static const struct br_upload_kind kind = {read_request, PPROF_READ_NOW, on_read, answer},
                                   datadog_kind = {pprof_datadog_read, PPROF_READ_NOW, on_read,
                                                   answer};

static void begin(struct br_handler *self, struct br_request *request)
{
    struct br_ingest_listener *d = br_container_of(self, struct br_ingest_listener, service);
    struct pprof_upload *u = br_container_of(d, struct pprof_upload, listener);
    struct br_upload how = {.kind = &kind,
                            .arg = u,
                            .listener = d,
                            .meter = &u->meter,
                            .signal = BR_PROFILES,
                            .format = BR_UPLOAD_OTHER};
    if (strcmp(request->path, PPROF_DATADOG_PATH) == 0)
        how.kind = &datadog_kind;
    else if (strcmp(request->path, PATH) != 0)
        how.kind = NULL;
    if (!how.kind)
        br_http_reply(d->http, request, &(struct br_http_answer){.status = 404});
    else if (br_http_preflight(d->http, request))
        return;
    else if (strcmp(request->method, "POST") != 0)
        br_http_reply(d->http, request, &(struct br_http_answer){.status = 405});
    else if (!br_http_encoding(d->http, request, &how.encoding))
        br_http_reply(d->http, request, &(struct br_http_answer){.status = 415});
    else
        (void)br_upload_new(&how, request);
}

void pprof_upload_init(struct pprof_upload *u, const struct br_http_config *http)
{
    u->listener.service.begin = begin;
    u->listener.http = http;
    u->listener.max_body = br_http_max_body(http);
    br_meter_init(&u->meter, u->ingest.node, "http", BR_SIGNAL_BIT(BR_PROFILES));
}
