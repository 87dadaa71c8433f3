//! Patterns for names of repositories, branches and tags, as GitHub's own workflows have them.

/// `*` is anything without a slash, `**` anything, `?` one character but a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        Pattern(text.to_owned())
    }

    pub fn fits(&self, name: &str) -> bool {
        let pattern: Vec<char> = self.0.chars().collect();
        let name: Vec<char> = name.chars().collect();
        // The places of the pattern that can be reached so far: its length bounds the work, whatever is asked.
        let mut places = vec![false; pattern.len() + 1];
        places[0] = true;
        skip_stars(&pattern, &mut places);
        for character in name {
            let mut next = vec![false; pattern.len() + 1];
            for (at, _) in places.iter().enumerate().filter(|(at, is)| **is && *at < pattern.len()) {
                match pattern[at] {
                    // The second of two stars is the one that takes slashes.
                    '*' if character != '/' || is_double(&pattern, at) => next[at] = true,
                    '*' => {}
                    '?' if character != '/' => next[at + 1] = true,
                    wanted if wanted == character && wanted != '?' => next[at + 1] = true,
                    _ => {}
                }
            }
            skip_stars(&pattern, &mut next);
            places = next;
        }
        places[pattern.len()]
    }
}

fn is_double(pattern: &[char], at: usize) -> bool {
    pattern.get(at + 1) == Some(&'*') || at > 0 && pattern[at - 1] == '*'
}

/// A star may stand for nothing.
fn skip_stars(pattern: &[char], places: &mut [bool]) {
    for at in 0..pattern.len() {
        if places[at] && pattern[at] == '*' {
            places[at + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_as_they_do_in_workflows() {
        let cases = [
            ("main", "main", true),
            ("main", "main2", false),
            ("main", "Main", false),
            ("release/*", "release/1.2", true),
            ("release/*", "release/1/2", false),
            ("release/**", "release/1/2", true),
            ("**", "a/b/c", true),
            ("*", "a/b", false),
            ("*", "", true),
            ("v?.*", "v1.20", true),
            ("v?.*", "v12.0", false),
            ("acme/*", "acme/app", true),
            ("acme/*", "evil/acme/app", false),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("a.b", "axb", false),
        ];
        for (pattern, name, fits) in cases {
            assert_eq!(Pattern::new(pattern).fits(name), fits, "{pattern} {name}");
        }
    }
}
