//! The table of routes for people: a page that the server renders, and the same for the book.

use std::fmt::Write as _;

use waypost_kernel::Code;
use waypost_schema::render::api_kind;
use waypost_schema::{Field, Shape};

use crate::api::{self, Content, EVENT_STREAM, Route};
use crate::openapi::{refusals, role};
use crate::problem;

/// What both are made of.
enum Block {
    Heading(u8, String),
    Text(String),
    Table(&'static [&'static str], Vec<Vec<String>>),
}

fn blocks() -> Vec<Block> {
    let mut blocks = vec![
        Block::Heading(1, "HTTP API".into()),
        Block::Text(
            "Made from the server's table of routes, as `/openapi.json` is. Bodies are JSON; times are UTC; errors are \
             `application/problem+json` with a stable `code`, and name the field that is wrong and what is allowed."
                .into(),
        ),
    ];
    let overview = api::documented().map(|route| {
        vec![
            format!("`{} {}`", route.method.name(), route.path),
            role(route.required_role).into(),
            about(route),
        ]
    });
    blocks.push(Block::Table(&["route", "role", "what it does"], overview.collect()));
    let mut shapes: Vec<&'static Shape> = Vec::new();
    for route in api::documented() {
        describe(route, &mut blocks, &mut shapes);
    }
    blocks.push(Block::Heading(2, "Objects".into()));
    shapes.sort_by_key(|shape| shape.name);
    for shape in shapes.iter().filter(|shape| shape.name != "Problem") {
        blocks.push(Block::Heading(3, shape.name.into()));
        blocks.push(fields(shape.fields));
    }
    blocks.push(Block::Heading(2, "Codes".into()));
    let mut codes: Vec<(u16, &str, &str)> =
        problem::ALL.iter().map(|reason| (reason.status, reason.code, reason.description)).collect();
    let kernels = Code::ALL.into_iter().filter(|code| *code != Code::InvalidInput);
    codes.extend(kernels.map(|code| (409, code.name(), code.meaning())));
    codes.sort_unstable();
    let rows = codes
        .into_iter()
        .map(|(status, code, about)| vec![format!("`{code}`"), status.to_string(), about.to_owned()]);
    blocks.push(Block::Table(&["code", "status", "meaning"], rows.collect()));
    blocks
}

fn about(route: &Route) -> String {
    format!("{}{}", if route.is_deprecated { "Deprecated. " } else { "" }, route.description)
}

fn describe(route: &'static Route, blocks: &mut Vec<Block>, shapes: &mut Vec<&'static Shape>) {
    blocks.push(Block::Heading(2, format!("{} {}", route.method.name(), route.path)));
    blocks.push(Block::Text(format!("{} Role: {}.", about(route), role(route.required_role))));
    for (title, list) in [("Query", route.query), ("Headers", route.headers)] {
        if !list.is_empty() {
            blocks.push(Block::Text(format!("{title}:")));
            blocks.push(fields(list));
        }
    }
    if let Some(shape) = route.body {
        shape.parts(shapes);
        let most = route.body_bytes / 1024;
        blocks.push(Block::Text(format!("Body: `{}`, at most {most} KiB.", shape.name)));
    }
    let answers = route.responses.iter().map(|response| {
        let what = match response.body {
            Content::Nothing => String::new(),
            Content::Json(shape) => {
                shape.parts(shapes);
                format!("`{}`", shape.name)
            }
            Content::AnyJson => "JSON".into(),
            Content::Text(kind) => format!("`{kind}`"),
            Content::Events => format!("`{EVENT_STREAM}`"),
        };
        vec![response.status.to_string(), what, response.description.to_owned()]
    });
    let mut rows: Vec<Vec<String>> = answers.collect();
    let own = refusals(route);
    let kernels: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    let special = own.iter().filter(|(code, ..)| {
        route.refuses.iter().any(|reason| reason.code == *code) || kernels.contains(code)
    });
    rows.extend(
        special
            .map(|(code, status, about)| vec![status.to_string(), format!("`{code}`"), (*about).to_owned()]),
    );
    blocks.push(Block::Table(&["status", "body", "when"], rows));
}

fn fields(list: &[Field]) -> Block {
    let rows = list.iter().map(|field| {
        let name = format!("`{}`{}", field.name, if field.is_needed { "" } else { " ?" });
        vec![name, api_kind(&field.kind), field.description.to_owned()]
    });
    Block::Table(&["field", "kind", "meaning"], rows.collect())
}

/// For the book.
pub fn markdown() -> String {
    let mut text = String::new();
    for block in blocks() {
        match block {
            Block::Heading(level, words) => {
                let words = words.replace('{', "\\{");
                let _ = writeln!(text, "{} {words}\n", "#".repeat(level.into()));
            }
            Block::Text(words) => {
                let _ = writeln!(text, "{words}\n");
            }
            Block::Table(head, rows) => {
                let _ = writeln!(text, "| {} |", head.join(" | "));
                let _ = writeln!(text, "|{}", "---|".repeat(head.len()));
                for row in rows {
                    let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
                    let _ = writeln!(text, "| {} |", cells.join(" | "));
                }
                text.push('\n');
            }
        }
    }
    format!("{}\n", text.trim_end())
}

/// For a browser: what stands on the console's page.
pub fn html() -> String {
    let mut page = String::new();
    for block in blocks() {
        match block {
            Block::Heading(level, words) => {
                let _ = write!(page, "<h{level}>{}</h{level}>", marked(&words));
            }
            Block::Text(words) => {
                let _ = write!(page, "<p>{}</p>", marked(&words));
            }
            Block::Table(head, rows) => {
                page.push_str("<table class=\"reference\"><thead><tr>");
                head.iter().for_each(|cell| {
                    let _ = write!(page, "<th scope=\"col\">{}</th>", marked(cell));
                });
                page.push_str("</tr></thead><tbody>");
                for row in rows {
                    page.push_str("<tr>");
                    row.iter().for_each(|cell| {
                        let _ = write!(page, "<td>{}</td>", marked(cell));
                    });
                }
                page.push_str("</tbody></table>");
            }
        }
    }
    page
}

/// Escaped, with `code` marked.
fn marked(words: &str) -> String {
    let escaped = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut parts = escaped.split('`');
    let mut out = parts.next().unwrap_or_default().to_owned();
    while let Some(code) = parts.next() {
        let _ = write!(out, "<code>{code}</code>{}", parts.next().unwrap_or_default());
    }
    out
}
