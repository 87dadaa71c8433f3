//! Which steps wait for which. Without `needs` a step follows the one before it.

use std::collections::VecDeque;

use waypost_schema::{Node, quoted};

use super::Builder;

/// The steps that each one waits for: by its own word, and in the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs {
    pub own: Vec<Vec<usize>>,
    /// Also those that the others wait for, in their order.
    pub all: Vec<Vec<usize>>,
}

impl Needs {
    /// Of steps that wait for each other some are left out.
    fn new(own: Vec<Vec<usize>>) -> Needs {
        let all = (0..own.len()).map(|at| reached(&own, at)).collect();
        Needs { own, all }
    }

    /// Whether one waits for the other.
    pub fn waits(&self, at: usize, other: usize) -> bool {
        self.all.get(at).is_some_and(|all| all.binary_search(&other).is_ok())
    }
}

/// All that one waits for, which is itself too where steps wait for each other.
fn reached(own: &[Vec<usize>], at: usize) -> Vec<usize> {
    let mut is_reached = vec![false; own.len()];
    let mut open = own[at].clone();
    while let Some(next) = open.pop() {
        if !std::mem::replace(&mut is_reached[next], true) {
            open.extend(&own[next]);
        }
    }
    (0..own.len()).filter(|at| is_reached[*at]).collect()
}

/// The shortest way from a step over those that it waits for back to itself.
fn round_trip(own: &[Vec<usize>], at: usize) -> Vec<usize> {
    let mut from = vec![None; own.len()];
    let mut open = VecDeque::from([at]);
    while let Some(step) = open.pop_front() {
        if own[step].contains(&at) {
            let mut way: Vec<usize> = std::iter::successors(Some(step), |step| from[*step]).collect();
            way.reverse();
            return way;
        }
        for next in own[step].iter().filter(|next| **next != at) {
            if from[*next].is_none() {
                from[*next] = Some(step);
                open.push_back(*next);
            }
        }
    }
    vec![at]
}

impl Builder<'_> {
    pub(super) fn needs(&mut self, nodes: &[Node]) -> Needs {
        let own: Vec<Vec<usize>> = nodes.iter().enumerate().map(|(at, node)| self.own(node, at)).collect();
        let needs = Needs::new(own);
        let mut told = vec![false; nodes.len()];
        for (at, node) in nodes.iter().enumerate() {
            // Where nothing is said a step follows the one before it, and that is not what is wrong.
            let Some(said) = node.get("needs").filter(|_| needs.waits(at, at) && !told[at]) else { continue };
            let way = round_trip(&needs.own, at);
            for step in &way {
                told[*step] = true;
            }
            let names: Vec<String> = way.iter().chain([&at]).map(|step| quoted(&self.steps[*step])).collect();
            let way = names[1..].join(", which waits for ");
            let message = format!("steps wait for each other: {} waits for {way}", names[0]);
            let mend = "take one of them out; a step without needs waits for the one before it";
            self.problem(said, "needs-cycle", &message, mend);
        }
        needs
    }

    fn own(&mut self, node: &Node, at: usize) -> Vec<usize> {
        let Some(said) = node.get("needs") else { return at.checked_sub(1).into_iter().collect() };
        let mut own = Vec::new();
        for name in said.items() {
            match self.steps.iter().position(|key| key == name.text()) {
                Some(step) if own.contains(&step) => {
                    let message = format!("{} stands twice", quoted(name.text()));
                    self.problem(name, "duplicate-name", &message, "remove one of the two");
                }
                Some(step) => own.push(step),
                None => {
                    let message = format!("there is no step {}", quoted(name.text()));
                    let mend = self.instead_of_step(name.text());
                    self.problem(name, "unknown-step", &message, &mend);
                }
            }
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_waits_for_in_the_end_is_known() {
        let needs = Needs::new(vec![vec![], vec![0], vec![0], vec![1, 2], vec![], vec![4]]);
        assert_eq!(needs.all, [vec![], vec![0], vec![0], vec![0, 1, 2], vec![], vec![4]]);
        assert!(needs.waits(3, 0) && !needs.waits(3, 4) && !needs.waits(0, 0));
    }

    #[test]
    fn steps_that_wait_for_each_other_are_named_in_order() {
        for (own, at, expected) in [
            (vec![vec![0]], 0, vec![0]),
            (vec![vec![1], vec![0]], 0, vec![0, 1]),
            (vec![vec![], vec![0, 3], vec![1], vec![2, 0]], 1, vec![1, 3, 2]),
            (vec![vec![2], vec![2], vec![0, 1]], 1, vec![1, 2]),
        ] {
            assert_eq!(round_trip(&own, at), expected);
        }
    }
}
