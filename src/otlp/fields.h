/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The field numbers of OTLP, for all code that reads or writes OTLP messages without protobuf-c.
 * Sources: opentelemetry/proto/{collector,common,resource,trace,profiles}; a test compares the
 * numbers with the schemas in proto/. A field that traces and profiles have in common has only one
 * name here.
 */
#pragma once

/* core/item.h defines the field numbers of the request, and of the Resource in ResourceSpans and
 * ResourceProfiles */
#include "core/item.h"

/* Fields of ExportTraceServiceResponse and of ExportProfilesServiceResponse, and of the partial
 * success message in these responses. */
enum { BR_RESPONSE_PARTIAL_SUCCESS = 1 };
enum { BR_PARTIAL_SUCCESS_REJECTED = 1, BR_PARTIAL_SUCCESS_MESSAGE = 2 };

/* Fields of ResourceSpans and ResourceProfiles. BR_RESOURCES_RESOURCE is in core/item.h. */
enum { BR_RESOURCES_SCOPES = 2, BR_RESOURCES_SCHEMA_URL = 3 };

/* Fields of ScopeSpans and ScopeProfiles. BR_SCOPES_RECORDS are spans or profiles. */
enum { BR_SCOPES_SCOPE = 1, BR_SCOPES_RECORDS = 2, BR_SCOPES_SCHEMA_URL = 3 };

/* The children of every message between the request and its spans or samples are in field 2:
 * scopes, then spans or profiles, then samples. */
enum { BR_INWARD = 2 };

/* --- opentelemetry.proto.resource.v1, common.v1 ---------------------------------------------- */

/* Fields of Resource. */
enum {
    BR_RESOURCE_ATTRIBUTES = 1,
    BR_RESOURCE_DROPPED_ATTRIBUTES = 2,
    BR_RESOURCE_ENTITY_REFS = 3,
};

/* Fields of EntityRef. */
enum {
    BR_ENTITY_SCHEMA_URL = 1,
    BR_ENTITY_TYPE = 2,
    BR_ENTITY_ID_KEYS = 3,
    BR_ENTITY_DESCRIPTION_KEYS = 4,
};

/* Fields of InstrumentationScope. */
enum {
    BR_SCOPE_NAME = 1,
    BR_SCOPE_VERSION = 2,
    BR_SCOPE_ATTRIBUTES = 3,
    BR_SCOPE_DROPPED_ATTRIBUTES = 4,
};

/* Fields of KeyValue. */
enum { BR_KEYVALUE_KEY = 1, BR_KEYVALUE_VALUE = 2, BR_KEYVALUE_KEY_STRINDEX = 3 };

/* Fields of AnyValue, of which at most one is set. BR_VALUE_EMPTY is not a field number: it
 * means that no field is set. */
enum br_value_type {
    BR_VALUE_EMPTY,
    BR_VALUE_STRING,
    BR_VALUE_BOOL,
    BR_VALUE_INT,
    BR_VALUE_DOUBLE,
    BR_VALUE_LIST,
    BR_VALUE_MAP,
    BR_VALUE_BYTES,
};
enum { BR_VALUE_STRINDEX = 8 };

/* The only field of ArrayValue and of KeyValueList, which contains the elements. */
enum { BR_LIST_VALUES = 1 };

/* --- opentelemetry.proto.trace.v1 ------------------------------------------------------------- */

/* Fields of Span. */
enum {
    BR_SPAN_TRACE_ID = 1,
    BR_SPAN_SPAN_ID = 2,
    BR_SPAN_TRACE_STATE = 3,
    BR_SPAN_PARENT_SPAN_ID = 4,
    BR_SPAN_NAME = 5,
    BR_SPAN_KIND = 6,
    BR_SPAN_START_TIME = 7,
    BR_SPAN_END_TIME = 8,
    BR_SPAN_ATTRIBUTES = 9,
    BR_SPAN_DROPPED_ATTRIBUTES = 10,
    BR_SPAN_EVENTS = 11,
    BR_SPAN_DROPPED_EVENTS = 12,
    BR_SPAN_LINKS = 13,
    BR_SPAN_DROPPED_LINKS = 14,
    BR_SPAN_STATUS = 15,
    BR_SPAN_FLAGS = 16,
};

/* Values of Span.SpanKind. A server or consumer span is an entry span: its request came from
 * another process. */
enum {
    BR_SPAN_KIND_INTERNAL = 1,
    BR_SPAN_KIND_SERVER = 2,
    BR_SPAN_KIND_CLIENT = 3,
    BR_SPAN_KIND_CONSUMER = 5
};

