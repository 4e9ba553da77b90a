/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/profile_answer.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "query/flame_output.h"
#include "wire/compression.h"

#define FILE_NAME_MAX 160

void query_put_text(struct br_str *out, char before, const char *name, const char *text)
{
    br_str_putc(out, before);
    br_str_json(out, name, strlen(name));
    br_str_putc(out, ':');
    br_str_json(out, text, strlen(text));
}

void query_put_cut(struct query_job *job)
{
    const char *cut = job->store ? br_store_query_remark(job->store) : NULL;
    if (cut)
        query_put_text(&job->out, ',', "cut", cut);
    else
        br_str_puts(&job->out, ",\"cut\":null");
}

void query_put_average(struct query_job *job, const struct query_selection *selection)
{
    br_str_printf(&job->out, ",\"average\":%s",
                  query_selection_is_average(selection) ? "true" : "false");
}

/* --- Functions ------------------------------------------------------------------------------- */

/* Appends `{"name","file","self","total"}` for each of the first `count` functions. */
static void answer_put_functions(struct query_job *job, const struct br_flame *flame,
                                 const struct br_function *functions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct br_function *function = &functions[i];
        if (i)
            br_str_putc(&job->out, ',');
        query_put_text(&job->out, '{', "name", flame->names[function->name]);
        query_put_text(&job->out, ',', "file", flame->files[function->name]);
        br_str_printf(&job->out, ",\"self\":%" PRId64 ",\"total\":%" PRId64 "}", function->self[0],
                      function->total[0]);
    }
}

void query_respond_functions(struct query_job *job, const struct query_selection *selection,
                             uint32_t limit, enum br_function_order order)
{
    struct br_flame flame;
    struct br_function *functions;
    struct br_err err = {0};
    uint32_t count;
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = query_selection_flame(job, selection, &flame, &err);
    if (!rc) {
        br_flame_total(&flame);
        rc = br_functions_make(&flame, order, &job->arena, &functions, &count);
    }
    if (!rc) {
        query_put_text(&job->out, '{', "type", selection->type.id ? selection->type.id : "");
        query_put_text(&job->out, ',', "unit", selection->type.id ? selection->type.unit : "");
        query_put_average(job, selection);
        br_str_printf(&job->out, ",\"total\":%" PRId64 ",\"functions\":[", flame.nodes[0].total[0]);
        answer_put_functions(job, &flame, functions, count < limit ? count : limit);
        br_str_putc(&job->out, ']');
        query_put_cut(job);
        br_str_putc(&job->out, '}');
    }
    br_flame_release(&flame);
    if (rc)
        query_job_fail_rc(job, rc, &err);
}

/* --- Files ----------------------------------------------------------------------------------- */

/* Replaces the contents of job->out by the same contents in gzip. */
static int answer_compress(struct query_job *job)
{
    struct br_codec *codec = br_codec_new();
    struct br_rope rope = {0};
    struct br_buf *packed = NULL;
    int rc = codec ? br_rope_add(&rope, NULL, job->out.data, job->out.len) : BR_ENOMEM;
    if (!rc)
        rc = br_compress(codec, BR_ENCODING_GZIP, 1, &rope, 0, job->task.host.pool, &packed);
    br_rope_release(&rope);
    br_codec_free(codec);
    if (rc)
        return rc;
    br_str_clear(&job->out);
    br_str_add(&job->out, packed->data, packed->len);
    br_buf_unref(packed);
    return 0;
}

int query_put_pprof(struct query_job *job, const struct query_selection *selection,
                    uint64_t until_ns, const struct br_flame *flame)
{
    const struct br_flame_about about = {.type = selection->type.type,
                                         .unit = selection->type.unit,
                                         .period_type = selection->type.period_type,
                                         .period_unit = selection->type.period_unit,
                                         .time_ns = selection->from_ns,
                                         .duration_ns = until_ns - selection->from_ns};
    return br_flame_pprof(&job->out, flame, &about);
}

static int answer_pprof(struct query_job *job, const struct query_selection *selection,
                        const struct br_flame *flame)
{
    job->type = "application/octet-stream";
    int rc = query_put_pprof(job, selection,
                             selection->until_ns ? selection->until_ns : job->now_ns, flame);
    return rc ? rc : answer_compress(job);
}

/* Sets the file name of the response: the profile type and, if a single span is selected, the id
 * of the span. */
static void answer_name_file(struct query_job *job, const struct query_selection *selection,
                             const char *extension)
{
    char name[FILE_NAME_MAX], value[FILE_NAME_MAX + 64];
    uint8_t id[sizeof(uint64_t)] = {0};
    if (selection->n_span_ids == 1)
        memcpy(id, selection->span_ids, sizeof id);
    struct br_str text = {.data = name, .cap = sizeof name, .fixed = true};
    name[0] = '\0';
    br_str_puts(&text, selection->type.type);
    if (selection->n_span_ids == 1) {
        br_str_putc(&text, '-');
        br_str_hex(&text, id, sizeof id);
    }
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '-' && *p != '_')
            *p = '_';
    (void)snprintf(value, sizeof value, "attachment; filename=\"%s.%s\"", name, extension);
    query_job_header(job, "content-disposition", value);
}

static const struct answer_format {
    const char *name, *extension;
} answer_formats[] = {{"pprof", "pb.gz"},
                      {"speedscope", "speedscope.json"},
                      {"folded", "folded.txt"},
                      {"tree", "json"}};

static int answer_write(struct query_job *job, const struct query_selection *selection,
                        const char *format, const struct br_flame *flame)
{
    if (!strcmp(format, "pprof"))
        return answer_pprof(job, selection, flame);
    if (!strcmp(format, "speedscope"))
        return br_flame_speedscope(&job->out, flame, selection->type.id, selection->type.unit);
    if (!strcmp(format, "tree"))
        return br_flame_tree(&job->out, flame);
    job->type = "text/plain; charset=utf-8";
    br_str_puts(&job->out, "");
    br_flame_folded(&job->out, flame);
    return 0;
}

bool query_is_file_format(const char *format)
{
    for (size_t i = 0; i < BR_COUNT(answer_formats); i++)
        if (!strcmp(answer_formats[i].name, format))
            return true;
    return false;
}

void query_respond_file(struct query_job *job, const struct query_selection *selection,
                        const char *format)
{
    const struct answer_format *found = NULL;
    struct br_flame flame;
    struct br_err err = {0};
    for (size_t i = 0; i < BR_COUNT(answer_formats); i++)
        if (!strcmp(answer_formats[i].name, format))
            found = &answer_formats[i];
    if (!found) {
        query_job_fail(job, 400,
                       "invalid format: must be flamebearer, pprof, speedscope, folded or "
                       "tree, got \"%.40s\"",
                       format);
        return;
    }
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = query_selection_flame(job, selection, &flame, &err);
    if (!rc) {
        br_flame_total(&flame);
        rc = answer_write(job, selection, format, &flame);
    }
    br_flame_release(&flame);
    if (rc)
        query_job_fail_rc(job, rc, &err);
    else
        answer_name_file(job, selection, found->extension);
}
