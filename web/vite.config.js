// SPDX-License-Identifier: Apache-2.0
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox128", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    outDir: process.env.PAGE_OUT ?? "dist",
    emptyOutDir: true,
    // Preact's licence requires its notice in distributed code.
    rolldownOptions: {
      output: {
        postBanner:
          "/*! Contains Preact, Copyright (c) 2015-present Jason Miller, MIT License: https://github.com/preactjs/preact/blob/main/LICENSE */",
      },
    },
  },
  server: { proxy: { "/api": process.env.BRAID_URL ?? "http://localhost:3200" } },
});
