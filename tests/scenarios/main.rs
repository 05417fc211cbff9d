//! empty
#[test]
fn x() {}
