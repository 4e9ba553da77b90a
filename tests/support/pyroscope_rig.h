/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the receiver pyroscope on a fake host. A consumer after it keeps the items as JSON, and
 * finishes them as the test chooses. Also has functions that make requests and check the answers.
 */
#pragma once

#include "base/str.h"
#include "pipeline/component.h"
#include "tests/support/fake_host.h"
#include "tests/support/test.h"
#include "tests/support/wire.h"

extern const struct br_component br_pyroscope_receiver;

#define PUSH "/push.v1.PusherService/Push"
#define EXPORT "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
#define OTLP "/v1development/profiles"
#define INGEST "/ingest?name=app&from=1767225600&until=1767225610"
#define PPROF INGEST "&format=pprof"
#define FORM "multipart/form-data; boundary=x"
#define LIMIT 65536 /* limit of the request body in bytes, for the receiver of pyroscope_setup */

struct fixture {
    struct fake_host *h;
    struct br_arena arena;
    struct br_node node;
    struct br_consumer sink;
    struct br_outcome outcome; /* the result with which the consumer finishes items */
    struct br_strings keys;
    struct br_codec *codec;
    bool drained;
    bool quiet; /* true: the consumer does not keep the items as JSON */
    unsigned n; /* items received */
    /* JSON of the last item, and its metadata in the form "name=value;" */
    struct br_str json, metadata;
    struct wire body;
};

void pyroscope_start(struct fixture *f, const char *yaml);

/* Drains and destroys the receiver. Fails the test if memory is leaked or the ledger does not
 * balance. */
void pyroscope_end(struct fixture *f);

/* Setup and teardown of a test (cmocka). The bodies of the receiver are limited to LIMIT bytes. */
int pyroscope_setup(void **state);
int pyroscope_teardown(void **state);

#define PYROSCOPE_TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, pyroscope_setup, pyroscope_teardown)

/* --- Requests --------------------------------------------------------------------------------- */

struct ask {
    const char *path, *type, *encoding, *method;
    const char *header, *value; /* name and value of one more header; NULL: none */
};

extern struct fake_reply pyroscope_last; /* the last answer; the caller frees its body */

/* Sends the request and waits for the answer, which is kept in pyroscope_last. Returns its HTTP
 * status. */
unsigned pyroscope_ask(struct fixture *f, struct ask a, const void *body, size_t len);
unsigned pyroscope_ask_text(struct fixture *f, struct ask a, const char *body);
unsigned pyroscope_ask_wire(struct fixture *f, struct ask a, const struct wire *w);

/* Replaces the content of `w` by its gzip encoding. */
void pyroscope_gzip(struct fixture *f, struct wire *w);

/* Writes a pprof with one sample of 10 ms in `main`. */
void pyroscope_put_pprof(struct wire *w, const char *type, const char *unit);

#define ID "00112233-4455-6677-8899-aabbccddeeff"

/* Write a field of a series in a PushRequest: a label, a sample with an invalid pprof, and a sample
 * with the pprof of pyroscope_put_pprof. If `packed`, this pprof is compressed with gzip. */
void pyroscope_put_label(struct wire *w, const char *name, const char *value);
void pyroscope_put_bad_sample(struct wire *w);
void pyroscope_put_sample(struct fixture *f, struct wire *w, bool packed, const char *id);

/* Writes a PushRequest of two series; the first has two samples. */
void pyroscope_put_push(struct fixture *f, struct wire *w);

/* Writes a field of a form whose boundary is that of FORM. */
void pyroscope_put_field(struct wire *w, const char *name, const struct wire *data);

/* --- What came -------------------------------------------------------------------------------- */

/* Check that the JSON of the last item contains a text, or an attribute with this key and string
 * value, or that it does not contain an attribute with this key. */
void pyroscope_expect_out(struct fixture *f, const char *text);
void pyroscope_expect_attribute(struct fixture *f, const char *key, const char *value);
void pyroscope_expect_no_key(struct fixture *f, const char *key);
