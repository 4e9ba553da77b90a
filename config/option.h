/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Option tables: a component describes its settings as a constant array of rows. br_options_read
 * uses the rows to read a YAML map into a struct. Names, defaults and units are those of the
 * Collector.
 *
 * The struct field of a row must have the C type that belongs to the row's kind. BR_OPT checks this
 * at compile time. Each field is initialised to the default of its row. Strings and lists are
 * allocated in the arena that is passed to br_options_read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "config/yaml.h"

/* A text that is never written to a log, an error or a dump. */
struct br_secret {
    const char *text; /* the secret text; NULL: not set */
};

struct br_strings {
    const char **items;
    size_t count;
};

#define BR_HEADERS_MAX 48

/* Pairs of a name and a secret value, such as the HTTP headers under a key `headers:`. Names
 * keep the spelling and the order that they have in the config file. As RFC 9110 requires, names
 * are tokens and values have no control characters. There are at most BR_HEADERS_MAX pairs. */
struct br_headers {
    const char **names;
    struct br_secret *values;
    size_t count;
};

/* An array of structs, one for each element of a list in the config. The size of each struct, in
 * bytes, is the `size` of the option's row. */
struct br_structs {
    void *items;
    size_t count;
};

enum br_option_kind {
    BR_OPT_BOOL,   /* bool */
    BR_OPT_INT,    /* int64_t, within min..max */
    BR_OPT_DOUBLE, /* double, within min..max */
    /* the field is a uint64_t in nanoseconds; the value in the config is a duration in Go's syntax
     * ("1h5m", "300ms", "1.5s", "0") that is not negative */
    BR_OPT_DURATION,
    BR_OPT_STRING, /* the field is a const char *; NULL if the key is absent and has no default */
    BR_OPT_SECRET, /* struct br_secret */
    BR_OPT_ENUM,   /* the field is an int, the index of the value in `choices` */
    /* the field is a struct br_strings; a scalar is read as a list of one string */
    BR_OPT_STRINGS,
    /* the field is a struct br_headers, read from a map or a list of {name, value} */
    BR_OPT_HEADERS,
    /* the field is a struct described by `sub`; if the key is absent, the members of the struct
     * have their defaults */
    BR_OPT_STRUCT,
    /* the field is a pointer to a struct described by `sub`; the pointer is NULL if the key is
     * absent. If the key is present without a value, the members of the struct have their
     * defaults. */
    BR_OPT_PRESENT,
    /* the field is a struct br_structs, read from a list of maps described by `sub` */
    BR_OPT_LIST,
    BR_OPT_VALUE, /* the field is a const struct br_yaml *, the node itself; NULL if absent */
    /* the row has no field: the Collector's key is accepted, but it only causes a warning */
    BR_OPT_IGNORED,
};

struct br_option {
    const char *name;
    const char *alias; /* another spelling of the name, or NULL */
    /* path, relative to this table, of the key that has replaced this key, for example
     * "keepalive::idle_timeout"; NULL: this key has not been replaced. A replaced key is accepted
     * with a warning. It sets the field of the new key, whose row must come first. */
    const char *now;
    /* BOOL rows with `now`: this key has the opposite meaning of the new key, so its value is
     * inverted */
    bool negated;
    enum br_option_kind kind;
    size_t offset;
    bool required;
    bool secret; /* STRINGS: the texts are never written to a log, an error or a dump */
    union {
        bool boolean;
        int64_t integer;
        double real;
        /* default of a STRING, a SECRET, a DURATION ("200ms") or an ENUM (one of `choices`) */
        const char *string;
    } def;
    /* INT and DOUBLE: smallest and largest valid value; if both are 0, there is no limit */
    double min, max;
    /* INT: a value above `most` is read as `most`, with a warning; 0: there is no such limit. This
     * is for keys of which the Collector accepts larger values than Braid. */
    int64_t most;
    const char *const *choices; /* ENUM: the valid texts, ended by NULL */
    /* STRUCT, PRESENT, LIST: the table of the sub-struct, ended by a row without a name */
    const struct br_option *sub;
    size_t size; /* PRESENT, LIST: size of the sub-struct in bytes */
    /* description in one line, for the README and `braid components` */
    const char *help;
};

/* Macros for rows. `type` is the struct, and `field` is the name of its member. BR_OPT_END ends
 * a table. */
#define BR_OPT_FIELD(type, field, ctype)                                                           \
    (offsetof(type, field) +                                                                       \
     0 * sizeof(struct {                                                                           \
         _Static_assert(_Generic(((type *)0)->field, ctype : 1, default : 0),                      \
                        #field " has the wrong type for its option");                              \
         int i;                                                                                    \
     }))
#define BR_BOOL(type, field, dflt, text)                                                           \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_BOOL, .offset = BR_OPT_FIELD(type, field, bool),            \
        .def.boolean = (dflt), .help = (text)                                                      \
    }
#define BR_INT(type, field, dflt, lo, hi, text)                                                    \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_INT, .offset = BR_OPT_FIELD(type, field, int64_t),          \
        .def.integer = (dflt), .min = (lo), .max = (hi), .help = (text)                            \
    }
#define BR_INT_UP_TO(type, field, dflt, lo, highest, text)                                         \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_INT, .offset = BR_OPT_FIELD(type, field, int64_t),          \
        .def.integer = (dflt), .min = (lo), .max = 9.2e18, .most = (highest), .help = (text)       \
    }
