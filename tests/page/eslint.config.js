// SPDX-License-Identifier: Apache-2.0
import { fileURLToPath } from "node:url";
import tseslint from "typescript-eslint";

const root = fileURLToPath(new URL("../..", import.meta.url));

export default tseslint.config(
  tseslint.configs.recommended,
  {
    rules: {
      // A property that is left out of a copy by `const { property, ...copy }` is not used.
      "@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true }],
    },
  },
  {
    // These are CommonJS modules, so that old releases of Node load them.
    files: ["bridges/node/**", "tests/sdks/node-bridge/**"],
    rules: { "@typescript-eslint/no-require-imports": "off" },
  },
  {
    files: ["web/src/**"],
    rules: { "max-len": ["error", { code: 120 }] },
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { project: "web/tsconfig.json", tsconfigRootDir: root } },
  },
);
