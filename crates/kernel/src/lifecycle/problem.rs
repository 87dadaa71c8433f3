//! What is wrong with a file: the line, the rule that it breaks, and how to mend it.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub line: usize,
    /// A stable name, one of [`Problem::RULES`].
    pub rule: &'static str,
    pub message: String,
    pub mend: String,
}

/// At least one problem, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// A person mends these first; the list of a file that is no lifecycle at all would be endless.
const MAX_PROBLEMS: usize = 100;

/// What a message quotes of a word that somebody wrote.
const MAX_QUOTED_CHARS: usize = 64;

impl Problem {
    /// Every rule that a file can break, with what it asks for: the reference's table.
    pub const RULES: [(&'static str, &'static str); 61] = [
        ("too-large", "a file has at most 256 KiB"),
        ("syntax", "a file is TOML"),
        ("too-many-problems", "at most 100 problems are told at once"),
        ("missing-key", "what has to be there is there"),
        ("unknown-key", "no key but those of the format"),
        ("wrong-type", "a string where a string belongs, and so on"),
        ("unknown-word", "phases, outcomes, actors and guards are words of the list"),
        ("bad-duration", "a length of time is a whole number above 0 and ms, s, m, h or d"),
        ("bad-number", "a number is in its range"),
        ("bad-version", "versions count from 1 to 65535"),
        ("bad-ids", "`ids` is a template that makes unique ids"),
        ("bad-name", "names are words of letters, digits, `_` and `-`"),
        ("size", "1 to 64 states, at most 512 transitions"),
        ("row-shape", "a transition is a row of five words"),
        ("two-tables", "`transitions` stands once in a file"),
        ("duplicate-name", "a list names each thing once"),
        ("reserved-word", "a command is no word of the engine's own"),
        ("no-actor", "every transition names who may make it"),
        ("unknown-state", "every state that is named is declared"),
        ("unknown-command", "every command that is named is in the table"),
        ("unknown-item-kind", "every item lifecycle that is named is known"),
        ("version-taken", "one version has one meaning"),
        ("item-key", "an item lifecycle has no ids, items, codes or operations"),
        ("run-key", "a run lifecycle has no stops_run"),
        ("no-initial", "a run starts somewhere"),
        ("initial-phase", "a run starts as a draft, ready or held"),
        ("initial-fold", "a further initial state is one client's move from the first"),
        ("unreachable-state", "every state can be reached"),
        ("dead-end", "every run can finish"),
        ("settled-without-outcome", "a settled state says how it counts"),
        ("key-phase", "a state has only keys that mean something in its phase"),
        ("held-without-stale-rule", "a held state says what a lost lease means"),
        ("held-length", "a held state has a lease or a deadline"),
        ("stale-edge-missing", "what a lost lease leads to is in the table"),
        ("ready-without-claim", "a ready state can be claimed"),
        ("ttl-without-expire", "a time to live leads somewhere"),
        ("engine-edge-guarded", "the engine can always end a run whose time ran out"),
        ("cancel-guarded", "a held run that is asked to cancel can always do it"),
        ("no-way-to-fail", "a worker can always end a run that fails"),
        ("retry-edge-missing", "a state with retry = true can be taken up by a worker"),
        ("ambiguous-start", "a worker's first event begins the work in one state"),
        ("guarded-start", "a worker's first event always begins the work"),
        ("follow-edge-missing", "an item follows its run along the table"),
        ("follow-guarded", "an item follows its run under one condition only"),
        (
            "follow-uncounted",
            "an item follows its run to no state that only some leave when the run moves on",
        ),
        ("start-moves-items", "a worker's first event moves no item by itself"),
        ("begins-by-itself", "an item of a kind that stops its run begins by its worker alone"),
        ("claim-shape", "claim is a worker's, from ready to held"),
        ("steal-shape", "steal stays in a held state with on_stale = steal"),
        ("idle-loop", "a move leads somewhere else"),
        ("worker-without-lease", "a worker moves only what it holds or takes"),
        ("held-for-people", "people ask a held run to cancel or pause"),
        ("holder-cannot-obey", "what people ask of a held run, its worker may do"),
        ("held-for-engine", "the engine ends a held run by its stale rule alone"),
        ("settled-exit", "a settled run moves only when somebody asks"),
        ("guard-misplaced", "a guard says something about what it guards"),
        ("guard-without-items", "a guard that counts items has items to count"),
        ("duplicate-transition", "no two rows with the same state, command and guards"),
        ("shadowed-transition", "no row stands behind one that always comes first"),
        ("repeat-moves-on", "a command that is sent twice moves a run once"),
        ("operation-shape", "an operation works on settled runs and is no other command"),
    ];
}

impl Problems {
    /// In the order of the file, and no more than a person wants to read.
    pub(super) fn sorted(mut problems: Vec<Problem>) -> Problems {
        problems.sort_by_key(|problem| problem.line);
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        if more > 0 {
            problems.push(Problem {
                line: problems.last().map_or(1, |problem| problem.line),
                rule: "too-many-problems",
                message: format!("{more} further problems are not shown"),
                mend: "mend these first".into(),
            });
        }
        Problems(problems)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} [{}]\n  {}", self.line, self.message, self.rule, self.mend)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A word of the file as a message quotes it: short, and without characters that a terminal would obey.
pub fn quoted(word: &str) -> String {
    let shown: String = word.chars().take(MAX_QUOTED_CHARS).flat_map(char::escape_debug).collect();
    let cut = if word.chars().nth(MAX_QUOTED_CHARS).is_some() { "…" } else { "" };
    format!("`{shown}{cut}`")
}

/// "Did you mean", where a known word is near, and all that would do.
pub fn instead_of(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`? Allowed: {}", known.join(", ")),
        None => format!("allowed: {}", known.join(", ")),
    }
}

/// The known word that a typing error most likely meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |candidate: &str| 1 + candidate.chars().count() / 4;
    known
        .into_iter()
        .filter(|candidate| word.len() <= 4 * (candidate.len() + near(candidate)))
        .map(|candidate| (edits(word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= near(candidate))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, by rows.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, b) in right.iter().enumerate() {
            let substitute = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = substitute.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
