/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/profile_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/profiles_pb.h"

typedef Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
    Request;
typedef Opentelemetry__Proto__Profiles__V1development__ProfilesDictionary Dictionary;
typedef Opentelemetry__Proto__Profiles__V1development__Profile Profile;
typedef Opentelemetry__Proto__Profiles__V1development__Sample Sample;
typedef Opentelemetry__Proto__Common__V1__KeyValue KeyValue;

struct line {
    char *text;
    int64_t value;
};

static void need(bool ok)
{
    if (!ok)
        abort();
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct line *)a)->text, ((const struct line *)b)->text);
}

static char *take(struct br_str *s)
{
    need(!s->failed);
    char *copy = strdup(s->data ? s->data : "");
    need(copy != NULL);
    br_str_release(s);
    return copy;
}

static char *label(const Dictionary *d, int32_t attribute)
{
    struct br_str s = {0};
    const Opentelemetry__Proto__Profiles__V1development__KeyValueAndUnit *a =
        d->attribute_table[attribute];
    br_str_printf(&s, "%s=", d->string_table[a->key_strindex]);
    if (a->value->value_case == OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE)
        br_str_puts(&s, a->value->string_value);
    else
        br_str_printf(&s, "%" PRId64, a->value->int_value);
    return take(&s);
}

static void put_labels(struct br_str *out, const Dictionary *d, const Sample *sample)
{
    size_t n = sample->n_attribute_indices;
    struct line *lines = calloc(n + 1, sizeof *lines);
    need(lines != NULL);
    for (size_t i = 0; i < n; i++)
        lines[i].text = label(d, sample->attribute_indices[i]);
    qsort(lines, n, sizeof *lines, by_text);
    for (size_t i = 0; i < n; i++) {
        br_str_printf(out, "%s%s", i ? "," : "|", lines[i].text);
        free(lines[i].text);
    }
    free(lines);
}

/* Parses the hexadecimal number at the start of a label's value. */
static uint64_t hex_of(const char *value)
{
    return strtoull(value, NULL, 16);
}

static void put_link(struct br_str *out, const Dictionary *d, const Sample *sample)
{
    const Opentelemetry__Proto__Profiles__V1development__Link *link =
        d->link_table[sample->link_index];
    uint64_t linked = 0, said = 0;
    for (size_t i = 0; i < link->span_id.len; i++)
        linked = linked << 8 | link->span_id.data[i];
    for (size_t i = 0; i < sample->n_attribute_indices; i++) {
        char *text = label(d, sample->attribute_indices[i]);
        if (strncmp(text, "profile_id=", 11) == 0)
            said = hex_of(text + 11);
        free(text);
    }
    if (linked != said)
        br_str_puts(out, "|LINK AND LABELS DIFFER");
}

static char *sample_key(const Dictionary *d, const Sample *sample)
{
    struct br_str s = {0};
    const Opentelemetry__Proto__Profiles__V1development__Stack *stack =
        d->stack_table[sample->stack_index];
    for (size_t i = 0; i < stack->n_location_indices; i++) {
        const Opentelemetry__Proto__Profiles__V1development__Location *l =
            d->location_table[stack->location_indices[i]];
        need(l->n_lines == 1);
        const char *name =
            d->string_table[d->function_table[l->lines[0]->function_index]->name_strindex];
        br_str_printf(&s, "%s%s:%" PRId64, i ? ";" : "", name, l->lines[0]->line);
    }
    put_labels(&s, d, sample);
    for (size_t i = 0; i < sample->n_timestamps_unix_nano; i++)
        br_str_printf(&s, "@%" PRIu64, sample->timestamps_unix_nano[i]);
    put_link(&s, d, sample);
    return take(&s);
}

static char *block(const Dictionary *d, const char *metric, const Profile *p)
{
    struct br_str s = {.max = 1u << 30};
    struct line *lines = calloc(p->n_samples + 1, sizeof *lines);
    need(lines != NULL);
    br_str_printf(&s, "# %s %s %s %s %s\n", metric, d->string_table[p->sample_type->type_strindex],
                  d->string_table[p->sample_type->unit_strindex],
                  p->period_type ? d->string_table[p->period_type->type_strindex] : "-",
                  p->period_type ? d->string_table[p->period_type->unit_strindex] : "-");
    for (size_t i = 0; i < p->n_samples; i++) {
        need(p->samples[i]->n_values == 1);
        lines[i] = (struct line){sample_key(d, p->samples[i]), p->samples[i]->values[0]};
    }
    qsort(lines, p->n_samples, sizeof *lines, by_text);
    for (size_t i = 0; i < p->n_samples; i++) {
        if (i + 1 < p->n_samples && strcmp(lines[i].text, lines[i + 1].text) == 0)
            lines[i + 1].value += lines[i].value;
        else
            br_str_printf(&s, "%s %" PRId64 "\n", lines[i].text, lines[i].value);
        free(lines[i].text);
    }
    free(lines);
    return take(&s);
}

static const char *text_of(KeyValue *const *attributes, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(attributes[i]->key, key) == 0)
            return attributes[i]->value->string_value;
    return "-";
}

void profile_view(const uint8_t *data, size_t len, struct br_str *out)
{
    Request *r = PROFILES_REQUEST(unpack)(NULL, len, data);
    need(r != NULL);
    struct line lines[64];
    size_t n = 0;
    for (size_t i = 0; i < r->n_resource_profiles; i++) {
        const Opentelemetry__Proto__Profiles__V1development__ResourceProfiles *rp =
            r->resource_profiles[i];
        br_str_printf(out, "jfr_event=%s\n",
                      rp->resource ? text_of(rp->resource->attributes, rp->resource->n_attributes,
                                             "jfr_event")
                                   : "-");
        for (size_t k = 0; k < rp->n_scope_profiles; k++) {
            const Opentelemetry__Proto__Profiles__V1development__ScopeProfiles *sp =
                rp->scope_profiles[k];
            const char *metric = sp->scope ? text_of(sp->scope->attributes, sp->scope->n_attributes,
                                                     "pyroscope.name")
                                           : "-";
            for (size_t j = 0; j < sp->n_profiles && n < 64; j++)
                lines[n++].text = block(r->dictionary, metric, sp->profiles[j]);
        }
    }
    qsort(lines, n, sizeof *lines, by_text);
    for (size_t i = 0; i < n; i++) {
        br_str_puts(out, lines[i].text);
        free(lines[i].text);
    }
    PROFILES_REQUEST(free_unpacked)(r, NULL);
}
