//! Replicas in this process that follow a real server over HTTP.

#[path = "../common/mod.rs"]
mod common;

mod folder;
mod following;
mod owner;
mod peers;
mod refusing;
mod rollouts;
mod secure;
mod world;
mod writing;
