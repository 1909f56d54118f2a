//! Standard output that may end before we do, as with `umbel ring --table | head`.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;

/// As the standard library's, which panics where nobody reads any more.
macro_rules! print {
    ($($text:tt)*) => { $crate::out::write(format_args!($($text)*)) };
}

/// The same with the end of a line.
macro_rules! println {
    () => { print!("\n") };
    ($format:literal $($rest:tt)*) => { print!("{}\n", format_args!($format $($rest)*)) };
}

/// Where nobody reads, nothing is left to do.
pub(crate) fn write(text: Arguments<'_>) {
    let mut out = stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            exit(0);
        }
        eprintln!("umbel: standard output: {error}");
        exit(1);
    }
}
