/* SPDX-License-Identifier: Apache-2.0 */
/* POST /ingest. Source: grafana/pyroscope pkg/ingester/pyroscope/ingest_handler.go, pkg/og/convert.
 */
#include <string.h>

#include "base/mem.h"
#include "receivers/pyroscope/pyroscope.h"
#include "wire/multipart.h"

#define FIELDS_MAX 16
#define SAMPLE_RATE 100.0
#define SAMPLE_RATE_MAX 4294967295.0 /* as many as Pyroscope's number has room for */

/* What a query and a content type say. */
struct ask {
    struct br_app_name name;
    enum br_profile_format format;
    bool form; /* the profile is a field of a form */
    const char *spy;
    size_t spy_len;
    double sample_rate; /* Hz; 0 means that values are no counts of samples */
    uint64_t start_ns, end_ns;
};

/* --- The query -------------------------------------------------------------------------------- */

/* `*ret` is "" where there is no such parameter. */
static int parameter(struct upload *u, const char *name, const char **ret, size_t *ret_len)
{
    *ret = "";
    *ret_len = 0;
    int rc = br_query_get(u->r->asked->query, name, &u->scratch, ret, ret_len);
    return rc == BR_ENOTFOUND ? 0 : rc;
}

static int read_time(struct upload *u, const char *name, uint64_t now_ns, uint64_t *ret)
{
    const char *text;
    size_t len;
    int rc = parameter(u, name, &text, &len);
    if (!rc)
        *ret = len ? br_app_time(text, len, now_ns) : now_ns;
    return rc;
}

/* What is no number is the default, as with Pyroscope. */
static int read_sample_rate(struct upload *u, double *ret)
{
    const char *text;
    size_t len;
    int rc = parameter(u, "sampleRate", &text, &len);
    size_t i = len && text[0] == '+';
    double rate = 0;
    bool number = len > i;
    for (; number && i < len; i++) {
        rate = rate * 10 + (text[i] - '0');
        number = text[i] >= '0' && text[i] <= '9' && rate <= SAMPLE_RATE_MAX;
    }
    *ret = number ? rate : SAMPLE_RATE;
    return rc;
}

/* `format`, and where that says nothing the content type. */
static int read_format(struct upload *u, struct ask *ret)
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
    const char *type = br_request_header(u->r->asked, "content-type"), *format;
    size_t len, i = 0;
    int rc = parameter(u, "format", &format, &len);
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

static int read_name(struct upload *u, struct ask *ret)
{
    const char *text;
    size_t len;
    int rc = parameter(u, "name", &text, &len);
    if (rc)
        return rc;
    rc = br_app_name_parse(text, len, &u->scratch, &ret->name, &u->r->err);
    if (rc)
        br_err_prefix(&u->r->err, "name: ");
    return rc;
}

static int read_query(struct upload *u, struct ask *ret)
{
    uint64_t now_ns = u->r->now_ns;
    int rc = read_name(u, ret);
    if (!rc)
        rc = read_time(u, "from", now_ns, &ret->start_ns);
    if (!rc)
        rc = read_time(u, "until", now_ns, &ret->end_ns);
    if (!rc)
        rc = read_sample_rate(u, &ret->sample_rate);
    if (!rc)
        rc = parameter(u, "spyName", &ret->spy, &ret->spy_len);
    if (!rc && !ret->spy_len) {
        ret->spy = "unknown";
        ret->spy_len = strlen(ret->spy);
    }
    /* A client that is closed in the middle of its interval says an end before the start. */
    if (ret->end_ns < ret->start_ns)
        ret->end_ns = ret->start_ns;
    return rc ? rc : read_format(u, ret);
}

/* --- The source ------------------------------------------------------------------------------- */

static bool is_text(enum br_profile_format format)
{
    return format != BR_FORMAT_PPROF && format != BR_FORMAT_JFR;
}

