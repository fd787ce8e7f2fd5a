//! Tells the tests whether they are optimised: twenty thousand histories take a minute then, and half an hour otherwise.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(unoptimised)");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("OPT_LEVEL").is_ok_and(|level| level == "0") {
        println!("cargo::rustc-cfg=unoptimised");
    }
}
