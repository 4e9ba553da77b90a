/* SPDX-License-Identifier: Apache-2.0 */
#include "app/commands.h"

#include <string.h>

static const char *components_signals(const struct br_component *component)
{
    if (component->signals == BR_BOTH_SIGNALS)
        return "traces, profiles";
    if (component->signals == BR_SIGNAL_BIT(BR_TRACES))
        return "traces";
    return component->signals == BR_SIGNAL_BIT(BR_PROFILES) ? "profiles" : "-";
}

void br_components_table(struct br_str *out, const struct br_component *const *registry)
{
    br_str_printf(out, "%-10s %-22s %-10s %-17s %s\n", "KIND", "NAME", "ALIAS", "SIGNALS",
                  "STABILITY");
    for (; *registry; registry++)
        br_str_printf(out, "%-10s %-22s %-10s %-17s %-12s %s\n", br_kind_name((*registry)->kind),
                      (*registry)->name, (*registry)->alias ? (*registry)->alias : "",
                      components_signals(*registry), (*registry)->stability, (*registry)->help);
}

/* Appends `,"key":"text"` to the JSON in `out`, or nothing if `text` is NULL. */
static void components_text(struct br_str *out, const char *key, const char *text)
{
    if (!text)
        return;
    br_str_printf(out, ",\"%s\":", key);
    br_str_json(out, text, strlen(text));
}

static void components_default(struct br_str *out, const struct br_option *option)
{
    switch (option->kind) {
    case BR_OPT_BOOL:
        br_str_printf(out, ",\"default\":%s", option->def.boolean ? "true" : "false");
        break;
    case BR_OPT_INT:
        br_str_printf(out, ",\"default\":%lld", (long long)option->def.integer);
        break;
    case BR_OPT_DOUBLE:
        br_str_printf(out, ",\"default\":%g", option->def.real);
        break;
    case BR_OPT_DURATION:
    case BR_OPT_STRING:
    case BR_OPT_ENUM:
        components_text(out, "default", option->def.string);
        break;
    default:
        break;
    }
}

static void components_choices(struct br_str *out, const struct br_option *option)
{
    if (option->kind != BR_OPT_ENUM)
        return;
    br_str_puts(out, ",\"choices\":");
    for (int i = 0; option->choices[i]; i++) {
        br_str_putc(out, i ? ',' : '[');
        br_str_json(out, option->choices[i], strlen(option->choices[i]));
    }
    br_str_putc(out, ']');
}

static void components_options(struct br_str *out, const struct br_option *table)
{
    static const char *const types[] = {
        [BR_OPT_BOOL] = "bool",         [BR_OPT_INT] = "int",         [BR_OPT_DOUBLE] = "float",
        [BR_OPT_DURATION] = "duration", [BR_OPT_STRING] = "string",   [BR_OPT_SECRET] = "secret",
        [BR_OPT_ENUM] = "choice",       [BR_OPT_STRINGS] = "strings", [BR_OPT_HEADERS] = "headers",
        [BR_OPT_STRUCT] = "map",        [BR_OPT_PRESENT] = "map",     [BR_OPT_LIST] = "list",
        [BR_OPT_VALUE] = "any",         [BR_OPT_IGNORED] = "ignored",
    };
    br_str_puts(out, ",\"options\":[");
    for (const struct br_option *option = table; option && option->name; option++) {
        br_str_puts(out, option == table ? "{\"name\":" : ",{\"name\":");
        br_str_json(out, option->name, strlen(option->name));
        components_text(out, "alias", option->alias);
        components_text(out, "type", types[option->kind]);
        components_choices(out, option);
        components_text(out, "now", option->now);
        if (!option->now)
            components_default(out, option);
        if (option->required)
            br_str_puts(out, ",\"required\":true");
        components_text(out, "help", option->help);
        if (option->sub)
            components_options(out, option->sub);
        br_str_putc(out, '}');
    }
    br_str_putc(out, ']');
}

static void components_one(struct br_str *out, const struct br_component *component)
{
    br_str_puts(out, "{\"kind\":");
    br_str_json(out, br_kind_name(component->kind), strlen(br_kind_name(component->kind)));
    components_text(out, "name", component->name);
    components_text(out, "alias", component->alias);
    br_str_printf(out, ",\"signals\":[%s%s%s]", component->signals & 1 ? "\"traces\"" : "",
                  component->signals == BR_BOTH_SIGNALS ? "," : "",
                  component->signals & 2 ? "\"profiles\"" : "");
    components_text(out, "stability", component->stability);
    components_text(out, "help", component->help);
    components_options(out, component->options);
    br_str_putc(out, '}');
}

void br_components_json(struct br_str *out, const struct br_component *const *registry)
{
    br_str_putc(out, '[');
    for (size_t i = 0; registry[i]; i++) {
        br_str_puts(out, i ? ",\n" : "");
        components_one(out, registry[i]);
    }
    br_str_puts(out, "]\n");
}
