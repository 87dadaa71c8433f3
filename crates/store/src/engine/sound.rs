//! Rows beside runs that hands can write and that nobody can use: lists leave them out, and `verify` names them. So it does lifecycles that are
//! not what they were.

use super::tx::Tx;
use super::{access, lifecycle_rows, playbooks, retention, workers};
use crate::seam::error::Result;
use crate::statement::Sql;

/// A line for each.
pub(crate) async fn unsound<T: Tx + Sql>(tx: &mut T) -> Result<Vec<String>> {
    let mut lines = workers::unsound(tx).await?;
    lines.extend(playbooks::unsound(tx).await?);
    lines.extend(retention::unsound(tx).await?);
    lines.extend(access::unsound(tx).await?);
    lines.extend(lifecycle_rows::unsound(tx).await?);
    Ok(lines)
}
