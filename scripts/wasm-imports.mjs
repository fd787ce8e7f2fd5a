// Usage: node wasm-imports.mjs MODULE.wasm ALLOWED-IMPORT-MODULE…
// Fails when the module asks its host for anything but the bindings: a clock, a socket or a random number would
// show up here.

import { readFileSync } from "node:fs";

const [path, ...allowed] = process.argv.slice(2);
const imports = WebAssembly.Module.imports(new WebAssembly.Module(readFileSync(path)));
const foreign = imports.filter(({ module }) => !allowed.includes(module));
for (const { module, name, kind } of imports) console.log(`import ${module} ${name} (${kind})`);
if (foreign.length > 0) {
  console.error(`${path} imports from ${[...new Set(foreign.map(({ module }) => module))].join(", ")}`);
  process.exit(1);
}
console.log(`${path}: ${imports.length} imports, all of the bindings`);
