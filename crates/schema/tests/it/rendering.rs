//! The same shapes as JSON Schema, as components of OpenAPI, and as a table.

use serde_json::json;
use waypost_schema::{Field, Kind, Shape, needed, optional, render};

use super::LINE;

#[test]
fn a_file_is_one_document() {
    let schema = render::document("Lines", "Where trams go.", &LINE);
    assert_eq!(schema["title"], "Lines");
    assert_eq!(schema["required"], json!(["name"]));
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["patternProperties"]["^on_"], json!({ "type": "string", "pattern": "^[a-z]+$" }));
    let stop = &schema["properties"]["stop"];
    assert_eq!(stop["items"]["oneOf"], json!([{ "required": ["by"] }, { "required": ["foot"] }]));
    assert_eq!(
        stop["items"]["properties"]["by"],
        json!({ "enum": ["bus", "tram"], "description": "What goes there." })
    );
    assert_eq!(schema["properties"]["signs"]["propertyNames"], json!({ "pattern": "^[a-z]$" }));
    assert_eq!(schema["properties"]["names"]["oneOf"][0], json!({ "type": "string", "minLength": 1 }));
}

#[test]
fn components_refer_to_each_other_and_may_be_null() {
    const INNER: Shape = Shape::of_api("Inner", &[needed("n", Kind::Integer(0, 9), "A digit.")]);
    const FIELDS: &[Field] = &[
        needed("inner", Kind::Of(&INNER), "What is inside."),
        optional("word", Kind::Choice(&["a"]), "One word."),
        optional("other", Kind::Of(&INNER), "What else."),
        optional("any", Kind::Any, "Whatever."),
    ];
    const OUTER: Shape = Shape::of_api("Outer", FIELDS);
    let schema = render::component(&OUTER, false);
    assert_eq!(schema["required"], json!(["inner"]));
    assert_eq!(schema["properties"]["inner"]["$ref"], "#/components/schemas/Inner");
    assert_eq!(
        schema["properties"]["word"],
        json!({ "type": ["string", "null"], "enum": ["a", null], "description": "One word." })
    );
    assert_eq!(schema["properties"]["other"]["anyOf"][1], json!({ "type": "null" }));
    assert_eq!(schema["properties"]["any"], json!({ "description": "Whatever." }));
    assert_eq!(render::component(&OUTER, true)["required"], json!(["inner", "word", "other", "any"]));
    let mut parts = Vec::new();
    OUTER.parts(&mut parts);
    assert_eq!(parts.iter().map(|shape| shape.name).collect::<Vec<_>>(), ["Outer", "Inner"]);
}

#[test]
fn a_table_has_a_row_for_each_key() {
    let mut page = String::new();
    render::section(&mut page, "A line", &LINE);
    for row in [
        "| `name` (needed) | a word | What it is called. |",
        "| `stop` | tables | Where it stops. |",
        "| `zones` | a list: a word | Where it goes. |",
        "| `signs` | a table: 0 to 9 each | By letter. |",
        "| `names` | a list of words, or a text | What people say. |",
    ] {
        assert!(page.lines().any(|line| line == row), "{row}\n{page}");
    }
}