/* The series labels: what Pyroscope adds, then the client's, of which equal ones win. */
static int make_labels(struct upload *u, const struct ask *ask, size_t app_len,
                       struct br_addition *ret)
{
    const struct br_label added[] = {{"__delta__", 9, "false", 5},
                                     {"pyroscope_spy", 13, ask->spy, ask->spy_len}};
    struct br_label *own, *all;
    size_t n;
    int rc =
        br_app_labels(&ask->name, app_len, ask->format != BR_FORMAT_PPROF, &u->scratch, &own, &n);
    if (rc)
        return rc;
    all = br_arena_calloc(&u->scratch, n + BR_COUNT(added), sizeof *all);
    if (!all)
        return BR_ENOMEM;
    memcpy(all, added, sizeof added);
    if (n)
        memcpy(all + BR_COUNT(added), own, n * sizeof *own);
    rc = br_labels_resource(&u->scratch, all, n + BR_COUNT(added), ret);
    return rc == BR_EINVAL ? br_err_set(&u->r->err, rc, "name: too many labels, or too long ones")
                           : rc;
}

/* What the last part of the name says of formats that carry no type. */
static int read_suffix(struct upload *u, const struct ask *ask, struct br_profile_source *s,
                       size_t *ret_app_len)
{
    struct br_app_type type;
    int rc = br_app_type_find(ask->name.app, ask->name.app_len, &type, &u->r->err);
    if (rc)
        return rc;
    bool counts = strcmp(type.type, "cpu") == 0 || strcmp(type.type, "wall") == 0;
    s->pyroscope_name = type.name;
    s->type = type.type;
    s->units = type.units;
    if (counts && ask->sample_rate <= 0) { /* Pyroscope does not multiply these, and says so */
        s->type = "samples";
        s->units = "count";
    }
    *ret_app_len = type.app_len;
    return 0;
}

static int make_source(struct upload *u, const struct ask *ask, struct br_profile_source *s,
                       struct br_addition *resource)
{
    size_t app_len = ask->name.app_len;
    *s = (struct br_profile_source){.resource = resource,
                                    .from_pyroscope = true,
                                    .spy_name = ask->spy,
                                    .start_ns = ask->start_ns,
                                    .end_ns = ask->end_ns,
                                    .sample_rate = ask->sample_rate};
    int rc = is_text(ask->format) ? read_suffix(u, ask, s, &app_len) : 0;
    return rc ? rc : make_labels(u, ask, app_len, resource);
}

/* --- The body --------------------------------------------------------------------------------- */

struct form {
    struct br_form_field fields[FIELDS_MAX];
    size_t n;
};

static int read_form(struct upload *u, const struct br_buf *body, struct form *ret)
{
    char boundary[BR_BOUNDARY_MAX + 1];
    const char *type = br_request_header(u->r->asked, "content-type");
    int rc = br_multipart_boundary(type, boundary, &u->r->err);
    return rc ? rc
              : br_multipart_parse(boundary, body->data, body->len, ret->fields, FIELDS_MAX,
                                   &ret->n, &u->r->err);
}

/* A field without gzip; `ret->data` stays NULL where there is none, and len 0 too where it is
 * empty. */
static int read_field(struct upload *u, const struct form *form, const char *name,
                      struct upload_bytes *ret)
{
    const struct br_form_field *f = br_form_find(form->fields, form->n, name);
    *ret = f ? (struct upload_bytes){f->data, f->len} : (struct upload_bytes){0};
    int rc = upload_gunzip(u, ret);
    if (rc)
        br_err_prefix(&u->r->err, "field %s: ", name);
    return rc;
}

static int read_pprof_form(struct upload *u, const struct form *form, struct br_profile_source *s)
{
    struct upload_bytes profile, config;
    struct br_sample_type *types = NULL;
    if (br_form_find(form->fields, form->n, "prev_profile"))
        return br_err_set(&u->r->err, BR_EINVAL,
                          "unsupported client version: profiles with a prev_profile are not taken");
    int rc = read_field(u, form, "profile", &profile);
    if (!rc)
        rc = read_field(u, form, "sample_type_config", &config);
    if (!rc && !profile.data)
        rc = br_err_set(&u->r->err, BR_EINVAL, "the form has no field profile");
    if (!rc && config.len)
        rc = pyroscope_sample_types((const char *)config.data, config.len, &u->scratch, &types,
                                    &s->n_types, &u->r->err);
    s->types = types;
    s->data = profile.data;
    s->len = profile.len;
    return rc;
}

