#!/bin/sh
# Builds the core crate alone for wasm32 and checks that nothing foreign is linked into what uses it.
set -eu
cd "$(dirname "$0")/.."
. scripts/wasm-toolchain.sh
wasm_cargo build --quiet -p palisade-core --lib --profile web
wasm/build.sh
