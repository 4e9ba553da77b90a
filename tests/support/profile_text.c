/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/profile_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "core/host.h"
#include "tests/support/profiles_pb.h"

typedef Opentelemetry__Proto__Collector__Profiles__V1development__ExportProfilesServiceRequest
    Request;
typedef Opentelemetry__Proto__Profiles__V1development__ProfilesDictionary Dictionary;
typedef Opentelemetry__Proto__Profiles__V1development__Profile Profile;
typedef Opentelemetry__Proto__Profiles__V1development__Sample Sample;
typedef Opentelemetry__Proto__Profiles__V1development__Stack Stack;
typedef Opentelemetry__Proto__Profiles__V1development__Location Location;
typedef Opentelemetry__Proto__Profiles__V1development__KeyValueAndUnit Attribute;
typedef Opentelemetry__Proto__Common__V1__KeyValue KeyValue;
typedef Opentelemetry__Proto__Common__V1__AnyValue AnyValue;

static void require(bool ok)
{
    if (!ok)
        abort();
}

static const char *string(const Dictionary *d, int32_t i)
{
    require(i >= 0 && (size_t)i < d->n_string_table);
    return d->string_table[i];
}

static void print_value(FILE *f, const AnyValue *v)
{
    if (!v)
        return;
    switch (v->value_case) {
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE:
        fputs(v->string_value, f);
        return;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_INT_VALUE:
        fprintf(f, "%" PRId64, v->int_value);
        return;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_BOOL_VALUE:
        fputs(v->bool_value ? "true" : "false", f);
        return;
    default:
        fputc('?', f);
    }
}

static void print_attributes(FILE *f, const char *what, size_t n, KeyValue **v)
{
    fputs(what, f);
    for (size_t i = 0; i < n; i++) {
        fprintf(f, " %s=", v[i]->key);
        print_value(f, v[i]->value);
    }
    fputc('\n', f);
}

static void print_frame(FILE *f, const Dictionary *d, const Location *l)
{
    for (size_t k = l->n_lines; k-- > 0;) {
        int32_t function = l->lines[k]->function_index;
        require(function >= 0 && (size_t)function < d->n_function_table);
        fputs(string(d, d->function_table[function]->name_strindex), f);
        if (k > 0)
            fputc(';', f);
    }
}

static char *sample_line(const Dictionary *d, const Sample *s)
{
    char *line;
    size_t len;
    FILE *f = open_memstream(&line, &len);
    require(f && s->stack_index >= 0 && (size_t)s->stack_index < d->n_stack_table);
    const Stack *stack = d->stack_table[s->stack_index];
    for (size_t i = stack->n_location_indices; i-- > 0;) {
        int32_t at = stack->location_indices[i];
        require(at >= 0 && (size_t)at < d->n_location_table);
        print_frame(f, d, d->location_table[at]);
        if (i > 0)
            fputc(';', f);
    }
    for (size_t i = 0; i < s->n_values; i++)
        fprintf(f, " %" PRId64, s->values[i]);
    for (size_t i = 0; i < s->n_attribute_indices; i++) {
        int32_t at = s->attribute_indices[i];
        require(at >= 0 && (size_t)at < d->n_attribute_table);
        const Attribute *a = d->attribute_table[at];
        fprintf(f, "%s%s=", i ? " " : " {", string(d, a->key_strindex));
        print_value(f, a->value);
    }
    fputs(s->n_attribute_indices ? "}\n" : "\n", f);
    fclose(f);
    return line;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void print_profile(FILE *f, const Dictionary *d, const Profile *p)
{
    fputs("profile", f);
    if (p->sample_type)
        fprintf(f, " %s %s", string(d, p->sample_type->type_strindex),
                string(d, p->sample_type->unit_strindex));
    if (p->period_type)
        fprintf(f, " period %s %s %" PRId64, string(d, p->period_type->type_strindex),
                string(d, p->period_type->unit_strindex), p->period);
    fprintf(f, " time %" PRIu64 " duration %" PRIu64 "\n", p->time_unix_nano, p->duration_nano);
    char **lines = calloc(p->n_samples + 1, sizeof *lines);
    require(lines);
    for (size_t i = 0; i < p->n_samples; i++)
        lines[i] = sample_line(d, p->samples[i]);
    qsort(lines, p->n_samples, sizeof *lines, by_text);
    for (size_t i = 0; i < p->n_samples; i++) {
        fputs(lines[i], f);
        free(lines[i]);
    }
    free(lines);
}

static void print_request(FILE *f, const Request *request)
{
    for (size_t i = 0; i < request->n_resource_profiles; i++) {
        const Opentelemetry__Proto__Profiles__V1development__ResourceProfiles *r =
            request->resource_profiles[i];
        print_attributes(f, "resource", r->resource ? r->resource->n_attributes : 0,
                         r->resource ? r->resource->attributes : NULL);
        for (size_t k = 0; k < r->n_scope_profiles; k++) {
            const Opentelemetry__Proto__Profiles__V1development__ScopeProfiles *s =
                r->scope_profiles[k];
            print_attributes(f, "scope", s->scope ? s->scope->n_attributes : 0,
                             s->scope ? s->scope->attributes : NULL);
            for (size_t p = 0; p < s->n_profiles; p++)
                print_profile(f, request->dictionary, s->profiles[p]);
        }
    }
}

char *profile_text(const struct br_item *item)
{
    struct br_rope rope = {0};
    const uint8_t *data;
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    require(f && br_item_write(item, &rope) == 0);
    struct br_buf *buf = br_rope_flat(&rope, item->host->pool, &data);
    require(buf || rope.len == 0);
    Request *request = PROFILES_REQUEST(unpack)(NULL, rope.len, data);
    require(request != NULL);
    print_request(f, request);
    protobuf_c_message_free_unpacked(&request->base, NULL);
    br_buf_unref(buf);
    br_rope_release(&rope);
    fclose(f);
    return text;
}
