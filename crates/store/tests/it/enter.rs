//! `waypost.enter`, the twin in SQL of what an event makes of its run, held against the kernel: the shipped lifecycles and some that
//! nobody meant, every move of each, rows and effects at random.
// proves X2, X5

use serde_json::{Map, Value, json};
use waypost_kernel::event::{Effect, Event};
use waypost_kernel::fold::{applied, fold};
use waypost_kernel::lifecycle::{Actor, Actors, Kind, Lifecycle, Outcome, Phase, State, StateId, Transition};
use waypost_kernel::run::{Intent, Want};
use waypost_kernel::tally::Tallies;
use waypost_kernel::{Catalog, Failure, Guard, Lease, Run, Span, Time, Token};
use waypost_store::postgres::migration_sql;
use waypost_store::{Written, codec};
use waypost_testkit::Postgres;

const ROWS_PER_MOVE: usize = 4;
const GENERATED: u64 = 12;

/// Times travel as microseconds; of a lease only whose it is, which is all that the log knows.
const HELPERS: &str = "
CREATE FUNCTION pg_temp.row_in(p jsonb) RETURNS waypost.runs LANGUAGE sql AS $$
  SELECT jsonb_populate_record(NULL::waypost.runs, p || jsonb_build_object(
    'state', (SELECT s.code FROM waypost.lifecycle_states s WHERE s.lifecycle = p ->> 'lifecycle' AND s.version = (p ->> 'version')::int
      AND s.state = p ->> 'state'),
    'started_at', waypost.at((p ->> 'started_at')::bigint), 'finished_at', waypost.at((p ->> 'finished_at')::bigint),
    'available_at', waypost.at((p ->> 'available_at')::bigint), 'expires_at', waypost.at((p ->> 'expires_at')::bigint),
    'lease_token', CASE WHEN p ->> 'state' IS NOT NULL AND (p ->> 'held')::boolean THEN gen_random_uuid() END))
$$;
CREATE FUNCTION pg_temp.row_out(r waypost.runs) RETURNS jsonb LANGUAGE sql AS $$
  SELECT jsonb_build_object('state', waypost.status_of(r.state), 'seq', r.seq, 'attempt', r.attempt, 'take_overs', r.take_overs,
    'fence', r.fence, 'claimed_by', r.claimed_by, 'held', r.state / 1000 = 3 OR r.lease_token IS NOT NULL, 'last_command', r.last_command,
    'intent', r.intent, 'requires_cleanup', r.requires_cleanup, 'cleanup_failed', r.cleanup_failed, 'operating', r.operating, 'resolved', r.resolved,
    'forced', r.forced, 'reason', r.reason, 'error_code', r.error_code, 'error_msg', r.error_msg, 'started_at', waypost.micros(r.started_at),
    'finished_at', waypost.micros(r.finished_at), 'available_at', waypost.micros(r.available_at), 'expires_at', waypost.micros(r.expires_at))
$$;
";

const ENTER: &str = "SELECT pg_temp.row_out(waypost.enter(CASE WHEN c.it -> 'row' = 'null' THEN waypost.unborn('r', 'default', 'default', now())
    ELSE pg_temp.row_in(c.it -> 'row') END, s.code, c.it ->> 'command', c.it ->> 'actor', c.it ->> 'by', waypost.at((c.it ->> 'at')::bigint),
    c.it -> 'effect'))
  FROM jsonb_array_elements($cases$CASES$cases$::jsonb) WITH ORDINALITY c(it, place) JOIN waypost.lifecycle_states s
    ON s.lifecycle = c.it ->> 'lifecycle' AND s.version = (c.it ->> 'version')::int AND s.state = c.it ->> 'to' ORDER BY c.place";

