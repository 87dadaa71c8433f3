//! `waypost token create|list|revoke`.

use std::time::Duration;

use clap::Subcommand;
use serde_json::json;
use waypost_kernel::{Span, Time};
use waypost_store::{NewToken, ROLES, Secret, TokenChange, TokenRow, iso};

use crate::output::{Format, Result, cells, print, print_list, table, tell};
use crate::place::{Place, suggested};
use crate::run::{age, user, who};
use crate::worker::duration;

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a token for a server. It is shown once.
    #[command(
        after_help = "Roles: viewer looks; operator also starts runs and gives commands; worker also takes runs and reports on them\n(and starts none); admin may do everything. --tenant says whose runs it sees; `*` is all tenants.\n\nExamples:\n  waypost token create ci --role operator --expires 90d\n  WAYPOST_TOKEN=$(waypost token create build-1 --role worker)"
    )]
    Create {
        /// Whom the log names.
        #[arg(value_name = "NAME")]
        name: String,
        /// What it may do.
        #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(ROLES))]
        role: String,
        /// It counts no longer than this: 90d, 12h. Default: until it is revoked.
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires: Option<Duration>,
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Tokens, without their secrets.
    List {
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Revoke a token by the id that `list` shows. Within 2 seconds no server takes it any more.
    Revoke {
        /// The id that `list` shows.
        #[arg(value_name = "ID")]
        id: String,
        /// Kept in the audit log.
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn run(place: &Place, verb: Verb) -> Result {
    match verb {
        Verb::Create { name, role, expires, output } => {
            let tenant = place.token_tenant();
            let lasts = expires.map(|expires| Span::from_ms(expires.as_millis() as i64));
            let (id, token) = create(place, &name, &role, tenant, lasts).await?;
            tell("this is shown once; give it as WAYPOST_TOKEN, or in a file named by WAYPOST_TOKEN_FILE");
            print(&match output {
                Format::Table => token,
                format => format.object(
                    &json!({ "id": id, "token": token, "name": name, "role": role, "tenant": tenant }),
                ),
            })
        }
        Verb::List { output } => {
            let opened = place.opened_to_read().await?;
            let store = opened.store();
            let (rows, now) = (store.tokens(None).await?, store.now().await?);
            print_list(rows.iter().map(TokenRow::object).collect(), output, || as_table(&rows, now))
        }
        Verb::Revoke { id, reason } => {
            let store = place.opened_existing().await?.store();
            let row = store.change_token(TokenChange::Revoke(id), who(reason)).await?;
            print(&format!("{} ({}) is revoked", row.id, row.name))
        }
    }
}

/// The id and the whole of it. A server makes its tokens itself, so that their secrets do not travel twice.
async fn create(
    place: &Place,
    name: &str,
    role: &str,
    tenant: &str,
    lasts: Option<Span>,
) -> Result<(String, String)> {
    if let Some(url) = place.server() {
        let server = place.open_server(url).await?;
        return Ok(server.create_token(name, role, Some(tenant), lasts, &user()).await?);
    }
    let store = place.open_database().await?;
    let secret = Secret::fresh();
    let new = NewToken {
        id: secret.id.clone(),
        digest: secret.digest(),
        name: name.to_owned(),
        role: role.to_owned(),
        tenant: tenant.to_owned(),
        lasts,
        by: user(),
    };
    store.change_token(TokenChange::Issue(new), who(None)).await?;
    Ok((secret.id.clone(), secret.reveal()))
}

fn as_table(rows: &[TokenRow], now: Time) -> String {
    if rows.is_empty() {
        return format!("no tokens; make one: {}", suggested("token create NAME --role operator"));
    }
    let rows = rows.iter().map(|row| {
        let revoked =
            row.revoked_at.map(|at| format!("{} by {}", iso(at), row.revoked_by.as_deref().unwrap_or("")));
        let expires = row.expires_at.map_or("never".to_owned(), |at| {
            format!("{}{}", iso(at), if at <= now { " (expired)" } else { "" })
        });
        let used = row.last_used_at.map(|at| format!("{} ago", age(now - at)));
        cells([
            row.id.clone(),
            row.name.clone(),
            row.role.clone(),
            row.tenant.clone(),
            iso(row.created_at),
            expires,
            used.unwrap_or_else(|| "never".to_owned()),
            revoked.unwrap_or_default(),
        ])
    });
    table(&["id", "name", "role", "tenant", "created", "expires", "last used", "revoked"], rows)
}
