//! Encrypted connections, with rustls. The driver asks for a stream; this makes one.

mod binding;
mod issuers;
mod words;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::seam::error::StoreError;
use issuers::Issuers;
pub use words::in_words;

/// What is looked at of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Nothing,
    /// Who issued it.
    Issuer,
    /// That, and that it is for the name in the address.
    Name,
}

#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    pub check: Check,
    /// Protocol and cipher of the last handshake.
    agreed: Arc<Mutex<Option<String>>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("check", &self.check).finish_non_exhaustive()
    }
}

impl Tls {
    pub fn unchecked() -> Result<Tls, StoreError> {
        Tls::with(Check::Nothing, Issuers::none())
    }

    pub fn of_file(check: Check, file: &Path) -> Result<Tls, StoreError> {
        Tls::with(check, Issuers::of_file(file)?)
    }

    pub fn of_system(check: Check) -> Result<Tls, StoreError> {
        Tls::with(check, Issuers::of_system()?)
    }

    fn with(check: Check, issuers: Issuers) -> Result<Tls, StoreError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = issuers.verifier(check, &provider);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| StoreError::Unusable(format!("no TLS: {error}")))?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        // What servers from 17 on ask for where TLS begins without a request in plain.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Tls { config: Arc::new(config), check, agreed: Arc::default() })
    }

    /// Protocol and cipher of the last connection; nothing if none was encrypted.
    pub fn agreed(&self) -> Option<String> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        // A socket of this machine has none, and is never asked for TLS.
        let domain = if domain.is_empty() { "localhost" } else { domain };
        let name = ServerName::try_from(domain.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{domain}: {error}")))?;
        Ok(Handshake { tls: self.clone(), name })
    }
}

#[derive(Debug)]
pub struct Handshake {
    tls: Tls,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::from(self.tls.config.clone());
            let stream = connector.connect(self.name, stream).await?;
            let session = stream.get_ref().1;
            let protocol = match session.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
                _ => "TLS 1.3",
            };
            let cipher = session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
            let agreed = format!("{protocol}, {}", cipher.unwrap_or("cipher unknown"));
            *self.tls.agreed.lock().unwrap_or_else(PoisonError::into_inner) = Some(agreed);
            Ok(Stream(stream))
        })
    }
}

#[derive(Debug)]
pub struct Stream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let certificate = self.0.get_ref().1.peer_certificates().and_then(<[_]>::first);
        match certificate.and_then(|certificate| binding::end_point(certificate)) {
            Some(digest) => ChannelBinding::tls_server_end_point(digest),
            None => ChannelBinding::none(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
