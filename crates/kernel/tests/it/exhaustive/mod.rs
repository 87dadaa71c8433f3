//! Every lifecycle × state × request × actor × lease, decided twice: by the kernel, and by small code over
//! tables that were written by hand from the seeds (`tables/*.txt`). The two must agree.

mod cases;
mod counting;
mod course;
mod coverage;
mod decisions;
mod effects;
mod finishing;
mod intents;
mod item_cases;
mod item_rules;
mod item_table;
mod oracle;
mod oracle_held;
mod scene;
mod scenes;
mod seeds;
mod table;
mod verdict;
mod walk;
