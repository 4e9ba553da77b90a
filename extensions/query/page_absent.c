/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces the web page in builds without the page: the option `page` is disabled, or npm is
 * missing. */
#include "extensions/query/page.h"

const struct query_page_file query_page_files[] = {{.path = NULL}};
const char query_page_why_absent[] = "";
