/* SPDX-License-Identifier: Apache-2.0 */
/* How large the worst shapes are made, in MiB: steps are counted up to 8, and a sanitizer's build,
 * which looks for what no count shows, takes ten times as long for each. */
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WORST_MIB_MAX 1u
#else
#define WORST_MIB_MAX 8u
#endif
