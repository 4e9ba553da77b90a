/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads users and their passwords in the format of Apache's htpasswd: lines of `user:hash`. The
 * table lists the hash types:
 *
 * | type | prefix of the hash | cost of a check |
 * | bcrypt | $2a$, $2b$, $2y$ | high |
 * | SHA-crypt, MD5-crypt, yescrypt of crypt(3) | $5$, $6$, $1$, $y$ | high |
 * | Apache's MD5 | $apr1$ | medium |
 * | SHA-1, salted SHA-1 | {SHA}, {SSHA} | low |
 * | plain text | any other text | low |
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"
#include "base/str.h"

#define HTPASSWD_USERS_MAX 4096 /* maximum number of users of an authenticator */
#define HTPASSWD_NAME_MAX 255   /* longest user name, in bytes */
#define HTPASSWD_HASH_MAX 255   /* longest hash or plain password, in bytes */

struct htpasswd;

struct htpasswd *basicauth_htpasswd_new(void);

/* Overwrites and frees the users. Accepts NULL. */
void basicauth_htpasswd_free(struct htpasswd *htpasswd);

/* Adds the users that the lines of `text` define. If a user already exists, replaces the user's
 * hash. Lines that are empty or begin with `#` are skipped. Other lines that cannot be used are
 * skipped too, and their numbers and faults are appended to `faults`, one per line. Returns 0 or
 * BR_ENOMEM. */
int basicauth_htpasswd_read(struct htpasswd *htpasswd, const char *text, struct br_str *faults);

/* Returns the number of users. */
size_t basicauth_htpasswd_count(const struct htpasswd *htpasswd);

/* Returns true if `password` is the password of the user. The check takes about the same time
 * for an unknown user as for a known one. */
bool basicauth_htpasswd_check(struct htpasswd *htpasswd, const char *name, const char *password);

/* Returns true if a check may take milliseconds, which is the case if at least one user has a
 * hash of crypt(3) or Apache's MD5. */
bool basicauth_htpasswd_is_costly(const struct htpasswd *htpasswd);
