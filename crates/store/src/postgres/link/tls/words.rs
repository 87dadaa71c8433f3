//! Why there is no encrypted connection, and what to do.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// Nothing if it was not for TLS.
pub fn in_words(error: &tokio_postgres::Error) -> Option<String> {
    let cause = error.source()?;
    let Some(broken) = of_rustls(cause) else {
        // The driver has no other mark for this.
        return (cause.to_string() == "server does not support TLS").then(|| {
            "the server does not offer encrypted connections; switch ssl on there, or use sslmode=prefer"
                .into()
        });
    };
    let rustls::Error::InvalidCertificate(why) = broken else {
        return Some(format!("no encrypted connection to the server ({broken})"));
    };
    let words = match why {
        CertificateError::UnknownIssuer => {
            "the server's certificate was issued by nobody in sslrootcert; put its issuer's certificate there"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another name; use that name in the address, or sslmode=verify-ca"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired; renew it"
        }
        _ => "the server's certificate is not accepted",
    };
    Some(format!("{words} ({broken})"))
}

fn of_rustls<'e>(cause: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
    inner.downcast_ref::<rustls::Error>()
}
