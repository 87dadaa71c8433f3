"""Leads schemathesis on: to runs that can be started and claims that find them, and away from what would end the test."""
import os
import random

import schemathesis

OWN_TOKEN = os.environ["WAYPOST_TOKEN"].split("_")[1]
LIFECYCLES = {
    "deploy": ["success", "failed", "cancelled"],
    "job": ["completed", "failed", "cancelled"],
    "rule": ["COMPLETED", "FAILED"],
    "agent": ["completed", "failed"],
}
# Fields of a new run that are refused unless they fit each other; each alone is tried now and then.
CHOOSY = ["version", "status", "items", "parent_run_id", "retry_of", "schedule_at", "ttl_ms", "embedded", "carried", "playbook"]


# Of runs that were claimed, by token: who holds one may do what others are refused.
LEASES = {}


def lead(dice, body, operation):
    if operation == "startRun":
        body["lifecycle"] = dice.choice(list(LIFECYCLES))
        for field in dice.sample(CHOOSY, len(CHOOSY) - dice.randint(0, 1)):
            body.pop(field, None)
        if dice.random() < 0.8:
            body["queue"] = "default"
    elif operation == "startRuns":
        for run in body.get("runs", []):
            lead(dice, run, "startRun")
    elif operation == "claim":
        body.pop("lifecycles", None)
        body["queues"] = ["default"]
    elif operation == "finish":
        body["status"] = dice.choice(dice.choice(list(LIFECYCLES.values())))
    elif operation == "putItems":
        for item in body.get("items", []):
            item["kind"], item["status"] = dice.choice(["step", "task", "target"]), dice.choice(["running", "failed"])


@schemathesis.hook
def before_call(context, case, kwargs):
    # Revoking the token that it comes with would end the test of everything else.
    if (case.path_parameters or {}).get("token_id") == OWN_TOKEN:
        case.path_parameters["token_id"] = "spared"
    # A wait takes as long as it says.
    for place in (case.query, case.body):
        if isinstance(place, dict) and isinstance(place.get("wait_ms"), int) and 20 < place["wait_ms"] <= 60_000:
            place["wait_ms"] = 20
    is_sound = case.meta is not None and case.meta.generation.mode.is_positive
    if not (is_sound and isinstance(case.body, dict)):
        return
    # The same request is led the same way each time, or a failure could not be repeated.
    dice = random.Random(repr(case.body))
    lead(dice, case.body, case.operation.definition.raw["operationId"])
    if LEASES and case.body.get("lease_token", "") not in LEASES and "lease_token" in case.body and dice.random() < 0.7:
        case.body["lease_token"], case.path_parameters["run_id"] = dice.choice(list(LEASES.items()))


@schemathesis.hook
def after_call(context, case, response):
    operation = case.operation.definition.raw["operationId"]
    if operation in ("claim", "claimRun") and response.status_code == 200:
        given = response.json()
        for claim in given.get("claims", [given]):
            LEASES[claim["lease"]["token"]] = claim["run"]["run_id"]
