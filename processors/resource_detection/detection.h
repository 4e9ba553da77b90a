/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the detectors of a node and merges their attributes.
 *
 * | state           | event                    | next state      | items              |
 * |-----------------|--------------------------|-----------------|--------------------|
 * | first detection | all detectors succeeded  | detected        | wait               |
 * | first detection | a detector failed        | failed          | wait               |
 * | failed          | delay of the retry ended | detecting again | are refused        |
 * | detecting again | all detectors succeeded  | detected        | are refused        |
 * | detecting again | a detector failed        | failed          | are refused        |
 * | detected        | refresh_interval ended   | refreshing      | get the attributes |
 * | refreshing      | all detectors succeeded  | detected        | get the attributes |
 * | refreshing      | a detector failed        | detected        | get the attributes |
 *
 * A failed refresh keeps the attributes of the previous detection.
 *
 * All detectors of a detection run at the same time, and together have the time `timeout`. The
 * detector that is listed first has precedence if several detect the same attribute.
 */
#pragma once

#include <stdbool.h>

#include "attribute/value.h"
#include "egress/kubernetes.h"
#include "net/client.h"
#include "pipeline/component.h"
#include "processors/resource_detection/config.h"

#define DETECT_FOUND_MAX 256 /* largest number of attributes that one detector sets */
#define DETECT_CLIENTS 2     /* largest number of servers that one detector asks */

struct detection;
struct detect_job;
struct detect_run;

/* The answer to a request. */
struct detect_answer {
    const char *error; /* reason why there is no answer with status 200; NULL: there is one */
    unsigned status;   /* HTTP status; 0: the server did not answer */
    const char *body;  /* NUL-terminated; "" without a body */
    size_t len;
};

/* A kind of detector. */
struct detector {
    /* Starts the detection. Calls detect_request, detect_end, detect_fail or detect_missing. NULL:
     * the detector works in a thread. */
    void (*begin)(struct detect_run *run);
    /* Receives the answer to the request, and calls one of these functions again. NULL: the
     * detector sends no requests. */
    void (*on_answer)(struct detect_run *run, const struct detect_answer *answer);
    /* Runs in a thread, on a copy of the run. May set attributes and, to fail, `run->why`. NULL:
     * the detector does not work in a thread. */
    void (*in_thread)(struct detect_run *run);
};

/* The detectors, by number. */
extern const struct detector *const detectors[DETECT_KINDS];

struct detect_found {
    const char *key;
    size_t key_len;
    struct br_value value;
};

/* A detector of a node, and the results of its last run. */
struct detect_run {
    struct detection *detection;
    int kind;
    const struct detector *detector;
    const struct detect_section *section;
    struct br_arena arena; /* memory of the results, and of the texts of requests */
    struct detect_found *found;
    uint32_t n_found, cap_found;
    bool ended, failed;
    char why[256]; /* reason of a failure */
    unsigned step; /* which answer the detector waits for; the detector uses the value */
    /* state that the detector keeps between its requests; NULL at first */
    void *data;
    /* the request in progress, and the number of its client */
    struct br_exchange exchange;
    unsigned client;
    struct br_header headers[2];
    struct br_deferred deferred;
    bool sending;
    struct detect_answer answer;
    struct br_client *clients[DETECT_CLIENTS];
    char origins[DETECT_CLIENTS][320]; /* scheme, host and port of the clients' servers */
    struct br_kubernetes kubernetes;
    struct detect_job *job; /* work in a thread that has not ended; NULL: there is none */
};

struct detection {
    struct br_node *node;
    const struct detect_config *config;
    struct detect_run *runs;
    size_t n_runs;
    unsigned n_pending; /* number of runs that have not ended */
    unsigned n_failed;  /* number of consecutive failed detections */
    bool running;       /* a detection is in progress */
    bool starting;      /* the function that starts the runs has not returned */
    bool late;          /* the time limit of the detection has passed */
    bool detected;      /* `found` is valid */
    struct br_timer limit, again;
    struct br_arena arena; /* memory of `found` */
    struct detect_found *found;
    size_t n_found;
    void (*on_end)(struct detection *detection); /* called after each detection */
};

/* Initialises a zeroed detection. Returns 0 or BR_ENOMEM. detect_release must be called after a
 * failure as well. */
int detect_init(struct detection *detection, struct br_node *node,
                void (*on_end)(struct detection *detection));

/* Starts the first detection. Returns 0, BR_ENOMEM, or BR_EINVAL with the reason in `err` if a
 * detector fails before this function returns. */
int detect_start(struct detection *detection, struct br_err *err);

/* Stops the detection in progress and all timers. on_end is not called any more. */
void detect_stop(struct detection *detection);
void detect_release(struct detection *detection);

/* --- For detectors ---------------------------------------------------------------------------- */

/* Returns true if the attribute is switched on. */
bool detect_wants(const struct detect_run *run, const char *key);

/* Sets an attribute if it is switched on. Empty texts and NULL are ignored. `key` is a constant. */
void detect_text(struct detect_run *run, const char *key, const char *text);
void detect_int(struct detect_run *run, const char *key, int64_t number);
void detect_texts(struct detect_run *run, const char *key, const char *const *texts, size_t count);

/* Sets an attribute that has no switch. The key is copied. */
void detect_any(struct detect_run *run, const char *prefix, const char *key, const char *text);

/* Connects client number `index` to a server, unless it is connected to it already. `tls` may be
 * NULL. Returns false after detect_fail was called because the address is invalid. */
bool detect_connect(struct detect_run *run, unsigned index, const char *origin,
                    const struct br_tls_config *tls);

/* Sends a request with up to two headers; NULL: fewer. `method` NULL means GET. The texts of the
 * headers are borrowed until the answer. */
void detect_request(struct detect_run *run, unsigned index, const char *method, const char *path,
                    const struct br_header *headers, size_t n_headers);

/* The run has ended: detect_end with its attributes, detect_fail with an error, detect_missing
 * because the metadata service does not exist. The latter is an error only with
 * fail_on_missing_metadata, and otherwise there are no attributes. */
void detect_end(struct detect_run *run);
void detect_fail(struct detect_run *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void detect_missing(struct detect_run *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
bool detect_must_exist(const struct detect_run *run);

/* Returns an environment variable, or NULL if it is not set or empty. */
const char *detect_variable(const char *name);

/* Returns true if the text matches one of the regular expressions. */
bool detect_matches(const struct br_strings *patterns, const char *text);

/* --- The Kubernetes API (kubernetes.c) ---------------------------------------------------------
 */

/* Prepares the requests to the Kubernetes API. Called before the first detection. */
void detect_kubernetes_prepare(struct detect_run *run);
