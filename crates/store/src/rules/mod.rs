//! What holds for every store beside the kernel's decisions: what is refused or cleaned of what comes in, what a new run
//! begins with, how items follow their run, and how the log becomes rows again. Pure: no database is asked here.

pub(crate) mod artifacts;
pub(crate) mod cancelled_metadata;
pub(crate) mod children;
pub(crate) mod chosen;
pub(crate) mod decisions;
pub(crate) mod details;
pub(crate) mod finish;
pub(crate) mod follow;
pub(crate) mod intake;
pub(crate) mod item_writes;
pub(crate) mod legal;
pub(crate) mod lifecycles;
pub(crate) mod messages;
pub(crate) mod metadata;
pub(crate) mod new_run;
pub(crate) mod replay;
pub(crate) mod room;
