//! Changes as tests ask for them: who does it is told with what it is, and its answer is the row.

use waypost_store::{
    DEFAULT_TENANT, ManualPlans, Pause, QueueRow, Result, ScheduleChange, ScheduleChanged, ScheduleFilter,
    ScheduleRow, Setting, Store, StoreError, Who,
};

/// Who resumes and removes in tests.
const TESTER: &str = "tester";

#[allow(async_fn_in_trait, reason = "tests do not send these futures elsewhere")]
pub trait Shorthand: Store {
    /// Without a pause the queue goes on.
    async fn pause_queue(&self, queue: String, pause: Option<Pause>) -> Result<QueueRow> {
        let (setting, who) = match pause {
            Some(pause) => (Setting::PauseQueue(queue.clone()), who(pause)),
            None => (Setting::ResumeQueue(queue.clone()), TESTER.into()),
        };
        self.configure(setting, who).await?;
        let found =
            self.queues(Some(DEFAULT_TENANT.to_owned())).await?.into_iter().find(|row| row.name == queue);
        Ok(found.unwrap_or(QueueRow {
            tenant: DEFAULT_TENANT.to_owned(),
            name: queue,
            ..QueueRow::default()
        }))
    }

    async fn limit_queue(&self, queue: &str, at_most: Option<u32>) -> Result<()> {
        self.configure(Setting::QueueLimit(queue.to_owned(), at_most), TESTER.into()).await
    }

    async fn limit_key(&self, key: &str, at_most: Option<u32>) -> Result<()> {
        self.configure(Setting::KeyLimit(key.to_owned(), at_most), TESTER.into()).await
    }

    /// Without a pause the schedule goes on.
    async fn pause_schedule(&self, name: String, pause: Option<Pause>) -> Result<ScheduleRow> {
        let (change, who) = match pause {
            Some(pause) => (ScheduleChange::Pause(name.clone()), who(pause)),
            None => (ScheduleChange::Resume(name.clone()), TESTER.into()),
        };
        self.change_schedule(change, who).await?;
        let found = self.schedules(ScheduleFilter::named(&name)).await?.pop();
        found.map(|it| it.row).ok_or(StoreError::NotFound { what: "schedule", id: name })
    }

    /// Whether it was there.
    async fn remove_schedule(&self, name: String) -> Result<bool> {
        match self.change_schedule(ScheduleChange::Remove(name), TESTER.into()).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How many are new.
    async fn add_plans(&self, plans: ManualPlans) -> Result<u64> {
        let who = Who::from(plans.by.as_str());
        match self.change_schedule(ScheduleChange::Plan(plans), who).await? {
            ScheduleChanged::Planned(added) => Ok(added),
            _ => Ok(0),
        }
    }
}

impl<S: Store + ?Sized> Shorthand for S {}

fn who(pause: Pause) -> Who {
    Who { reason: Some(pause.reason), ..Who::from(pause.by.as_str()) }
}
