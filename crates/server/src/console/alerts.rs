//! What somebody should know of this server, in words.

use std::time::Duration;

use serde::Serialize;
use umbel_core::definition::Growth;
use umbel_core::engine::Handle;
use umbel_core::trend::When;

use crate::growth::{is_chain, span};
use crate::names::shown;
use crate::node::Node;

/// Filters whose forecasts are looked at, and alerts that are told.
const FILTERS_MAX: usize = 1_000;
const ALERTS_MAX: usize = 50;
/// What is further away is nothing to be told of.
const HORIZON: Duration = Duration::from_secs(14 * 86_400);
/// Memory in use from which it is told.
const MEMORY_PERCENT: u128 = 90;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Bad,
    Warning,
    Note,
}

/// Something that somebody should know.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Alert {
    pub(crate) level: Level,
    /// The filter that it is about.
    pub(crate) filter: Option<String>,
    pub(crate) text: String,
}

/// All of it, what matters most first.
pub(super) fn look(node: &Node) -> Vec<Alert> {
    let mut alerts = Vec::new();
    let mut tell = |level, text: String| alerts.push(Alert { level, filter: None, text });
    if let Some(why) = node.failure() {
        tell(Level::Bad, format!("the server ends: {why}"));
    }
    let (used, limit) = (node.engine.budget().used(), node.engine.budget().limit());
    let percent = u128::from(used) * 100 / u128::from(limit.max(1));
    if percent >= MEMORY_PERCENT {
        tell(Level::Warning, format!("filters take {percent} % of the memory that they may take"));
    }
    if let Some(nodes) = &node.cluster {
        let view = nodes.membership().view();
        let orphans = (0..view.partitions()).filter(|partition| view.first(*partition).is_none()).count();
        if orphans > 0 {
            tell(Level::Bad, format!("{orphans} partitions have no node that serves them"));
        }
        if let Err(why) = nodes.ready() {
            tell(Level::Warning, why);
        }
    }
    let filters = node.engine.filters();
    alerts.extend(filters.iter().take(FILTERS_MAX).filter_map(|filter| of_filter(node, filter)));
    alerts.sort_by_key(|alert| alert.level);
    alerts.truncate(ALERTS_MAX);
    alerts
}

fn of_filter(node: &Node, filter: &Handle) -> Option<Alert> {
    let definition = filter.definition();
    if definition.window.is_some() || is_chain(&definition.spec) {
        return None;
    }
    let (name, items) = (shown(&definition.name), filter.items_everywhere());
    let grows = definition.growth != Growth::Fixed;
    let alert = |level, text: String| Some(Alert { level, text, filter: Some(name.clone()) });
    if items > definition.spec.capacity {
        let text = format!("{name} holds more than it is made for: it errs more often than it should");
        return alert(Level::Warning, text);
    }
    if items == definition.spec.capacity && !grows {
        return alert(Level::Warning, format!("{name} is full and takes no more"));
    }
    match node.growths.forecast(node, filter, items)?.full {
        When::In(time) if time <= HORIZON && grows => {
            let percent = definition.grow_at.map_or(node.engine.settings().grow_at_percent, u32::from);
            let text = format!("{name} will be full in {}; it grows by itself at {percent} %", span(time));
            alert(Level::Note, text)
        }
        When::In(time) if time <= HORIZON => {
            alert(Level::Warning, format!("{name} will be full in {}", span(time)))
        }
        When::Now | When::In(_) | When::Never => None,
    }
}
