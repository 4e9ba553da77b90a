/* SPDX-License-Identifier: Apache-2.0 */
/* Handles POST /ingest. Source: grafana/pyroscope pkg/ingester/pyroscope/ingest_handler.go,
 * pkg/og/convert. */
#include <string.h>

#include "base/decimal.h"
#include "base/mem.h"
#include "receivers/pyroscope/pyroscope.h"
#include "wire/multipart.h"

#define FIELDS_MAX 16
#define SAMPLE_RATE 100
/* largest sample rate that fits into the integer type that Pyroscope uses */

/* Parameters in the query of a request, and its content type. */
struct query {
    struct br_app_name name;
    enum br_profile_format format;
    bool form; /* the body is a form, and the profile is one of its fields */
    const char *spy;
    size_t spy_len;
    double sample_rate; /* sampling rate in Hz; 0: the values are not numbers of samples */
    uint64_t start_ns, end_ns;
};

/* --- Query ------------------------------------------------------------------------------------ */

/* Returns in `ret` the value of a parameter; "" if it is absent. */
static int pyroscope_ingest_parameter(struct pyroscope_upload *upload, const char *name,
                                      const char **ret, size_t *ret_len)
{
    *ret = "";
    *ret_len = 0;
    int rc = br_query_get(upload->reading->request->query, name, &upload->scratch, ret, ret_len);
    return rc == BR_ENOTFOUND ? 0 : rc;
}

static int pyroscope_ingest_read_time(struct pyroscope_upload *upload, const char *name,
                                      uint64_t now_ns, uint64_t *ret)
{
    const char *text;
    size_t len;
    int rc = pyroscope_ingest_parameter(upload, name, &text, &len);
    if (!rc)
        *ret = len ? br_app_time(text, len, now_ns) : now_ns;
    return rc;
}

/* Reads the sample rate. Invalid numbers are replaced by the default, as in Pyroscope. */
static int pyroscope_ingest_read_sample_rate(struct pyroscope_upload *upload, double *ret)
{
    const char *text;
    size_t len;
    int rc = pyroscope_ingest_parameter(upload, "sampleRate", &text, &len);
    size_t plus = len && text[0] == '+';
    uint64_t rate = SAMPLE_RATE;
    if (len > plus)
        (void)br_decimal_parse(text + plus, len - plus, UINT32_MAX, &rate);
    *ret = (double)rate;
    return rc;
}

/* Determines the format of the profile from the parameter `format`, or from the content type if
 * the parameter is absent. */
static int pyroscope_ingest_read_format(struct pyroscope_upload *upload, struct query *ret)
{
    static const struct {
        const char *format, *type;
        enum br_profile_format is;
    } known[] = {
        {"trie", "binary/octet-stream+trie", BR_FORMAT_TRIE},
        {"tree", "binary/octet-stream+tree", BR_FORMAT_TREE},
        {"lines", NULL, BR_FORMAT_LINES},
        {"jfr", NULL, BR_FORMAT_JFR},
        {"pprof", NULL, BR_FORMAT_PPROF},
        {"speedscope", NULL, BR_FORMAT_SPEEDSCOPE},
    };
    const char *type = br_request_header(upload->reading->request, "content-type"), *format;
    size_t len, i = 0;
    int rc = pyroscope_ingest_parameter(upload, "format", &format, &len);
    bool form = br_multipart_is(type);
    while (i < BR_COUNT(known) && strcmp(known[i].format, format) != 0 &&
           (!type || !known[i].type || strcmp(known[i].type, type) != 0))
        i++;
    if (i < BR_COUNT(known))
        ret->format = known[i].is;
    else
        ret->format = form ? BR_FORMAT_PPROF : BR_FORMAT_FOLDED;
    ret->form = form && (ret->format == BR_FORMAT_PPROF || ret->format == BR_FORMAT_JFR);
    return rc;
}

