//! Link options of `libhrr_capture.so`.

fn main() {
    // Once a program's calls go through the shims, nothing may take their code away: `dlclose` must not unload it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Loaded after a HIP runtime, the library must still mean its own shims by HIP's names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rerun-if-changed=build.rs");
}
