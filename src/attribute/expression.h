/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled form of conditions and statements, for the .c files of this directory. */
#pragma once

#include "attribute/condition.h"
#include "attribute/statement.h"

/* How a path reads and writes its value. */
enum br_path_form {
    BR_FORM_ATTRIBUTES, /* the attributes of the message, or the value of one attribute */
    BR_FORM_CACHE,
    BR_FORM_TEXT,   /* a string */
    BR_FORM_NUMBER, /* a varint or a fixed64 */
    BR_FORM_ID,     /* an id, whose value is its hex digits */
    BR_FORM_KIND,
    BR_FORM_OLD_KIND,
    BR_FORM_STATUS_CODE,
    BR_FORM_STATUS_MESSAGE,
    BR_FORM_TRACE_STATE,
    BR_FORM_TYPE, /* a string of a ValueType */
    BR_FORM_UNIT,
    BR_FORM_VALUES,
    BR_FORM_TIMES,
    BR_FORM_LINK_TRACE,
    BR_FORM_LINK_SPAN,
    BR_FORM_FUNCTIONS,
    BR_FORM_EVENT_INDEX,
};

struct br_path {
    const char *name;
    enum br_path_form form;
    uint32_t number;   /* number of the field in the message */
    enum br_wire wire; /* NUMBER: wire type of the field; ID: unused */
    uint32_t size;     /* ID: number of bytes; NUMBER: number of bits, 0 means 64 */
    bool constant;     /* statements cannot change the value */
};

/* A key in brackets. */
struct br_path_key {
    const char *text; /* key of a map; NULL: the key is `index`, a position in a list */
    size_t len;
    int64_t index;
};

enum br_expression_kind {
    BR_EXPRESSION_LITERAL,
    BR_EXPRESSION_PATH,
    BR_EXPRESSION_LIST,
    BR_EXPRESSION_MAP, /* `items` contains keys and values, alternately */
    BR_EXPRESSION_CALL,
    BR_EXPRESSION_MATH, /* `items` contains one or two operands */
};

#define BR_ARGUMENTS_MAX 4

struct br_expression {
    enum br_expression_kind kind;
    enum br_condition_context message; /* PATH: the message to which the path belongs */
    const struct br_path *path;
    const struct br_function *function;
    char sign; /* MATH: the operator: + - * or /; a "-" with one operand changes the sign */
    bool bare; /* the text has neither a sign nor parentheses */
    struct br_path_key *keys;
    uint32_t n_keys, n_items;
    /* elements of a LIST or MAP, operands of MATH, or arguments of a CALL; NULL: an optional
     * argument is absent */
    struct br_expression **items;
    struct br_any literal;
    pcre2_code *pattern; /* CALL: the compiled argument of the kind PATTERN */
    /* CALL: index, in `choices` of the parameter, of the argument for the parameter of the kind
     * MODE */
    unsigned mode;
    /* PATH in a span, a group, a scope or a resource: the value that was read last, and the number
     * of the span, group, scope or resource that the value was read from */
    struct br_any known;
    uint64_t known_in;
    /* IsMatch on such a PATH: the result for the span, group, scope or resource with the number
     * `known_in` */
    bool matched;
};

/* The kinds of parameters. Arguments for parameters of the kind VALUE are checked when the function
 * is called, all other arguments when the config is loaded. */
enum br_parameter_kind {
    BR_PARAMETER_END,
    BR_PARAMETER_VALUE,
    BR_PARAMETER_TARGET,  /* a path that can be changed */
    BR_PARAMETER_MAP,     /* a path of a map that can be changed */
    BR_PARAMETER_PATTERN, /* a regular expression, which must be a literal */
    BR_PARAMETER_MODE,    /* one of the words in `choices`, which must be a literal */
    BR_PARAMETER_COUNT,   /* a whole number of at least 0, which must be a literal */
    BR_PARAMETER_BOOL,    /* true or false, which must be a literal */
    BR_PARAMETER_KEYS,    /* a list of strings, which must be a literal */
    BR_PARAMETER_LIST,    /* a list of values */
};

