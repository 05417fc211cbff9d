//! The web page: plain files of `hub/web/`, embedded as they are. There is no build step; what stands in the
//! folder is what a browser gets.

use axum::body::{Body, Bytes};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    IF_NONE_MATCH,
};
use axum::http::{HeaderName, Response, StatusCode};
use hearth_shared::identity::Digest;
use std::sync::OnceLock;

/// What the page may do: load its own files, talk to the hub it came from, show pictures it fetched. Strings
/// never become markup or script; the one policy there is names the service worker.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
                      media-src blob:; connect-src 'self'; manifest-src 'self'; worker-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types hearth";
/// What a page has no use for.
const PERMISSIONS: &str = "camera=(), microphone=(), geolocation=(), payment=(), usb=(), serial=()";

/// One file.
struct File {
    path: &'static str,
    mime: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! files {
    ($($path:literal $mime:expr,)*) => {
        &[$(File { path: $path, mime: $mime, bytes: include_bytes!(concat!("../web/", $path)) },)*]
    };
}

const FILES: &[File] = files! {
    "app.js" SCRIPT,
    "card.js" SCRIPT,
    "chart.js" SCRIPT,
    "dom.js" SCRIPT,
    "hub.js" SCRIPT,
    "i18n.js" SCRIPT,
    "icon-192.png" "image/png",
    "icon-512.png" "image/png",
    "icon.svg" "image/svg+xml",
    "index.html" HTML,
    "keys.js" SCRIPT,
    "lang/en.js" SCRIPT,
    "lang/zh.js" SCRIPT,
    "manifest.webmanifest" "application/manifest+json",
    "markdown.js" SCRIPT,
    "push.js" SCRIPT,
    "style.css" STYLE,
    "sw.js" SCRIPT,
    "transport.js" SCRIPT,
    "trust.css" STYLE,
    "trust.html" HTML,
    "trust.js" SCRIPT,
    "vendor/ed25519.js" SCRIPT,
    "vendor/noble/LICENSE.txt" "text/plain; charset=utf-8",
    "vendor/noble/_md.js" SCRIPT,
    "vendor/noble/_u64.js" SCRIPT,
    "vendor/noble/ed25519.js" SCRIPT,
    "vendor/noble/sha2.js" SCRIPT,
    "vendor/noble/utils.js" SCRIPT,
    "views/audit.js" SCRIPT,
    "views/card.js" SCRIPT,
    "views/channels.js" SCRIPT,
    "views/chat.js" SCRIPT,
    "views/more.js" SCRIPT,
    "views/node.js" SCRIPT,
    "views/nodes.js" SCRIPT,
    "views/parts.js" SCRIPT,
    "views/people.js" SCRIPT,
    "views/requests.js" SCRIPT,
    "views/settings.js" SCRIPT,
};

/// The file behind a request's path, or nothing.
#[must_use]
pub fn serve(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let name = match path {
        "/" => "index.html",
        "/trust" => "trust.html",
        other => other.strip_prefix('/')?,
    };
    let at = FILES.iter().position(|f| f.path == name)?;
    let (file, tag) = (&FILES[at], &tags()[at]);
    let known = headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|v| v.trim().trim_start_matches("W/") == tag);
    let mut response =
        Response::new(if known { Body::empty() } else { Body::from(Bytes::from_static(file.bytes)) });
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(HeaderName::from_static("permissions-policy"), HeaderValue::from_static(PERMISSIONS));
    // Kept, and asked for again each time: an updated hub serves an updated page at once.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.mime));
        headers.insert(CONTENT_LENGTH, file.bytes.len().into());
    }
    Some(response)
}

/// Entity tags, made when the page is first asked for.
fn tags() -> &'static [String] {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    TAGS.get_or_init(|| {
        let tag = |f: &File| format!("\"{}\"", &Digest::of(f.bytes).to_string()[..16]);
        FILES.iter().map(tag).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served_and_no_other() {
        let root = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("web");
        let mut found = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        let mut listed: Vec<&str> = FILES.iter().map(|f| f.path).collect();
        listed.sort_unstable();
        assert_eq!(found, listed, "hub/web and the table in hub/src/web.rs differ");
        for path in ["/nothing", "/../Cargo.toml", "/index.html/", "//index.html", ""] {
            assert!(serve(path, &HeaderMap::new()).is_none(), "{path}");
        }
    }

    #[test]
    fn a_known_file_is_not_sent_again() {
        let first = serve("/", &HeaderMap::new()).unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, first.headers()[ETAG].clone());
        let again = serve("/", &headers).unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert!(again.headers().get(CONTENT_LENGTH).is_none());
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"other\""));
        assert_eq!(serve("/", &headers).unwrap().status(), StatusCode::OK);
    }

    #[test]
    fn the_policy_has_no_exceptions() {
        for word in ["unsafe", "*", "http:", "https:", "data:", "'nonce", "'sha256"] {
            assert!(!POLICY.contains(word), "{word}");
        }
        // Nor does the page need any: no inline script, style or handler.
        for file in FILES.iter().filter(|f| f.mime == HTML) {
            let text = std::str::from_utf8(file.bytes).unwrap().to_lowercase();
            assert!(!text.contains("style="), "{}", file.path);
            assert!(!text.contains("<style"), "{}", file.path);
            assert!(!text.contains("javascript:"), "{}", file.path);
            let handler = text.match_indices(" on").any(|(at, _)| {
                text[at + 3..].trim_start_matches(|c: char| c.is_ascii_alphabetic()).starts_with('=')
            });
            assert!(!handler, "{}", file.path);
            let inline = text
                .match_indices("<script")
                .any(|(at, _)| !text[at..].split('>').next().unwrap().contains("src="));
            assert!(!inline, "{}", file.path);
        }
    }
}
