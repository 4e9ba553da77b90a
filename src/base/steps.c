/* SPDX-License-Identifier: Apache-2.0 */
#include "base/steps.h"

_Thread_local uint64_t br_steps_taken;