struct br_parameter {
    const char *name;
    enum br_parameter_kind kind;
    bool optional;
    const char *choices[5]; /* MODE */
    /* VALUE: set of bits 1 << enum br_value_type, the types of literals that are allowed; 0: all */
    unsigned literals;
};

/* Evaluates a call. Returns false if the call fails (br_conditions_fail), or if the evaluation of
 * the whole item must end (conditions->rc). */
typedef bool br_function_fn(struct br_conditions *conditions, struct br_expression *call,
                            struct br_any *ret);

struct br_function {
    const char *name;
    br_function_fn *run;
    bool for_spans; /* the function is only available in the context span */
    struct br_parameter parameters[BR_ARGUMENTS_MAX + 1]; /* ended by BR_PARAMETER_END */
};

/* Tables of functions, sorted by name. The last row has no name. */
extern const struct br_function br_converters[], br_editors[];

enum br_condition_op {
    CONDITION_OR, /* `or`, with one or more children */
    CONDITION_AND,
    CONDITION_NOT, /* `not`, with one child */
    CONDITION_CONSTANT,
    CONDITION_CALL, /* the call, in `left`, of a function whose result is a boolean */
    CONDITION_EQ,
    CONDITION_NE,
    CONDITION_LT,
    CONDITION_LE,
    CONDITION_GT,
    CONDITION_GE,
};

struct br_condition {
    enum br_condition_op op;
    bool constant;
    struct br_expression *left, *right;
    /* `first`: the first child; `next`: the next child of the same parent */
    struct br_condition *first, *next;
};

struct br_statement {
    struct br_expression *editor;
    struct br_condition *where; /* NULL: always */
    const char *text;
    struct br_statement *next;
};

struct br_pattern {
    pcre2_code *code;
    struct br_pattern *next;
};

/* --- Evaluation (condition.c) ----------------------------------------------------------------- */

/* Returns true if the evaluation has failed or the item must end. */
static inline bool br_conditions_stopped(const struct br_conditions *conditions)
{
    return conditions->failed || conditions->rc;
}

