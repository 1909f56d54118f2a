//! The timed loops. Each is a function of its own for every filter, so that none is compiled worse for the company
//! it keeps; all count answers, so that none can be left out.

/// Keys that one call of a batch takes.
const BATCH: usize = 4096;

/// For how many keys `answer` is true.
#[inline(never)]
pub(super) fn count<K>(keys: &[K], mut answer: impl FnMut(&K) -> bool) -> usize {
    let mut yes = 0;
    for key in keys {
        yes += usize::from(answer(key));
    }
    yes
}

/// The same for calls that can fail.
#[inline(never)]
pub(super) fn try_count<K, E>(keys: &[K], mut answer: impl FnMut(&K) -> Result<bool, E>) -> Result<usize, E> {
    let mut yes = 0;
    for key in keys {
        yes += usize::from(answer(key)?);
    }
    Ok(yes)
}

/// The same for calls that answer for many keys.
#[inline(never)]
pub(super) fn count_batches<K, E>(
    keys: &[K],
    mut answer: impl FnMut(&[K], &mut Vec<bool>) -> Result<(), E>,
) -> Result<usize, E> {
    let (mut yes, mut answers) = (0, Vec::with_capacity(BATCH));
    for batch in keys.chunks(BATCH) {
        answer(batch, &mut answers)?;
        yes += ones(&answers);
    }
    Ok(yes)
}

/// How many answers are true; bytes are added up by runs that cannot overflow them, which vectors are good at.
fn ones(answers: &[bool]) -> usize {
    answers.chunks(128).map(|run| usize::from(run.iter().map(|answer| u8::from(*answer)).sum::<u8>())).sum()
}
