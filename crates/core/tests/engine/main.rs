//! The engine: what it answers, what it keeps, and how it comes back.

mod basics;
mod crashes;
mod damage;
mod descriptions;
mod golden;
mod model;
mod world;
