/* SPDX-License-Identifier: Apache-2.0 */
/* The headers that every unit test includes: the runner with cmocka, and BR_COUNT (base/mem.h). */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/support/runner.h"

/* A test between the file's setup() and teardown(). */
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
