/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles and matches the regular expressions of the config. They are Perl-compatible (PCRE2), set
 * up so that what Go's regexp has too means the same, and compiled to machine code where that can
 * be done. What a match may cost is bounded, because texts are hostile.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/item.h"

#define BR_REGEX_WHY_SIZE 200

/* What matches may take together, in processor time of this thread. Steps alone bound little: they
 * are counted anew at every place that a match may begin at, and loops over one character are not.
 */
struct br_regex_time {
    uint64_t allowed_ns, used_ns;
    bool exact; /* by the thread's clock */
    bool spent;
};

/* Begins a time: `match_ns` (an option), of which a piece of a request has its share
 * (br_item_share; at least a 256th), and many times what matching takes for each byte of `item`. Of
 * a query, which has no item (NULL), it is all of `match_ns`. Once it is spent all that is left to
 * match is BR_EFULL. */
void br_regex_time_begin(struct br_regex_time *time_left, uint64_t match_ns,
                         const struct br_item *item);

/* What the patterns of one owner share; not for several threads at a time. Zeroed at first. */
struct br_regex {
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_match_data *match;    /* of the last match */
    uint32_t most_groups;       /* of the patterns so far */
    struct br_regex_time *time; /* borrowed; NULL: no bound but for steps */
};

/* Compiles a pattern, to be freed by pcre2_code_free before the release. Returns 0, BR_ENOMEM, or
 * BR_EINVAL with the reason and the place in `why`. */
int br_regex_compile(struct br_regex *regex, const char *pattern, pcre2_code **ret,
                     char why[BR_REGEX_WHY_SIZE]);

/* Makes room for the groups of every pattern so far. Returns 0 or BR_ENOMEM. */
int br_regex_ready(struct br_regex *regex);
void br_regex_release(struct br_regex *regex);

/* Bounds what hostile texts can cost, after br_regex_ready: all matches by a time (borrowed until
 * the release), and each by 20 000 steps from one place on, where else a million are too many. */
void br_regex_bound(struct br_regex *regex, struct br_regex_time *time);

/* Returns where the pattern matches next in the text, at `start` (between two characters) or after,
 * and is not empty: 1 with the range, 0, or as br_regex_match. */
int br_regex_find(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                  size_t len, size_t start, size_t *ret_from, size_t *ret_to);

/* Returns whether the pattern matches anywhere in the text: 1, 0, BR_EFULL (too many steps, or too
 * much time) or BR_ENOMEM. */
int br_regex_match(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                   size_t len);
