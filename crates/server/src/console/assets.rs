//! The stylesheet and the module, inside the program. Their names have the hash of what they say, so that browsers keep them for good.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use crate::answer::{self, Result};
use crate::call::Call;
use crate::problem::{NOT_FOUND, Problem};

#[derive(Debug)]
pub struct Asset {
    pub name: String,
    kind: &'static str,
    text: &'static str,
}

pub static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("console", "css", "text/css; charset=utf-8", include_str!("assets/console.css"))
});
pub static MODULE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("console", "js", "text/javascript; charset=utf-8", include_str!("assets/console.js"))
});
pub static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg")));

impl Asset {
    fn new(stem: &str, extension: &str, kind: &'static str, text: &'static str) -> Asset {
        let digest = Sha256::digest(text.as_bytes());
        let hash: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Asset { name: format!("{stem}-{hash}.{extension}"), kind, text }
    }

    pub fn path(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

pub async fn file(call: Call) -> Result {
    let name = call.path("file");
    let found = [&STYLE, &MODULE, &ICON].into_iter().find(|asset| asset.name == name);
    let asset = found.ok_or_else(|| Problem::new(&NOT_FOUND, "there is no such file"))?;
    let answer = answer::shared(200, asset.kind, bytes::Bytes::from_static(asset.text.as_bytes()));
    Ok(answer::with(answer, "cache-control", "public, max-age=31536000, immutable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_small() {
        for asset in [&STYLE, &MODULE] {
            assert!(asset.text.len() < 25_000, "{} has {} bytes", asset.name, asset.text.len());
        }
    }
}
