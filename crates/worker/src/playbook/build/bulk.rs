//! The sections of a bulk change.

use std::path::Path;

use waypost_kernel::schedule::Zone;
use waypost_kernel::{Decimal, Span};
use waypost_schema::Node;

use super::place::Place;
use super::{Builder, target_retries};
use crate::playbook::action::{ActionTemplate, BodyTemplate, HttpTemplate, JsonTemplate, Way};
use crate::playbook::formula::Formula;
use crate::playbook::guardrails::{Change, Guardrails, OnViolation};
use crate::playbook::rule::{
    Breaker, Fetch, Limit, Pace, Rate, Reconcile, Rule, Source, TargetAction, Targets,
};
use crate::playbook::template::Named;

/// They mean nothing without targets.
const SECTIONS: [&str; 7] = ["apply", "fetch", "rollback", "limit", "breaker", "guardrails", "reconcile"];

const DEFAULT_PARALLEL: usize = 5;

impl Builder<'_> {
    pub(super) fn rule(&mut self, root: &Node, folder: &Path) -> Option<Rule> {
        let Some(targets) = root.get("targets") else {
            // What an agent's runs propose is applied, too.
            let is_agents = self.is_agents;
            let is_alone = |section: &&&str| !(is_agents && **section == SECTIONS[0]);
            for section in SECTIONS.iter().filter(is_alone).filter_map(|section| root.get(section)) {
                let message = "there are no targets for it";
                self.problem(section, "section-alone", message, "add [targets], or remove this section");
            }
            return None;
        };
        let targets_found = self.targets(targets, folder);
        let apply = root.get("apply").map(|node| self.target_action(node, Self::price_mutation));
        if apply.is_none() {
            let message = "nothing is said about how a target is changed";
            self.problem(targets, "section-alone", message, "add [apply] with http, exec or shopify");
        }
        let reconcile = root.get("reconcile");
        let fetch = self.fetch(root, apply.as_ref());
        if let Some(node) = reconcile.filter(|_| apply.is_some() && fetch.is_none()) {
            let message = "nothing is said about how a target's value is read";
            self.problem(node, "section-alone", message, "add [fetch] with http, exec or shopify");
        }
        let section = |name: &str| root.get(name);
        let counts_points = section("apply").is_some_and(|apply| apply.get("shopify").is_some());
        let limit = section("limit").map(|node| self.limit(node));
        let points = Limit { pace: Some(Pace::of_points()), ..Limit::default() };
        Some(Rule {
            targets: targets_found,
            apply: apply.unwrap_or_else(|| TargetAction {
                action: super::no_action(),
                handler: None,
                timeout: None,
                retries: 0,
            }),
            parallel: section("apply").and_then(|node| node.of("parallel")).unwrap_or(DEFAULT_PARALLEL),
            fetch,
            rollback: section("rollback").map(|node| self.target_action(node, Self::price_back)),
            limit: limit.unwrap_or_else(|| if counts_points { points } else { Limit::default() }),
            breaker: section("breaker").map(breaker).unwrap_or_default(),
            guardrails: section("guardrails").map(|node| self.guardrails(node)).unwrap_or_default(),
            reconcile: reconcile.map(|node| self.reconcile(node)),
        })
    }

    /// As it is said, or what can be told from how a target is changed.
    fn fetch(&mut self, root: &Node, apply: Option<&TargetAction>) -> Option<Fetch> {
        if let Some(node) = root.get("fetch") {
            let of_shopify = node.get("shopify").map(|_| Self::PRICE.to_owned());
            let action = self.target_action(node, Self::price_query);
            return Some(Fetch { action, value: node.of("value").or(of_shopify).unwrap_or_default() });
        }
        let node = root.get("apply")?;
        match node.get("shopify") {
            Some(_) => {
                let action = self.target_action(node, Self::price_query);
                Some(Fetch { action, value: Self::PRICE.to_owned() })
            }
            // Where nothing asks for it, only if it is plain at which key the value stands.
            None => apply
                .and_then(read_back)
                .filter(|fetch| root.get("reconcile").is_some() || !fetch.value.is_empty()),
        }
    }

    fn targets(&mut self, node: &Node, folder: &Path) -> Targets {
        let source = if let Some(file) = node.get("csv") {
            Source::Csv(folder.join(file.text()))
        } else if let Some(file) = node.get("jsonl") {
            Source::Jsonl(folder.join(file.text()))
        } else {
            Source::Action(self.action(node, &Place::with_page()))
        };
        if let (Source::Csv(_) | Source::Jsonl(_), Some(env)) = (&source, node.get("env")) {
            self.problem(env, "misplaced-key", "a file has no environment", "remove it");
        }
        if node.get("http").is_none() {
            for key in ["list", "next"].into_iter().filter_map(|key| node.get(key)) {
                self.problem(key, "misplaced-key", "only a request has pages", "remove it");
            }
        }
        let name = |key: &str| node.of(key).unwrap_or_else(|| key.to_owned());
        Targets {
            source,
            timeout: node.of("timeout"),
            list: node.of("list"),
            next: node.of("next"),
            id: name("id"),
            before: name("before"),
            after: node.get("after").and_then(|node| self.formula(node)),
            valid_for: node.of("valid_for").unwrap_or(crate::targets::VALID_FOR),
        }
    }

    fn formula(&mut self, node: &Node) -> Option<Formula> {
        match Formula::parse(node.text()) {
            Ok(formula) => {
                for named in formula.named() {
                    self.variable(node, named, &Place::with_target());
                }
                Some(formula)
            }
            Err(trouble) => {
                self.trouble(node, &trouble);
                None
            }
        }
    }

    /// `shopify` makes a request of what is said of a shop.
    fn target_action(&mut self, node: &Node, shopify: fn(&mut Self, &Node) -> HttpTemplate) -> TargetAction {
        let (retries, timeout) = target_retries(node);
        let handler = node.of::<String>("handler");
        if let Some(env) = node.get("env").filter(|_| handler.is_some()) {
            self.problem(env, "misplaced-key", "a handler has the worker's environment", "remove it");
        }
        let action = match node.get("shopify") {
            Some(shop) => {
                if let Some(env) = node.get("env") {
                    let message = "a request has no environment";
                    self.problem(env, "misplaced-key", message, "remove it");
                }
                let request = shopify(self, shop);
                let is_secret =
                    |name: &str| self.inputs.iter().any(|input| input.secret && input.name == name);
                ActionTemplate::new(Way::Http(Box::new(request)), is_secret)
            }
            None => self.action(node, &Place::with_target()),
        };
        TargetAction { action, handler, timeout, retries }
    }

    fn limit(&mut self, node: &Node) -> Limit {
        let of_calls = |rate: &Node| {
            let rate = Rate::parse(rate.text())?;
            Some(Pace { rate, burst: node.of("burst").unwrap_or(1), cost: 1 })
        };
        let of_points = |cost: &Node| {
            let usual = Pace::of_points();
            let rate = cost.get("rate").map_or(Some(usual.rate), |rate| Rate::parse(rate.text()))?;
            let (burst, cost) = (cost.of("burst"), cost.of("call"));
            Some(Pace { rate, burst: burst.unwrap_or(usual.burst), cost: cost.unwrap_or(usual.cost) })
        };
        if let (Some(_), Some(burst)) = (node.get("cost"), node.get("burst")) {
            let message = "points have a burst of their own";
            self.problem(burst, "misplaced-key", message, "write cost = { burst = … }");
        }
        let pace = match node.get("rate") {
            Some(rate) => of_calls(rate),
            None => node.get("cost").and_then(of_points),
        };
        let destination = node.get("destination").map(|node| {
            self.not_empty(node);
            self.template(node, &Place::before_all_steps())
        });
        let give_up_after = node.of::<Span>("give_up_after");
        Limit { pace, destination, give_up_after: give_up_after.unwrap_or(Limit::default().give_up_after) }
    }

    fn not_negative<'n>(&mut self, nodes: impl Iterator<Item = &'n Node>) {
        for node in nodes.filter(|node| Decimal::of_json(&node.to_json()).is_some_and(Decimal::is_negative)) {
            self.problem(node, "bad-number", "the number is below 0", "write 0 or more");
        }
    }

    fn reconcile(&mut self, node: &Node) -> Reconcile {
        let tolerance = node.get("tolerance");
        self.not_negative(tolerance.into_iter().flat_map(Node::entries).map(|(_, value)| value));
        let number = |key: &str| {
            let given = tolerance.and_then(|node| node.get(key));
            given.and_then(|node| Decimal::of_json(&node.to_json())).unwrap_or(Decimal::ZERO)
        };
        let (after, daily_for) = (node.of::<Vec<Span>>("after"), node.of::<Span>("daily_for"));
        let usual = after.is_none() && daily_for.is_none();
        Reconcile {
            after: if usual { Reconcile::USUAL_AFTER.to_vec() } else { after.unwrap_or_default() },
            daily_for: if usual { Some(Reconcile::USUAL_DAYS) } else { daily_for },
            amount: number("amount"),
            percent: number("percent"),
            retries: node.text_of("on_mismatch") == Some("retry"),
        }
    }

    fn guardrails(&mut self, node: &Node) -> Guardrails {
        self.not_negative(["floor", "ceiling"].into_iter().filter_map(|key| node.get(key)));
        let number = |key: &str| node.get(key).and_then(|node| Decimal::of_json(&node.to_json()));
        let change = |key: &str| node.get(key).and_then(|node| Change::parse(node.text()));
        let (floor, ceiling) = (number("floor"), number("ceiling"));
        if let (Some(low), Some(high), Some(node)) = (floor, ceiling, node.get("ceiling"))
            && low > high
        {
            let message = format!("no value is at least {low} and at most {high}");
            self.problem(node, "bad-range", &message, "raise the ceiling, or lower the floor");
        }
        if let Some(zone) = node.get("timezone").filter(|_| node.get("per_day").is_none()) {
            let message = "only the changes of a day have a time zone";
            self.problem(zone, "misplaced-key", message, "add per_day, or remove it");
        }
        Guardrails {
            floor,
            ceiling,
            max_rise: change("max_rise"),
            max_fall: change("max_fall"),
            per_day: node.of("per_day"),
            timezone: node.get("timezone").and_then(|zone| Zone::named(zone.text())),
            on_violation: match node.text_of("on_violation") {
                Some("stop") => OnViolation::Stop,
                _ => OnViolation::Fail,
            },
        }
    }
}