static int read_jfr_form(struct upload *u, const struct form *form, struct br_profile_source *s)
{
    struct upload_bytes jfr, labels;
    int rc = read_field(u, form, "jfr", &jfr);
    if (!rc)
        rc = read_field(u, form, "labels", &labels);
    if (!rc && !jfr.len)
        rc = br_err_set(&u->r->err, BR_EINVAL, "the form has no field jfr");
    s->data = jfr.data;
    s->len = jfr.len;
    s->labels = labels.len ? labels.data : NULL;
    s->labels_len = labels.len;
    return rc;
}

/* Where the profile is in the body. */
static int read_body(struct upload *u, const struct ask *ask, const struct br_buf *body,
                     struct br_profile_source *s)
{
    struct form form = {.n = 0};
    if (ask->form) {
        int rc = read_form(u, body, &form);
        if (rc)
            return rc;
        return ask->format == BR_FORMAT_PPROF ? read_pprof_form(u, &form, s)
                                              : read_jfr_form(u, &form, s);
    }
    struct upload_bytes all = {body->data, body->len};
    int rc = upload_gunzip(u, &all);
    s->data = all.data;
    s->len = all.len;
    return rc;
}

/* Pyroscope takes no notice of the header: what says gzip and is none is as it is. */
static int unpack(struct upload *u)
{
    const struct br_buf *b = u->r->body;
    bool gzip = b->len >= 2 && b->data[0] == 0x1f && b->data[1] == 0x8b;
    return u->r->encoding == BR_ENCODING_GZIP && !gzip ? 0 : br_reading_unpack(u->r);
}

static int read_all(struct upload *u)
{
    struct ask ask = {0};
    struct br_profile_source s;
    struct br_addition resource = {0};
    int rc = read_query(u, &ask);
    if (!rc)
        rc = make_source(u, &ask, &s, &resource);
    if (rc)
        return rc;
    u->r->invalid = BR_STATUS_UNKNOWN; /* from here on it is the profile that is wrong */
    rc = unpack(u);
    if (!rc)
        rc = read_body(u, &ask, br_reading_bytes(u->r), &s);
    return rc || !s.len ? rc : upload_read(u, ask.format, &s);
}

static int read_request(struct br_reading *r)
{
    struct upload u;
    int rc = upload_begin(&u, r);
    return upload_end(&u, rc ? rc : read_all(&u));
}

static void answer(const struct br_upload *x, struct br_request *r, const struct br_outcome *o)
{
    pyroscope_reply_ingest(x->listener->http, r, o);
}

static const struct br_upload_kind kind = {read_request, PYROSCOPE_READ_NOW, upload_on_read,
                                          answer};

bool pyroscope_begin_ingest(struct pyroscope *p, struct br_request *r)
{
    struct br_upload how = {.kind = &kind,
                            .arg = p,
                            .listener = &p->listener,
                            .meter = &p->http,
                            .signal = BR_PROFILES,
                            .format = BR_UPLOAD_OTHER};
    const struct br_http_config *http = p->listener.http;
    if (strcmp(r->path, "/ingest") != 0 && strcmp(r->path, "/pyroscope/ingest") != 0)
        return false;
    if (br_http_preflight(http, r))
        return true;
    if (strcmp(r->method, "POST") != 0)
        br_http_reply(http, r, &(struct br_http_answer){.status = 405});
    else if (!br_http_encoding(http, r, &how.encoding))
        pyroscope_refuse(http, r, 415, "unimplemented",
                         "content-encoding must be gzip, zstd or deflate");
    else
        (void)br_upload_new(&how, r);
    return true;
}
