//! Where a lifecycle's drawing has its states, its lines and their words: states from left to right as work goes on, words where they cover
//! neither a state nor each other.

use std::collections::BTreeMap;

use waypost_kernel::{Lifecycle, Phase, StateId};

pub const HEIGHT: i32 = 34;
const ROW: i32 = 58;
const LANE: i32 = 24;
const MARGIN: i32 = 12;
/// Between two columns, at least; words that stand there make it wider.
const GAP: i32 = 84;
/// What lines need beside the words of a gap: room to turn, and their arrows.
const TURNS: i32 = 44;
/// How far beside a state lines go up or down.
const ASIDE: i32 = 16;
/// The height of a line of words.
const WORDS: i32 = 13;

#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub x: i32,
    pub y: i32,
    rank: i32,
    row: i32,
    /// Nothing stands below it.
    is_lowest: bool,
}

/// One line for all commands between two states.
#[derive(Debug)]
pub struct Edge {
    pub from: StateId,
    pub to: StateId,
    pub words: String,
}

#[derive(Debug)]
pub struct Line {
    pub path: String,
    /// Where the middle of its words stands.
    pub x: i32,
    pub y: i32,
}

#[derive(Debug)]
pub struct Layout {
    pub width: i32,
    pub height: i32,
    /// Of each state.
    pub state_width: i32,
    pub nodes: Vec<Node>,
    /// One for each edge, in their order.
    pub lines: Vec<Line>,
}

/// How far each state is from the beginning, by the longest way that does not turn back; what is settled comes after all that is not.
fn ranks(lifecycle: &Lifecycle) -> Vec<i32> {
    let mut ranks = vec![-1; lifecycle.states.len()];
    fn walk(lifecycle: &Lifecycle, at: StateId, ranks: &mut [i32], way: &mut Vec<StateId>) {
        let rank = way.len() as i32;
        if ranks[usize::from(at.0)] >= rank {
            return;
        }
        ranks[usize::from(at.0)] = rank;
        way.push(at);
        for row in lifecycle.transitions_from(at) {
            // A state that is retried is not beyond where it goes back to.
            let goes_back =
                lifecycle.phase(at) == Phase::Settled && lifecycle.phase(row.to) != Phase::Settled;
            let turns = lifecycle.phase(at) == Phase::Parked && lifecycle.phase(row.to) == Phase::Ready;
            if !way.contains(&row.to) && !goes_back && !turns {
                walk(lifecycle, row.to, ranks, way);
            }
        }
        way.pop();
    }
    for id in &lifecycle.initial {
        walk(lifecycle, *id, &mut ranks, &mut Vec::new());
    }
    let is_settled = |at: usize| lifecycle.states[at].phase == Phase::Settled;
    let last_open = (0..ranks.len()).filter(|at| !is_settled(*at)).map(|at| ranks[at]).max().unwrap_or(0);
    for (at, rank) in ranks.iter_mut().enumerate() {
        *rank = (*rank).max(if is_settled(at) { last_open + 1 } else { 0 });
    }
    ranks
}

/// Of words in the drawing's small type, generously: browsers differ.
fn width_of(words: &str) -> i32 {
    words.chars().count() as i32 * 13 / 2 + 6
}

pub fn layout(lifecycle: &Lifecycle, edges: &[Edge]) -> Layout {
    let longest = lifecycle.states.iter().map(|state| state.name.chars().count()).max().unwrap_or(0) as i32;
    let state_width = (longest * 8 + 34).max(92);
    let ranks = ranks(lifecycle);
    let span = |edge: &Edge| ranks[usize::from(edge.to.0)] - ranks[usize::from(edge.from.0)];
    let lanes = |fits: fn(i32) -> bool| edges.iter().filter(|edge| fits(span(edge))).count() as i32;
    let (above, below) = (lanes(|span| span > 1), lanes(|span| span < 0));
    let top = MARGIN + above * LANE + if above > 0 { 12 } else { 0 };
    let mut columns = vec![MARGIN];
    let last = ranks.iter().copied().max().unwrap_or(0);
    for rank in 0..=last {
        let starts = |edge: &&Edge| ranks[usize::from(edge.from.0)] == rank && matches!(span(edge), 0 | 1);
        let words = edges.iter().filter(starts).map(|edge| width_of(&edge.words) + TURNS).max();
        let least = if rank < last { GAP } else { MARGIN };
        columns.push(columns[columns.len() - 1] + state_width + words.unwrap_or(0).max(least));
    }
    let nodes = nodes(&ranks, &columns, top);
    let bottom = nodes.iter().map(|node| node.y + HEIGHT).max().unwrap_or(top);
    let turns_last = nodes.iter().any(|node| node.rank == last && !node.is_lowest);
    let right = columns[columns.len() - 1] + if turns_last && below > 0 { ASIDE } else { 0 };
    let mut router = Router { state_width, columns: &columns, above: top, below: bottom, taken: Vec::new() };
    router.taken.extend(nodes.iter().map(|node| Area::of_state(*node, state_width)));
    let at = |id: StateId| nodes[usize::from(id.0)];
    let lines = edges.iter().map(|edge| router.line(at(edge.from), at(edge.to), &edge.words)).collect();
    Layout { width: right, height: bottom + below * LANE + MARGIN + 8, state_width, nodes, lines }
}

