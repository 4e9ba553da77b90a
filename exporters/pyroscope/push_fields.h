/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field numbers of Pyroscope's push API. Source: api/push/v1/push.proto of grafana/pyroscope. A
 * test compares them with proto/push/v1/push.proto.
 */
#pragma once

/* PushRequest. */
enum { PYROSCOPE_REQUEST_SERIES = 1 };

/* RawProfileSeries. */
enum { PYROSCOPE_SERIES_LABELS = 1, PYROSCOPE_SERIES_SAMPLES = 2 };

/* LabelPair. */
enum { PYROSCOPE_LABEL_NAME = 1, PYROSCOPE_LABEL_VALUE = 2 };

/* RawSample. */
enum { PYROSCOPE_SAMPLE_PROFILE = 1, PYROSCOPE_SAMPLE_ID = 2 };