/// A seeded source of choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn flag(&mut self) -> bool {
        self.roll(2) == 0
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        self.flag().then(|| make(self))
    }

    fn time(&mut self) -> Time {
        Time::from_micros(1_700_000_000_000_000 + self.roll(1_000_000_000_000) as i64)
    }

    fn failure(&mut self) -> Failure {
        Failure::new(["BROKEN", "LATE"][self.roll(2) as usize], ["", "it broke"][self.roll(2) as usize])
    }

    fn intent(&mut self, lifecycle: &Lifecycle) -> Intent {
        Intent {
            want: [Want::Cancel, Want::Pause, Want::Fail][self.roll(3) as usize],
            by: "ann".into(),
            reason: self.maybe(|_| "why".into()),
            to: self.maybe(|dice| StateId(dice.roll(lifecycle.states.len() as u64) as u8)),
            failure: self.maybe(Dice::failure),
            graceful: self.flag(),
        }
    }

    fn effect(&mut self, lifecycle: &Lifecycle) -> Effect {
        Effect {
            expired: self.flag(),
            available_at: self.maybe(Dice::time),
            expires_at: self.maybe(Dice::time),
            failure: self.maybe(Dice::failure),
            reason: self.maybe(|_| "a look".into()),
            intent: self.maybe(|dice| dice.intent(lifecycle)),
            requires_cleanup: self.maybe(Dice::flag),
            cleanup_failed: self.flag(),
            operating: self.maybe(Dice::flag),
            resolved: self.flag(),
            forced: self.flag(),
            ..Effect::default()
        }
    }

    /// A row as the rules for all lifecycles let it be.
    fn run(&mut self, lifecycle: &Lifecycle, state: StateId) -> Run {
        let phase = lifecycle.phase(state);
        let held = phase == Phase::Held;
        let worker = self.maybe(|_| "w1".into());
        let lease = Lease { token: Token(7), worker, length: Span::from_seconds(60), until: self.time() };
        Run {
            id: "r".into(),
            state,
            seq: 1 + self.roll(9),
            attempt: self.roll(4) as u32,
            max_attempts: 3,
            take_overs: self.roll(4) as u32,
            fence: self.roll(9),
            lease: held.then_some(lease),
            ended_by: None,
            ended_with: None,
            last_command: "before".into(),
            intent: if held { self.maybe(|dice| dice.intent(lifecycle)) } else { None },
            requires_cleanup: held && self.flag(),
            cleanup_failed: self.flag(),
            operating: self.flag(),
            reentrant: self.flag(),
            reason: self.maybe(|_| "before".into()),
            resolved: self.flag(),
            forced: self.flag(),
            failure: if phase == Phase::Settled { self.maybe(Dice::failure) } else { None },
            created_at: self.time(),
            started_at: self.maybe(Dice::time),
            finished_at: (phase == Phase::Settled).then(|| self.time()),
            available_at: self.maybe(Dice::time),
            expires_at: self.maybe(Dice::time),
            tallies: lifecycle.no_items.clone(),
        }
    }

    /// Any states, any moves: neither side asks whether they make sense.
    fn lifecycle(&mut self, number: u64) -> Lifecycle {
        let phases = [Phase::Draft, Phase::Ready, Phase::Held, Phase::Parked, Phase::Settled];
        let states: Vec<State> =
            (0..6 + self.roll(5)).map(|at| self.state(at, phases[(at % 5) as usize])).collect();
        let any = |dice: &mut Dice| StateId(dice.roll(states.len() as u64) as u8);
        let commands = ["claim", "retry", "steal", "start", "pause", "cancel", "ok", "bad"];
        let transitions = (0..40).map(|_| Transition {
            from: any(self),
            command: commands[self.roll(commands.len() as u64) as usize].into(),
            to: any(self),
            by: Actor::ALL
                .into_iter()
                .filter(|_| self.flag())
                .fold(Actors::default().with(Actor::Worker), Actors::with),
            guards: self.maybe(|_| Guard::HasReason).into_iter().collect(),
        });
        Lifecycle {
            transitions: transitions.collect(),
            name: format!("made-{number}").into(),
            description: None,
            version: 1,
            kind: Kind::Run,
            ids: None,
            initial: (0..states.len()).map(|at| StateId(at as u8)).collect(),
            states,
            items: Vec::new(),
            stops_run: false,
            projected: false,
            no_items: Tallies::none(&[]),
            codes: Vec::new(),
            operations: Vec::new(),
            decisions: None,
            cancelled_metadata: Vec::new(),
        }
    }

    fn state(&mut self, at: u64, phase: Phase) -> State {
        let outcome = if self.flag() { Outcome::Succeeded } else { Outcome::Failed };
        State {
            name: format!("s{at}").into(),
            phase,
            outcome: (phase == Phase::Settled).then_some(outcome),
            lease: None,
            deadline: None,
            on_stale: None,
            max_take_overs: 0,
            ttl: None,
            retry: false,
            keep: None,
            follows: Vec::new(),
        }
    }
}

/// Everything that can happen to a run of this lifecycle: births, moves by each actor, and events that leave it where it is.
fn happenings(lifecycle: &Lifecycle) -> Vec<(Option<StateId>, StateId, String, Actor)> {
    let mut all = Vec::new();
    for first in &lifecycle.initial {
        let held = lifecycle.phase(*first) == Phase::Held;
        let (command, actor) = if held { ("claim", Actor::Worker) } else { ("create", Actor::Client) };
        all.push((None, *first, command.to_owned(), actor));
    }
    for row in &lifecycle.transitions {
        for actor in Actor::ALL.into_iter().filter(|actor| row.by.permits(*actor)) {
            all.push((Some(row.from), row.to, row.command.to_string(), actor));
        }
    }
    for state in lifecycle.state_ids() {
        for command in
            ["note", "items", "require-cleanup", "release", "take-over", "lose", "cancel", "operation"]
        {
            all.extend(Actor::ALL.map(|actor| (Some(state), state, command.to_owned(), actor)));
        }
    }
    all
}

