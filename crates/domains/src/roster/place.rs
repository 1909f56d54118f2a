use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use umbel_core::random::Random;
use umbel_core::registry::{Change, Expected, Lease, Registry};

use super::announced::Announced;
use super::{ALIVE, KNOWN};
use crate::{Error, Result};

/// A domain's place among the others, for whoever runs it. Nothing here waits for time: [`Place::keep_alive`] has to be called several times
/// within a lease.
#[derive(Debug)]
pub struct Place {
    registry: Arc<dyn Registry>,
    lease_time: Duration,
    /// Who runs the domain: another number for every process.
    instance: Bytes,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    announced: Announced,
    lease: Lease,
}

impl Place {
    /// Takes the place of a domain, unless somebody else has it. After a crash that is so until the lease has ended.
    pub async fn take(
        registry: Arc<dyn Registry>,
        announced: Announced,
        lease_time: Duration,
        random: &dyn Random,
    ) -> Result<Self> {
        // Nothing is said before it is known that it can be.
        announced.encode()?;
        let instance = Bytes::from(format!("{:016x}", random.next()));
        let lease = take_lease(&*registry, &announced.name, &instance, lease_time).await?;
        let place = Self { registry, lease_time, instance, held: Mutex::new(Held { announced, lease }) };
        place.announce(&place.held.lock().await.announced).await?;
        Ok(place)
    }

    /// Keeps the place. Should the lease have ended, it is taken again, unless somebody else has it by now.
    pub async fn keep_alive(&self) -> Result<()> {
        let mut held = self.held.lock().await;
        if self.registry.keep_alive(held.lease).await? {
            return Ok(());
        }
        held.lease =
            take_lease(&*self.registry, &held.announced.name, &self.instance, self.lease_time).await?;
        self.announce(&held.announced).await
    }

    /// Says where the domain is and what it publishes from now on. Its name stays.
    pub async fn tell(&self, announced: Announced) -> Result<()> {
        let mut held = self.held.lock().await;
        if announced.name != held.announced.name {
            let (is, was) = (&announced.name, &held.announced.name);
            return Err(Error::Invalid(format!("the domain {was} cannot become {is}")));
        }
        announced.check()?;
        if !self.registry.keep_alive(held.lease).await? {
            let name = &announced.name;
            held.lease = take_lease(&*self.registry, name, &self.instance, self.lease_time).await?;
        }
        self.announce(&announced).await?;
        held.announced = announced;
        Ok(())
    }

    /// Gives the place up: the domain is no domain any more.
    pub async fn leave(self) -> Result<()> {
        let Held { announced: Announced { name, .. }, lease } = self.held.into_inner();
        let runs = self.registry.get(&format!("{ALIVE}{name}")).await?;
        // Somebody else who has the place by now stays.
        if runs.is_none_or(|runs| runs.value == self.instance) {
            self.registry.delete(&format!("{KNOWN}{name}"), Expected::Anything).await?;
        }
        Ok(self.registry.revoke(lease).await?)
    }

    /// Ends as a process does that may be started again: nobody runs the domain, which stays one.
    pub async fn rest(self) -> Result<()> {
        Ok(self.registry.revoke(self.held.into_inner().lease).await?)
    }

    async fn announce(&self, announced: &Announced) -> Result<()> {
        let key = format!("{KNOWN}{}", announced.name);
        let told = announced.encode()?;
        // Not written without need: others would look at it.
        if self.registry.get(&key).await?.is_some_and(|before| before.value == told) {
            return Ok(());
        }
        self.registry.put(&key, told, Expected::Anything, None).await?;
        Ok(())
    }
}

async fn take_lease(registry: &dyn Registry, name: &str, instance: &Bytes, time: Duration) -> Result<Lease> {
    let lease = registry.grant(time).await?;
    let key = format!("{ALIVE}{name}");
    match registry.put(&key, instance.clone(), Expected::Absent, Some(lease)).await? {
        Change::Done(_) => Ok(lease),
        Change::Conflict(_) => {
            registry.revoke(lease).await?;
            Err(Error::Retry(format!("somebody else runs the domain {name}, or did until a moment ago")))
        }
    }
}
