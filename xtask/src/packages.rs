//! What the tests need besides Rust, from Debian's packages.

use std::path::Path;

use crate::step::{Failure, command, exists, run};

/// How to tell that something is there, and the package that brings it.
pub(crate) enum Need {
    Program(&'static str, &'static str),
    File(&'static str, &'static str),
}

impl Need {
    fn package(&self) -> &'static str {
        match self {
            Self::Program(_, package) | Self::File(_, package) => package,
        }
    }

    fn is_met(&self) -> bool {
        match self {
            Self::Program(program, _) => exists(program),
            Self::File(path, _) => Path::new(path).exists(),
        }
    }
}

/// Installs what is missing; where that cannot be, says what to install.
pub(crate) fn install(needs: &[Need]) -> Result<(), Failure> {
    let missing: Vec<_> = needs.iter().filter(|need| !need.is_met()).map(Need::package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let wanted = missing.join(" ");
    if !exists("apt-get") {
        return Err(
            format!("the tests need these Debian packages, or what is like them here: {wanted}").into()
        );
    }
    run("package lists", command("apt-get update -qq").env("DEBIAN_FRONTEND", "noninteractive"))?;
    let line = format!("apt-get install -y -qq --no-install-recommends {wanted}");
    run(&format!("install {wanted}"), command(&line).env("DEBIAN_FRONTEND", "noninteractive"))
}
