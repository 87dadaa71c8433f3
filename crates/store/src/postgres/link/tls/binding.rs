//! Channel binding by the server's certificate (RFC 5929, tls-server-end-point): a password's proof (SCRAM) that holds
//! for this connection only.

use sha2::{Digest, Sha256, Sha384, Sha512};

/// The digest is the one that the certificate was signed with; SHA-256 instead of MD5 and SHA-1. Nothing if that is not
/// known (Ed25519, PSS), and then there is no binding, as with libpq.
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA_SHA2: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
    const ECDSA_SHA1: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
    let algorithm = signature_algorithm(certificate)?;
    let (last, family) = algorithm.split_last()?;
    match (family, last) {
        (family, 4 | 5 | 11) if family == RSA => Some(Sha256::digest(certificate).to_vec()),
        (family, 12) if family == RSA => Some(Sha384::digest(certificate).to_vec()),
        (family, 13) if family == RSA => Some(Sha512::digest(certificate).to_vec()),
        (family, 2) if family == ECDSA_SHA2 => Some(Sha256::digest(certificate).to_vec()),
        (family, 3) if family == ECDSA_SHA2 => Some(Sha384::digest(certificate).to_vec()),
        (family, 4) if family == ECDSA_SHA2 => Some(Sha512::digest(certificate).to_vec()),
        _ if algorithm == ECDSA_SHA1 => Some(Sha256::digest(certificate).to_vec()),
        _ => None,
    }
}

/// `SEQUENCE { what is signed, SEQUENCE { the algorithm's OBJECT IDENTIFIER, … }, … }`
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (inside, _) = element(0x30, certificate)?;
    let (_, after) = element(0x30, inside)?;
    let (algorithm, _) = element(0x30, after)?;
    Some(element(0x06, algorithm)?.0)
}

/// A DER element's content, and what comes after it.
fn element(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (first as usize, rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(first as usize - 0x80)?;
            (digits.iter().fold(0, |sum, &digit| sum << 8 | digit as usize), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::end_point;

    /// As short as a certificate can be, with a signature of this sort.
    fn certificate(algorithm: &[u8]) -> Vec<u8> {
        let name = [&[0x06, algorithm.len() as u8], algorithm].concat();
        let inside = [&[0x30, 0x81, 0x01, 0x00, 0x30, name.len() as u8][..], &name].concat();
        [&[0x30, 0x82, 0x00, inside.len() as u8][..], &inside].concat()
    }

    #[test]
    fn the_digest_is_that_of_the_signature() {
        let rsa = |last| certificate(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, last]);
        let ecdsa = |last| certificate(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, last]);
        let ed25519 = certificate(&[0x2b, 0x65, 0x70]);
        for (certificate, bytes) in [
            (rsa(5), Some(32)),
            (rsa(11), Some(32)),
            (rsa(12), Some(48)),
            (rsa(13), Some(64)),
            (rsa(10), None),
            (ecdsa(2), Some(32)),
            (ecdsa(3), Some(48)),
            (ecdsa(4), Some(64)),
            (certificate(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01]), Some(32)),
            (ed25519, None),
            (vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff], None),
            (Vec::new(), None),
        ] {
            assert_eq!(end_point(&certificate).map(|digest| digest.len()), bytes, "{certificate:x?}");
        }
    }
}
