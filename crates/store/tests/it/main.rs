//! One binary for all of the store tests.
