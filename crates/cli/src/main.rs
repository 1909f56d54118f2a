//! `umbel`: the server, and what one does with it: plan filters, look into files, measure.

// Before all others: it has the `println!` that they use.
#[macro_use]
mod out;

mod bench;
mod completions;
mod config;
mod doctor;
mod export;
mod import;
mod inspect;
mod load;
mod lookup;
mod mirror;
mod node;
mod ping;
mod plan;
mod planes;
mod publish;
mod rebuild;
mod remote;
mod replica;
mod report;
mod resp;
mod ring;
mod rollout;
mod roster;
mod serve;
mod sole;
mod status;
mod svg;
mod top;
mod transfer;
mod units;
mod verify;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "umbel", version, about = "Set-membership filters: \"have we seen this before?\"")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Plan(plan::Arguments),
    Ring(ring::Arguments),
    Node(node::Arguments),
    Inspect(inspect::Arguments),
    Serve(Box<serve::Arguments>),
    Config(Box<config::Arguments>),
    Bench(Box<bench::Arguments>),
    Doctor(doctor::Arguments),
    Ping(ping::Arguments),
    Status(status::Arguments),
    Top(top::Arguments),
    Publish(publish::Arguments),
    Rollback(publish::Rollback),
    Rollout(rollout::Arguments),
    Replica(Box<replica::Arguments>),
    Lookup(lookup::Arguments),
    Hottest(lookup::Hottest),
    Domains(roster::Arguments),
    Load(Box<load::Arguments>),
    Rebuild(Box<rebuild::Arguments>),
    Import(import::Arguments),
    Export(export::Arguments),
    Verify(verify::Arguments),
    Mirror(mirror::Arguments),
    Completions(completions::Completions),
    Man(completions::Manual),
}

/// What was asked for. What is wrong with it is told without addresses, which may have passwords in them.
fn arguments() -> Arguments {
    Arguments::try_parse().unwrap_or_else(|mut error| {
        for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue] {
            let hidden = match error.get(kind) {
                Some(ContextValue::String(text)) if text.contains('@') => text.split_once("://"),
                _ => None,
            };
            if let Some(hidden) = hidden.map(|(scheme, _)| format!("{scheme}://***")) {
                error.insert(kind, ContextValue::String(hidden));
            }
        }
        error.exit()
    })
}

fn main() -> ExitCode {
    let outcome = match arguments().command {
        Command::Plan(arguments) => plan::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Ring(arguments) => ring::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Node(arguments) => node::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Inspect(arguments) => inspect::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Config(arguments) => config::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Bench(arguments) => bench::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Ping(arguments) => ping::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Status(arguments) => status::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Top(arguments) => top::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Publish(arguments) => publish::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Rollback(arguments) => publish::roll_back(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Rollout(arguments) => rollout::run(&arguments),
        Command::Replica(arguments) => replica::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Lookup(arguments) => Ok(lookup::run(&arguments)),
        Command::Hottest(arguments) => lookup::hottest(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Domains(arguments) => roster::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Load(arguments) => load::run(&arguments),
        Command::Rebuild(arguments) => rebuild::run(&arguments),
        Command::Import(arguments) => import::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Export(arguments) => export::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Mirror(arguments) => mirror::run(&arguments),
        Command::Completions(arguments) => {
            completions::complete(&arguments, Arguments::command());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(arguments) => {
            completions::write_manual(&arguments, Arguments::command()).map(|()| ExitCode::SUCCESS)
        }
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("umbel: {error}");
            ExitCode::FAILURE
        }
    }
}
