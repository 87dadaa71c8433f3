//! Files that nobody writes by mistake.

use waypost_kernel::lifecycle::SHIPPED;

use super::table::PARCEL;
use super::{catalog, judge};

fn rules_of(text: &str) -> Vec<&'static str> {
    judge(text, &catalog())
        .err()
        .map(|problems| problems.0.iter().map(|it| it.rule).collect())
        .unwrap_or_default()
}

#[test]
fn what_an_editor_adds_is_no_mistake() {
    for (name, text) in SHIPPED {
        let sound = judge(text, &catalog()).unwrap();
        for (what, changed) in [
            ("a byte order mark", format!("\u{feff}{text}")),
            ("line ends of Windows", text.replace('\n', "\r\n")),
            ("no last line end", text.trim_end().to_owned()),
            ("blank lines", format!("\n\n{text}\n\n\n")),
        ] {
            assert_eq!(judge(&changed, &catalog()).as_ref(), Ok(&sound), "{name} with {what}");
        }
    }
}

#[test]
fn a_problem_of_a_file_with_windows_line_ends_has_its_line() {
    let broken = PARCEL.replacen("\"ready\"", "\"redy\"", 1);
    for text in [broken.replace('\n', "\r\n"), format!("\u{feff}{broken}"), broken] {
        assert_eq!(judge(&text, &catalog()).unwrap_err().0[0].line, 11);
    }
}

#[test]
fn control_characters_and_escapes_are_refused_and_never_repeated() {
    for old in ["parcel", "parcel-{uuid7}", "draft", "queue", "client", "has-items", "ready", "7d", "target"]
    {
        for new in ["\0", "\\u0000", "\\u001b[2J", "\\q", "\\ud800", "\\U00110000", "\u{7f}", "\\u202e"] {
            let text = PARCEL.replacen(&format!("\"{old}\""), &format!("\"{old}{new}\""), 1);
            assert_ne!(text, PARCEL, "{old}");
            assert!(judge(&text, &catalog()).is_err(), "{old} with {new:?}");
        }
    }
    for at in (0..PARCEL.len()).step_by(5) {
        let text = format!("{}\0{}", &PARCEL[..at], &PARCEL[at..]);
        assert_eq!(rules_of(&text), ["syntax"], "NUL at {at}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    for (open, inner, close) in [("[", "", "]"), ("{ a = ", "1", " }")] {
        for depth in [10, 100, 1_000, 20_000] {
            let value = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            for text in [
                format!("name = {value}\n"),
                format!("name = {}\n", open.repeat(depth)),
                PARCEL.replacen("\"parcel\"", &value, 1),
                PARCEL.replacen("transitions = [", &format!("transitions = [ {value},"), 1),
            ] {
                assert!(!rules_of(&text).is_empty(), "{open} {depth}");
            }
        }
    }
    let dots = "a.".repeat(100_000);
    for text in [format!("{dots}a = 1"), format!("[{dots}a]"), format!("[[{dots}a]]")] {
        assert_eq!(rules_of(&text), ["syntax"]);
    }
}

/// Ten megabytes are refused unread; just below the limit, the time does not grow with the square of the size.
#[test]
fn large_files_are_refused_soon() {
    assert_eq!(rules_of(&format!("{PARCEL}# {}", "x".repeat(10 << 20))), ["too-large"]);
    assert_eq!(rules_of(&"a".repeat(10 << 20)), ["too-large"]);
    let fill = |piece: &str| piece.repeat(200_000 / piece.len());
    let rows = fill("  [\"x\", \"y\", \"z\", \"\"],\n");
    assert_eq!(
        rules_of(&PARCEL.replacen("transitions = [\n", &format!("transitions = [\n{rows}"), 1)),
        ["size"]
    );
    let long = fill("é");
    for old in ["parcel", "draft", "queue", "client", "has-items", "ready", "7d", "target"] {
        assert!(!rules_of(&PARCEL.replacen(&format!("\"{old}\""), &format!("\"{long}\""), 1)).is_empty());
    }
    let states: String =
        (0..4_000).map(|at| format!("{}{at} = {{ phase = \"redy\" }}\n", "s".repeat(20))).collect();
    let told = rules_of(&PARCEL.replacen("[states]\n", &format!("[states]\n{states}"), 1));
    assert_eq!((told.len(), told[0], told[100]), (101, "unknown-word", "too-many-problems"));
}

#[test]
fn one_version_has_one_meaning() {
    let mut catalog = catalog();
    catalog.add(PARCEL).unwrap();
    catalog.add(PARCEL).unwrap();
    let other = PARCEL.replacen("lease = \"60s\"", "lease = \"61s\"", 1);
    let problems = catalog.add(&other).unwrap_err();
    assert_eq!(problems.0[0].rule, "version-taken");
    catalog.add(&other.replacen("version = 1", "version = 2", 1)).unwrap();
}
