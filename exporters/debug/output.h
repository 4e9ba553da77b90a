/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the texts of the debug exporter, one at a time, to an output that all workers share. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "core/host.h"

struct debug_output;

/* Opens the output "stdout", "stderr" or a file, or shares it if another worker has opened it.
 * Text is appended to a file. Returns 0, or BR_EIO or BR_ENOMEM with a message. */
int debug_output_open(struct br_host *host, const char *path, struct debug_output **ret,
                      struct br_err *err);
/* Releases a worker's reference to the output. Accepts NULL. */
void debug_output_close(struct br_host *host, struct debug_output *output);

/* Writes the whole text. Returns 0 or an errno. */
int debug_output_write(struct debug_output *output, const char *text, size_t len);
