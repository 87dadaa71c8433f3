//! Randomness, which the kernel takes as an input: tokens of leases, the random part of ids.

use std::cell::RefCell;

use waypost_kernel::{Actor, Token, Who};

/// Who asks, with a token for a lease that is granted or left vacant.
pub(crate) fn who(actor: Actor, by: &str) -> Who<'_> {
    Who { actor, by, fresh: fresh() }
}

pub(crate) fn fresh() -> Token {
    Token(random())
}

/// 128 random bits of the operating system's, drawn many at a time: a system call for each would be one of the
/// larger costs of a claim.
pub(crate) fn random() -> u128 {
    thread_local! {
        static POOL: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
    }
    const DRAWN: usize = 256;
    POOL.with_borrow_mut(|pool| {
        if pool.is_empty() {
            let mut bytes = [0u8; 16 * DRAWN];
            if getrandom::fill(&mut bytes).is_err() {
                return uuid::Uuid::new_v4().as_u128();
            }
            let (drawn, _) = bytes.as_chunks::<16>();
            pool.extend(drawn.iter().copied().map(u128::from_ne_bytes));
        }
        pool.pop().unwrap_or_default()
    })
}
