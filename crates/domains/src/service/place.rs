//! This domain tells the others of itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use umbel_core::engine::Engine;
use umbel_core::random::Random;
use umbel_core::registry::Registry;

use super::{Means, Settings};
use crate::Result;
use crate::roster::{Announced, Place, Published};

/// Keeps a domain's place in the registry, and what stands there true.
#[derive(Debug)]
pub(super) struct Announcer {
    place: Arc<Mutex<Option<Place>>>,
    telling: JoinHandle<()>,
}

/// What is told.
struct Telling {
    settings: Settings,
    engine: Arc<Engine>,
    registry: Arc<dyn Registry>,
    random: Arc<dyn Random>,
}

impl Announcer {
    pub(super) fn start(settings: &Settings, registry: Arc<dyn Registry>, means: &Means) -> Self {
        let place = Arc::new(Mutex::new(None));
        let telling = Telling {
            settings: settings.clone(),
            engine: Arc::clone(&means.engine),
            registry,
            random: Arc::clone(&means.random),
        };
        let telling = means.runtime.spawn(telling.run(Arc::clone(&place)));
        Self { place, telling }
    }

    /// The place, after nobody keeps it any more.
    async fn end(&self) -> Option<Place> {
        self.telling.abort();
        self.place.lock().await.take()
    }

    pub(super) async fn rest(self) -> Result<()> {
        match self.end().await {
            Some(place) => place.rest().await,
            None => Ok(()),
        }
    }

    pub(super) async fn leave(self) -> Result<()> {
        match self.end().await {
            Some(place) => place.leave().await,
            None => Ok(()),
        }
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.telling.abort();
    }
}

impl Telling {
    async fn run(self, place: Arc<Mutex<Option<Place>>>) {
        let (mut told, mut is_well) = (None, true);
        loop {
            let outcome = self.tell(&mut *place.lock().await, &mut told).await;
            match &outcome {
                Ok(()) if !is_well => tracing::info!("the registry knows this domain again"),
                Err(error) if is_well => tracing::warn!(%error, "the registry does not take this domain yet"),
                _ => {}
            }
            is_well = outcome.is_ok();
            // Others hear soon of a filter that was made, or made anew; and three misses in a row lose the place.
            sleep((self.settings.lease / 3).min(Duration::from_secs(2))).await;
        }
    }

    async fn tell(&self, place: &mut Option<Place>, told: &mut Option<Announced>) -> Result<()> {
        let announced = self.announced()?;
        match place {
            Some(place) if told.as_ref() == Some(&announced) => return place.keep_alive().await,
            Some(place) => place.tell(announced.clone()).await?,
            None => {
                let (registry, lease) = (Arc::clone(&self.registry), self.settings.lease);
                *place = Some(Place::take(registry, announced.clone(), lease, &*self.random).await?);
            }
        }
        *told = Some(announced);
        Ok(())
    }

    /// The filters of all catalogs, those too that are not made yet: the domain takes part, and nothing is known of it until then.
    fn announced(&self) -> Result<Announced> {
        let published = |filter: &String| match self.engine.filter(filter) {
            Some(handle) => Published::of(&handle.definition()),
            None => Ok(Published { name: filter.clone(), digest: 0 }),
        };
        let mut filters: Vec<Published> =
            self.settings.catalogs.iter().map(|catalog| published(&catalog.filter)).collect::<Result<_>>()?;
        // Several catalogs may have one filter.
        filters.sort_by(|one, other| one.name.cmp(&other.name));
        filters.dedup_by(|one, other| one.name == other.name);
        let (name, address) = (self.settings.name.clone(), self.settings.address.clone());
        Ok(Announced { name, address, filters })
    }
}