fn nodes(ranks: &[i32], columns: &[i32], top: i32) -> Vec<Node> {
    let mut rows: BTreeMap<i32, i32> = BTreeMap::new();
    let place = |rank: &i32| {
        let row = rows.entry(*rank).or_default();
        let (x, y) = (columns[*rank as usize], top + *row * ROW);
        *row += 1;
        Node { x, y, rank: *rank, row: *row - 1, is_lowest: false }
    };
    let mut nodes: Vec<Node> = ranks.iter().map(place).collect();
    nodes.iter_mut().for_each(|node| node.is_lowest = node.row + 1 == rows[&node.rank]);
    nodes
}

/// What is covered already.
#[derive(Clone, Copy, Debug)]
struct Area {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl Area {
    fn of_state(node: Node, width: i32) -> Area {
        Area { left: node.x - 2, top: node.y - 2, right: node.x + width + 2, bottom: node.y + HEIGHT + 2 }
    }

    /// Words in one line, by their middle and the line that they stand on.
    fn of_words(x: i32, y: i32, words: &str) -> Area {
        let half = width_of(words) / 2;
        Area { left: x - half, top: y - WORDS + 2, right: x + half, bottom: y + 3 }
    }

    fn shared_with(self, other: Area) -> i32 {
        let wide = self.right.min(other.right) - self.left.max(other.left);
        let high = self.bottom.min(other.bottom) - self.top.max(other.top);
        wide.max(0) * high.max(0)
    }
}

/// Lines that pass over states run above all, those that lead back below all, each in a lane of its own.
struct Router<'c> {
    state_width: i32,
    columns: &'c [i32],
    above: i32,
    below: i32,
    taken: Vec<Area>,
}

impl Router<'_> {
    fn line(&mut self, from: Node, to: Node, words: &str) -> Line {
        let (path, places) = match to.rank - from.rank {
            1 => self.across(from, to, words),
            2.. => self.over(from, to),
            0 => self.beside(from, to, words),
            _ => self.back(from, to),
        };
        let covered = |(x, y): &(i32, i32)| {
            let area = Area::of_words(*x, *y, words);
            self.taken.iter().map(|taken| area.shared_with(*taken)).sum::<i32>()
        };
        // The first of those that cover least.
        let (x, y) = places.into_iter().min_by_key(covered).unwrap_or_default();
        self.taken.push(Area::of_words(x, y, words));
        Line { path, x, y }
    }

    /// To the next column. Near to where they end, lines that begin together have come apart.
    fn across(&self, from: Node, to: Node, words: &str) -> (String, Vec<(i32, i32)>) {
        let (sx, sy, tx, ty) = (from.x + self.state_width, middle(from), to.x, middle(to));
        let half = (tx - sx) / 2;
        let path = format!("M{sx} {sy} C{} {sy} {} {ty} {tx} {ty}", sx + half, tx - half);
        let room = width_of(words) / 2 + 3;
        let place = |percent: i32| {
            let t = f64::from(percent) / 100.0;
            // The curve's own height there; its middle moves with t, near enough.
            let y = f64::from(sy) + f64::from(ty - sy) * t * t * (3.0 - 2.0 * t);
            let x = (sx + (tx - sx) * percent / 100).min(tx - room - 10).max(sx + room);
            [(x, y as i32 - 5), (x, y as i32 + WORDS)]
        };
        let flat = if sy == ty { 50 } else { 60 };
        (path, [flat, 66, 72, 54, 80, 46, 40, 32, 90].into_iter().flat_map(place).collect())
    }

    fn over(&mut self, from: Node, to: Node) -> (String, Vec<(i32, i32)>) {
        self.above -= LANE;
        let lane = self.above;
        let turn = to.x - ASIDE - 2;
        let (leaves, sx) = if from.row == 0 {
            let sx = from.x + self.state_width * 3 / 4;
            (format!("M{sx} {}", from.y), sx)
        } else {
            // Not through the states that stand above this one.
            let right = from.x + self.state_width;
            (format!("M{right} {} h{ASIDE}", middle(from)), right + ASIDE)
        };
        (format!("{leaves} V{lane} H{turn} V{} H{}", middle(to), to.x), along(sx, turn, lane))
    }

    fn beside(&self, from: Node, to: Node, words: &str) -> (String, Vec<(i32, i32)>) {
        let (sx, sy, ty) = (from.x + self.state_width, middle(from), middle(to));
        let x = sx + ASIDE + 6 + width_of(words) / 2;
        let place = |percent: i32| (x, sy + (ty - sy) * percent / 100 + 4);
        let path = format!("M{sx} {sy} h{ASIDE} V{ty} h-{ASIDE}");
        (path, [50, 35, 65, 20, 80].into_iter().map(place).collect())
    }

    fn back(&mut self, from: Node, to: Node) -> (String, Vec<(i32, i32)>) {
        self.below += LANE;
        let lane = self.below;
        let (leaves, sx) = if from.is_lowest {
            let sx = from.x + self.state_width / 4;
            (format!("M{sx} {}", from.y + HEIGHT), sx)
        } else {
            // Not through the states that stand below this one.
            let right = from.x + self.state_width;
            (format!("M{right} {} h{ASIDE}", middle(from)), right + ASIDE)
        };
        if to.is_lowest {
            let tx = to.x + self.state_width / 2;
            return (format!("{leaves} V{lane} H{tx} V{}", to.y + HEIGHT), along(tx, sx, lane));
        }
        let turn = (to.x - ASIDE).max(self.columns[0] / 2);
        (format!("{leaves} V{lane} H{turn} V{} H{}", middle(to), to.x), along(turn, sx, lane))
    }
}