#define BR_DOUBLE(type, field, dflt, lo, hi, text)                                                 \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_DOUBLE, .offset = BR_OPT_FIELD(type, field, double),        \
        .def.real = (dflt), .min = (lo), .max = (hi), .help = (text)                               \
    }
#define BR_DURATION(type, field, dflt, text)                                                       \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_DURATION, .offset = BR_OPT_FIELD(type, field, uint64_t),    \
        .def.string = (dflt), .help = (text)                                                       \
    }
#define BR_STRING(type, field, dflt, text)                                                         \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_STRING, .offset = BR_OPT_FIELD(type, field, const char *),  \
        .def.string = (dflt), .help = (text)                                                       \
    }
#define BR_SECRET(type, field, text)                                                               \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_SECRET,                                                     \
        .offset = BR_OPT_FIELD(type, field, struct br_secret), .help = (text)                      \
    }
#define BR_ENUM(type, field, dflt, names, text)                                                    \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_ENUM, .offset = BR_OPT_FIELD(type, field, int),             \
        .def.string = (dflt), .choices = (names), .help = (text)                                   \
    }
#define BR_STRINGS(type, field, text)                                                              \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_STRINGS,                                                    \
        .offset = BR_OPT_FIELD(type, field, struct br_strings), .help = (text)                     \
    }
#define BR_SECRETS(type, field, text)                                                              \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_STRINGS, .secret = true,                                    \
        .offset = BR_OPT_FIELD(type, field, struct br_strings), .help = (text)                     \
    }
#define BR_HEADERS(type, field, text)                                                              \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_HEADERS,                                                    \
        .offset = BR_OPT_FIELD(type, field, struct br_headers), .help = (text)                     \
    }
#define BR_STRUCT(type, field, table, text)                                                        \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_STRUCT, .offset = offsetof(type, field), .sub = (table),    \
        .help = (text)                                                                             \
    }
#define BR_PRESENT(type, field, sub_type, table, text)                                             \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_PRESENT, .offset = BR_OPT_FIELD(type, field, sub_type *),   \
        .sub = (table), .size = sizeof(sub_type), .help = (text)                                   \
    }
#define BR_LIST(type, field, sub_type, table, text)                                                \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_LIST,                                                       \
        .offset = BR_OPT_FIELD(type, field, struct br_structs), .sub = (table),                    \
        .size = sizeof(sub_type), .help = (text)                                                   \
    }
#define BR_VALUE(type, field, text)                                                                \
    {                                                                                              \
        .name = #field, .kind = BR_OPT_VALUE,                                                      \
        .offset = BR_OPT_FIELD(type, field, const struct br_yaml *), .help = (text)                \
    }
#define BR_IGNORED(key, text)                                                                      \
    {                                                                                              \
        .name = (key), .kind = BR_OPT_IGNORED, .help = (text)                                      \
    }
/* Row for the older spelling `key` of the key at `path`. `field`, of type `ctype`, is the field of
 * the key at `path`. */
#define BR_OLDER(kind_, type, field, ctype, key, path)                                             \
    {                                                                                              \
        .name = (key), .kind = (kind_), .offset = BR_OPT_FIELD(type, field, ctype), .now = (path), \
        .help = "older spelling of `" path "`"                                                     \
    }
#define BR_OLDER_NEGATED(type, field, key, path)                                                   \
    {                                                                                              \
        .name = (key), .kind = BR_OPT_BOOL, .offset = BR_OPT_FIELD(type, field, bool),             \
        .now = (path), .negated = true, .help = "older spelling of the opposite of `" path "`"     \
    }
#define BR_OPT_END                                                                                 \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/* Reads the MAP `node` into `out`, the struct that the table describes. If `node` is NULL or a NULL
 * node, all fields are set to their defaults. The fields of `out` need not be initialised. `path`
 * is the path of `node` in the config; the path of each error begins with it. The error for an
 * unknown key names the most similar known key. Returns 0, or BR_EINVAL or BR_ENOMEM with errors
 * added to `errs`; `out` may then be partly filled. */
int br_options_read(const struct br_option *table, const struct br_yaml *node, const char *path,
                    void *out, struct br_arena *arena, struct br_errs *errs);

/* Parses a Go duration into nanoseconds. Returns false if `text` is not a duration or is
 * negative. */
bool br_duration_parse(const char *text, uint64_t *ret_ns);

/* Writes a duration in the syntax of br_duration_parse, with the largest units that represent it
 * exactly: "1h30m", "1.5s", "200ms", "0s". Returns `out`. */
#define BR_DURATION_SIZE 48
const char *br_duration_format(uint64_t ns, char out[BR_DURATION_SIZE]);

/* Parses "host:port", "[::1]:port" or ":port". `host` must have room for 256 bytes. Returns
 * false if the port is missing or not from 0 to 65535. */
bool br_endpoint_parse(const char *text, char *host, unsigned *ret_port);

/* --- Effective values: effective.c ------------------------------------------------------------ */

/*
 * A tree of effective values contains every key of an option table. A key that has no value is null
 * in the tree. An absent section is `{enabled: false}`, because a section without a value would be
 * enabled. Lists of maps, and keys that have no effect, are copied from the config file. Reading
 * the tree with br_options_read gives the same settings again.
 */

/* Returns the effective values of `settings` as a tree. `settings` is the struct that
 * br_options_read has filled from `node` (may be NULL) as described by `table`. The tree is
 * allocated in `arena`, and refers to the texts in `settings` and `node`. Returns NULL if memory
 * runs out. */
struct br_yaml *br_options_effective(const struct br_option *table, const void *settings,
                                     const struct br_yaml *node, struct br_arena *arena);
