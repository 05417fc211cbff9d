//! The protocol's JSON Schema, made from the types.
