//! `hearth cert`: the hub's own certificate authority, for browsers and phones.

use super::client::{Access, Client, Target};
use super::context::Context;
use super::error::Failure;
use super::output::{safe_line, time};
use super::pair;
use crate::cert::{AuthorityView, profile};
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the authority, what the certificate is good for, and where phones get it
    Show,
    /// Write the authority's certificate into a file, to be installed on a device
    Export {
        /// Where to write it; `-` is standard output
        file: PathBuf,
        /// Form of the file
        #[arg(long, value_enum, default_value_t = Form::Pem)]
        form: Form,
    },
    /// Make a new certificate now; nodes and their pins are not concerned
    Renew {
        /// Also a new authority: every phone and computer must install it again
        #[arg(long)]
        authority: bool,
    },
}

/// Form of an exported certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Text, for Linux, Firefox, curl
    Pem,
    /// Binary, for Android and Windows
    Der,
    /// Configuration profile for iOS, iPadOS and macOS
    Profile,
}

pub(super) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    match &arguments.action {
        Action::Export { file, form } => export(file, *form, context),
        Action::Show => ask(context, "hearth.cert.status", json!({})),
        Action::Renew { authority } => ask(context, "hearth.cert.renew", json!({ "authority": authority })),
    }
}

fn ask(context: &Context, method: &str, params: Value) -> Result<(), Failure> {
    let status = context.block_on(async {
        let target = Target::local(&context.home)?;
        let mut client = Client::connect(&target, Access::OWNER).await?;
        let status = client.call(method, params).await?;
        client.close().await;
        Ok(status)
    })?;
    if context.json {
        return context.out.json(&status);
    }
    show(&status, context)
}

fn show(status: &Value, context: &Context) -> Result<(), Failure> {
    let out = context.out;
    let text = |v: &Value| safe_line(v.as_str().unwrap_or("-"));
    let list =
        |v: &Value| -> Vec<String> { v.as_array().map(|a| a.iter().map(text).collect()).unwrap_or_default() };
    let pages = list(&status["pages"]);
    if let Some(page) = pages.first()
        && let Some(qr) = pair::qr(page)
    {
        out.raw(if context.interactive { pair::on_white(&qr) } else { qr })?;
    }
    out.line(format!("authority   {}", text(&status["authority"])))?;
    out.line(format!("SHA-256     {}", text(&status["fingerprint"])))?;
    out.line(format!("good for    {}", list(&status["names"]).join(", ")))?;
    out.line(format!("until       {}", time(status["expiresAtMs"].as_u64().unwrap_or_default())))?;
    let left_out = list(&status["leftOut"]);
    if !left_out.is_empty() {
        out.line(format!(
            "not for     {} (added after the authority was made; `hearth cert renew --authority` covers them)",
            left_out.join(", ")
        ))?;
    }
    if pages.is_empty() {
        return out.line(
            "\nThe hub listens on this machine only. `hearth pair --listen lan` lets phones reach it.",
        );
    }
    out.line(format!(
        "\nOn a phone or computer open {}\n\
         The browser warns once; go on, follow the page, and compare the SHA-256 above with what the device \
         shows before you trust it.",
        pages.join("\nor ")
    ))
}

fn export(file: &Path, form: Form, context: &Context) -> Result<(), Failure> {
    let path = context.home.authority();
    let authority = AuthorityView::read(&path).ok_or_else(|| {
        Failure::not_found(
            format!("{}: there is no certificate in it", path.display()),
            "`hearth run` makes one at its first start",
        )
    })?;
    let bytes = match form {
        Form::Pem => authority.pem().into_bytes(),
        Form::Der => authority.der.to_vec(),
        Form::Profile => profile::mobileconfig(&authority.name, &authority.der).into_bytes(),
    };
    if file == Path::new("-") {
        use std::io::Write as _;
        return std::io::stdout().write_all(&bytes).map_err(|e| Failure::output(&e));
    }
    std::fs::write(file, &bytes)
        .map_err(|e| Failure::failed(format!("{}: {e}", file.display()), "name a file you may write"))?;
    if context.json {
        return context.out.json(&json!({ "file": file, "fingerprint": authority.fingerprint() }));
    }
    context.out.line(format!(
        "{} holds {}, SHA-256 {}",
        file.display(),
        authority.name,
        authority.fingerprint()
    ))
}
