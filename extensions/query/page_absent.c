/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of the page where it is not built: the option `page`, or no npm. */
#include "extensions/query/page.h"

const struct query_page_file query_page_files[] = {{.path = NULL}};
const char query_page_why_absent[] = "";