static int pyroscope_ingest_read_name(struct pyroscope_upload *upload, struct query *ret)
{
    const char *text;
    size_t len;
    int rc = pyroscope_ingest_parameter(upload, "name", &text, &len);
    if (rc)
        return rc;
    rc = br_app_name_parse(text, len, &upload->scratch, &ret->name, &upload->reading->err);
    if (rc)
        br_err_prefix(&upload->reading->err, "name: ");
    return rc;
}

static int pyroscope_ingest_read_query(struct pyroscope_upload *upload, struct query *ret)
{
    uint64_t now_ns = upload->reading->now_ns;
    int rc = pyroscope_ingest_read_name(upload, ret);
    if (!rc)
        rc = pyroscope_ingest_read_time(upload, "from", now_ns, &ret->start_ns);
    if (!rc)
        rc = pyroscope_ingest_read_time(upload, "until", now_ns, &ret->end_ns);
    if (!rc)
        rc = pyroscope_ingest_read_sample_rate(upload, &ret->sample_rate);
    if (!rc)
        rc = pyroscope_ingest_parameter(upload, "spyName", &ret->spy, &ret->spy_len);
    if (!rc && !ret->spy_len) {
        ret->spy = "unknown";
        ret->spy_len = strlen(ret->spy);
    }
    /* A client that is closed in the middle of its interval sends an end time before the start
     * time. */
    if (ret->end_ns < ret->start_ns)
        ret->end_ns = ret->start_ns;
    return rc ? rc : pyroscope_ingest_read_format(upload, ret);
}

/* --- Source ----------------------------------------------------------------------------------- */

static bool pyroscope_ingest_is_text(enum br_profile_format format)
{
    return format != BR_FORMAT_PPROF && format != BR_FORMAT_JFR;
}

/* Builds the labels of the series from the labels that Pyroscope adds and the labels of the
 * client. The client's labels take precedence. */
static int pyroscope_ingest_make_labels(struct pyroscope_upload *upload, const struct query *query,
                                        size_t app_len, struct br_addition *ret)
{
    const struct br_label added[] = {{"__delta__", 9, "false", 5},
                                     {"pyroscope_spy", 13, query->spy, query->spy_len}};
    struct br_label *client_labels, *all;
    size_t n;
    int rc = br_app_labels(&query->name, app_len, query->format != BR_FORMAT_PPROF,
                           &upload->scratch, &client_labels, &n);
    if (rc)
        return rc;
    all = br_arena_calloc(&upload->scratch, n + BR_COUNT(added), sizeof *all);
    if (!all)
        return BR_ENOMEM;
    memcpy(all, added, sizeof added);
    if (n)
        memcpy(all + BR_COUNT(added), client_labels, n * sizeof *client_labels);
    rc = br_labels_resource(&upload->scratch, all, n + BR_COUNT(added), ret);
    return rc == BR_EINVAL ? br_err_set(&upload->reading->err, rc,
                                        "name: too many labels, or a label is too long")
                           : rc;
}

/* Sets the type of the profile from the suffix of the name, if the format does not contain a
 * type. */
static int pyroscope_ingest_read_suffix(struct pyroscope_upload *upload, const struct query *query,
                                        struct br_profile_source *source, size_t *ret_app_len)
{
    struct br_app_type type;
    int rc = br_app_type_find(query->name.app, query->name.app_len, &type, &upload->reading->err);
    if (rc)
        return rc;
    bool counts = strcmp(type.type, "cpu") == 0 || strcmp(type.type, "wall") == 0;
    source->pyroscope_name = type.name;
    source->type = type.type;
    source->units = type.units;
    /* Without a sample rate, Pyroscope does not multiply the values by a period, and stores them
     * with the type set here. */
    if (counts && query->sample_rate <= 0) {
        source->type = "samples";
        source->units = "count";
    }
    *ret_app_len = type.app_len;
    return 0;
}

