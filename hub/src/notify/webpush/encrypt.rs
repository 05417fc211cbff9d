//! Encryption to a browser (RFC 8291 over RFC 8188, `aes128gcm`): the push service carries what it cannot read.

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::error::Unspecified;
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Every message has this length inside, so that its length tells nothing.
const PADDED: usize = 768;
/// Record size in the header; a message is one record.
const RECORD: u32 = 4096;
/// Uncompressed P-256 point.
pub(super) const POINT: usize = 65;
/// The browser's secret.
pub(super) const AUTH: usize = 16;

/// Encrypts for a browser. Texts over 767 bytes are an error.
pub(super) fn encrypt(theirs: &[u8; POINT], auth: &[u8; AUTH], text: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let random = SystemRandom::new();
    let own = EphemeralPrivateKey::generate(&ECDH_P256, &random)?;
    let public = own.compute_public_key()?;
    let public: [u8; POINT] = public.as_ref().try_into().map_err(|_| Unspecified)?;
    let mut salt = [0; 16];
    random.fill(&mut salt)?;
    let mut padded = text.to_vec();
    padded.push(2);
    if padded.len() > PADDED {
        return Err(Unspecified);
    }
    padded.resize(PADDED, 0);
    agree_ephemeral(own, &UnparsedPublicKey::new(&ECDH_P256, theirs), |shared| {
        seal(&Parties { theirs, auth, public: &public, salt: &salt }, shared, padded)
    })?
}

/// What goes into the keys beside the shared secret.
struct Parties<'a> {
    theirs: &'a [u8; POINT],
    auth: &'a [u8; AUTH],
    public: &'a [u8; POINT],
    salt: &'a [u8; 16],
}

/// The message: header and one record. `padded` ends with its delimiter and padding.
fn seal(parties: &Parties<'_>, shared: &[u8], padded: Vec<u8>) -> Result<Vec<u8>, Unspecified> {
    let info = [b"WebPush: info\0".as_slice(), parties.theirs, parties.public].concat();
    let ikm: [u8; 32] = expand(&Salt::new(HKDF_SHA256, parties.auth).extract(shared), &info)?;
    let prk = Salt::new(HKDF_SHA256, parties.salt).extract(&ikm);
    let key: [u8; 16] = expand(&prk, b"Content-Encoding: aes128gcm\0")?;
    let nonce: [u8; 12] = expand(&prk, b"Content-Encoding: nonce\0")?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key)?);
    let mut record = padded;
    // The key is used for this one record.
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record)?;
    let mut message = parties.salt.to_vec();
    message.extend(RECORD.to_be_bytes());
    message.push(POINT as u8);
    message.extend(parties.public);
    message.extend(record);
    Ok(message)
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(prk: &Prk, info: &[u8]) -> Result<[u8; N], Unspecified> {
    let mut out = [0; N];
    prk.expand(&[info], Length(N))?.fill(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    fn bytes<const N: usize>(text: &str) -> [u8; N] {
        URL_SAFE_NO_PAD.decode(text).unwrap().try_into().unwrap()
    }

    /// RFC 8291, appendix A and section 5.
    #[test]
    fn the_example_of_the_standard() {
        let theirs =
            bytes("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4");
        let public =
            bytes("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        let parties = Parties {
            theirs: &theirs,
            auth: &bytes("BTBZMqHH6r4Tts7J_aSIgg"),
            public: &public,
            salt: &bytes("DGv6ra1nlYgDCS1FRnbzlw"),
        };
        let shared: [u8; 32] = bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
        let mut text = b"When I grow up, I want to be a watermelon".to_vec();
        text.push(2);
        let expected = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmY\
                        WAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
        assert_eq!(URL_SAFE_NO_PAD.encode(seal(&parties, &shared, text).unwrap()), expected);
    }

    #[test]
    fn messages_have_one_length_and_never_the_same_bytes() {
        let random = SystemRandom::new();
        let browser = EphemeralPrivateKey::generate(&ECDH_P256, &random).unwrap();
        let theirs: [u8; POINT] = browser.compute_public_key().unwrap().as_ref().try_into().unwrap();
        let short = encrypt(&theirs, &[7; AUTH], b"x").unwrap();
        let long = encrypt(&theirs, &[7; AUTH], &[b'y'; PADDED - 1]).unwrap();
        assert_eq!(short.len(), long.len());
        assert_ne!(short, encrypt(&theirs, &[7; AUTH], b"x").unwrap());
        assert!(encrypt(&theirs, &[7; AUTH], &[b'y'; PADDED]).is_err(), "too long");
        assert!(encrypt(&[4; POINT], &[7; AUTH], b"x").is_err(), "no point of the curve");
    }
}
