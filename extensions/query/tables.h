/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of routes, one for each API. Each ends with a zeroed route. */
#pragma once

#include "extensions/query/query.h"

extern const struct query_route query_braid_routes[];        /* braid.c */
extern const struct query_route query_page_routes[];         /* page.c */
extern const struct query_route query_pyroscope_routes[];    /* pyroscope.c */
extern const struct query_route query_render_routes[];       /* render.c */
extern const struct query_route query_tempo_routes[];        /* tempo.c */
extern const struct query_route query_tempo_stream_routes[]; /* tempo_stream.c */
