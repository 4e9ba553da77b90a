/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/pyroscope_rig.h"

#include "base/mem.h"
#include "otlp/json/json.h"
#include "tests/support/rig.h"
#include "tests/support/test.h"
#include "wire/compression.h"

static void on_item(struct br_consumer *self, struct br_item *item)
{
    struct fixture *f = br_container_of(self, struct fixture, sink);
    struct br_rope rope = {0};
    const uint8_t *data;
    f->n++;
    if (!f->quiet) {
        assert_int_equal(br_item_write(item, &rope), 0);
        struct br_buf *flat = br_rope_flat(&rope, item->host->pool, &data);
        br_str_clear(&f->json);
        assert_int_equal(br_json_encode(br_otlp_request(BR_PROFILES), data, rope.len, &f->json), 0);
        br_buf_unref(flat);
        br_str_clear(&f->metadata);
        for (const char *p = item->metadata; p && *p;) {
            const char *value = p + strlen(p) + 1;
            br_str_printf(&f->metadata, "%s=%s;", p, value);
            p = value + strlen(value) + 1;
        }
    }
    br_rope_release(&rope);
    br_item_finish(item, &f->outcome);
}

void pyroscope_start(struct fixture *f, const char *yaml)
{
    *f = (struct fixture){.h = fake_host_new(), .sink.consume = on_item};
    f->codec = br_codec_new();
    br_arena_init(&f->arena, 0);
    f->node = rig_node(&br_pyroscope_receiver, yaml, &f->h->host, &f->arena, &f->drained);
    f->node.next[BR_PROFILES] = &f->sink;
    rig_node_start(&f->node);
}

void pyroscope_end(struct fixture *f)
{
    fake_host_drain(f->h, &f->node);
    assert_true(f->drained);
    fake_host_end(f->h, &f->node, &f->arena);
    br_codec_free(f->codec);
    br_str_release(&f->json);
    br_str_release(&f->metadata);
    wire_free(&f->body);
}

int pyroscope_setup(void **state)
{
    static struct fixture f;
    pyroscope_start(&f, "{protocols: {http: {max_request_body_size: 65536}}}");
    *state = &f;
    return 0;
}

int pyroscope_teardown(void **state)
{
    pyroscope_end(*state);
    return 0;
}

/* --- Requests --------------------------------------------------------------------------------- */

struct fake_reply pyroscope_last;

unsigned pyroscope_ask(struct fixture *f, struct ask a, const void *body, size_t len)
{
    struct fake_request *r = fake_request_new(f->h, "pyroscope http", a.path);
    if (a.method)
        fake_request_method(r, a.method);
    if (a.type)
        fake_request_header(r, "content-type", a.type);
    if (a.encoding)
        fake_request_header(r, "content-encoding", a.encoding);
    if (a.header)
        fake_request_header(r, a.header, a.value);
    fake_request_send(r, body, len);
    fake_host_iterate(f->h);
    const struct fake_reply *reply = fake_request_reply(r);
    free(pyroscope_last.body);
    pyroscope_last = *reply;
    pyroscope_last.body = malloc(reply->body_len + 1);
    memcpy(pyroscope_last.body, reply->body ? reply->body : "", reply->body_len + !!reply->body);
    pyroscope_last.body[reply->body_len] = '\0';
    fake_request_free(r);
    assert_true(pyroscope_last.came);
    return pyroscope_last.status;
}

unsigned pyroscope_ask_text(struct fixture *f, struct ask a, const char *body)
{
    return pyroscope_ask(f, a, body, strlen(body));
}

unsigned pyroscope_ask_wire(struct fixture *f, struct ask a, const struct wire *w)
{
    return pyroscope_ask(f, a, w->data, w->len);
}

void pyroscope_expect_out(struct fixture *f, const char *text)
{
    if (!f->json.data || !strstr(f->json.data, text))
        print_error("not in it: %s\n%s\n", text, f->json.data ? f->json.data : "(nothing)");
    assert_non_null(f->json.data);
    assert_non_null(strstr(f->json.data, text));
}

