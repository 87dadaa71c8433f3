"""Leads schemathesis on: to runs that can be started, claims that find them and ends that they have, and away from what would end the test."""
import json
import os
import random
import urllib.request

import schemathesis

OWN_TOKEN = os.environ["WAYPOST_TOKEN"].split("_")[1]
# Fields of a new run that are refused unless they fit each other; each alone is tried now and then.
CHOOSY = ["version", "status", "items", "parent_run_id", "retry_of", "schedule_at", "ttl_ms", "embedded", "carried", "playbook"]


def declared():
    """The lifecycles as the server has them: what runs and items can be is said there, and not once more here."""
    request = urllib.request.Request(
        os.environ["WAYPOST_TESTED"] + "/v1/lifecycles", headers={"Authorization": "Bearer " + os.environ["WAYPOST_TOKEN"]}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return {it["name"]: it for it in json.load(answer)["lifecycles"]}


DECLARED = declared()
ITEMS = {name: it for name, it in DECLARED.items() if it["kind"] == "item"}


def ends(lifecycle):
    """Where a worker can lead a run from a state in which it holds it."""
    held = {state["name"] for state in lifecycle["states"] if state["phase"] == "held"}
    rows = (row for row in lifecycle["transitions"] if row["from"] in held and "worker" in row["by"])
    return sorted({row["to"] for row in rows if row["to"] not in held})


# Those that a client may start, and where: a scheduled execution is born with a lease.
STARTED = {}
for name, it in DECLARED.items():
    phases = {state["name"]: state["phase"] for state in it["states"]}
    free = [state for state in it["initial"] if phases[state] in ("draft", "ready")]
    if it["kind"] == "run" and free:
        STARTED[name] = free
# What nobody holds, such as an entry of the inbox, no worker ends.
ENDS = {
    name: ends(it)
    for name, it in DECLARED.items()
    if it["kind"] == "run" and any(state["phase"] == "held" for state in it["states"])
}
assert all(ENDS.values()) and {"deploy", "job"} <= set(STARTED), DECLARED.keys()

# Of runs that were claimed, by token: who holds one may do what others are refused.
LEASES = {}


def new_items(dice, lifecycle):
    kinds = DECLARED[lifecycle]["items"]
    return [{"kind": kinds[0], "key": f"k{at}", "name": f"part {at}"} for at in range(dice.randint(1, 3))] if kinds else None


def moved(dice, item, lifecycle):
    kind = dice.choice(DECLARED.get(lifecycle, {}).get("items") or list(ITEMS))
    item["kind"], item["key"] = kind, dice.choice(["k0", "k1", item.get("key", "k0")])
    item["status"] = dice.choice([state["name"] for state in ITEMS[kind]["states"]])


def lead(dice, body, operation, lifecycle=None):
    if operation == "startRun":
        body["lifecycle"] = dice.choice(list(STARTED) if dice.random() < 0.95 else list(ENDS))
        for field in dice.sample(CHOOSY, len(CHOOSY) - dice.randint(0, 1)):
            body.pop(field, None)
        if body["lifecycle"] in STARTED:
            body["status"] = dice.choice(STARTED[body["lifecycle"]])
        # A job without a step is never begun, a bulk change without a target never queued.
        if items := new_items(dice, body["lifecycle"]):
            body["items"] = items
        if dice.random() < 0.8:
            body["queue"] = "default"
    elif operation == "startRuns":
        for run in body.get("runs") or []:
            lead(dice, run, "startRun")
    elif operation == "claim":
        for field in ("lifecycles", "playbooks", "embedded", "carried"):
            body.pop(field, None)
        body["queues"] = ["default"]
    elif operation == "finish":
        # Of one that was added meanwhile nothing is known here.
        body["status"] = dice.choice(ENDS.get(lifecycle) or dice.choice(list(ENDS.values())))
        for item in body.get("items") or []:
            moved(dice, item, lifecycle)
    elif operation == "finishes":
        for end in body.get("finishes") or []:
            lead(dice, end, "finish")
    elif operation == "putItems":
        for item in body.get("items") or []:
            moved(dice, item, lifecycle)


@schemathesis.hook
def before_call(context, case, kwargs):
    # Revoking the token that it comes with would end the test of everything else.
    if (case.path_parameters or {}).get("token_id") == OWN_TOKEN:
        case.path_parameters["token_id"] = "spared"
    # A wait takes as long as it says.
    for place in (case.query, case.body):
        if isinstance(place, dict) and isinstance(place.get("wait_ms"), int) and 20 < place["wait_ms"] <= 60_000:
            place["wait_ms"] = 20
    # A head of more than 32 KiB never reaches a route; what is too long is so at a twentieth of that too.
    for name, value in (case.query or {}).items():
        if isinstance(value, str) and len(value) > 1_600:
            case.query[name] = value[:1_600]
    is_sound = case.meta is not None and case.meta.generation.mode.is_positive
    if not (is_sound and isinstance(case.body, dict)):
        return
    # The same request is led the same way each time, or a failure could not be repeated.
    dice = random.Random(repr(case.body))
    if LEASES and case.body.get("lease_token", "") not in LEASES and "lease_token" in case.body and dice.random() < 0.7:
        case.body["lease_token"] = dice.choice(list(LEASES))
        case.path_parameters["run_id"] = LEASES[case.body["lease_token"]][0]
    _, lifecycle = LEASES.get(case.body.get("lease_token"), (None, None))
    lead(dice, case.body, case.operation.definition.raw["operationId"], lifecycle)


@schemathesis.hook
def after_call(context, case, response):
    operation = case.operation.definition.raw["operationId"]
    if operation in ("claim", "claimRun") and response.status_code == 200:
        given = response.json()
        for claim in given.get("claims", [given]):
            LEASES[claim["lease"]["token"]] = (claim["run"]["run_id"], claim["run"]["lifecycle"])