static inline bool br_span_kind_is_entry(unsigned kind)
{
    return kind == BR_SPAN_KIND_SERVER || kind == BR_SPAN_KIND_CONSUMER;
}

/* Bits of the field BR_SPAN_FLAGS, as defined by SpanFlags in the schema. */
enum { BR_SPAN_FLAG_HAS_IS_REMOTE = 0x100, BR_SPAN_FLAG_IS_REMOTE = 0x200 };

/* Fields of Span.Event. */
enum {
    BR_EVENT_TIME = 1,
    BR_EVENT_NAME = 2,
    BR_EVENT_ATTRIBUTES = 3,
    BR_EVENT_DROPPED_ATTRIBUTES = 4,
};

/* Fields of Span.Link. */
enum {
    BR_SPAN_LINK_TRACE_ID = 1,
    BR_SPAN_LINK_SPAN_ID = 2,
    BR_SPAN_LINK_TRACE_STATE = 3,
    BR_SPAN_LINK_ATTRIBUTES = 4,
    BR_SPAN_LINK_DROPPED_ATTRIBUTES = 5,
    BR_SPAN_LINK_FLAGS = 6,
};

/* Fields of Status. */
enum { BR_SPAN_STATUS_MESSAGE = 2, BR_SPAN_STATUS_CODE = 3 };

/* A value of Status.StatusCode. */
enum { BR_SPAN_STATUS_ERROR = 2 };

/* --- opentelemetry.proto.profiles.v1development ----------------------------------------------- */

/* Fields of ProfilesDictionary. */
enum {
    BR_DICTIONARY_MAPPINGS = 1,
    BR_DICTIONARY_LOCATIONS = 2,
    BR_DICTIONARY_FUNCTIONS = 3,
    BR_DICTIONARY_LINKS = 4,
    BR_DICTIONARY_STRINGS = 5,
    BR_DICTIONARY_ATTRIBUTES = 6,
    BR_DICTIONARY_STACKS = 7,
};

/* Fields of Profile. */
enum {
    BR_PROFILE_SAMPLE_TYPE = 1,
    BR_PROFILE_SAMPLES = 2,
    BR_PROFILE_TIME = 3,
    BR_PROFILE_DURATION = 4,
    BR_PROFILE_PERIOD_TYPE = 5,
    BR_PROFILE_PERIOD = 6,
    BR_PROFILE_PROFILE_ID = 7,
    BR_PROFILE_DROPPED_ATTRIBUTES = 8,
    BR_PROFILE_PAYLOAD_FORMAT = 9,
    BR_PROFILE_PAYLOAD = 10,
    BR_PROFILE_ATTRIBUTES = 11,
};

/* Fields of ValueType. */
enum { BR_VALUE_TYPE_TYPE = 1, BR_VALUE_TYPE_UNIT = 2 };

/* Fields of Sample. */
enum {
    BR_SAMPLE_STACK = 1,
    BR_SAMPLE_ATTRIBUTES = 2,
    BR_SAMPLE_LINK = 3,
    BR_SAMPLE_VALUES = 4,
    BR_SAMPLE_TIMES = 5,
};

/* Fields of Link. */
enum { BR_LINK_TRACE_ID = 1, BR_LINK_SPAN_ID = 2 };

/* Fields of Stack. */
enum { BR_STACK_LOCATIONS = 1 };

/* Fields of Location. */
enum {
    BR_LOCATION_MAPPING = 1,
    BR_LOCATION_ADDRESS = 2,
    BR_LOCATION_LINES = 3,
    BR_LOCATION_ATTRIBUTES = 4,
};

/* Fields of Line. */
enum { BR_LINE_FUNCTION = 1, BR_LINE_LINE = 2, BR_LINE_COLUMN = 3 };

/* Fields of Function. */
enum {
    BR_FUNCTION_NAME = 1,
    BR_FUNCTION_SYSTEM_NAME = 2,
    BR_FUNCTION_FILENAME = 3,
    BR_FUNCTION_START_LINE = 4,
};

/* Fields of Mapping. */
enum {
    BR_MAPPING_START = 1,
    BR_MAPPING_LIMIT = 2,
    BR_MAPPING_FILE_OFFSET = 3,
    BR_MAPPING_FILENAME = 4,
    BR_MAPPING_ATTRIBUTES = 5,
};

/* Fields of KeyValueAndUnit, an entry of the attribute table. */
enum { BR_ATTRIBUTE_KEY = 1, BR_ATTRIBUTE_VALUE = 2, BR_ATTRIBUTE_UNIT = 3 };
