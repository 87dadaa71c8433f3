//! A lifecycle file as a person reads it, line by line: for tests that must not ask the loader what a file means.

/// A line of `[states]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub name: String,
    pub phase: String,
    pub outcome: Option<String>,
}

/// From, command, to, by and guard of each row of the table.
pub fn rows(text: &str) -> impl Iterator<Item = [&str; 5]> {
    let rows = text.lines().map(str::trim).filter(|line| line.starts_with("[\""));
    rows.filter_map(|row| {
        let row = row.split("],").next().unwrap_or_default().trim_start_matches('[');
        let cells: Vec<&str> = row.split("\",").map(|cell| cell.trim().trim_matches('"')).collect();
        <[&str; 5]>::try_from(cells).ok()
    })
}

pub fn states(text: &str) -> Vec<State> {
    let of = |name: String| {
        let line = text.lines().find(|line| is_state(line, &name)).unwrap_or_default();
        let word =
            |key: &str| line.split_once(&format!("{key} = \"")).and_then(|(_, rest)| rest.split('"').next());
        let (phase, outcome) =
            (word("phase").unwrap_or_default().to_owned(), word("outcome").map(str::to_owned));
        State { name, phase, outcome }
    };
    state_names(text).into_iter().map(of).collect()
}

pub fn initial(text: &str) -> Vec<&str> {
    let line = text.lines().find(|line| line.starts_with("initial")).unwrap_or_default();
    line.split('"').skip(1).step_by(2).collect()
}

pub(super) fn is_state(line: &str, name: &str) -> bool {
    line.contains("{ phase = ") && line.split('=').next().is_some_and(|key| key.trim() == name)
}

pub(super) fn state_names(text: &str) -> Vec<String> {
    let states = text.lines().filter(|line| line.contains("{ phase = "));
    states.filter_map(|line| line.split('=').next()).map(|name| name.trim().to_owned()).collect()
}
