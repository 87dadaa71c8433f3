//! Schedules are the server's own: it plans and fires them beside its database.

use waypost_store::*;

use super::RemoteStore;

macro_rules! at_the_server {
    ($($verb:ident($($kind:ty),*) -> $answer:ty;)*) => {
        $(fn $verb(&self, $(_: $kind),*) -> Reply<'_, $answer> {
            Box::pin(async {
                let message = "schedules are not asked for over HTTP: give the server's --database-url instead of --url";
                Err(StoreError::Unusable(message.into()))
            })
        })*
    };
}

impl Schedules for RemoteStore {
    at_the_server! {
        put_schedule(ScheduleWrite) -> Put;
        remove_schedule(String) -> bool;
        schedules(Option<String>) -> Vec<ScheduleRow>;
        pause_schedule(String, Option<Pause>) -> ScheduleRow;
        put_scopes(String, String, Vec<String>) -> ();
        scopes(String) -> Vec<ScopeRow>;
        ask_scopes(String) -> Vec<String>;
        due(Mine, usize) -> Due;
        fire(Firing) -> Option<Vec<Begun>>;
        begin(Begin) -> Option<Begun>;
        add_plans(ManualPlans) -> u64;
        look_again(String) -> ();
        executions(ExecutionFilter) -> Vec<ExecutionRow>;
    }
}
