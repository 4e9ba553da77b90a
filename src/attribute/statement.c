/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/statement.h"

#include <string.h>

#include "attribute/expression_parse.h"

/* --- Compiling -------------------------------------------------------------------------------- */

static struct br_parser statement_parser(const struct br_statements *group,
                                         struct br_conditions *conditions, enum br_signal signal)
{
    return (struct br_parser){
        .conditions = conditions,
        .signal = signal,
        .context = group->named ? BR_CONDITION_NAMED : group->context,
        .level = group->context,
    };
}

static struct br_statement *statement_parse(struct br_parser *parser)
{
    struct br_statement *statement =
        br_parser_keep(parser, br_arena_calloc(parser->lexer.arena, 1, sizeof *statement));
    br_lexer_skip(&parser->lexer);
    const char *at = parser->lexer.at;
    if (!statement)
        return NULL;
    if (!br_word_len(at, parser->lexer.end))
        return br_parser_fail(parser, at, "a function such as set(...) is required here");
    statement->text = parser->lexer.text;
    statement->editor = br_parser_call(parser, br_editors);
    if (!statement->editor)
        return NULL;
    if (statement->editor->n_keys)
        return br_parser_fail(parser, at, "%s has no result, so it has no keys",
                              statement->editor->function->name);
    if (br_parser_take(parser, "where")) {
        statement->where = br_parser_condition(parser, "statement");
        return statement->where ? statement : NULL;
    }
    if (*parser->lexer.at)
        return br_parser_fail(parser, parser->lexer.at,
                              "expected \"where\" or the end of the statement");
    return statement;
}

int br_statements_add(struct br_statements *group, struct br_conditions *conditions,
                      const char *text, enum br_signal signal, struct br_arena *arena,
                      struct br_err *err)
{
    struct br_parser parser = statement_parser(group, conditions, signal);
    int rc = br_parser_begin(&parser, text, arena, err);
    if (rc)
        return rc;
    struct br_statement *statement = statement_parse(&parser);
    if (!statement)
        return parser.rc;
    const struct br_expression *target = statement->editor->items[0];
    group->writes_outward = group->writes_outward || target->message != group->context;
    if (group->last)
        group->last->next = statement;
    else
        group->first = statement;
    group->last = statement;
    return 0;
}

int br_statements_add_condition(struct br_statements *group, struct br_conditions *conditions,
                                const char *text, enum br_signal signal, struct br_arena *arena,
                                struct br_err *err)
{
    struct br_parser parser = statement_parser(group, conditions, signal);
    int rc = br_parser_begin(&parser, text, arena, err);
    struct br_condition *condition = rc ? NULL : br_parser_condition(&parser, "condition");
    if (!condition)
        return rc ? rc : parser.rc;
    struct br_condition **last = &group->where;
    while (*last)
        last = &(*last)->next;
    *last = condition;
    return 0;
}

/* --- Positions -------------------------------------------------------------------------------- */

void br_statements_at_resource(struct br_conditions *conditions, uint32_t part)
{
    size_t len;
    const uint8_t *body = br_part_resource(&conditions->item->parts[part], &len);
    br_message_set(&conditions->messages[BR_CONDITION_RESOURCE], body, len);
    conditions->part = part;
    conditions->n_resources++;
}

void br_statements_at_scope(struct br_conditions *conditions, const struct br_visit *visit)
{
    if (conditions->part != visit->part)
        br_statements_at_resource(conditions, visit->part);
    br_message_set(&conditions->messages[BR_CONDITION_SCOPE], visit->body, visit->len);
    conditions->n_scopes++;
}

void br_statements_at_profile(struct br_conditions *conditions, const struct br_visit *visit)
{
    br_conditions_begin_record(conditions);
    if (br_groups_at_profile(&conditions->groups, visit->index))
        br_conditions_begin_group(conditions);
    br_message_set(&conditions->messages[BR_CONDITION_PROFILE], visit->body, visit->len);
}

void br_statements_at_event(struct br_conditions *conditions, uint64_t index, const uint8_t *body,
                            size_t len)
{
    br_message_set(&conditions->messages[BR_CONDITION_EVENT], body, len);
    conditions->event_index = index;
}

/* --- Running ---------------------------------------------------------------------------------- */

/* The execution of a group of statements at one position of the item, for example a span. */
struct statement_run {
    struct br_statements *group;
    struct br_conditions *conditions;
    void (*failed)(void *arg, const struct br_statements *group);
    void *arg;
};

/* Handles a failure. Returns 0 if the execution continues. */
static int statement_end(const struct statement_run *run)
{
    struct br_conditions *conditions = run->conditions;
    if (conditions->rc)
        return conditions->rc;
    if (!conditions->failed)
        return 0;
    if (run->group->error_mode == BR_ERROR_PROPAGATE)
        return BR_EINVAL;
    conditions->failed = false;
    run->failed(run->arg, run->group);
    return 0;
}

/* Evaluates the conditions of the group. Returns 1 if at least one condition is true or the group
 * has no conditions. */
static int statement_group_holds(const struct statement_run *run)
{
    if (!run->group->where)
        return 1;
    for (struct br_condition *i = run->group->where; i; i = i->next) {
        bool holds = br_condition_holds(run->conditions, i->first) && !run->conditions->failed;
        int rc = statement_end(run);
        if (rc || holds)
            return rc ? rc : 1;
    }
    return 0;
}

int br_statements_run(struct br_statements *group, struct br_conditions *conditions,
                      void (*failed)(void *arg, const struct br_statements *group), void *arg)
{
    const struct statement_run run = {group, conditions, failed, arg};
    conditions->failed = false;
    int rc = statement_group_holds(&run);
    if (rc <= 0)
        return rc;
    for (struct br_statement *i = group->first; i; i = i->next) {
        struct br_any none;
        bool holds = !i->where || br_condition_holds(conditions, i->where->first);
        if (holds && !br_conditions_stopped(conditions))
            (void)i->editor->function->run(conditions, i->editor, &none);
        rc = statement_end(&run);
        if (rc)
            return rc;
    }
    return 0;
}
