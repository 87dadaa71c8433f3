//! What may be asked about proposals, and what is answered.

use serde_json::Value;
use waypost_schema::{Kind, Shape, needed, optional, requests};
use waypost_worker::proposals::MOST_AT_ONCE;

use super::kinds::{COUNT, LONG, Limit, NAME, PAGE, REASON, TIME, list};
use super::shapes::shapes;

const NOTE_TEXT: &str = "Why; who rejects says so. At most 1,024 characters.";
const REVISION_TEXT: &str =
    "What the proposal's target is at now, a text or a number: refused if the proposal was made for another.";
const BY_TEXT: &str = "Whom the request is made for.";

requests! {
    DECISION "ProposalDecision" DecisionBody {
        optional note: Option<String> = REASON, NOTE_TEXT;
        optional base_revision: Option<Value> = Kind::Any, REVISION_TEXT;
        optional by: Option<String> = NAME, BY_TEXT;
    }
    DECISION_OF "DecisionOfProposal" DecisionOfBody {
        needed proposal_id: String = NAME, "The proposal.";
        needed decision: String = Kind::Choice(&["approve", "reject"]), "What is decided.";
        optional note: Option<String> = REASON, NOTE_TEXT;
        optional base_revision: Option<Value> = Kind::Any, REVISION_TEXT;
    }
    DECISIONS "ProposalDecisions" DecisionsBody {
        needed decisions: Vec<DecisionOfBody> = Kind::List { of: &Kind::Of(&DECISION_OF), least: 1, most: MOST_AT_ONCE }, "Decisions, each of which is made and answered by itself.";
        optional by: Option<String> = NAME, BY_TEXT;
    }
    PROPOSALS_QUERY "ProposalsQuery" ProposalsQuery {
        optional status: Option<String> = NAME, "Only proposals in this state.";
        optional limit: Limit = PAGE, "How many at most; 50 if left out.";
        optional cursor: Option<String> = NAME, "From `next_cursor` of the page before.";
    }
    PENDING_QUERY "PendingProposalsQuery" PendingQuery {
        optional limit: Limit = PAGE, "How many at most; 50 if left out.";
        optional cursor: Option<String> = NAME, "From `next_cursor` of the page before.";
    }
}

shapes! {
    PROPOSAL "Proposal" [
        needed("proposal_id", NAME, "The proposal's id."),
        needed("tenant", NAME, "Whose proposal it is."),
        needed("status", NAME, "Its state: pending, approved, applying, applied, failed, rejected or expired."),
        optional("run_id", NAME, "The run that made it."),
        optional("agent_slug", NAME, "The agent whose run that is."),
        optional("step", NAME, "The step that made it."),
        optional("number", COUNT, "Which of the step's proposals it is, from 1."),
        optional("title", LONG, "What it is, for people."),
        optional("kind", Kind::Any, "What sort of change it proposes, as the agent says."),
        optional("target", Kind::Any, "What it is about."),
        optional("base_revision", Kind::Any, "The revision of the target that it was made for."),
        needed("proposal", Kind::Any, "All that the agent said."),
        optional("inbox_id", NAME, "Its entry in the inbox."),
        optional("applied_by", LONG, "The playbook whose `[apply]` is executed once it is approved; null: approved is its end."),
        needed("created_at", TIME, "When it was made."),
        optional("expires_at", TIME, "When it expires, unless somebody decides before."),
        optional("finished_at", TIME, "When it came to an end."),
        optional("note", LONG, "Why it is where it is, as whoever decided said."),
        optional("error", LONG, "Why it could not be applied: `CODE: message`."),
        needed("seq", COUNT, "The number of its last event."),
        optional("decided_by", LONG, "Who decided; of one proposal that is asked for by its id."),
        optional("decided_at", TIME, "When that was."),
    ];
    PROPOSALS "Proposals" [
        needed("proposals", list(&Kind::Of(&PROPOSAL), 1_000), "Proposals, newest first."),
        optional("next_cursor", NAME, "What to ask `cursor` for the next page; null at the end."),
    ];
    DECIDED "DecidedProposal" [
        needed("proposal_id", NAME, "The proposal's id, as it was asked for."),
        optional("status", NAME, "Its state now."),
        optional("error", Kind::Any, "Why nothing was decided: `code`, `message`, `details`."),
    ];
    ALL_DECIDED "DecidedProposals" [
        needed("results", list(&Kind::Of(&DECIDED), MOST_AT_ONCE), "An answer for each decision, in their order."),
        needed("updated", COUNT, "How many were decided."),
        needed("errors", COUNT, "How many were not."),
    ];
    INBOX_STATS "InboxStats" [
        needed("pending", COUNT, "Entries that wait for a person."),
        needed("processed", COUNT, "Entries that were dealt with within seven days."),
        needed("rejected", COUNT, "Entries that were rejected within seven days."),
        needed("expired", COUNT, "Entries that expired within seven days."),
        needed("proposals", Kind::Any, "The same of proposals: how many are in each state, of those that have ended within seven days."),
    ];
}
