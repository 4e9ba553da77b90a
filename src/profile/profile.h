/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts profiles in other formats to OTLP, whether they come from an upload, a scrape or a file.
 *
 * What a format knows and OTLP has no field for is kept under names that the way back reads:
 * - Resource: every series label as an attribute of its name, `service_name` as `service.name`.
 * - Scope (one for each pprof, or what would be one): BR_SCOPE_* below. A scope with
 *   BR_SCOPE_PYROSCOPE_NAME came from a Pyroscope client: its resource's attributes are its labels.
 * - Sample: string labels as attributes, numeric ones as integers with their unit; the span's ids
 *   stay labels and become a link as well.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "otlp/build/build.h"

/* Scope attributes. The first two are OpenTelemetry's semantic conventions for pprof. */
#define BR_SCOPE_DEFAULT_SAMPLE_TYPE "pprof.scope.default_sample_type" /* string */
#define BR_SCOPE_SAMPLE_TYPE_ORDER "pprof.scope.sample_type_order"     /* int[] */
#define BR_SCOPE_PYROSCOPE_NAME "pyroscope.name" /* string: what `__name__` is, "process_cpu" */
#define BR_SCOPE_PYROSCOPE_METRIC                                                                  \
    "pyroscope.metric" /* string: what `__name__` is to be, of what no                             \
                          client of Pyroscope's sent */
/* Profile attributes. */
#define BR_PROFILE_DROP_FRAMES "pprof.profile.drop_frames" /* string */
#define BR_PROFILE_KEEP_FRAMES "pprof.profile.keep_frames" /* string */
#define BR_PROFILE_COMMENT "pprof.profile.comment"         /* string[] */
#define BR_PROFILE_DOC_URL "pprof.profile.doc_url"         /* string */
#define BR_PROFILE_CUMULATIVE "pprof.profile.cumulative"   /* bool: since the process began */

/* Sample attribute that the processor `join` writes: "inferred" or "ambiguous". */
#define BR_SAMPLE_JOIN "profile.join"

/* Sample attribute whose value is "estimated" if the file has times of an unknown clock, which were
 * moved so that the last sample was taken when the file was written. */
#define BR_SAMPLE_TIME "profile.time"
#define BR_SAMPLE_TIME_ESTIMATED "estimated"

/* Mapping and location attributes; the truth values only where they are true. */
#define BR_MAPPING_BUILD_ID "process.executable.build_id.gnu" /* string */
#define BR_MAPPING_HAS_FUNCTIONS "pprof.mapping.has_functions"
#define BR_MAPPING_HAS_FILENAMES "pprof.mapping.has_filenames"
#define BR_MAPPING_HAS_LINE_NUMBERS "pprof.mapping.has_line_numbers"
#define BR_MAPPING_HAS_INLINE_FRAMES "pprof.mapping.has_inline_frames"
#define BR_LOCATION_IS_FOLDED "pprof.location.is_folded"

enum br_profile_format {
    BR_FORMAT_PPROF,
    BR_FORMAT_JFR,
    BR_FORMAT_FOLDED, /* "a;b;c 10" root first */
    BR_FORMAT_LINES,  /* one stack per line, each counts 1 */
    BR_FORMAT_TRIE,
    BR_FORMAT_TREE,
    BR_FORMAT_SPEEDSCOPE,
    BR_FORMAT_PERF_SCRIPT,
    BR_FORMAT_CPUPROFILE, /* V8's */
    BR_FORMAT_GECKO,      /* what profiler.firefox.com shows */
};

/* What a Pyroscope client says of one sample type ("sample_type_config"). */
struct br_sample_type {
    const char *type, *units, *display_name, *aggregation; /* NULL: not said */
    bool cumulative, sampled;
};

/* The errors of a profile that was read nevertheless. */
struct br_profile_lost {
    uint32_t count;      /* samples that are left out ... */
    struct br_err first; /* ... and the error of the first */
    /* References to texts that are not there, for which an empty text is taken or none, and entries
     * of which a later one has the id. */
    uint32_t strays;
    struct br_err first_stray;
};

/* Asks for a profile in parts, where br_profile_divides. */
struct br_profile_parts {
    uint32_t stacks; /* of a part, at least 1 ... */
    size_t bytes;    /* ... or of its OTLP, whichever comes first */
    /* Takes what was built so far, which is a request by itself, out of the builder, so that the
     * next part begins with empty tables. The last part stays in it. Returns 0 or a code. */
    int (*take)(void *arg);
    void *arg;
};

