//! The shape of the configuration, read from its types: which tables and keys there are, what they mean
//! and what they default to. The example, the check for unknown keys and `config show` follow from it.

use super::{
    AgentConfig, ApprovalsConfig, Config, DiscoveryConfig, GatewayConfig, LogConfig, ModelConfig,
    NodesConfig, NotifyConfig, NtfyConfig, PairingConfig, RetentionConfig,
};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use serde_json::Value;

/// A table of the file.
pub(super) struct Table {
    /// Dotted, for example `agent.model`; empty for the root.
    pub path: String,
    /// What it is about.
    pub doc: String,
    /// In the order of the types.
    pub keys: Vec<Key>,
    /// The whole table may be left out, and is by default.
    pub optional: bool,
}

/// A key that holds a value.
pub(super) struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub doc: String,
    /// As TOML; `None` when it is left out by default.
    pub default: Option<String>,
    /// As TOML, for keys without a default.
    pub example: Option<String>,
}

/// All tables, the root first, each before those inside it.
pub(super) fn tables() -> Vec<Table> {
    let schema = schemars::schema_for!(Config).to_value();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut found = Vec::new();
    collect(&schema, &schema, &defaults, "", String::new(), false, &mut found);
    found
}

fn collect(
    root: &Value,
    node: &Value,
    defaults: &Value,
    path: &str,
    doc: String,
    optional: bool,
    found: &mut Vec<Table>,
) {
    let at = found.len();
    found.push(Table { path: path.into(), doc, keys: Vec::new(), optional });
    let properties = &node["properties"];
    for name in order(path) {
        let property = &properties[name];
        let (target, inner_optional) = resolve(root, property);
        let doc = text(property).or_else(|| text(target)).unwrap_or_default();
        if target.get("properties").is_some() {
            let inner = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
            // What lies in a table that may be left out goes with it.
            collect(root, target, &defaults[*name], &inner, doc, optional || inner_optional, found);
            continue;
        }
        let default = Some(&defaults[*name])
            .filter(|v| !v.is_null())
            .or_else(|| property.get("default").filter(|v| !v.is_null()));
        let example = property["examples"].get(0).and_then(toml_text);
        found[at].keys.push(Key { name, doc, default: default.and_then(toml_text), example });
    }
}

/// Follows `$ref`, and takes the one alternative that is not null.
fn resolve<'a>(root: &'a Value, node: &'a Value) -> (&'a Value, bool) {
    if let Some(reference) = node["$ref"].as_str() {
        return (root.pointer(reference.trim_start_matches('#')).unwrap_or(node), false);
    }
    if let Some(alternatives) = node["anyOf"].as_array()
        && let Some(inner) = alternatives.iter().find(|a| a["type"] != "null")
    {
        return (resolve(root, inner).0, true);
    }
    (node, false)
}

fn text(node: &Value) -> Option<String> {
    node["description"].as_str().map(|text| text.replace('\n', " "))
}

fn toml_text(value: &Value) -> Option<String> {
    toml::Value::try_from(value).ok().map(|v| v.to_string())
}

/// Names of a table's keys as they stand in its type. A JSON schema sorts them; people group them.
fn order(path: &str) -> &'static [&'static str] {
    match path {
        "" => fields::<Config>(),
        "gateway" => fields::<GatewayConfig>(),
        "discovery" => fields::<DiscoveryConfig>(),
        "pairing" => fields::<PairingConfig>(),
        "approvals" => fields::<ApprovalsConfig>(),
        "nodes" => fields::<NodesConfig>(),
        "notify" => fields::<NotifyConfig>(),
        "notify.ntfy" => fields::<NtfyConfig>(),
        "retention" => fields::<RetentionConfig>(),
        "agent" => fields::<AgentConfig>(),
        "agent.model" => fields::<ModelConfig>(),
        "log" => fields::<LogConfig>(),
        _ if path.starts_with("channels") => crate::channels::ChannelsConfig::fields(path),
        // A table without a line here would be empty in the example; a test compares with the schema.
        _ => &[],
    }
}

/// What serde's derive says about a struct: it hands its field names to the deserialiser.
pub(crate) fn fields<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    let _ = T::deserialize(FieldNames(&mut names));
    names
}

struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(Self::Error::custom("only the names were wanted"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("not a struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_of_the_schema_is_a_key_or_a_table_with_a_meaning() {
        let schema = schemars::schema_for!(Config).to_value();
        let mut properties = schema["properties"].as_object().unwrap().len();
        for definition in schema["$defs"].as_object().unwrap().values() {
            properties += definition["properties"].as_object().map_or(0, |p| p.len());
        }
        let tables = tables();
        let keys: usize = tables.iter().map(|t| t.keys.len()).sum();
        assert_eq!(keys + tables.len() - 1, properties);
        for table in tables {
            assert!(table.path.is_empty() || !table.doc.is_empty(), "{}", table.path);
            for key in table.keys {
                assert!(!key.doc.is_empty(), "{}.{}", table.path, key.name);
                assert!(key.default.is_some() || key.example.is_some(), "{}.{}", table.path, key.name);
            }
        }
    }
}
