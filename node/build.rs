//! Link options of the small build (`--profile node`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Relative relocations packed (DT_RELR): 180 KB less in the file. Only where size is wanted, since the loader
    // must know them: glibc 2.36 (Raspberry Pi OS 12 "bookworm", Debian 12) or later; an older one refuses
    // with a clear line. Not for musl, whose 1.2.3 does not know them.
    let small = std::env::var("OPT_LEVEL").as_deref() == Ok("z");
    let gnu = std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu");
    if small && gnu {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
