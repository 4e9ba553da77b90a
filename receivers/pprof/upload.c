/* SPDX-License-Identifier: Apache-2.0 */
/* Handles POST /v1/profiles/upload. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ingest/reading.h"
#include "receivers/pprof/pprof.h"
#include "wire/multipart.h"

#define PATH "/v1/profiles/upload"
#define RATE_MAX 1000000.0

/* Parameters in the query of an upload. */
struct query {
    const char *name, *labels;
    size_t name_len, labels_len;
    bool has_format;
    enum br_profile_format format;
    uint64_t start_ns, end_ns;
    double sample_rate;
};

struct reading {
    struct br_reading *reading;
    struct br_arena arena;
};

/* --- Query ------------------------------------------------------------------------------------ */

/* Returns in `ret` the value of a parameter; "" if it is absent. */
static int pprof_upload_parameter(struct reading *reading, const char *name, const char **ret,
                                  size_t *ret_len)
{
    *ret = "";
    *ret_len = 0;
    int rc = br_query_get(reading->reading->request->query, name, &reading->arena, ret, ret_len);
    return rc == BR_ENOTFOUND ? 0 : rc;
}

static int pprof_upload_read_format(struct reading *reading, struct query *ret)
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
        [BR_FORMAT_GECKO] = "firefox",
    };
    const char *text;
    size_t len;
    int rc = pprof_upload_parameter(reading, "format", &text, &len);
    if (rc || len == 0)
        return rc;
    for (size_t i = 0; i < BR_COUNT(names); i++) {
        if (strcmp(text, names[i]) != 0)
            continue;
        ret->format = (enum br_profile_format)i;
        ret->has_format = true;
        return 0;
    }
    return br_err_set(&reading->reading->err, BR_EINVAL,
                      "format must be pprof, jfr, folded, lines, trie, tree, speedscope, perf, "
                      "cpuprofile or firefox");
}

static int pprof_upload_read_time(struct reading *reading, const char *name, uint64_t absent_ns,
                                  uint64_t *ret)
{
    uint64_t now_ns = reading->reading->now_ns;
    const char *text;
    size_t len;
    int rc = pprof_upload_parameter(reading, name, &text, &len);
    if (rc == 0)
        *ret = len ? br_app_time(text, len, now_ns) : absent_ns;
    return rc;
}

static int pprof_upload_read_rate(struct reading *reading, double *ret)
{
    const char *text;
    size_t len;
    char *end;
    int rc = pprof_upload_parameter(reading, "sampleRate", &text, &len);
    if (rc || len == 0)
        return rc;
    double rate = strtod(text, &end);
    if (end != text + len || !isfinite(rate) || rate <= 0 || rate > RATE_MAX)
        return br_err_set(&reading->reading->err, BR_EINVAL,
                          "sampleRate must be a number of Hz, up to 1000000");
    *ret = rate;
    return 0;
}

static int pprof_upload_read_query(struct reading *reading, struct query *ret)
{
    int rc = pprof_upload_parameter(reading, "name", &ret->name, &ret->name_len);
    if (rc == 0)
        rc = pprof_upload_parameter(reading, "labels", &ret->labels, &ret->labels_len);
    if (rc == 0)
        rc = pprof_upload_read_format(reading, ret);
    if (rc == 0)
        rc = pprof_upload_read_time(reading, "until", reading->reading->now_ns, &ret->end_ns);
    if (rc == 0)
        rc = pprof_upload_read_time(reading, "from", ret->end_ns, &ret->start_ns);
    if (rc == 0)
        rc = pprof_upload_read_rate(reading, &ret->sample_rate);
    if (ret->end_ns < ret->start_ns)
        ret->end_ns = ret->start_ns;
    return rc;
}

/* --- Source ----------------------------------------------------------------------------------- */

/* Parses `name` (an application name with labels) and `labels` (more labels in the same syntax).
 * Both parameters are concatenated into one text; a placeholder replaces a missing name. */
