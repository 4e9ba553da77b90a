/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statements of the Collector's language (OTTL) in groups. A group belongs to a context. The
 * processor transform visits the messages of the context and runs the group for each of them. The
 * state of the evaluation is a struct br_conditions with `edits` set, which the groups of a signal
 * share.
 */
#pragma once

#include "attribute/condition.h"

/* What happens if a statement or condition fails. */
enum br_error_mode {
    BR_ERROR_IGNORE, /* the next statement runs; the failure is logged */
    BR_ERROR_SILENT, /* the next statement runs */
    BR_ERROR_PROPAGATE,
};

struct br_statement; /* a compiled statement */

/* A group of statements. The struct must be zeroed at first. The memory belongs to the arena of
 * br_statements_add. */
struct br_statements {
    enum br_condition_context context;
    bool named; /* paths must begin with the name of a context */
    enum br_error_mode error_mode;
    /* the statements run only if one of these conditions is true; NULL: the statements always
     * run */
    struct br_condition *where;
    struct br_statement *first, *last;
    bool writes_outward; /* a statement changes a message that contains the context's message */
};

/* Returns the context of a group whose paths begin with the names of contexts: the innermost
 * context that occurs in the texts. Returns BR_CONDITION_NAMED if no context occurs. */
enum br_condition_context br_statements_infer(const char *const *texts, size_t count,
                                              enum br_signal signal);

/* Returns the context with the name, or BR_CONDITION_NAMED if the signal does not have this
 * context. */
enum br_condition_context br_context_find(const char *name, enum br_signal signal);

/* Returns the names of the contexts of a signal, for messages. */
const char *br_context_names(enum br_signal signal);

/* Compiles a statement in `arena` and appends it to the group, whose context must be set.
 * br_statements_add_condition adds a condition instead. Both return 0 or BR_ENOMEM. Both return
 * BR_EINVAL if the text is invalid, and BR_EUNSUPPORTED if the Collector supports the text and
 * Braid does not. The message for these errors starts with "at character N: ". */
int br_statements_add(struct br_statements *group, struct br_conditions *conditions,
                      const char *text, enum br_signal signal, struct br_arena *arena,
                      struct br_err *err);
int br_statements_add_condition(struct br_statements *group, struct br_conditions *conditions,
                                const char *text, enum br_signal signal, struct br_arena *arena,
                                struct br_err *err);

/* The evaluation has a current message of each context. The following functions make a message the
 * current one, and must be called in the order of the item's bytes: the resource of a part, a
 * scope, a record or profile that br_item_rewrite visits, and an event of the current span.
 * br_conditions_begin_record releases the values of the previous message; the functions for records
 * and profiles call it. */
void br_conditions_begin_record(struct br_conditions *conditions);
void br_statements_at_resource(struct br_conditions *conditions, uint32_t part);
void br_statements_at_scope(struct br_conditions *conditions, const struct br_visit *visit);
void br_statements_at_record(struct br_conditions *conditions, const struct br_visit *visit);
void br_statements_at_profile(struct br_conditions *conditions, const struct br_visit *visit);
void br_statements_at_event(struct br_conditions *conditions, uint64_t index, const uint8_t *body,
                            size_t len);

/* Runs a group at the current position. `*failed` is called for each failure that the error mode
 * ignores. Returns 0, BR_EINVAL (a failure that is propagated; conditions->why is the reason),
 * BR_EFULL or BR_ENOMEM. */
int br_statements_run(struct br_statements *group, struct br_conditions *conditions,
                      void (*failed)(void *arg, const struct br_statements *group), void *arg);

/* Returns true if a message has been changed since the evaluation moved to it. */
bool br_message_changed(const struct br_message *message);

/* Writes a changed message to the scratch memory. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_message_write(struct br_conditions *conditions, struct br_message *message,
                     struct br_addition *ret);

/* Empties a message that is used as a cache. Its values are allocated in `arena`. */
void br_message_clear(struct br_message *message, struct br_arena *arena);
