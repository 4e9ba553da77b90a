/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/reading.h"

#include "ingest/pieces.h"

/* Maximum number of stacks in one part of a text profile. The tables of a part take up to 200 bytes
 * per stack, in addition to the resulting OTLP. */
#define PART_STACKS 2048u
#define PART_BYTES (128u << 10)

static struct br_item *profile_reading_take(struct br_reading *reading, int *ret)
{
    struct br_item *item = br_item_new(reading->host, BR_PROFILES);
    *ret = item ? br_build_take(reading->bench->build, item) : BR_ENOMEM;
    if (!*ret)
        return item;
    br_item_free(item);
    return NULL;
}

static int profile_reading_whole(struct br_reading *reading, enum br_profile_format format,
                                 const struct br_profile_source *source, struct br_arena *scratch)
{
    int rc = br_profile_read(reading->bench->build, format, source, scratch, &reading->err);
    if (!rc && br_build_records(reading->bench->build))
        reading->item = profile_reading_take(reading, &rc);
    return rc;
}

/* --- Parts ------------------------------------------------------------------------------------ */

static int profile_reading_on_part(void *arg)
{
    int rc;
    struct br_reading *reading = arg;
    struct br_item *part = profile_reading_take(reading, &rc);
    if (!part)
        return rc;
    reading->item->n_records += part->n_records;
    br_list_append(&reading->pieces, &part->link);
    return 0;
}

static int profile_reading_parts(struct br_reading *reading, enum br_profile_format format,
                                 const struct br_profile_source *source, struct br_arena *scratch)
{
    const struct br_profile_parts parts = {PART_STACKS, PART_BYTES, profile_reading_on_part,
                                           reading};
    struct br_profile_source divided = *source;
    divided.parts = &parts;
    reading->item = br_item_new(reading->host, BR_PROFILES);
    if (!reading->item)
        return BR_ENOMEM;
    int rc = br_profile_read(reading->bench->build, format, &divided, scratch, &reading->err);
    if (!rc && br_build_records(reading->bench->build))
        rc = profile_reading_on_part(reading);
    if (rc)
        br_reading_drop(reading);
    return rc;
}

/* Returns true if the memory scope was exhausted. A later attempt would then also fail. */
static bool profile_reading_full(const struct br_reading *reading, int rc)
{
    return rc == BR_EFULL || (rc == BR_ENOMEM && reading->scope.full);
}

int br_profile_reading(struct br_reading *reading, enum br_profile_format format,
                       const struct br_profile_source *source, struct br_arena *scratch)
{
    struct br_build *build = reading->bench->build;
    bool divides = br_profile_divides(format);
    int rc = divides ? profile_reading_whole(reading, format, source, scratch)
                     : br_profile_read(build, format, source, scratch, &reading->err);
    if (!profile_reading_full(reading, rc) || (!divides && !source->keeps_times))
        return rc;
    br_build_shrink(build);
    br_arena_release(scratch);
    reading->err = (struct br_err){0};
    reading->scope.full = false;
    struct br_profile_source folded = *source;
    folded.keeps_times = false;
    rc = divides ? profile_reading_parts(reading, format, source, scratch)
                 : br_profile_read(build, format, &folded, scratch, &reading->err);
    if (rc)
        br_build_shrink(build);
    return rc;
}

int br_profile_reading_cut(struct br_reading *reading)
{
    br_reading_free_bytes(reading);
    return reading->item ? br_pieces_cut(reading, NULL) : 0;
}
