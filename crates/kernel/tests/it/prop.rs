//! How property tests run here.

use proptest::test_runner::{Config, RngSeed};

/// The same cases each time, so that a red run is a bug and not bad luck; `PROPTEST_CASES` asks for more of
/// them and `PROPTEST_RNG_SEED` for others.
pub fn config(cases: u32) -> Config {
    let mut config = Config { failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(20_260_214);
    }
    config
}
