//! Which columns a line has room for, and how much of each.

use unicode_width::UnicodeWidthStr;

/// A column of a table that has to fit.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    /// Of several that do not fit, the one with the highest number is left out first. None is left out that has 0.
    pub rank: u8,
    /// Its texts may be shortened to this width. Whole if it is not given.
    pub least: Option<usize>,
}

const GAP: usize = 2;
const CUT: &str = "…";

/// The columns (by their place) that fit into a width, each with the widest text that it may have. Columns without any text
/// are left out. Those of the lowest rank go first; those that may be shortened are, before one is left out.
pub fn fitted(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Vec<(usize, usize)> {
    let natural = |at: usize| {
        let texts = rows.iter().map(|row| first_line_width(&row[at]));
        texts.max().unwrap_or_default().max(columns[at].name.width())
    };
    let has_text = |at: &usize| columns[*at].rank == 0 || rows.iter().any(|row| !row[*at].is_empty());
    let mut kept: Vec<(usize, usize)> =
        (0..columns.len()).filter(has_text).map(|at| (at, natural(at))).collect();
    let Some(width) = width else { return kept };
    loop {
        let total: usize = kept.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP);
        let Some(over) = total.checked_sub(width).filter(|over| *over > 0) else { return kept };
        let least =
            |(at, width): &(usize, usize)| columns[*at].least.map_or(*width, |least| least.min(*width));
        let spare: usize = kept.iter().map(|column| column.1 - least(column)).sum();
        let last = kept.iter().enumerate().max_by_key(|(_, (at, _))| columns[*at].rank);
        match last.filter(|(_, (at, _))| columns[*at].rank > 0).map(|(place, _)| place) {
            Some(place) if spare < over => {
                kept.remove(place);
            }
            // Nothing more can be left out: what can be shortened is, as far as it goes.
            _ => return shortened(columns, kept, over.min(spare)),
        }
    }
}

/// Takes from the widest of those that may be shortened, until enough is taken.
fn shortened(columns: &[Column], mut kept: Vec<(usize, usize)>, mut over: usize) -> Vec<(usize, usize)> {
    while over > 0 {
        let may = |(at, width): &&mut (usize, usize)| columns[*at].least.is_some_and(|least| *width > least);
        let Some(widest) = kept.iter_mut().filter(may).max_by_key(|(_, width)| *width) else { break };
        widest.1 -= 1;
        over -= 1;
    }
    kept
}

fn first_line_width(text: &str) -> usize {
    text.lines().next().unwrap_or_default().width()
}

/// A text on one line, no wider than this.
pub fn cut(text: &str, width: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    let is_whole = line.len() == text.trim_end().len();
    if is_whole && line.width() <= width {
        return line.to_owned();
    }
    let mut shown = String::new();
    for character in line.chars() {
        let mut longer = shown.clone();
        longer.push(character);
        if longer.width() + CUT.width() > width {
            break;
        }
        shown = longer;
    }
    shown + CUT
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { name: "id", rank: 0, least: None },
        Column { name: "title", rank: 0, least: Some(5) },
        Column { name: "queue", rank: 1, least: None },
    ];

    #[test]
    fn what_matters_least_goes_first_and_what_is_long_is_shortened() {
        let rows = vec![vec!["12345678".to_owned(), "a title of 21 letters".into(), "default".into()]];
        for (width, expected) in [
            (None, &[(0, 8), (1, 21), (2, 7)][..]),
            (Some(40), &[(0, 8), (1, 21), (2, 7)]),
            (Some(30), &[(0, 8), (1, 11), (2, 7)]),
            (Some(20), &[(0, 8), (1, 10)]),
            (Some(5), &[(0, 8), (1, 5)]),
        ] {
            assert_eq!(fitted(&COLUMNS, &rows, width), expected, "{width:?}");
        }
        assert_eq!(cut("a title of 21 letters", 8), "a title…");
        assert_eq!(cut("日本語のテキスト", 7), "日本語…");
        assert_eq!(cut("one\ntwo", 8), "one…");
        assert_eq!(cut("fits", 4), "fits");
    }
}
