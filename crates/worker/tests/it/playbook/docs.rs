//! The guide's files are checked, as a reader would check them.

use super::parse;

const HEAD: &str = "name = \"part\"\nlifecycle = \"job\"\n";
const STEP: &str = "[[step]]\nname = \"a\"\nexec = [\"true\"]\n";

#[test]
fn the_playbooks_of_the_guide_are_sound() {
    let guide = include_str!("../../../../../docs/playbooks.md");
    let blocks: Vec<&str> =
        guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let (whole, parts): (Vec<&str>, Vec<&str>) =
        blocks.into_iter().partition(|block| block.contains("lifecycle = "));
    assert!(whole.len() >= 2 && parts.len() >= 2, "{} and {}", whole.len(), parts.len());
    for block in whole {
        parse(block);
    }
    for part in parts {
        let step = if part.contains("[[step]]") { "" } else { STEP };
        parse(&format!("{HEAD}{part}\n{step}"));
    }
}

/// The guide lists what the engine offers.
#[test]
fn the_filters_of_the_guide_are_those_of_the_engine() {
    let guide = include_str!("../../../../../docs/playbooks.md");
    let (_, list) = guide.split_once("Filters: ").unwrap();
    let list = list.split("\n\n").next().unwrap();
    let listed: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    let step = |filter: &str| {
        format!("{HEAD}{}", STEP.replace("\"true\"", &format!("\"true\", \"{{{{ inputs.x | {filter} }}}}\"")))
    };
    for filter in &listed {
        parse(&step(filter));
    }
    let mend = super::judge(&step("nope")).unwrap_err().0[0].hint.clone();
    let offered = mend.rsplit_once(": ").unwrap().1;
    let aliases = ["count", "d"];
    let offered: Vec<&str> = offered.split(", ").filter(|name| !aliases.contains(name)).collect();
    assert_eq!(listed, offered);
}
