/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles and matches the regular expressions of the config. The expressions are Perl-compatible
 * (PCRE2), configured so that expressions valid in Go's regexp have the same meaning in Braid.
 * Expressions are compiled to machine code if possible. The cost of a match is limited, because the
 * texts to be matched may be hostile.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/item.h"

#define BR_REGEX_WHY_SIZE 200

/* Limits the processor time of all matches together in this thread. A limit on the steps of a
 * match would not be enough. Steps are counted anew at every offset at which a match may begin,
 * and loops over one character are not counted. */
struct br_regex_time {
    uint64_t allowed_ns, used_ns;
    /* true: the processor time of the thread is measured; false: the elapsed time is measured,
     * which is cheaper and close enough while matches are fast */
    bool exact;
    bool spent;
};

/* Begins a time limit for an item: `match_ns` (an option) plus an allowance per byte of `item` that
 * is many times the usual cost. If a request was divided into several items, each item gets a share
 * of `match_ns` in proportion to its records (br_item_share), but at least 1/256. A query has no
 * item (`item` is NULL) and gets exactly `match_ns`. Once the time is used up, every match returns
 * BR_EFULL. */
void br_regex_time_begin(struct br_regex_time *time_left, uint64_t match_ns,
                         const struct br_item *item);

/* State shared by the patterns of one component, for one thread. The struct must be zeroed at
 * first. */
struct br_regex {
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_match_data *match; /* memory for the groups of the last match */
    uint32_t most_groups;    /* largest number of groups in any pattern so far */
    /* time limit of all matches together, borrowed; NULL: only the steps of each match are
     * limited */
    struct br_regex_time *time;
};

/* Compiles a pattern, which the caller frees with pcre2_code_free before br_regex_release. Returns
 * 0 or BR_ENOMEM, or BR_EINVAL with the reason and the position of the error in `why`. */
int br_regex_compile(struct br_regex *regex, const char *pattern, pcre2_code **ret,
                     char why[BR_REGEX_WHY_SIZE]);

/* Allocates memory for the groups of all patterns compiled so far. Returns 0 or BR_ENOMEM. */
int br_regex_ready(struct br_regex *regex);
void br_regex_release(struct br_regex *regex);

/* Limits the cost of matches in hostile texts. Must be called after br_regex_ready. `time`,
 * which is borrowed until the release, limits the total time of all matches. Each match is
 * limited to 20 000 steps per start offset, instead of a million. */
void br_regex_bound(struct br_regex *regex, struct br_regex_time *time);

/* Searches the text for the next match that is not empty. The search begins at the offset
 * `start`, which must be between two characters. Returns 1 with the range of the match, or 0 if
 * nothing matches. On failure returns BR_EFULL (too many steps, or too much time) or BR_ENOMEM. */
int br_regex_find(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                  size_t len, size_t start, size_t *ret_from, size_t *ret_to);

/* Searches the text for a match. Returns 1 if it finds one, or 0 if nothing matches. On failure
 * returns BR_EFULL (too many steps, or too much time) or BR_ENOMEM. */
int br_regex_match(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                   size_t len);

/* Searches the text for the next match, which may be empty, from the offset `start`, which must be
 * between two characters. The offsets of the match and its groups are in the match data
 * (pcre2_get_ovector_pointer) until the next search. Returns 1 if it finds a match, or 0 if nothing
 * matches. On failure returns BR_EFULL (too many steps, or too much time) or BR_ENOMEM. */
int br_regex_search(const struct br_regex *regex, const pcre2_code *pattern, const void *text,
                    size_t len, size_t start);
