/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts profiles in other formats to OTLP, for uploads, scrapes and files.
 *
 * Properties for which OTLP has no field become attributes that the conversion to pprof reads back:
 * - Resource: every series label becomes an attribute with the same name, except that
 *   `service_name` becomes `service.name`.
 * - Scope (one per pprof or equivalent): the attributes BR_SCOPE_* below. BR_SCOPE_PYROSCOPE_NAME
 *   marks a profile that a Pyroscope client sent; the attributes of its resource are the labels of
 *   the series.
 * - Sample: string labels become attributes, numeric labels become integers with their unit. The
 *   IDs of a sample's span remain attributes and also become a link.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "otlp/build/build.h"

/* Scope attributes. The first two of these attributes are defined in OpenTelemetry's semantic
 * conventions for pprof. */
#define BR_SCOPE_DEFAULT_SAMPLE_TYPE "pprof.scope.default_sample_type" /* value: string */
#define BR_SCOPE_SAMPLE_TYPE_ORDER "pprof.scope.sample_type_order"     /* value: int[] */
/* the value is a string: the client's `__name__`, such as "process_cpu" */
#define BR_SCOPE_PYROSCOPE_NAME "pyroscope.name"
/* the value is a string: the `__name__` of a profile that no Pyroscope client sent */
#define BR_SCOPE_PYROSCOPE_METRIC "pyroscope.metric"
/* Profile attributes. */
#define BR_PROFILE_DROP_FRAMES "pprof.profile.drop_frames" /* value: string */
#define BR_PROFILE_KEEP_FRAMES "pprof.profile.keep_frames" /* value: string */
#define BR_PROFILE_COMMENT "pprof.profile.comment"         /* value: string[] */
#define BR_PROFILE_DOC_URL "pprof.profile.doc_url"         /* value: string */
/* the value is a boolean; if true, the profile's values are totals since the process began */
#define BR_PROFILE_CUMULATIVE "pprof.profile.cumulative"

/* Sample attribute written by the processor `join`, with the value "inferred" or "ambiguous". */
#define BR_SAMPLE_JOIN "profile.join"

/* Sample attribute with the value "estimated", written if the clock of the file is unknown. In this
 * case, the times of the samples are shifted so that the last sample is at
 * br_profile_source.end_ns. */
#define BR_SAMPLE_TIME "profile.time"
#define BR_SAMPLE_TIME_ESTIMATED "estimated"

/* Mapping and location attributes. Boolean attributes are written only if they are true. */
#define BR_MAPPING_BUILD_ID "process.executable.build_id.gnu" /* value: string */
#define BR_MAPPING_HAS_FUNCTIONS "pprof.mapping.has_functions"
#define BR_MAPPING_HAS_FILENAMES "pprof.mapping.has_filenames"
#define BR_MAPPING_HAS_LINE_NUMBERS "pprof.mapping.has_line_numbers"
#define BR_MAPPING_HAS_INLINE_FRAMES "pprof.mapping.has_inline_frames"
#define BR_LOCATION_IS_FOLDED "pprof.location.is_folded"

enum br_profile_format {
    BR_FORMAT_PPROF,
    BR_FORMAT_JFR,
    BR_FORMAT_FOLDED, /* lines such as "a;b;c 10", outermost frame first */
    BR_FORMAT_LINES,  /* one stack per line; each line counts as 1 */
    BR_FORMAT_TRIE,
    BR_FORMAT_TREE,
    BR_FORMAT_SPEEDSCOPE,
    BR_FORMAT_PERF_SCRIPT,
    BR_FORMAT_CPUPROFILE, /* V8's .cpuprofile files */
    BR_FORMAT_GECKO,      /* profiles of the Firefox Profiler (profiler.firefox.com) */
};

/* Properties of one sample type, sent by a Pyroscope client in "sample_type_config". */
struct br_sample_type {
    /* NULL: the client did not send this property */
    const char *type, *units, *display_name, *aggregation;
    bool cumulative, sampled;
};

/* Samples and references that were left out of a profile while the rest of the profile was read. */
struct br_profile_lost {
    uint32_t count;      /* number of samples left out */
    struct br_err first; /* error of the first sample left out */
    /* Number of invalid references to strings, which are replaced by the empty string or
     * dropped, plus the number of table entries whose ID is also used by a later entry. */
    uint32_t strays;
    struct br_err first_stray;
};

/* Settings for reading a profile in parts, which is possible if br_profile_divides() is true for
 * its format. */
struct br_profile_parts {
    uint32_t stacks; /* number of stacks after which a part ends, at least 1 */
    size_t bytes;    /* a part also ends when its OTLP reaches this many bytes */
    /* Takes the part built so far, a complete request, out of the builder, so that the next part
     * begins with empty tables. The last part stays in the builder. Returns 0 or an error code,
     * which ends the reading. */
    int (*take)(void *arg);
    void *arg;
};

