//! A model checker around the real `decide`, `create` and `decide_items`: every interleaving of two workers, a
//! client, the sweeper and the clock over a network that loses, delays, reorders and repeats, until nothing
//! new is reached. `proofs` closes the models, `caught` shows that each of them would notice a broken kernel,
//! `doubts` holds what the kernel leaves to its callers.
//!
//! The network in one sentence: whatever a worker could ever have sent may arrive at any time, any number of
//! times, in any order, or never. A worker that has learnt a lease is therefore taken to have sent all that its
//! token lets it send; loss, delay, repetition, a crash with messages still under way and a zombie that wakes
//! up are all choices of what arrives when. It keeps the state small and leaves no fault budget to tune.

mod action;
mod broken;
mod caught;
mod checker;
mod doubts;
mod drain;
mod judge;
mod law;
mod proofs;
mod setup;
mod setups;
mod store;
mod world;