static int pyroscope_ingest_make_source(struct pyroscope_upload *upload, const struct query *query,
                                        struct br_profile_source *source,
                                        struct br_addition *resource)
{
    size_t app_len = query->name.app_len;
    const struct pyroscope *pyroscope = upload->reading->arg;
    *source = (struct br_profile_source){.resource = resource,
                                         .from_pyroscope = true,
                                         .keeps_times = pyroscope->ingest.node->times_wanted,
                                         .spy_name = query->spy,
                                         .start_ns = query->start_ns,
                                         .end_ns = query->end_ns,
                                         .sample_rate = query->sample_rate};
    int rc = pyroscope_ingest_is_text(query->format)
                 ? pyroscope_ingest_read_suffix(upload, query, source, &app_len)
                 : 0;
    return rc ? rc : pyroscope_ingest_make_labels(upload, query, app_len, resource);
}

/* --- Body ------------------------------------------------------------------------------------- */

struct form {
    struct br_form_field fields[FIELDS_MAX];
    size_t count;
};

static int pyroscope_ingest_read_form(struct pyroscope_upload *upload, const struct br_buf *body,
                                      struct form *ret)
{
    char boundary[BR_BOUNDARY_MAX + 1];
    const char *type = br_request_header(upload->reading->request, "content-type");
    int rc = br_multipart_boundary(type, boundary, &upload->reading->err);
    return rc ? rc
              : br_multipart_parse(boundary, body->data, body->len, ret->fields, FIELDS_MAX,
                                   &ret->count, &upload->reading->err);
}

/* Reads and decompresses a field of the form. `ret->data` is NULL if the field is absent.
 * `ret->len` is 0 if the field is absent or empty. */
static int pyroscope_ingest_read_field(struct pyroscope_upload *upload, const struct form *form,
                                       const char *name, struct pyroscope_upload_bytes *ret)
{
    const struct br_form_field *form_field = br_form_find(form->fields, form->count, name);
    *ret = form_field ? (struct pyroscope_upload_bytes){form_field->data, form_field->len}
                      : (struct pyroscope_upload_bytes){0};
    int rc = pyroscope_upload_gunzip(upload, ret);
    if (rc)
        br_err_prefix(&upload->reading->err, "field %s: ", name);
    return rc;
}

static int pyroscope_ingest_read_pprof_form(struct pyroscope_upload *upload,
                                            const struct form *form,
                                            struct br_profile_source *source)
{
    struct pyroscope_upload_bytes profile, config;
    struct br_sample_type *types = NULL;
    if (br_form_find(form->fields, form->count, "prev_profile"))
        return br_err_set(
            &upload->reading->err, BR_EINVAL,
            "unsupported client version: profiles with a prev_profile are not supported");
    int rc = pyroscope_ingest_read_field(upload, form, "profile", &profile);
    if (!rc)
        rc = pyroscope_ingest_read_field(upload, form, "sample_type_config", &config);
    if (!rc && !profile.data)
        rc = br_err_set(&upload->reading->err, BR_EINVAL, "the form has no field \"profile\"");
    if (!rc && config.len)
        rc = pyroscope_sample_types((const char *)config.data, config.len, &upload->scratch, &types,
                                    &source->n_types, &upload->reading->err);
    source->types = types;
    source->data = profile.data;
    source->len = profile.len;
    return rc;
}

static int pyroscope_ingest_read_jfr_form(struct pyroscope_upload *upload, const struct form *form,
                                          struct br_profile_source *source)
{
    struct pyroscope_upload_bytes jfr, labels = {0};
    int rc = pyroscope_ingest_read_field(upload, form, "jfr", &jfr);
    if (!rc)
        rc = pyroscope_ingest_read_field(upload, form, "labels", &labels);
    if (!rc && !jfr.len)
        rc = br_err_set(&upload->reading->err, BR_EINVAL, "the form has no field \"jfr\"");
    source->data = jfr.data;
    source->len = jfr.len;
    source->labels = labels.len ? labels.data : NULL;
    source->labels_len = labels.len;
    return rc;
}

