# Sourced by the scripts that build for wasm32: sets `wasm_cargo`, which takes the arguments of `cargo`.
#
# A rustup toolchain with the wasm32 target is used when it is installed; else Debian's rustc-web, whose library is
# built from its sources.

export CARGO_TARGET_DIR="${WASM_TARGET_DIR:-$PWD/target/wasm}"

if rustup target list --installed 2>/dev/null | grep -qx wasm32-unknown-unknown; then
    wasm_cargo() { cargo "$@" --target wasm32-unknown-unknown; }
elif [ -x /usr/bin/rustc ] && [ -d /usr/lib/rustlib/src/rust/library ] && command -v wasm-ld >/dev/null; then
    wasm_cargo() {
        RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld \
            cargo "$@" --target wasm32-unknown-unknown -Zbuild-std=std,panic_abort
    }
else
    echo "no compiler for wasm32: run 'rustup target add wasm32-unknown-unknown'," >&2
    echo "or install the Debian packages rustc-web, rust-web-src and lld" >&2
    exit 1
fi