/// What is written over http can be read from there, at the key that `target.after` is written to.
fn read_back(apply: &TargetAction) -> Option<Fetch> {
    let Way::Http(http) = &apply.action.way else { return None };
    let names_after = |value: &JsonTemplate| {
        let is_after = |named: &Named| named.path.iter().map(String::as_str).eq(["target", "after"]);
        matches!(value, JsonTemplate::Text(template) if template.named().any(is_after))
    };
    let key = match &http.body {
        BodyTemplate::Json(JsonTemplate::Object(entries)) => {
            entries.iter().find(|(_, value)| names_after(value)).map(|(key, _)| key)
        }
        _ => None,
    };
    let get = HttpTemplate { method: "GET".to_owned(), body: BodyTemplate::None, ..(**http).clone() };
    let secret_inputs = apply.action.secret_inputs.clone();
    let action = ActionTemplate::new(Way::Http(Box::new(get)), |name| secret_inputs.contains(name));
    Some(Fetch {
        action: TargetAction { action, ..apply.clone() },
        value: key.map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).unwrap_or_default(),
    })
}

fn breaker(node: &Node) -> Breaker {
    let usual = Breaker::default();
    Breaker { after: node.of("after").unwrap_or(usual.after), pause: node.of("pause").unwrap_or(usual.pause) }
}
