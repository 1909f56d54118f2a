//! `/metrics`: Prometheus's page, for any user or token, with the filters that it may see.

use std::sync::Arc;

use axum::Extension;
use axum::http::header;
use axum::response::IntoResponse;
use umbel_core::engine::Handle;
use umbel_core::trend::Forecast;

use super::caller::Caller;
use crate::growth;
use crate::metrics::{CONTENT_TYPE, Kind, Page, Registry};
use crate::names::shown;
use crate::node::Node;

/// `GET /metrics`
pub(super) async fn metrics(
    caller: Caller,
    Extension(registry): Extension<Arc<Registry>>,
) -> impl IntoResponse {
    let mut filters = caller.node.engine.filters();
    filters.retain(|filter| caller.sees(&shown(&filter.definition().name)));
    let mut page = registry.page();
    collect_filters(&caller.node, &filters, &mut page);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], page.finish())
}

fn collect_filters(node: &Node, filters: &[Arc<Handle>], page: &mut Page) {
    let names: Vec<String> = filters.iter().map(|filter| shown(&filter.definition().name)).collect();
    let mut gauge = |name, help, value: &dyn Fn(&Handle) -> f64| {
        let mut family = page.family(name, Kind::Gauge, help);
        for (filter, name) in filters.iter().zip(&names) {
            family.sample(&[("filter", name)], value(filter));
        }
    };
    gauge("umbel_filter_items", "Items of a filter.", &|filter| filter.items() as f64);
    gauge("umbel_filter_capacity", "Items that a filter is made for.", &|filter| {
        filter.definition().spec.capacity as f64
    });
    gauge("umbel_filter_bytes", "Memory of a filter's arrays.", &|filter| filter.bytes() as f64);
    gauge("umbel_filter_fill", "Share of a filter's cells in use.", &|filter| filter.stats().fill);
    gauge("umbel_filter_error_target", "Error rate that a filter is made for.", &|filter| {
        filter.definition().spec.error
    });
    gauge("umbel_filter_error_estimate", "Error rate of a filter as it is now.", &|filter| {
        filter.stats().estimated_error
    });
    gauge("umbel_filter_generation", "Sizes that a filter was given.", &|filter| {
        f64::from(filter.definition().generation)
    });
    gauge("umbel_filter_adds_per_second", "New items in the last second.", &|filter| {
        node.rates.adds_per_second(filter.id())
    });
    gauge("umbel_filter_growth_seconds", "How long the last growth of a filter took.", &|filter| {
        node.growths.last_took(filter.id()).unwrap_or_default().as_secs_f64()
    });
    let forecast = |filter: &Arc<Handle>| node.growths.forecast(node, filter, filter.items_everywhere());
    let forecasts: Vec<Option<Forecast>> = filters.iter().map(forecast).collect();
    let help = "Items that come to a filter in a second, over days.";
    let mut family = page.family("umbel_filter_items_per_second", Kind::Gauge, help);
    for (forecast, name) in forecasts.iter().zip(&names) {
        let rate = forecast.as_ref().map_or(0.0, |forecast| forecast.rate.median);
        family.sample(&[("filter", name)], rate);
    }
    let help = "When a filter will be full; +Inf if it will not, or nobody knows.";
    let mut family = page.family("umbel_filter_full_in_seconds", Kind::Gauge, help);
    for (forecast, name) in forecasts.iter().zip(&names) {
        let full = forecast.as_ref().and_then(|forecast| growth::seconds(forecast.full));
        family.sample(&[("filter", name)], full.map_or(f64::INFINITY, |seconds| seconds as f64));
    }
}