/* A profile and its metadata. All pointers are borrowed until br_profile_read returns. */
struct br_profile_source {
    const uint8_t *data; /* the uncompressed profile */
    size_t len;
    /* attributes of the Resource, encoded as its field 1; NULL: the Resource has no attributes */
    const struct br_addition *resource;
    const char *pyroscope_name; /* value of `__name__`; NULL: see from_pyroscope */
    /* if pyroscope_name is NULL: determine the name by the rules of Pyroscope's ingestion and
     * set BR_SCOPE_PYROSCOPE_NAME */
    bool from_pyroscope;
    /* pprof from /ingest: name of the profiler. Profiles of "pyspy" and some others are
     * corrected in the same way as by Pyroscope's ingestion; NULL: unknown */
    const char *spy_name;
    const uint8_t *profile_id; /* ID of the first Profile, 16 bytes; NULL: the Profile has no ID */
    /* start and end in ns since 1970, used if the profile contains no times */
    uint64_t start_ns, end_ns;
    double sample_rate; /* sampling rate in Hz, for formats that count samples; 0: 100 Hz */
    /* text formats: type of the profile ("cpu", "wall", "alloc_objects" ...); NULL: "cpu" */
    const char *type;
    /* text formats: unit of the values; NULL: the unit is derived from the type */
    const char *units;
    /* JFR with from_pyroscope: keep the time and thread of each sample for the processor join;
     * otherwise samples with equal stack and labels are merged */
    bool keeps_times;
    /* JFR: encoded LabelsSnapshot message, uncompressed; NULL: there is no such message */
    const uint8_t *labels;
    size_t labels_len;
    /* pprof: properties of sample types, sent by a Pyroscope client */
    const struct br_sample_type *types;
    size_t n_types;
    bool cumulative; /* pprof: values except inuse_* are totals since the process began */
    /* pprof: the counters of the Go runtime (alloc_*, contentions, delay) are totals since the
     * process began */
    bool go_totals;
    /* pprof: the profile was read from a file, so no client has sent metadata. If the profile has
     * no duration, the counters of the Go runtime are treated as totals since the process began */
    bool from_file;
    /* pprof: the profile is from a Datadog profiler, which uses other names of sample types.
     * Most values of a sample are 0; a sample is written only for the types for which its value
     * is not 0 */
    bool datadog;
    /* Errors in a pprof, and truncated JFR chunks, are added here. NULL: errors are not counted. */
    struct br_profile_lost *lost;
    /* how to divide the profile into parts; NULL: read the profile as one request */
    const struct br_profile_parts *parts;
};

/* Returns the maximum number of bytes that all names composed from the strings of a profile may
 * have together. The same maximum applies to all composed labels. The limit is in proportion to the
 * size of the upload and far above that of real profiles. */
size_t br_profile_text_max(const struct br_profile_source *source);

/* Appends the profile in `source` to the request under construction as a new ResourceProfiles.
 * `scratch` is used for temporary memory. An empty profile is not an error and adds nothing.
 *
 * In a pprof, a sample with an invalid reference or a wrong number of values is left out, as in
 * Pyroscope, and counted in `source->lost`. Invalid string references are also counted in
 * `source->lost`.
 *
 * Returns 0, or a code with a message in `err`. After an error the builder contains an incomplete
 * profile; only br_build_clear or br_build_undo may follow:
 * - BR_EINVAL: the profile is malformed, or every sample of a pprof was left out.
 * - BR_EFULL: reading would take more memory than four times the size of the upload plus 1 MiB.
 * - BR_EUNSUPPORTED: `format` is unknown.
 * - BR_ENOMEM. */
int br_profile_read(struct br_build *build, enum br_profile_format format,
                    const struct br_profile_source *source, struct br_arena *scratch,
                    struct br_err *err);

/* Returns true for formats that write each stack in full: folded text, lines, speedscope and perf
 * script. The OTLP of such a profile may be several times as large as the upload, and the builder's
 * hash tables may be larger still. Profiles in these formats can be read in parts; equal stacks in
 * different parts stay separate samples. */
bool br_profile_divides(enum br_profile_format format);

/* A function that reads profiles of one format. The function has the same contract as
 * br_profile_read. */
typedef int br_profile_read_fn(struct br_build *build, const struct br_profile_source *source,
                               struct br_arena *scratch, struct br_err *err);
br_profile_read_fn br_pprof_read, br_jfr_read, br_folded_read, br_lines_read, br_trie_read,
    br_tree_read, br_speedscope_read, br_perf_script_read, br_cpuprofile_read, br_gecko_read;

/* Returns true if the first line that is neither blank nor a comment is a sample printed by
 * `perf script`. */
bool br_perf_script_is(const char *text, size_t len);

/* Returns a description of the problem for data that clients are known to send by mistake instead
 * of a profile; NULL for all other data. br_profile_read rejects data with such a mistake. */
const char *br_profile_known_mistake(const uint8_t *data, size_t len);

/* Guesses the format of a profile: pprof (with or without gzip), JFR, speedscope, .cpuprofile,
 * Firefox, perf script or folded text. Returns false if none of these formats matches. */
bool br_profile_guess(const uint8_t *data, size_t len, enum br_profile_format *ret);

/* Determines Pyroscope's `__name__` ("process_cpu", "memory" ...) for a pprof with the sample
 * types `types`. Writes the name to `ret`, truncated to `size` bytes. If `configs` is NULL,
 * Pyroscope's defaults are used. Source: grafana/pyroscope pkg/og/convert/pprof. */
void br_pyroscope_name(const char *const *types, size_t count, const struct br_sample_type *configs,
                       size_t n_configs, char *ret, size_t size);
