//! Whose certificates are taken.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::Check;
use crate::seam::error::StoreError;

#[derive(Debug)]
pub struct Issuers {
    roots: RootCertStore,
    /// The file's own certificates: a server that has one of them made it itself.
    listed: Vec<CertificateDer<'static>>,
}

impl Issuers {
    pub fn none() -> Issuers {
        Issuers { roots: RootCertStore::empty(), listed: Vec::new() }
    }

    pub fn of_file(file: &Path) -> Result<Issuers, StoreError> {
        let wrong = |why: String| {
            let todo =
                "give a file with the certificates of those who issued the server's, in PEM, or `system`";
            StoreError::invalid("sslrootcert", format!("cannot read {}: {why}; {todo}", file.display()))
        };
        let bytes = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let listed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let listed = listed.map_err(|error| wrong(error.to_string()))?;
        if listed.is_empty() {
            return Err(wrong("there is no certificate in it".into()));
        }
        let mut roots = RootCertStore::empty();
        // One that cannot issue any may still be the server's own.
        roots.add_parsable_certificates(listed.iter().cloned());
        Ok(Issuers { roots, listed })
    }

    /// Those that this machine trusts.
    pub fn of_system() -> Result<Issuers, StoreError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let why = found.errors.first().map_or_else(|| "there are none".into(), ToString::to_string);
            let message = format!("the system's certificates cannot be read: {why}");
            return Err(StoreError::invalid("sslrootcert", message));
        }
        Ok(Issuers { roots, listed: Vec::new() })
    }

    pub fn verifier(self, check: Check, provider: &CryptoProvider) -> Arc<dyn ServerCertVerifier> {
        Arc::new(Verifier { issuers: self, check, algorithms: provider.signature_verification_algorithms })
    }
}

#[derive(Debug)]
struct Verifier {
    issuers: Issuers,
    check: Check,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// That the server has the certificate's key is looked at always; but old certificates (of version 1, as `openssl
    /// x509 -req` makes them) cannot be read, and who checks nothing gets on with those too.
    fn forgiven(
        &self,
        verified: Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        match verified {
            Err(Error::InvalidCertificate(why))
                if self.check == Check::Nothing && why != CertificateError::BadSignature =>
            {
                Ok(HandshakeSignatureValid::assertion())
            }
            other => other,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.check == Check::Nothing {
            return Ok(ServerCertVerified::assertion());
        }
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if !self.issuers.listed.iter().any(|listed| listed == end_entity) {
            let roots = &self.issuers.roots;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                self.algorithms.all,
            )?;
        }
        if self.check == Check::Name {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.forgiven(verify_tls12_signature(message, cert, dss, &self.algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.forgiven(verify_tls13_signature(message, cert, dss, &self.algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
