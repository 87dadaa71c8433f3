//! Messages from outside, remembered for a week.

use waypost_store::{Message, REMEMBERED, Received, Reply, StoreError};

use super::MemoryStore;
use super::rules::intake::check_name;

impl MemoryStore {
    pub(crate) fn receive(&self, message: Message) -> Reply<'_, Received> {
        self.verb(move |state| {
            check_name("source", &message.source)?;
            check_name("id", &message.id)?;
            check_name("digest", &message.digest)?;
            let oldest = state.now - REMEMBERED;
            state.messages.retain(|(_, at)| *at >= oldest);
            let of_source = || state.messages.iter().filter(|(it, _)| it.source == message.source);
            if let Some((first, _)) = of_source().find(|(it, _)| it.digest == message.digest) {
                let id_is_taken =
                    of_source().any(|(it, _)| it.id == message.id && it.digest != message.digest);
                if !id_is_taken {
                    return Ok(Received { id: first.id.clone(), is_new: false });
                }
            }
            if of_source().any(|(it, _)| it.id == message.id) {
                let said = format!("{} came with another content before", message.id);
                return Err(StoreError::invalid("id", said));
            }
            let id = message.id.clone();
            state.messages.push((message, state.now));
            Ok(Received { id, is_new: true })
        })
    }
}
