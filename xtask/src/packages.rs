//! What the tests need besides Rust, from Debian's packages.

use crate::step::{Failure, command, exists, run};

/// Something that a test needs.
pub(crate) struct Need {
    /// A command that succeeds where it is there.
    pub(crate) check: &'static str,
    /// The package that brings it.
    pub(crate) package: &'static str,
}

impl Need {
    fn is_met(&self) -> bool {
        command(self.check).output().is_ok_and(|output| output.status.success())
    }
}

/// Installs what is missing; where that cannot be, says what to install.
pub(crate) fn install(needs: &[Need]) -> Result<(), Failure> {
    let missing: Vec<_> = needs.iter().filter(|need| !need.is_met()).map(|need| need.package).collect();
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