/* Stores the reason of a failure in `why`, unless a failure is already stored. Returns false. */
bool br_conditions_fail(struct br_conditions *conditions, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Counts bytes that a function processes. If the functions have processed more bytes than the limit
 * for the item allows, sets conditions->rc to BR_EFULL and returns false. */
bool br_conditions_work(struct br_conditions *conditions, size_t bytes);

/* Evaluates an expression. If the evaluation fails, returns nil and sets conditions->failed. */
struct br_any br_expression_value(struct br_conditions *conditions,
                                  struct br_expression *expression);

bool br_condition_holds(struct br_conditions *conditions, struct br_condition *node);

/* Replaces a comparison of two literals with its result, unless both are lists or both are maps. */
void br_condition_fold(struct br_conditions *conditions, struct br_condition *node);

/* Returns true for a literal, and for a list or map that consists of literals. */
bool br_expression_is_literal(const struct br_expression *expression);

/* Returns the result that br_conditions_keep stored for `key` in this item, or 0 if no result is
 * stored. A key consists of the expression, and the address and length of a value that does not
 * change and that several records may have. */
uintptr_t br_conditions_known(const struct br_conditions *conditions, const uintptr_t key[3]);
void br_conditions_keep(struct br_conditions *conditions, const uintptr_t key[3], uintptr_t result);

/* Matches a pattern. If the match takes too long, returns false; if conditions->edits is set, also
 * ends the evaluation of the item with BR_EFULL. */
bool br_conditions_match(struct br_conditions *conditions, const pcre2_code *pattern,
                         const void *text, size_t len);

/* Handles the failure `rc` of a search for a pattern. */
void br_conditions_match_failed(struct br_conditions *conditions, int rc);

/* Evaluates IsMatch. */
bool br_condition_match(struct br_conditions *conditions, struct br_expression *call);

/* Begins the group that the current record belongs to. */
void br_conditions_begin_group(struct br_conditions *conditions);

/* --- Messages and paths (message.c) ----------------------------------------------------------- */

/* Returns the number of the span, group, scope or resource to which a path belongs, or 0 if the
 * path must be read each time. */
uint64_t br_path_place(const struct br_conditions *conditions,
                       const struct br_expression *expression);

/* Returns true if the attribute of the path is an unchanged entry of the dictionary. */
bool br_path_is_entry(struct br_conditions *conditions, const struct br_expression *path);

/* Reads a path. */
struct br_any br_path_read(struct br_conditions *conditions,
                           const struct br_expression *expression);

/* Follows keys into a map or a list. If a map does not have a key, returns nil and sets
 * `*ret_missing`. Fails if a list does not have an element, or if a value has no elements. */
struct br_any br_path_index(struct br_conditions *conditions, struct br_any any,
                            const struct br_path_key *keys, uint32_t n_keys, bool *ret_missing);

/* Returns true if the first key of the path is a text. Otherwise fails. */
bool br_path_key_is_text(struct br_conditions *conditions, const struct br_expression *path);

/* Returns the attributes of a message, and reads them at the first call. Returns NULL if reading
 * fails. */
struct br_attributes *br_message_list(struct br_conditions *conditions, struct br_message *message);

/* Returns the attributes as a map in the scratch memory. */
struct br_any br_attributes_map(struct br_conditions *conditions, const struct br_attributes *list);

/* Makes `message` describe the `len` bytes at `body`, without changes. */
void br_message_set(struct br_message *message, const uint8_t *body, size_t len);

/* Returns the name of a value's type, as in the Collector's messages. */
const char *br_any_name(const struct br_any *any);

/* Copies bytes to an arena as the content of a value. */
struct br_any br_any_copy(struct br_conditions *conditions, enum br_value_type type,
                          const void *data, size_t len);

/* Encodes a value as an AnyValue in the arena. Returns false if memory runs out. */
bool br_any_write(const struct br_any *any, struct br_arena *arena, struct br_value *ret);

/* Appends the text of a value as the Collector's StringLikeGetter does. Returns false if the value
 * is nil. */
bool br_any_text(struct br_conditions *conditions, const struct br_any *any, struct br_str *out);

static inline struct br_any br_any_string(const void *data, size_t len)
{
    return (struct br_any){.type = BR_VALUE_STRING, .data = data, .len = len};
}

static inline struct br_any br_any_int(int64_t value)
{
    return (struct br_any){.type = BR_VALUE_INT, .number = (uint64_t)value};
}

static inline struct br_any br_any_bool(bool value)
{
    return (struct br_any){.type = BR_VALUE_BOOL, .number = value};
}

/* --- Changes (message_write.c) ---------------------------------------------------------------- */

/* Sets the value of a path. Returns false if the value cannot be set. */
bool br_path_write(struct br_conditions *conditions, const struct br_expression *target,
                   struct br_any value);

/* A map that an editor changes: the attributes of a message, a cache, or a copy of a map inside
 * an attribute. */
struct br_map_edit {
    struct br_attributes *list;
    struct br_arena *arena; /* memory for new values */
    const struct br_expression *target;
    struct br_attributes copy;
    bool is_copy;
};

/* Begins and ends the change of a map. br_map_edit_begin returns false if the target is not a
 * map. br_map_edit_end writes a copy back if it was changed. */
bool br_map_edit_begin(struct br_conditions *conditions, const struct br_expression *target,
                       struct br_map_edit *ret);
bool br_map_edit_end(struct br_conditions *conditions, struct br_map_edit *edit, bool ok);

/* Sets a key of the map to a value, which is copied. Returns false if memory runs out. */
bool br_map_edit_put(struct br_conditions *conditions, struct br_map_edit *edit, const void *key,
                     size_t key_len, const struct br_any *value);

/* --- JSON (value_json.c) ---------------------------------------------------------------------- */

/* Parses an object or array of JSON. Returns false if the text is not JSON. */
bool br_conditions_parse_json(struct br_conditions *conditions, const struct br_any *text,
                              struct br_any *ret);
