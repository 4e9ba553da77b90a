/* SPDX-License-Identifier: Apache-2.0 */
/* Content negotiation, as much of RFC 9110 section 12.5 as a server with two forms of a thing
 * needs. */
#pragma once

/* Returns how much a header of the kind of Accept or Accept-Encoding wants `name`, a media type or
 * a coding in lower case without parameters: the largest q of the elements that say exactly it,
 * from 0 to 1; -1 where none does, and for no header (NULL). */
double br_accept_quality(const char *header, const char *name);
