//! `umbel`: plan filters, look into their files, measure servers.

mod config;
mod bench;
mod inspect;
mod plan;
mod report;
mod serve;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "umbel", version, about = "Set-membership filters: \"have we seen this before?\"")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Plan(plan::Arguments),
    Inspect(inspect::Arguments),
    Serve(serve::Arguments),
    Config(Box<config::Arguments>),
    Bench(Box<bench::Arguments>),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("umbel: {error}");
            ExitCode::FAILURE
        }
    }
}
