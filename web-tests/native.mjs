// The same calls through the same functions as native code.

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

export function native(calls) {
  const input = calls.map(({ frame, provider, specification, install, uninstall, log }) =>
    JSON.stringify({ frame, provider, specification, install, uninstall, log }),
  );
  const { status, stdout, stderr, error } = spawnSync(
    "cargo",
    ["run", "--quiet", "-p", "palisade-wasm", "--example", "native"],
    {
      cwd: fileURLToPath(new URL("..", import.meta.url)),
      input: `${input.join("\n")}\n`,
      maxBuffer: 64 << 20,
      encoding: "utf8",
    },
  );
  if (status !== 0) throw new Error(`the native side failed: ${error ?? stderr}`);
  return stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
}
