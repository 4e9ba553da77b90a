/* SPDX-License-Identifier: Apache-2.0 */
/* Includes the headers that every unit test needs: the runner with cmocka, and base/mem.h with
 * BR_COUNT. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/support/runner.h"

/* A test with the functions setup() and teardown() of its file. */
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
