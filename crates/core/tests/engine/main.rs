//! The engine: what it answers, what it keeps, and how it comes back.

mod basics;
mod cluster;
mod copies;
mod crashes;
mod damage;
mod descriptions;
mod golden;
mod merge;
mod model;
mod rebuild;
mod slow;
mod transfer;
mod versions;
mod window;
mod world;
