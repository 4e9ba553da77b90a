/* SPDX-License-Identifier: Apache-2.0 */
/* Content negotiation (RFC 9110 section 12.5), for servers that offer two representations. */
#pragma once

/* Returns the weight of `name` in an Accept or Accept-Encoding header: the largest q, from 0 to 1,
 * of the elements that equal `name`. Wildcards do not count. `name` is a media type or a coding in
 * lower case, without parameters. Returns -1 if no element equals `name` or `header` is NULL. */
double br_accept_quality(const char *header, const char *name);
