//! A lifecycle as a drawing: its states, and the way that a run took through them.

use maud::{Markup, html};
use waypost_kernel::{Lifecycle, StateId};

use super::layout::{Edge, HEIGHT, Line, Node, layout};
use crate::console::parts::{shown, tone};

/// What is wider is not made as narrow as a phone, where nobody could read it: it is moved about.
const LARGE: i32 = 600;

/// From where to where, and by which command.
#[derive(Debug)]
pub struct Move {
    pub from: StateId,
    pub to: StateId,
    pub command: String,
}

/// Where a run is, and its moves in order.
#[derive(Debug)]
pub struct Walked {
    pub current: StateId,
    pub moves: Vec<Move>,
}

/// All ways between two states as one, with its commands.
pub fn edges(lifecycle: &Lifecycle) -> Vec<Edge> {
    let mut edges: Vec<(StateId, StateId, Vec<String>)> = Vec::new();
    for row in lifecycle.transitions.iter().filter(|row| row.from != row.to) {
        let known = edges.iter().position(|(from, to, _)| (*from, *to) == (row.from, row.to));
        let place = known.unwrap_or_else(|| {
            edges.push((row.from, row.to, Vec::new()));
            edges.len() - 1
        });
        let command = shown(&row.command);
        if !edges[place].2.contains(&command) {
            edges[place].2.push(command);
        }
    }
    edges.into_iter().map(|(from, to, commands)| Edge { from, to, words: commands.join(", ") }).collect()
}

/// `which` tells several drawings of one page apart.
pub fn diagram(lifecycle: &Lifecycle, walked: Option<&Walked>, which: &str) -> Markup {
    let mut edges = edges(lifecycle);
    for edge in &mut edges {
        let turns = turns(walked, edge);
        // What was taken says by which command, where there are several.
        if let Some(walked) = walked.filter(|_| !turns.is_empty()) {
            let mut taken: Vec<String> = Vec::new();
            for command in turns.iter().map(|turn| shown(&walked.moves[turn - 1].command)) {
                if !taken.contains(&command) {
                    taken.push(command);
                }
            }
            edge.words = format!("{}{}", numbers(&turns), taken.join(", "));
        }
    }
    let layout = layout(lifecycle, &edges);
    let drawn = || layout.lines.iter().zip(&edges);
    let arrow = format!("arrow-{which}");
    html! {
        div.diagram tabindex="0" role="group" aria-label={ "States of " (lifecycle.name) } {
            svg.large[layout.width > LARGE] viewBox={ "0 0 " (layout.width) " " (layout.height) } width=(layout.width) height=(layout.height) role="img" {
                title { (summary(lifecycle, walked)) }
                defs {
                    marker id=(arrow) viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto-start-reverse" {
                        path d="M0 0 L8 4 L0 8 z" {}
                    }
                }
                @for is_taken in [false, true] {
                    // What was taken is drawn last: nothing crosses it.
                    @for (line, _) in drawn().filter(|(_, edge)| is_taken != turns(walked, edge).is_empty()) { (edge_line(line, is_taken, &arrow)) }
                }
                @for (id, node) in lifecycle.state_ids().zip(&layout.nodes) { (state_box(lifecycle, id, *node, layout.state_width, walked)) }
                @for (line, edge) in drawn() { (edge_words(line, edge, !turns(walked, edge).is_empty())) }
            }
        }
    }
}

/// Which of a run's moves went along an edge, counted from 1.
fn turns(walked: Option<&Walked>, edge: &Edge) -> Vec<usize> {
    let moves = walked.map_or(&[][..], |walked| &walked.moves);
    let along = moves.iter().enumerate().filter(|(_, step)| (step.from, step.to) == (edge.from, edge.to));
    along.map(|(place, _)| place + 1).collect()
}

/// The first of them, and the last.
fn numbers(turns: &[usize]) -> String {
    let Some(last) = turns.last() else { return String::new() };
    let first: Vec<String> = turns.iter().take(3).map(ToString::to_string).collect();
    let rest = if turns.len() > 3 { format!("…{last}") } else { String::new() };
    format!("{}{rest}. ", first.join(","))
}

fn edge_line(line: &Line, is_taken: bool, arrow: &str) -> Markup {
    let class = if is_taken { "edge taken" } else { "edge" };
    html! { path class=(class) d=(line.path) marker-end={ "url(#" (arrow) ")" } {} }
}

fn edge_words(line: &Line, edge: &Edge, is_taken: bool) -> Markup {
    let class = if is_taken { "words taken" } else { "words" };
    html! { text class=(class) x=(line.x) y=(line.y) text-anchor="middle" { (edge.words) } }
}

fn state_box(lifecycle: &Lifecycle, id: StateId, node: Node, width: i32, walked: Option<&Walked>) -> Markup {
    let state = lifecycle.state(id);
    let was_there = walked.is_none_or(|walked| {
        walked.current == id || walked.moves.iter().any(|step| step.from == id || step.to == id)
    });
    let is_current = walked.is_some_and(|walked| walked.current == id);
    let class = format!(
        "state {}{}{}",
        tone(state.phase, state.outcome),
        if is_current { " current" } else { "" },
        if was_there { "" } else { " unvisited" },
    );
    html! {
        g class=(class) {
            title { (state.name) ": " (state.phase.name()) @if is_current { ", the run is here" } }
            rect x=(node.x) y=(node.y) width=(width) height=(HEIGHT) rx="8" {}
            @if lifecycle.is_terminal(id) {
                rect.inner x=(node.x + 3) y=(node.y + 3) width=(width - 6) height=(HEIGHT - 6) rx="6" {}
            }
            text x=(node.x + width / 2) y=(node.y + HEIGHT / 2 + 5) text-anchor="middle" { (shown(&state.name)) }
        }
    }
}

fn summary(lifecycle: &Lifecycle, walked: Option<&Walked>) -> String {
    let name = |id: StateId| lifecycle.state(id).name.to_string();
    let Some(walked) = walked else {
        return format!("The states of {} and the ways between them", lifecycle.name);
    };
    let way: Vec<String> = walked.moves.iter().map(|step| name(step.to)).collect();
    format!("The run is {}. Its way: {}", name(walked.current), way.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::Catalog;

    #[test]
    fn the_way_taken_names_the_command_that_was_given() {
        let catalog = Catalog::shipped().expect("they are checked");
        let deploy = catalog.latest("deploy").expect("it is shipped");
        let id = |name: &str| deploy.state_named(name).expect("it has it");
        let step = Move { from: id("queued"), to: id("cancelled"), command: "cancel".to_owned() };
        let walked = Walked { current: id("cancelled"), moves: vec![step] };
        let drawn = diagram(deploy, Some(&walked), "x").into_string();
        assert!(drawn.contains(">1. cancel</text>"), "{drawn}");
    }

    #[test]
    fn every_state_and_every_command_is_in_the_drawing() {
        let catalog = Catalog::shipped().expect("they are checked");
        for lifecycle in catalog.iter() {
            let drawn = diagram(lifecycle, None, "x").into_string();
            for state in &lifecycle.states {
                assert!(drawn.contains(&format!(">{}</text>", state.name)), "{}: {drawn}", state.name);
            }
            for row in lifecycle.transitions.iter().filter(|row| row.from != row.to) {
                assert!(drawn.contains(&*row.command), "{}", row.command);
            }
        }
    }
}