/* Finds the profile in the body, which is the whole body or a field of a form. */
static int pyroscope_ingest_read_body(struct pyroscope_upload *upload, const struct query *query,
                                      const struct br_buf *body, struct br_profile_source *source)
{
    struct form form = {.count = 0};
    if (query->form) {
        int rc = pyroscope_ingest_read_form(upload, body, &form);
        if (rc)
            return rc;
        return query->format == BR_FORMAT_PPROF
                   ? pyroscope_ingest_read_pprof_form(upload, &form, source)
                   : pyroscope_ingest_read_jfr_form(upload, &form, source);
    }
    struct pyroscope_upload_bytes all = {body->data, body->len};
    int rc = pyroscope_upload_gunzip(upload, &all);
    source->data = all.data;
    source->len = all.len;
    return rc;
}

/* Decompresses the body. A body that is declared as gzip but is not gzip is used unchanged,
 * because Pyroscope ignores the header. */
static int pyroscope_ingest_unpack(struct pyroscope_upload *upload)
{
    const struct br_buf *body = upload->reading->body;
    bool gzip = body->len >= 2 && body->data[0] == 0x1f && body->data[1] == 0x8b;
    return upload->reading->encoding == BR_ENCODING_GZIP && !gzip
               ? 0
               : br_reading_unpack(upload->reading);
}

static int pyroscope_ingest_read_all(struct pyroscope_upload *upload)
{
    struct query query = {0};
    struct br_profile_source source;
    struct br_addition resource = {0};
    int rc = pyroscope_ingest_read_query(upload, &query);
    if (!rc)
        rc = pyroscope_ingest_make_source(upload, &query, &source, &resource);
    if (rc)
        return rc;
    /* Errors from here on are reported as errors of the profile, not as errors of the request. */
    upload->reading->invalid = BR_STATUS_UNKNOWN;
    rc = pyroscope_ingest_unpack(upload);
    if (!rc)
        rc = pyroscope_ingest_read_body(upload, &query, br_reading_bytes(upload->reading), &source);
    return rc || !source.len ? rc : pyroscope_upload_read(upload, query.format, &source);
}

static int pyroscope_ingest_read_request(struct br_reading *reading)
{
    struct pyroscope_upload upload;
    int rc = pyroscope_upload_begin(&upload, reading);
    return pyroscope_upload_end(&upload, rc ? rc : pyroscope_ingest_read_all(&upload));
}

static void pyroscope_ingest_answer(const struct br_upload *upload, struct br_request *request,
                                    const struct br_outcome *outcome)
{
    pyroscope_reply_ingest(upload->listener->http, request, outcome);
}

static const struct br_upload_kind kind = {pyroscope_ingest_read_request, PYROSCOPE_READ_NOW,
                                           pyroscope_upload_on_read, pyroscope_ingest_answer};

bool pyroscope_begin_ingest(struct pyroscope *pyroscope, struct br_request *request)
{
    struct br_upload settings = {.kind = &kind,
                                 .arg = pyroscope,
                                 .listener = &pyroscope->listener,
                                 .meter = &pyroscope->http,
                                 .signal = BR_PROFILES,
                                 .format = BR_UPLOAD_OTHER};
    const struct br_http_config *http = pyroscope->listener.http;
    if (strcmp(request->path, "/ingest") != 0 && strcmp(request->path, "/pyroscope/ingest") != 0)
        return false;
    if (br_http_answer_page(http, NULL, request))
        return true;
    if (strcmp(request->method, "POST") != 0)
        br_http_reply(http, request, &(struct br_http_answer){.status = 405});
    else if (!br_http_encoding(http, request, &settings.encoding))
        pyroscope_refuse(http, request, 415, "unimplemented",
                         "content-encoding must be gzip, zstd, deflate or snappy");
    else
        (void)br_upload_new(&settings, request);
    return true;
}