void pyroscope_expect_attribute(struct fixture *f, const char *key, const char *value)
{
    char text[256];
    (void)snprintf(text, sizeof text, "{\"key\":\"%s\",\"value\":{\"stringValue\":\"%s\"}}", key,
                   value);
    pyroscope_expect_out(f, text);
}

void pyroscope_expect_no_key(struct fixture *f, const char *key)
{
    char text[128];
    (void)snprintf(text, sizeof text, "\"key\":\"%s\"", key);
    assert_null(strstr(f->json.data, text));
}

void pyroscope_gzip(struct fixture *f, struct wire *w)
{
    struct br_rope rope = {0};
    struct br_buf *out;
    assert_int_equal(br_rope_add(&rope, NULL, w->data, w->len), 0);
    assert_int_equal(br_compress(f->codec, BR_ENCODING_GZIP, 0, &rope, 0, f->h->host.pool, &out),
                     0);
    wire_clear(w);
    wire_raw(w, out->data, out->len);
    br_buf_unref(out);
    br_rope_release(&rope);
}

void pyroscope_put_pprof(struct wire *w, const char *type, const char *unit)
{
    const char *const texts[] = {"", type, unit, "main", "thread", "worker-1"};
    size_t m = wire_open(w, 1);
    wire_varint(w, 1, 1);
    wire_varint(w, 2, 2);
    wire_close(w, m);
    m = wire_open(w, 2);
    wire_varint(w, 1, 1);
    wire_varint(w, 2, 10000000);
    size_t label = wire_open(w, 3);
    wire_varint(w, 1, 4);
    wire_varint(w, 2, 5);
    wire_close(w, label);
    wire_close(w, m);
    m = wire_open(w, 4);
    wire_varint(w, 1, 1);
    size_t line = wire_open(w, 4);
    wire_varint(w, 1, 1);
    wire_close(w, line);
    wire_close(w, m);
    m = wire_open(w, 5);
    wire_varint(w, 1, 1);
    wire_varint(w, 2, 3);
    wire_close(w, m);
    for (size_t i = 0; i < BR_COUNT(texts); i++)
        wire_str(w, 6, texts[i]);
    wire_varint(w, 9, 1767225601000000000);
}

void pyroscope_put_label(struct wire *w, const char *name, const char *value)
{
    size_t label = wire_open(w, 1);
    wire_str(w, 1, name);
    wire_str(w, 2, value);
    wire_close(w, label);
}

void pyroscope_put_sample(struct fixture *f, struct wire *w, bool packed, const char *id)
{
    struct wire pprof = {0};
    pyroscope_put_pprof(&pprof, "cpu", "nanoseconds");
    if (packed)
        pyroscope_gzip(f, &pprof);
    size_t sample = wire_open(w, 2);
    wire_len(w, 1, pprof.data, pprof.len);
    wire_str(w, 2, id);
    wire_close(w, sample);
    wire_free(&pprof);
}

void pyroscope_put_push(struct fixture *f, struct wire *w)
{
    size_t series = wire_open(w, 1);
    pyroscope_put_label(w, "__name__", "process_cpu");
    pyroscope_put_label(w, "service_name", "shop");
    pyroscope_put_label(w, "k8s.pod", "p-1");
    pyroscope_put_sample(f, w, true, ID);
    pyroscope_put_sample(f, w, false, "");
    wire_close(w, series);
    series = wire_open(w, 1);
    pyroscope_put_label(w, "__name__", "memory");
    pyroscope_put_sample(f, w, false, "no uuid");
    wire_close(w, series);
}

void pyroscope_put_bad_sample(struct wire *w)
{
    size_t at = wire_open(w, 2);
    wire_str(w, 1, "no pprof");
    wire_close(w, at);
}

void pyroscope_put_field(struct wire *w, const char *name, const struct wire *data)
{
    char head[256];
    int n = snprintf(head, sizeof head,
                     "--x\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s.bin\"\r\n"
                     "Content-Type: application/octet-stream\r\n\r\n",
                     name, name);
    wire_raw(w, head, (size_t)n);
    wire_raw(w, data->data, data->len);
    wire_raw(w, "\r\n", 2);
}
