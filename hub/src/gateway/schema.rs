//! The protocol's JSON Schema: made from the Rust types, committed in `hub/schema/`, one file a family.
//!
//! `HEARTH_BLESS=1 cargo test -p hearth-hub schema` writes the files anew after a change that is meant.

use super::handshake::params::ConnectParams;
use super::methods::{Access, FAMILIES, Method};
use hearth_shared::frame::Frame;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// All files: name without ending, and content.
#[must_use]
pub fn files() -> Vec<(&'static str, Value)> {
    let mut files = vec![("frame", frames())];
    files.extend(FAMILIES.iter().map(|(name, methods)| (*name, family(methods))));
    files
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

/// Frames, and the one request that is not in the table.
fn frames() -> Value {
    let mut generator = generator();
    let frame = of::<Frame>(&mut generator);
    let connect = of::<ConnectParams>(&mut generator);
    document(
        json!({ "frame": frame, "connect": { "params": connect }, "events": super::events::EVENTS,
            "nodeEvents": super::events::NODE_EVENTS }),
        generator,
    )
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn family(methods: &[Method]) -> Value {
    let mut generator = generator();
    let mut all = Map::new();
    for method in methods {
        let access = match method.access {
            Access::Operator(scope) => scope.as_str(),
            Access::Node => "role node",
            Access::Any => "any",
        };
        let (params, result) = method.schemas(&mut generator);
        all.insert(
            method.name.into(),
            json!({ "access": access, "params": params.to_value(), "result": result.to_value() }),
        );
    }
    document(json!({ "methods": all }), generator)
}

fn document(mut content: Value, mut generator: SchemaGenerator) -> Value {
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    content["$defs"] = Value::Object(generator.take_definitions(true));
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn path(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schema").join(format!("{name}.json"))
    }

    #[test]
    fn the_committed_schema_is_that_of_the_types() {
        let bless = std::env::var_os("HEARTH_BLESS").is_some();
        let mut names = Vec::new();
        for (name, schema) in files() {
            let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
            if bless {
                std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
                std::fs::write(path(name), &text).unwrap();
            }
            let committed = std::fs::read_to_string(path(name)).unwrap_or_default();
            assert!(
                committed == text,
                "hub/schema/{name}.json differs from the types; if that is meant, run with HEARTH_BLESS=1 \
                 and commit it"
            );
            names.push(format!("{name}.json"));
        }
        for file in std::fs::read_dir(path("x").parent().unwrap()).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            assert!(names.contains(&name), "hub/schema/{name} belongs to no family");
        }
    }
}
