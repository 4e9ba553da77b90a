/* SPDX-License-Identifier: Apache-2.0 */
/* Shorter names for protobuf-c's functions for ExportProfilesServiceRequest, whose names are too
 * long for an indented line: PROFILES_REQUEST(unpack), PROFILES_REQUEST(free_unpacked),
 * PROFILES_REQUEST(descriptor). */
#pragma once

#include "opentelemetry/proto/collector/profiles/v1development/profiles_service.pb-c.h"

#define PROFILES_REQUEST(x)                                                                        \
    opentelemetry__proto__collector__profiles__v1development__export_profiles_service_request__##x
