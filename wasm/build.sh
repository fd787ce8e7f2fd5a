#!/bin/sh
# Builds the npm package: wasm/pkg, beside the hand-written index.js and index.d.ts.
set -eu
cd "$(dirname "$0")/.."
. scripts/wasm-toolchain.sh

version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/^version = "\(.*\)"$/\1/p}' Cargo.lock)
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
case "$(wasm-bindgen --version 2>/dev/null)" in
*" $version") ;;
*)
    echo "installing wasm-bindgen-cli $version (some minutes, once)" >&2
    # Unoptimised: it builds in a fraction of the time, and runs once.
    (unset CARGO_TARGET_DIR && cargo install --quiet --debug wasm-bindgen-cli --version "$version")
    ;;
esac

wasm_cargo build --quiet -p palisade-wasm --lib --profile web
module="$CARGO_TARGET_DIR/wasm32-unknown-unknown/web/palisade_wasm.wasm"
wasm-bindgen --target web --out-dir wasm/pkg "$module"
node scripts/wasm-imports.mjs wasm/pkg/palisade_wasm_bg.wasm ./palisade_wasm_bg.js
