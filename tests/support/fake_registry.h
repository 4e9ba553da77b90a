/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Components for the tests of config/. They have options of every type, but no code: none of these
 * components can be created.
 */
#pragma once

#include "pipeline/component.h"

struct fake_limits {
    int64_t streams;
    double ratio;
};

struct fake_rule {
    const char *match;
    bool drop;
};

struct fake_grpc {
    const char *endpoint;
    uint64_t keepalive;
};

struct fake_protocols {
    struct fake_grpc *grpc;
    struct fake_grpc *http;
};

/* Receiver "fake", alias "fake_in": both signals. */
struct fake_receiver_config {
    struct fake_protocols protocols;
};

/* Processor "shape": both signals. Processor "sampler": traces only. Processor "pair": one
 * instance for both signals. */
struct fake_processor_config {
    uint64_t timeout;
    int64_t size;
    double ratio;
    bool strict;
    int mode;
    struct br_strings include;
    struct br_structs rules;
    struct fake_limits limits;
    const struct br_yaml *extra;
};

/* Exporter "sink", alias "fake_sink": both signals. Exporter "flames": profiles only. */
struct fake_exporter_config {
    const char *endpoint; /* required; the text must have the form host:port */
    struct br_secret token;
    struct br_headers headers;
};

extern const char *const fake_modes[]; /* names of the values of an enumeration: drop, keep, mark */
extern const struct br_option fake_receiver_options[];
extern const struct br_option fake_processor_options[];
extern const struct br_option fake_exporter_options[];
extern const struct br_component *const fake_registry[];