/* What goes with the bytes. All is borrowed until return. */
struct br_profile_source {
    const uint8_t *data; /* plain, not compressed */
    size_t len;
    const struct br_addition *resource; /* encoded as field 1 of Resource; NULL: none */
    const char *pyroscope_name;         /* NULL: see from_pyroscope */
    bool from_pyroscope;  /* without a name: finds it by the rules of Pyroscope's ingestion and sets
                             BR_SCOPE_PYROSCOPE_NAME; otherwise there is none */
    const char *spy_name; /* pprof of /ingest: "pyspy" and others get the repairs that Pyroscope's
                             ingestion makes to what they send; NULL: unknown */
    const uint8_t *profile_id; /* 16 bytes, of the first Profile; or NULL */
    uint64_t start_ns, end_ns; /* when the format does not say */
    double sample_rate;        /* in Hz, of formats that count samples; 0: 100 */
    const char *type;          /* text formats: "cpu", "wall", "alloc_objects" ...; NULL: "cpu" */
    const char *units;         /* text formats: of the values; NULL: by the type */
    bool keeps_times; /* JFR with from_pyroscope: keeps the time and thread of each sample, for the
                         processor join; otherwise samples of equal stack and labels are one */
    const uint8_t *labels; /* JFR: the LabelsSnapshot message, plain; NULL: none */
    size_t labels_len;
    const struct br_sample_type *types; /* pprof */
    size_t n_types;
    bool cumulative; /* pprof: values are since the process began, but for inuse_* */
    bool counts_on;  /* pprof: what Go's runtime counts (alloc_*, contentions, delay) is */
    bool from_file;  /* pprof: nobody said more than the bytes do, so that it is where the profile
                        has no  duration */
    bool
        datadog; /* pprof: of one of Datadog's profilers, with its names of types, of which most are
                    0 in most samples: a sample is left out of a type of which it has nothing */
    struct br_profile_lost
        *lost; /* pprof, and torn chunks of JFR: is added to; NULL: nobody asks */
    const struct br_profile_parts *parts; /* NULL: it is read as one */
};

/* Returns how many bytes the names, or the labels, that a profile puts together from its texts may
 * have: more are no profile's, and would be out of proportion to what was sent. */
size_t br_profile_text_max(const struct br_profile_source *source);

/* Adds what `source` holds to the request under construction as ResourceProfiles of its own.
 * `scratch` is for what lives until return. Returns 0; BR_EINVAL with a sentence that says where
 * and what is wrong (what was built so far is then good for nothing but br_build_clear); BR_EFULL
 * with a sentence, when it would take more memory than four times what was sent and a MiB; or
 * BR_ENOMEM. An empty profile is no error and adds nothing. Of a pprof, a sample that refers to
 * what is not there, or has another number of values than there are types, is left out, as
 * Pyroscope does it, and counted in `lost`; where no sample is left it is BR_EINVAL. So are its
 * stray references. */
int br_profile_read(struct br_build *build, enum br_profile_format format,
                    const struct br_profile_source *source, struct br_arena *scratch,
                    struct br_err *err);

/* Returns true for formats that write each stack out, so that what they become may be several times
 * as large as they are, and tables that find equal ones larger still: folded text, lines,
 * speedscope and perf script. They can be read in parts; equal stacks in different parts are
 * several samples.
 */
bool br_profile_divides(enum br_profile_format format);

/* The formats, each with a file of its own; as br_profile_read. */
typedef int br_profile_read_fn(struct br_build *build, const struct br_profile_source *source,
                               struct br_arena *scratch, struct br_err *err);
br_profile_read_fn br_pprof_read, br_jfr_read, br_folded_read, br_lines_read, br_trie_read,
    br_tree_read, br_speedscope_read, br_perf_script_read, br_cpuprofile_read, br_gecko_read;

/* Returns true when the first line that says something is a sample as `perf script` prints it. */
bool br_perf_script_is(const char *text, size_t len);

/* Returns what is wrong with bytes that clients send by mistake in place of a profile, as a
 * sentence; NULL for all others. br_profile_read refuses them. */
const char *br_profile_odd(const uint8_t *data, size_t len);

/* Gives the format that bytes look to be in: pprof (also without gzip), JFR, speedscope,
 * .cpuprofile, Firefox's, perf script's or folded text. False when they are none of these. */
bool br_profile_guess(const uint8_t *data, size_t len, enum br_profile_format *ret);

/* Pyroscope's `__name__` for a pprof with these sample types: "process_cpu", "memory" ... Written
 * to `ret`, cut where it does not fit. `configs` NULL: Pyroscope's own. Source: grafana/pyroscope
 * pkg/og/convert/pprof. */
void br_pyroscope_name(const char *const *types, size_t count, const struct br_sample_type *configs,
                       size_t n_configs, char *ret, size_t size);