static int pprof_upload_read_name(struct reading *reading, const struct query *query,
                                  struct br_app_name *ret)
{
    static const char placeholder[] = "none";
    const char *name = query->name_len ? query->name : placeholder;
    size_t len = query->name_len ? query->name_len : sizeof placeholder - 1;
    while (len > 0 && (name[len - 1] == ' ' || name[len - 1] == '}'))
        len--;
    const char *text =
        br_arena_printf(&reading->arena, "%.*s%s%.*s}", (int)len, name,
                        memchr(name, '{', len) ? "," : "{", (int)query->labels_len, query->labels);
    if (!text)
        return br_err_set(&reading->reading->err, BR_ENOMEM, "out of memory");
    int rc = br_app_name_parse(text, strlen(text), &reading->arena, ret, &reading->reading->err);
    if (rc)
        br_err_prefix(&reading->reading->err, "name or labels: ");
    else if (!query->name_len)
        ret->app_len = 0;
    return rc;
}

/* Removes a suffix of the service name that is a profile type, as in "shop.cpu". If the format
 * does not contain a type, the suffix determines the type of the profile. */
static void pprof_upload_read_suffix(const struct query *query, const struct br_app_name *name,
                                     struct br_profile_source *source, size_t *ret_app_len)
{
    struct br_app_type type;
    if (br_app_type_find(name->app, name->app_len, &type, NULL) != 0)
        return;
    *ret_app_len = type.app_len;
    if (query->format == BR_FORMAT_PPROF || query->format == BR_FORMAT_JFR ||
        query->format >= BR_FORMAT_PERF_SCRIPT)
        return;
    source->pyroscope_name = type.name;
    source->type = type.type;
    source->units = type.units;
}

static int pprof_upload_make_source(struct reading *reading, const struct query *query,
                                    struct br_profile_source *source, struct br_addition *resource)
{
    struct br_app_name name;
    struct br_label *labels;
    size_t n;
    int rc = pprof_upload_read_name(reading, query, &name);
    if (rc)
        return rc;
    size_t app_len = name.app_len;
    *source = (struct br_profile_source){.resource = resource,
                                         .start_ns = query->start_ns,
                                         .end_ns = query->end_ns,
                                         .sample_rate = query->sample_rate,
                                         .from_file = true};
    pprof_upload_read_suffix(query, &name, source, &app_len);
    if (app_len > 0) {
        rc = br_app_labels(&name, app_len, true, &reading->arena, &labels, &n);
    } else {
        labels = name.labels;
        n = name.n_labels;
    }
    if (rc == 0)
        rc = br_labels_resource(&reading->arena, labels, n, resource);
    return rc ? br_err_set(&reading->reading->err, rc, "too many labels, or no memory for them")
              : 0;
}

/* --- Body ------------------------------------------------------------------------------------- */

static int pprof_upload_read_plain(struct reading *reading, const struct query *query,
                                   const struct br_buf *plain)
{
    struct br_reading *base = reading->reading;
    struct br_profile_source source = {0};
    struct br_addition resource = {0};
    enum br_profile_format format = query->format;
    int rc = query->has_format ? 0 : pprof_guess(plain->data, plain->len, &format, &base->err);
    struct query guessed = *query;
    guessed.format = format;
    if (rc == 0)
        rc = pprof_upload_make_source(reading, &guessed, &source, &resource);
    source.data = plain->data;
    source.len = plain->len;
    return rc ? rc : pprof_read(base, format, &source);
}

static int pprof_upload_read_request(struct br_reading *reading)
{
    struct reading p = {.reading = reading};
    struct query query = {0};
    int rc = pprof_upload_read_query(&p, &query);
    if (rc == 0)
        rc = pprof_unpack(reading);
    if (rc == 0)
        rc = pprof_upload_read_plain(&p, &query, br_reading_bytes(reading));
    /* A profile without samples is accepted, although it does not become an item. */
    if (rc == 0 && !reading->item)
        rc = (reading->item = br_item_new(reading->host, BR_PROFILES)) ? 0 : BR_ENOMEM;
    if (rc == 0)
        rc = br_profile_reading_cut(reading);
    br_arena_release(&p.arena);
    return rc;
}