fn middle(node: Node) -> i32 {
    node.y + HEIGHT / 2
}

/// Places on a lane, its middle first.
fn along(left: i32, right: i32, lane: i32) -> Vec<(i32, i32)> {
    let place = |percent: i32| (left + (right - left) * percent / 100, lane - 4);
    [50, 40, 60, 30, 70, 20, 80].into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::super::diagram::edges;
    use super::*;
    use waypost_kernel::Catalog;

    #[test]
    fn work_goes_from_left_to_right_and_ends_on_the_right() {
        let catalog = Catalog::shipped().expect("they are checked");
        for lifecycle in catalog.iter() {
            let ranks = ranks(lifecycle);
            assert!(lifecycle.initial.iter().any(|id| ranks[usize::from(id.0)] == 0), "{}", lifecycle.name);
            let open = lifecycle.state_ids().filter(|id| lifecycle.phase(*id) != Phase::Settled);
            let last = open.map(|id| ranks[usize::from(id.0)]).max().unwrap_or(0);
            for id in lifecycle.state_ids().filter(|id| lifecycle.phase(*id) == Phase::Settled) {
                assert!(ranks[usize::from(id.0)] > last, "{} {}", lifecycle.name, lifecycle.state(id).name);
            }
        }
    }

    #[test]
    fn no_words_cover_a_state_or_each_other() {
        let catalog = Catalog::shipped().expect("they are checked");
        for lifecycle in catalog.iter() {
            // With the numbers of a run's moves before them, which make words longer.
            for number in ["", "1,2,3…44. "] {
                let mut edges = edges(lifecycle);
                edges.iter_mut().for_each(|edge| edge.words.insert_str(0, number));
                let layout = layout(lifecycle, &edges);
                let mut taken: Vec<(String, Area)> = Vec::new();
                for (node, state) in layout.nodes.iter().zip(&lifecycle.states) {
                    taken.push((state.name.to_string(), Area::of_state(*node, layout.state_width)));
                }
                for (line, edge) in layout.lines.iter().zip(&edges) {
                    let area = Area::of_words(line.x, line.y, &edge.words);
                    let covered = taken.iter().find(|(_, other)| area.shared_with(*other) > 0);
                    assert!(
                        covered.is_none(),
                        "{}: {:?} covers {covered:?}: {area:?}",
                        lifecycle.name,
                        edge.words
                    );
                    assert!(
                        area.left >= 0 && area.right <= layout.width && area.top >= 0,
                        "{}: {:?} is outside",
                        lifecycle.name,
                        edge.words
                    );
                    taken.push((edge.words.clone(), area));
                }
            }
        }
    }
}
