#!/usr/bin/env python3
"""A worker: takes runs over HTTP, works them, hears of a cancel. Standard library only."""
import json, os, sys, threading, time, urllib.error, urllib.request, uuid

URL, TOKEN = os.environ.get("WAYPOST_URL", "http://127.0.0.1:7070"), os.environ.get("WAYPOST_TOKEN")
ME = f"python-{os.getpid()}-{uuid.uuid4().hex[:8]}"  # a name that never comes back


def ask(path, **body):  # tries again while the server is away; a refusal is for the caller
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {TOKEN}"} if TOKEN else {})}
    while True:
        try:
            request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
            return json.load(urllib.request.urlopen(request, timeout=90))
        except urllib.error.HTTPError as refusal:
            if refusal.code not in (429, 503):
                raise RuntimeError(json.load(refusal)["code"]) from None
            time.sleep(1)
        except OSError:
            time.sleep(1)


def work(run, token, stop):  # your work: look at `stop` now and then
    for n in range(run["input"].get("steps", 3)):
        if stop.wait(run["input"].get("pause", 0)):
            return "cancelled"
        ask(f"/v1/runs/{run['run_id']}/events", lease_token=token, message=f"step {n + 1}", key=f"step-{n}")
    return "success"


def beat(run, token, stop, done):  # keeps the lease, and tells of a cancel
    while not done.wait(0.5):
        try:
            if ask(f"/v1/runs/{run['run_id']}/heartbeat", lease_token=token)["cancel_requested"]:
                stop.set()
        except RuntimeError:  # LEASE_LOST: another worker has the run
            return stop.set()


while True:
    for claim in ask("/v1/claims", worker=ME, queues=sys.argv[1:] or ["default"], wait_ms=30000)["claims"]:
        run, token, stop, done = claim["run"], claim["lease"]["token"], threading.Event(), threading.Event()
        threading.Thread(target=beat, args=(run, token, stop, done), daemon=True).start()
        try:
            ask(f"/v1/runs/{run['run_id']}/finish", lease_token=token, status=work(run, token, stop))
        except RuntimeError as refusal:
            print(f"{run['run_id']}: {refusal}", file=sys.stderr, flush=True)
        done.set()
