//! The binary `hearth-node`.
fn main() {}
