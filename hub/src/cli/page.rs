//! `hearth page`: a link that lets one browser in, once.

use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::output::span;
use super::pair::{on_white, parse_ttl, qr};
use crate::store::now_ms;
use serde_json::{Value, json};

/// What whoever opens the link may do.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Rights {
    /// Everything: chat, approvals, pairings, approvers, the audit log
    #[default]
    Owner,
    /// Chat, see, and decide what waits
    Member,
    /// Chat and see
    Guest,
}

impl Rights {
    fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Member => "member",
            Self::Guest => "guest",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// What the browser that opens the link may do
    #[arg(long, value_enum, default_value_t)]
    rights: Rights,
    /// How long the link may be used, for example 90s or 1h [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = parse_ttl)]
    ttl: Option<u64>,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    context.block_on(async {
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        let mut params = json!({ "rights": arguments.rights.as_str() });
        if let Some(ttl) = arguments.ttl {
            params["ttlMs"] = (ttl * 1000).into();
        }
        let link = client.call("hearth.page.link", params).await?;
        client.close().await;
        if context.json { context.out.json(&link) } else { show(&link, arguments.rights, context) }
    })
}

fn show(link: &Value, rights: Rights, context: &Context) -> Result<(), Failure> {
    let urls: Vec<&str> = link["urls"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let out = context.out;
    if let Some(picture) = urls.first().and_then(|url| qr(url)) {
        out.raw(if context.interactive { on_white(&picture) } else { picture })?;
    }
    out.line("")?;
    for url in &urls {
        out.line(url)?;
    }
    let left = link["expiresAtMs"].as_u64().unwrap_or_default().saturating_sub(now_ms());
    out.line(format!(
        "\nThe first browser that opens it is let in as {}; it works once, for {}. Give it to nobody else.",
        rights.as_str(),
        span(left)
    ))?;
    if link["loopbackOnly"] == true {
        out.line(
            "The hub listens on this machine only. For a phone: `hearth pair --listen lan`, start the hub again, then `hearth page`.",
        )?;
    }
    Ok(())
}
