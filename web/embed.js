// SPDX-License-Identifier: Apache-2.0
// Writes the built page as C: node embed.js DIST OUT.c. Each file is compressed with gzip and with brotli; its ETag is a
// hash. Names of files in assets/ contain a hash, so these files never change.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, extname } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const types = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

export function compressed(data) {
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
    [constants.BROTLI_PARAM_SIZE_HINT]: data.length,
  };
  return { gzip: gzipSync(data, { level: 9 }), brotli: brotliCompressSync(data, { params }) };
}

/** Returns every file of the page as [path below the root, bytes]. */
export function filesOf(dist) {
  const assets = readdirSync(join(dist, "assets")).sort();
  return [
    ["index.html", readFileSync(join(dist, "index.html"))],
    ...assets.map((name) => [`assets/${name}`, readFileSync(join(dist, "assets", name))]),
  ];
}

const array = (name, data) => {
  const rows = [];
  for (let at = 0; at < data.length; at += 24)
    rows.push([...data.subarray(at, at + 24)].join(", "));
  return `static const unsigned char ${name}[] = {\n${rows.join(",\n")}};\n`;
};

function source(dist) {
  const out = ["/* Made from web/ by web/embed.js. */", '#include "extensions/query/page.h"', ""];
  const rows = filesOf(dist).map(([path, data], i) => {
    const { gzip, brotli } = compressed(data);
    const type = types[extname(path)];
    if (!type) throw new Error(`${path}: a file of this kind is not served`);
    const etag = createHash("sha256").update(data).digest("hex").slice(0, 24);
    out.push(array(`gzip_${i}`, gzip), array(`brotli_${i}`, brotli));
    return (
      `    {.path = "${path === "index.html" ? "" : path}", .type = "${type}", .etag = "W/\\"${etag}\\"", .is_fixed = ${path !== "index.html"},\n` +
      `     .gzip = gzip_${i}, .gzip_len = sizeof gzip_${i}, .brotli = brotli_${i}, .brotli_len = sizeof brotli_${i}, .plain_len = ${data.length}},`
    );
  });
  out.push(
    "const struct query_page_file query_page_files[] = {",
    ...rows,
    "    {.path = NULL},",
    "};",
    'const char query_page_why_absent[] = "";',
    "",
  );
  return out.join("\n");
}

if (process.argv[1]?.endsWith("embed.js")) writeFileSync(process.argv[3], source(process.argv[2]));
