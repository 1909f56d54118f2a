//! Work that takes long, beside the event loops: other sizes, unions, imports.

use std::sync::Arc;

use tokio::runtime::{Builder, Handle, Runtime};
use umbel_core::{Error, Result};

use crate::commands::{Outcome, Refusal};
use crate::node::Node;

/// How many of them go on at once.
const THREADS: usize = 2;

/// Threads for what would let an event loop wait.
#[derive(Debug)]
pub(crate) struct Work(Option<Runtime>);

impl Work {
    pub(crate) fn new() -> std::io::Result<Self> {
        let builder = &mut Builder::new_multi_thread();
        let builder = builder.worker_threads(THREADS).max_blocking_threads(THREADS).thread_name("work");
        Ok(Self(Some(builder.on_thread_start(yield_to_others).enable_time().build()?)))
    }
}

impl Work {
    /// Where such work goes; nowhere while the server ends.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.0.as_ref().map(|runtime| runtime.handle().clone())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Whoever drops the node may be a task, which must not wait for threads.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Gives the calling thread less of the processor than the event loops have.
fn yield_to_others() {
    // Without it, it is only slower for others.
    let _ = rustix::process::setpriority_process(None, 10);
}

/// Does something beside the event loops, and waits for it without holding one up.
pub(crate) async fn beside<T, F>(node: &Arc<Node>, work: impl FnOnce(Arc<Node>) -> F) -> Outcome<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let Some(runtime) = &node.work.0 else { return Err("ERR the server is ending".into()) };
    match runtime.spawn(work(Arc::clone(node))).await {
        Ok(outcome) => Ok(outcome?),
        Err(error) => Err(Refusal::from(format!("ERR it was given up: {error}"))),
    }
}

/// The same for another node, which is told what kind of error it is.
pub(crate) async fn apart<T, F>(node: &Arc<Node>, work: impl FnOnce(Arc<Node>) -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let ends = || Error::Retry("the server is ending".into());
    let runtime = node.work.0.as_ref().ok_or_else(ends)?;
    runtime.spawn(work(Arc::clone(node))).await.unwrap_or_else(|_| Err(ends()))
}
