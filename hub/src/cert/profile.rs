//! The authority as an installable profile for iOS, iPadOS and macOS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hearth_shared::identity::Digest;

/// A configuration profile (`.mobileconfig`) with one root certificate. Its identifiers follow from the
/// certificate, so that installing it again replaces it.
#[must_use]
pub fn mobileconfig(name: &str, der: &[u8]) -> String {
    let hash = Digest::of(der).to_string();
    let name = escape(name);
    let (outer, inner) = (uuid(&hash[..32]), uuid(&hash[32..]));
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>PayloadContent</key>
  <array>
    <dict>
      <key>PayloadCertificateFileName</key><string>hearth-authority.crt</string>
      <key>PayloadContent</key><data>{data}</data>
      <key>PayloadDescription</key><string>Lets this device trust the certificate of your Hearth hub.</string>
      <key>PayloadDisplayName</key><string>{name}</string>
      <key>PayloadIdentifier</key><string>local.hearth.authority.{inner}</string>
      <key>PayloadType</key><string>com.apple.security.root</string>
      <key>PayloadUUID</key><string>{inner}</string>
      <key>PayloadVersion</key><integer>1</integer>
    </dict>
  </array>
  <key>PayloadDescription</key><string>The certificate authority of your Hearth hub. It can vouch for this hub's names and for addresses of private networks only.</string>
  <key>PayloadDisplayName</key><string>{name}</string>
  <key>PayloadIdentifier</key><string>local.hearth.{outer}</string>
  <key>PayloadRemovalDisallowed</key><false/>
  <key>PayloadType</key><string>Configuration</string>
  <key>PayloadUUID</key><string>{outer}</string>
  <key>PayloadVersion</key><integer>1</integer>
</dict>
</plist>
"#,
        data = STANDARD.encode(der),
    )
}

/// 32 hexadecimal digits in the form of a UUID.
fn uuid(hex: &str) -> String {
    let h = hex.to_uppercase();
    format!("{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..32])
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_holds_the_certificate_and_is_the_same_each_time() {
        let profile = mobileconfig("A <b> & c", b"not really a certificate");
        assert!(profile.contains(&STANDARD.encode(b"not really a certificate")));
        assert!(profile.contains("<string>A &lt;b&gt; &amp; c</string>"));
        assert_eq!(profile, mobileconfig("A <b> & c", b"not really a certificate"));
        assert_ne!(profile, mobileconfig("A <b> & c", b"another"));
    }
}
