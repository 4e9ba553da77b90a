/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field numbers of the messages in a pprof, for all code that reads or writes pprofs by hand.
 * Source: github.com/google/pprof/proto/profile.proto; a test compares the numbers with
 * proto/pprof/profile.proto.
 */
#pragma once

/* Fields of Profile. */
enum {
    BR_PPROF_SAMPLE_TYPE = 1,
    BR_PPROF_SAMPLE,
    BR_PPROF_MAPPING,
    BR_PPROF_LOCATION,
    BR_PPROF_FUNCTION,
    BR_PPROF_STRING,
    BR_PPROF_DROP_FRAMES,
    BR_PPROF_KEEP_FRAMES,
    BR_PPROF_TIME,
    BR_PPROF_DURATION,
    BR_PPROF_PERIOD_TYPE,
    BR_PPROF_PERIOD,
    BR_PPROF_COMMENT,
    BR_PPROF_DEFAULT_TYPE,
    BR_PPROF_DOC_URL,
    BR_PPROF_FIELDS,
};

/* Fields of ValueType. */
enum { BR_PPROF_VALUE_TYPE_TYPE = 1, BR_PPROF_VALUE_TYPE_UNIT = 2 };

/* Fields of Sample. */
enum { BR_PPROF_SAMPLE_LOCATIONS = 1, BR_PPROF_SAMPLE_VALUES = 2, BR_PPROF_SAMPLE_LABELS = 3 };

/* Fields of Label. */
enum {
    BR_PPROF_LABEL_KEY = 1,
    BR_PPROF_LABEL_STR = 2,
    BR_PPROF_LABEL_NUM = 3,
    BR_PPROF_LABEL_UNIT = 4,
};

/* Fields of Mapping. */
enum {
    BR_PPROF_MAPPING_ID = 1,
    BR_PPROF_MAPPING_START = 2,
    BR_PPROF_MAPPING_LIMIT = 3,
    BR_PPROF_MAPPING_OFFSET = 4,
    BR_PPROF_MAPPING_FILENAME = 5,
    BR_PPROF_MAPPING_BUILD_ID = 6,
    BR_PPROF_MAPPING_HAS_FUNCTIONS = 7,
    BR_PPROF_MAPPING_HAS_FILENAMES = 8,
    BR_PPROF_MAPPING_HAS_LINE_NUMBERS = 9,
    BR_PPROF_MAPPING_HAS_INLINE_FRAMES = 10,
};

/* Fields of Location. */
enum {
    BR_PPROF_LOCATION_ID = 1,
    BR_PPROF_LOCATION_MAPPING = 2,
    BR_PPROF_LOCATION_ADDRESS = 3,
    BR_PPROF_LOCATION_LINES = 4,
    BR_PPROF_LOCATION_IS_FOLDED = 5,
};

/* Fields of Line. */
enum { BR_PPROF_LINE_FUNCTION = 1, BR_PPROF_LINE_LINE = 2, BR_PPROF_LINE_COLUMN = 3 };

/* Fields of Function. */
enum {
    BR_PPROF_FUNCTION_ID = 1,
    BR_PPROF_FUNCTION_NAME = 2,
    BR_PPROF_FUNCTION_SYSTEM_NAME = 3,
    BR_PPROF_FUNCTION_FILENAME = 4,
    BR_PPROF_FUNCTION_START_LINE = 5,
};
