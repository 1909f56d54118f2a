//! `umbel completions` and `umbel man`: what shells and readers of manuals want, made from the command itself.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

/// Prints completions for a shell
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel completions bash > /etc/bash_completion.d/umbel
  umbel completions zsh > \"${fpath[1]}/_umbel\"
  umbel completions fish > ~/.config/fish/completions/umbel.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Writes manual pages, one for each command
#[derive(clap::Args)]
#[command(after_help = "Examples:
  umbel man /usr/local/share/man/man1
  umbel man . && man ./umbel-serve.1")]
pub(crate) struct Manual {
    /// Where they go
    folder: PathBuf,
}

pub(crate) fn complete(arguments: &Completions, mut command: Command) {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "umbel", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
}

pub(crate) fn write_manual(arguments: &Manual, mut command: Command) -> Result<(), Box<dyn Error>> {
    // Commands of commands are called by their whole names, and help is not a page of its own.
    command = command.disable_help_subcommand(true);
    command.build();
    std::fs::create_dir_all(&arguments.folder)
        .map_err(|error| format!("cannot make {}: {error}", arguments.folder.display()))?;
    let mut pages = 0;
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        let page = clap_mangen::Man::new(command.clone());
        let path = arguments.folder.join(page.get_filename());
        let mut text = Vec::new();
        page.render(&mut text)?;
        std::fs::File::create(&path)
            .and_then(|mut file| file.write_all(&text))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        pages += 1;
        left.extend(command.get_subcommands().cloned());
    }
    println!("{pages} pages are in {}", arguments.folder.display());
    Ok(())
}
