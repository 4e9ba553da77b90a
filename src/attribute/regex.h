/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles and matches the regular expressions of the config. They are Perl-compatible (PCRE2),
 * configured so that expressions valid in Go's regexp have the same meaning there. They are
 * compiled to machine code if possible. The cost of a match is limited, because texts may be
 * hostile.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/item.h"

#define BR_REGEX_WHY_SIZE 200

/* Limit of the processor time of all matches together in this thread. A limit of steps is not
 * enough: steps are counted anew at every offset at which a match may begin, and loops over one
 * character are not counted. */
struct br_regex_time {
    uint64_t allowed_ns, used_ns;
    bool exact; /* the time is measured with the thread's clock */
    bool spent;
};

/* Begins a time limit for an item: `match_ns` (an option) plus an allowance per byte of `item`
 * that is many times the usual cost. A piece of a request gets its share of `match_ns`
 * (br_item_share), at least 1/256. A query, which has no item (NULL), gets exactly `match_ns`.
 * Once the time is spent, every match returns BR_EFULL. */
void br_regex_time_begin(struct br_regex_time *time_left, uint64_t match_ns,
                         const struct br_item *item);

/* State shared by the patterns of one component, for one thread. Zeroed at first. */
struct br_regex {
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_match_data *match; /* memory for the groups of the last match */
    uint32_t most_groups;    /* largest number of groups in any pattern so far */
    /* limit of the time of all matches, borrowed; NULL: only steps are limited */
    struct br_regex_time *time;
};

/* Compiles a pattern, which the caller frees with pcre2_code_free before br_regex_release.
 * Returns 0 or BR_ENOMEM, or BR_EINVAL with the reason and the place in `why`. */
int br_regex_compile(struct br_regex *regex, const char *pattern, pcre2_code **ret,
                     char why[BR_REGEX_WHY_SIZE]);

/* Allocates memory for the groups of all patterns compiled so far. Returns 0 or BR_ENOMEM. */
int br_regex_ready(struct br_regex *regex);
void br_regex_release(struct br_regex *regex);

/* Limits the cost of hostile texts, after br_regex_ready. All matches together are limited by
 * `time` (borrowed until the release), and each match by 20 000 steps per start offset instead
 * of a million. */
void br_regex_bound(struct br_regex *regex, struct br_regex_time *time);

/* Searches the text for the next match that is not empty, from `start` (between two characters)
 * on. Returns 1 with the range of the match, or 0 if nothing matches. Returns BR_EFULL (too many
 * steps, or too much time) or BR_ENOMEM on failure. */
int br_regex_find(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                  size_t len, size_t start, size_t *ret_from, size_t *ret_to);

/* Searches the text for a match. Returns 1, or 0 if nothing matches. Returns BR_EFULL (too many
 * steps, or too much time) or BR_ENOMEM on failure. */
int br_regex_match(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                   size_t len);
