// Every vector as calls of the package, with what the vector itself says of the answer.

import { readFileSync } from "node:fs";

const read = (name) => JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), "utf8"));
const base64 = (text) => Buffer.from(text, "utf8").toString("base64");

function hostileFrames() {
  return read("frames").map(({ name, text, base64: bytes, padded_to, grade, type, reason }) => ({
    name: `frame: ${name}`,
    frame: bytes ?? base64(text.padEnd(padded_to ?? 0)),
    expect: { grade, type, reason },
  }));
}

function heartbeat(diagnostic) {
  return JSON.stringify({
    version: 6,
    type: "heartbeat",
    connection_id: "3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e",
    owner_epoch: 12,
    health: {
      observed_at: "2026-10-01T08:00:10Z",
      active_operations: 0,
      cpu_utilization: null,
      total_memory_bytes: null,
      effective_cpu_cores: null,
      generations: [{ generation: 1, specification_digest: "0".repeat(64), state: "failed", diagnostic }],
    },
  });
}

function diagnostics() {
  const declared = read("node-diagnostics").map((code) => ({
    name: `diagnostic: ${code}`,
    frame: base64(heartbeat(code)),
    expect: { grade: "ok", type: "heartbeat", reason: null },
  }));
  const undeclared = {
    name: "diagnostic: undeclared",
    frame: base64(heartbeat("host_unsupported")),
    expect: { grade: "invalid_frame", type: "heartbeat", reason: "not a declared diagnostic class" },
  };
  return [...declared, undeclared];
}

/** A reason decodes whatever it is; the proxy judges it. So both sides only have to agree. */
function reasons() {
  return read("observation_reasons").cases.map(({ reason }) => ({
    name: `reason: ${JSON.stringify(reason)}`,
    frame: base64(
      JSON.stringify({
        version: 6,
        type: "response",
        response: {
          id: "x",
          connection_id: "3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e",
          error_code: "unsupported",
          unsupported: { operation: "Observe", reason },
        },
      }),
    ),
    expect: { grade: "ok", type: "response", reason: null },
  }));
}

function specifications() {
  return read("deployment-contract.flat").map(({ name, provider, specification, valid, canonical, digest }) => ({
    name: `specification: ${name}`,
    provider,
    specification,
    expect: valid ? [{ ok: true }, { digest, canonical }] : undefined,
    refused: !valid,
  }));
}

function standardSizes() {
  const { runtime } = read("deployment-contract.flat").find(({ name }) => name === "docker").specification;
  return Object.entries(read("standard-sizes")).map(([provider, resources]) => ({
    name: `standard size: ${provider}`,
    provider,
    specification: { resources, runtime },
  }));
}

/** The commands of a host's shell, and values that none is made of. Both sides must give the same text. */
function commands() {
  const uninstall = {
    installer_sha256: "0a".repeat(32),
    source_url: "https://core.example",
    installation_id: "3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e",
  };
  const install = { ...uninstall, core_url: "https://core.example", token: "0b".repeat(32) };
  return [
    { name: "command: install", install },
    { name: "command: install over plain http", install: { ...install, core_url: "http://core.example" } },
    { name: "command: install with a member too many", install: { ...install, force: true } },
    { name: "command: uninstall", uninstall },
    { name: "command: uninstall without a digest", uninstall: { ...uninstall, installer_sha256: "" } },
    { name: "command: log", log: uninstall.installation_id },
    { name: "command: log of an odd id", log: "o'dd $(id) é" },
    { name: "command: log of a terminal's command", log: "\u001b[2J" },
  ];
}

export const calls = [...commands(), ...hostileFrames(), ...diagnostics(), ...reasons(), ...specifications(), ...standardSizes()];

/** Runs the calls through the package; works in Node and, passed as source text, in a browser. */
export function answer(palisade, calls) {
  const bytes = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return calls.map(({ frame, provider, specification, install, uninstall, log }) => {
    if (install !== undefined) return palisade.installCommand(install);
    if (uninstall !== undefined) return palisade.uninstallCommand(uninstall);
    if (log !== undefined) return palisade.logCommand(log);
    if (frame !== undefined) return palisade.decodeFrame(bytes(frame));
    const json = JSON.stringify(specification);
    return [palisade.validateSpecification(provider, json), palisade.specificationDigest(provider, json)];
  });
}
