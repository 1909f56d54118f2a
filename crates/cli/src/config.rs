//! `umbel config`: the server's settings, and where each came from. Its flags are those of the server.

use std::error::Error;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};
use serde_json::json;
use umbel_server::config::{self, Config, ROWS, Sources, unknown_environment};

/// Shows the server's settings and where each value came from
#[derive(clap::Args)]
#[command(after_help = "Later sources win: default, file, environment, flag.
Examples:
  umbel config --config umbel.toml
  UMBEL_MEMORY=16GiB umbel config --json
  umbel config --markdown")]
pub(crate) struct Arguments {
    #[command(flatten)]
    flags: Flags,
    /// One JSON object for each setting, one a line
    #[arg(long)]
    json: bool,
    /// The documentation of all settings as a Markdown table
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if arguments.markdown {
        print!("{}", config::markdown());
        return Ok(());
    }
    let config = arguments.flags.load()?;
    for shown in config.show() {
        let (name, value, source) = (shown.row.name, shown.value, shown.source.to_string());
        if arguments.json {
            println!("{}", json!({ "name": name, "value": value, "source": source }));
        } else {
            println!("{name:30}  {value:20}  {source}");
        }
    }
    Ok(())
}

/// A flag for each row of the table of settings, and `--config`. Flatten it into a command's arguments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    file: Option<PathBuf>,
    settings: Vec<(String, String)>,
}

impl Flags {
    /// Reads the file, the environment and the flags. Variables that look like settings but are none get a warning.
    pub(crate) fn load(&self) -> Result<Config, config::Error> {
        let sources = Sources::of_process(self.file.clone(), self.settings.clone());
        for warning in unknown_environment(&sources.environment) {
            eprintln!("umbel: warning: {warning}");
        }
        Config::load(&sources)
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("TOML file with settings; none is read unless it is named");
        let file = file.value_parser(clap::value_parser!(PathBuf)).help_heading("Settings");
        command.arg(file).args(ROWS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(row: &'static config::Row) -> Arg {
    let default = if row.default.is_empty() { String::new() } else { format!(" [default: {}]", row.default) };
    let argument = Arg::new(row.name)
        .long(row.flag())
        .help(format!("{}{default}", row.meaning))
        .help_heading("Settings")
        .value_name(if row.unit.is_empty() { "VALUE".to_owned() } else { row.unit.to_uppercase() })
        // -1 is a value of some.
        .allow_hyphen_values(true)
        .overrides_with(row.name);
    let argument = match row.redis {
        "" => argument,
        redis if redis == row.flag() => argument,
        redis => argument.alias(redis),
    };
    // A switch alone turns it on.
    if row.is_switch() {
        argument.num_args(0..=1).default_missing_value("yes").allow_hyphen_values(false)
    } else {
        argument
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>("config").cloned();
        let given = |row: &&config::Row| Some((row.flag(), matches.get_one::<String>(row.name)?.clone()));
        self.settings = ROWS.iter().filter_map(|row| given(&row)).collect();
        Ok(())
    }
}
