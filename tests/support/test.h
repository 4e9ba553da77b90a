/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every unit test includes: cmocka, the C headers that it wants before it, and BR_COUNT
 * (base/mem.h).
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

/* A test between the file's own setup() and teardown(). */
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
