//! Which items stay where they are when their run's command makes their state follow, as a view for those who move items
//! by hand: what [`crate::item::Item::stays`] tells the engine.

use super::sql::{Dialect, all_hold};
use crate::lifecycle::Kind;

pub fn view(dialect: Dialect) -> String {
    let holds = all_hold(Kind::Item, dialect).replace("NEW.", "i.");
    let (schema, run, follows) = match dialect {
        Dialect::Sqlite => (
            "",
            "run_id",
            "CROSS JOIN json_each(l.definition, '$.states') d CROSS JOIN json_each(d.value) f \
             WHERE json_extract(d.value, '$.name') = i.status AND f.key GLOB 'on_*'",
        ),
        Dialect::Postgres => (
            "waypost.",
            "rid",
            "CROSS JOIN LATERAL jsonb_array_elements(l.definition::jsonb -> 'states') d(value) \
             CROSS JOIN LATERAL jsonb_each_text(d.value) f(key, value) \
             WHERE d.value ->> 'name' = i.status AND starts_with(f.key, 'on_')",
        ),
    };
    format!(
        "CREATE VIEW {schema}items_stay AS SELECT i.{run}, i.kind, i.key, EXISTS (
    SELECT 1 FROM {schema}lifecycles l {follows}
      AND l.name = i.kind AND l.version = i.version AND EXISTS (SELECT 1 FROM {schema}lifecycle_moves m
        WHERE m.lifecycle = i.kind AND m.version = i.version AND m.src = i.status AND m.dst = f.value AND NOT {holds})) AS stays
  FROM {schema}items i;
"
    )
}
