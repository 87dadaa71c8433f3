//! Children of runs that are cancelled.

use waypost_kernel::run::Want;
use waypost_kernel::{Actor, Request};

use super::fault::Result;
use super::row::{self, Stored};
use super::save::{self, Extra, Pending};
use super::session::Tx;
use super::sql::{Columns, args};
use crate::children::{Asked, PARENT};
use crate::tokens::who;

const PAGE: i64 = 256;

/// Their children are to be asked, if they have any.
pub async fn left_behind(tx: &Tx, parents: &[&str]) -> Result<()> {
    if parents.is_empty() {
        return Ok(());
    }
    let sql = "SELECT waypost.leave_behind(p.id, $2) FROM (SELECT u.id FROM unnest($1) u(id) ORDER BY u.id OFFSET 0) p";
    tx.run(sql, args![parents.to_vec(), Want::Cancel.command()]).await.map(drop)
}

/// Before a run with a parent is born, and before any other lock of its birth.
pub async fn expect(tx: &Tx, parents: &[&str]) -> Result<()> {
    if parents.is_empty() {
        return Ok(());
    }
    tx.run("SELECT waypost.expect_children($1)", args![parents.to_vec()]).await.map(drop)
}

/// Asks the children of all parents that were left behind, and theirs. Gives those that were; whether that was all that
/// nobody else is busy with.
pub async fn ask(tx: &Tx, limit: usize) -> Result<(Vec<String>, bool)> {
    let mut asked = Vec::new();
    // Children of these are being born: who is there is asked, and the next sweep looks again.
    let mut expecting: Vec<String> = Vec::new();
    loop {
        let sql = "SELECT p.run_id FROM waypost.cancelled_parents p LEFT JOIN waypost.runs r ON r.run_id = p.run_id \
                   WHERE p.run_id <> ALL ($1) ORDER BY r.rid LIMIT 1 FOR UPDATE OF p SKIP LOCKED";
        let rows = tx.query(sql, args![expecting]).await?;
        let Some(row) = rows.first() else { return Ok((asked, true)) };
        let parent: String = Columns(row).get(0)?;
        let sql = "SELECT waypost.births_ended($1)";
        let is_all_there: bool = Columns(&tx.one(sql, args![parent.as_str()]).await?).get(0)?;
        if !of_parent(tx, &parent, limit, &mut asked).await? {
            return Ok((asked, false));
        }
        if is_all_there {
            tx.run("DELETE FROM waypost.cancelled_parents WHERE run_id = $1", args![parent.as_str()]).await?;
        } else {
            expecting.push(parent);
        }
    }
}

/// False: some are left, because there are too many or others were faster.
async fn of_parent(tx: &Tx, parent: &str, limit: usize, asked: &mut Vec<String>) -> Result<bool> {
    let Some(parent) = row::by_ids(tx, &[parent]).await?.pop() else { return Ok(true) };
    let request = Asked::by(&parent.row);
    let mut after = 0;
    loop {
        let condition = "FROM waypost.runs r WHERE r.parent_run_id = $1 AND r.state < 5000 AND r.rid > $2 ORDER BY r.rid LIMIT $3";
        let found = row::select(tx, condition, args![parent.row.id(), after, PAGE]).await?;
        let Some(last) = found.last() else { return Ok(true) };
        after = last.rid;
        let mut pending =
            found.into_iter().filter_map(|child| decided(tx, child, &request)).collect::<Vec<_>>();
        let fits = limit - asked.len();
        let is_all = pending.len() <= fits;
        pending.truncate(fits);
        let saved = save::save(tx, &pending).await?;
        let won = pending.iter().filter(|it| saved.has(it.before.rid)).map(|it| it.row.id().to_owned());
        let before = asked.len();
        asked.extend(won);
        if !is_all || asked.len() - before < pending.len() {
            return Ok(false);
        }
    }
}

/// What takes no cancel where it is, and what was asked before, is left as it is.
fn decided(tx: &Tx, child: Stored, request: &Asked) -> Option<Pending> {
    let ask = Request { who: who(Actor::Operator, PARENT), ask: request.ask() };
    let change = waypost_kernel::decide(&child.row.lifecycle, &child.row.run, &ask, tx.now).ok()?;
    let mut pending = Pending::new(child);
    (!change.events.is_empty()).then(|| pending.add(change, Extra::default()))?;
    Some(pending)
}