/* --- Response --------------------------------------------------------------------------------- */

static void pprof_upload_answer(const struct br_upload *upload, struct br_request *request,
                                const struct br_outcome *outcome)
{
    unsigned status = br_outcome_http(outcome);
    char text[300];
    int len = snprintf(text, sizeof text, "%s\n", outcome->text);
    struct br_http_answer response = {.status = status, .delay_ms = br_retry_delay_ms(outcome)};
    if (outcome->verdict != BR_DONE && len > 1) {
        response.type = "text/plain; charset=utf-8";
        response.data = text;
        response.len = (size_t)len < sizeof text ? (size_t)len : sizeof text - 1;
    }
    br_http_reply(upload->listener->http, request, &response);
}

static void pprof_upload_on_read(struct br_upload *upload, const struct br_reading *reading)
{
    struct pprof_upload *pprof_upload = upload->arg;
    char flaws[BR_FLAWS_SIZE];
    if (br_meter_flaws(upload->meter, reading, flaws))
        br_node_warn(pprof_upload->ingest.node, &pprof_upload->lost_limit, "upload: %s", flaws);
}

static const struct br_upload_kind kind = {pprof_upload_read_request, PPROF_READ_NOW,
                                           pprof_upload_on_read, pprof_upload_answer},
                                   datadog_kind = {pprof_datadog_read, PPROF_READ_NOW,
                                                   pprof_upload_on_read, pprof_upload_answer};

static void pprof_upload_refuse(struct br_ingest_listener *listener, struct br_request *request)
{
    char why[BR_INGEST_UNKNOWN_MAX];
    br_ingest_log_unknown(
        listener->ingest, request,
        "profiles go to " PATH ", those of Datadog's clients to " PPROF_DATADOG_PATH, why);
    br_http_reply(listener->http, request,
                  &(struct br_http_answer){
                      .status = 404, .type = "text/plain", .data = why, .len = strlen(why)});
}

static void pprof_upload_begin(struct br_handler *self, struct br_request *request)
{
    struct br_ingest_listener *ingest_listener =
        br_container_of(self, struct br_ingest_listener, service.handler);
    struct pprof_upload *upload = br_container_of(ingest_listener, struct pprof_upload, listener);
    struct br_upload settings = {.kind = &kind,
                                 .arg = upload,
                                 .listener = ingest_listener,
                                 .meter = &upload->meter,
                                 .signal = BR_PROFILES,
                                 .format = BR_UPLOAD_OTHER};
    if (strcmp(request->path, PPROF_DATADOG_PATH) == 0)
        settings.kind = &datadog_kind;
    else if (strcmp(request->path, PATH) != 0)
        settings.kind = NULL;
    if (!settings.kind)
        pprof_upload_refuse(ingest_listener, request);
    else if (br_http_answer_page(ingest_listener->http, NULL, request))
        return;
    else if (strcmp(request->method, "POST") != 0)
        br_http_reply(ingest_listener->http, request, &(struct br_http_answer){.status = 405});
    else if (!br_http_encoding(ingest_listener->http, request, &settings.encoding))
        br_http_reply(ingest_listener->http, request, &(struct br_http_answer){.status = 415});
    else
        (void)br_upload_new(&settings, request);
}

void pprof_upload_init(struct pprof_upload *upload, const struct br_http_config *http)
{
    upload->listener.service.handler.begin = pprof_upload_begin;
    upload->listener.http = http;
    upload->listener.max_body = br_http_max_body(http);
    br_meter_init(&upload->meter, upload->ingest.node, "http", BR_SIGNAL_BIT(BR_PROFILES));
}
