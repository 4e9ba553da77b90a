/* SPDX-License-Identifier: Apache-2.0 */
/* BR_SANITIZED is 1 in builds with AddressSanitizer or ThreadSanitizer, which are slower and use
 * more memory, and 0 in other builds. gcc defines macros for sanitizers; clang has __has_feature.
 */
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BR_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BR_SANITIZED 1
#endif
#endif

#ifndef BR_SANITIZED
#define BR_SANITIZED 0
#endif
