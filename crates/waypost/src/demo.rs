use crate::output::Result;
use clap::Args;
#[derive(Debug, Args)]
pub struct Flags {}
pub async fn run(_: Flags) -> Result<u8> {
    Ok(0)
}
