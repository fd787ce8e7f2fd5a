// The typed face of the package; see index.d.ts.

import load, * as bindings from "./pkg/palisade_wasm.js";

let loaded;

/** Loads the module once; later calls wait for the same load. */
export function init(source) {
  loaded ??= resolve(source).then((module_or_path) => load({ module_or_path }));
  return loaded.then(() => undefined);
}

async function resolve(source) {
  const place = source ?? new URL("./pkg/palisade_wasm_bg.wasm", import.meta.url);
  if (place instanceof URL && place.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return readFile(place);
  }
  return place;
}

export function decodeFrame(message) {
  return JSON.parse(bindings.decodeFrame(message));
}

export function installCommand(wanted) {
  return JSON.parse(bindings.installCommand(JSON.stringify(wanted)));
}

export function uninstallCommand(wanted) {
  return JSON.parse(bindings.uninstallCommand(JSON.stringify(wanted)));
}

export function logCommand(installationId) {
  return JSON.parse(bindings.logCommand(installationId));
}

export function validateSpecification(provider, json) {
  return JSON.parse(bindings.validateSpecification(provider, json));
}

export function specificationDigest(provider, json) {
  return JSON.parse(bindings.specificationDigest(provider, json));
}
