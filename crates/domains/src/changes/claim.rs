//! What an outbox does in any database: the statements are the same, and so is their order.

use super::{Batch, Change, Effect};
use crate::limits::{BATCH_BYTES_MAX, BATCH_CHANGES_MAX};
use crate::{Error, Result};

/// A transaction in the user's database. In texts, names stand in double quotes and `?` is where a number goes.
pub(super) trait Statements {
    /// What a SELECT ends with whose rows nobody else may touch until the transaction ends.
    const LOCKING: &'static str;

    /// Does something.
    fn run(&mut self, text: &str, numbers: &[i64]) -> Result<()>;

    /// Rows of two numbers.
    fn numbers(&mut self, text: &str, numbers: &[i64]) -> Result<Vec<(i64, i64)>>;

    /// Rows of a number and bytes.
    fn bytes(&mut self, text: &str, numbers: &[i64]) -> Result<Vec<(i64, Vec<u8>)>>;
}

/// Whether there is anything to claim. Whoever looks often must not keep others from writing.
pub(super) const ANY: &str = "SELECT number, number FROM umbel_outbox LIMIT 1";

/// The batch that was claimed and is not finished, or the oldest changes as the next one.
///
/// Numbers of changes are given when these are made, and seen when their transactions end, which may be in another order. Of one record they are
/// seen in order all the same: the second change waits for the end of the first one before it gets its number. So a change with a smaller
/// number that is seen later is another record's, and goes into a later batch.
pub(super) fn claim<S: Statements>(transaction: &mut S) -> Result<Option<Batch>> {
    let drain = format!("SELECT session, batch FROM umbel_drain{}", S::LOCKING);
    let drains = transaction.numbers(&drain, &[])?;
    let [(session, mut number)] = drains[..] else {
        return Err(Error::Corrupt(format!("the outbox has {} drains, and not one", drains.len())));
    };
    let mut changes = claimed(transaction, number)?;
    if changes.is_empty() {
        let Some(last) = last_of_next(transaction)? else { return Ok(None) };
        number += 1;
        transaction
            .run("UPDATE umbel_outbox SET batch = ? WHERE batch IS NULL AND number <= ?", &[number, last])?;
        transaction.run("UPDATE umbel_drain SET batch = ?", &[number])?;
        changes = claimed(transaction, number)?;
    }
    Ok(Some(Batch { session: session.unsigned_abs(), number: number.unsigned_abs(), changes }))
}

/// A batch is done.
pub(super) fn finish<S: Statements>(transaction: &mut S, number: u64) -> Result<()> {
    let number = i64::try_from(number).map_err(|_| Error::Invalid(format!("there is no batch {number}")))?;
    transaction.run("DELETE FROM umbel_outbox WHERE batch = ?", &[number])
}

/// How many changes wait, or are being told.
pub(super) fn waiting<S: Statements>(transaction: &mut S) -> Result<u64> {
    let counted = transaction.numbers("SELECT count(*), count(*) FROM umbel_outbox", &[])?;
    Ok(counted.first().map_or(0, |(count, _)| count.unsigned_abs()))
}

/// The changes of a batch.
fn claimed<S: Statements>(transaction: &mut S, number: i64) -> Result<Vec<Change>> {
    let text = "SELECT effect, \"key\" FROM umbel_outbox WHERE batch = ? ORDER BY number";
    let change = |(effect, key)| {
        let effect = match effect {
            1 => Effect::Added,
            0 => Effect::Changed,
            -1 => Effect::Erased,
            other => return Err(Error::Corrupt(format!("the outbox has the effect {other}"))),
        };
        Ok(Change { key, effect })
    };
    transaction.bytes(text, &[number])?.into_iter().map(change).collect()
}

/// The last change of the next batch, whose keys are neither too many nor too long together.
fn last_of_next<S: Statements>(transaction: &mut S) -> Result<Option<i64>> {
    let text = "SELECT number, length(\"key\") FROM umbel_outbox WHERE batch IS NULL ORDER BY number LIMIT ?";
    let (mut last, mut bytes) = (None, 0);
    for (number, length) in transaction.numbers(text, &[BATCH_CHANGES_MAX as i64])? {
        last = Some(number);
        bytes += usize::try_from(length).unwrap_or(0);
        if bytes >= BATCH_BYTES_MAX {
            break;
        }
    }
    Ok(last)
}