fn micros(time: Option<Time>) -> Option<i64> {
    time.map(Time::micros)
}

fn row_json(lifecycle: &Lifecycle, run: &Run) -> Value {
    json!({
        "state": &*lifecycle.state(run.state).name,
        "seq": run.seq,
        "attempt": run.attempt,
        "take_overs": run.take_overs,
        "fence": run.fence,
        "claimed_by": run.lease.as_ref().and_then(|lease| lease.worker.as_deref()),
        "held": run.lease.is_some(),
        "last_command": &*run.last_command,
        "intent": run.intent.as_ref().map(|intent| codec::intent_json(intent, lifecycle)),
        "requires_cleanup": run.requires_cleanup,
        "cleanup_failed": run.cleanup_failed,
        "operating": run.operating,
        "resolved": run.resolved,
        "forced": run.forced,
        "reason": run.reason.as_deref(),
        "error_code": run.failure.as_ref().map(|failure| &*failure.code),
        "error_msg": run.failure.as_ref().map(|failure| &*failure.message),
        "started_at": micros(run.started_at),
        "finished_at": micros(run.finished_at),
        "available_at": micros(run.available_at),
        "expires_at": micros(run.expires_at),
    })
}

struct Case {
    asked: Value,
    expected: Value,
}

/// An event as it comes back from the log, so that both sides are told the same.
fn case(dice: &mut Dice, lifecycle: &Lifecycle, happens: &(Option<StateId>, StateId, String, Actor)) -> Case {
    let (from, to, command, actor) = happens;
    let before = from.map(|from| dice.run(lifecycle, from));
    let (seq, at) = (before.as_ref().map_or(0, |run| run.seq) + 1, dice.time());
    let drafted = Event {
        seq,
        at,
        command: command.as_str().into(),
        from: *from,
        to: *to,
        actor: *actor,
        by: "w2".into(),
        note: None,
        effect: dice.effect(lifecycle),
    };
    let effect = codec::effect_json(&drafted, lifecycle);
    let name = |state: StateId| lifecycle.state(state).name.to_string();
    let written = Written {
        seq,
        at,
        command: command.clone(),
        from: from.map(name),
        to: name(*to),
        actor: actor.name().into(),
        by: "w2".into(),
        effect: effect.clone(),
    };
    let event = codec::event_from("r", &written, lifecycle).unwrap();
    let after = match &before {
        None => fold(lifecycle, [&event]).unwrap(),
        Some(run) => applied(lifecycle, run, &event),
    };
    let of = |row: Value| match row {
        Value::Object(mut row) => {
            row.insert("lifecycle".into(), json!(&*lifecycle.name));
            row.insert("version".into(), json!(lifecycle.version));
            Value::Object(row)
        }
        other => other,
    };
    let asked = of(json!({
        "row": before.as_ref().map(|run| of(row_json(lifecycle, run))),
        "to": name(*to),
        "command": command,
        "actor": actor.name(),
        "by": "w2",
        "at": at.micros(),
        "effect": effect.unwrap_or_else(|| Value::Object(Map::new())),
    }));
    Case { asked, expected: row_json(lifecycle, &after) }
}

#[test]
fn a_move_in_sql_makes_of_a_row_what_the_kernel_makes_of_it() {
    let mut dice = Dice(1);
    let database = Postgres::with_schema(&migration_sql()).unwrap();
    let shipped = Catalog::shipped().unwrap();
    let mut lifecycles: Vec<Lifecycle> = shipped.iter().map(|it| Lifecycle::clone(it)).collect();
    lifecycles.retain(|lifecycle| lifecycle.kind == Kind::Run);
    for number in 0..GENERATED {
        let made = dice.lifecycle(number);
        // As it is added: in one transaction.
        let rows = waypost_kernel::render::postgres::definition(&made);
        database.psql(&format!("BEGIN; {rows} COMMIT;")).unwrap();
        lifecycles.push(made);
    }
    let mut compared = 0;
    for lifecycle in &lifecycles {
        let happenings = happenings(lifecycle);
        let cases: Vec<Case> = (0..ROWS_PER_MOVE)
            .flat_map(|_| &happenings)
            .map(|happens| case(&mut dice, lifecycle, happens))
            .collect();
        let asked = Value::Array(cases.iter().map(|case| case.asked.clone()).collect()).to_string();
        let said = database.psql(&format!("{HELPERS}{}", ENTER.replace("CASES", &asked))).unwrap();
        let said: Vec<Value> = said
            .lines()
            .filter(|line| line.starts_with('{'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(said.len(), cases.len(), "{}", lifecycle.name);
        for (case, said) in cases.iter().zip(&said) {
            assert_eq!(*said, case.expected, "{} {:#}", lifecycle.name, case.asked);
            compared += 1;
        }
    }
    assert!(compared > 5_000, "{compared}");
}
