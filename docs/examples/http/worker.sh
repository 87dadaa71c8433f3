#!/usr/bin/env bash
# A worker with curl. Takes one run of a queue, works it with a command, ends: worker.sh QUEUE COMMAND…
set -euo pipefail
url=${WAYPOST_URL:-http://127.0.0.1:7070} queue=$1 me="shell-$$-$RANDOM$RANDOM"
shift
ask() { # path, body
  curl -sS --noproxy '*' --retry 5 --retry-connrefused --fail-with-body "$url$1" \
    -H 'content-type: application/json' ${WAYPOST_TOKEN:+-H "authorization: Bearer $WAYPOST_TOKEN"} -d "$2"
}
get() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

claims=$(ask /v1/claims "{\"worker\": \"$me\", \"queues\": [\"$queue\"], \"wait_ms\": 30000}")
[ "$claims" != '{"claims":[]}' ] || exit 0
run=$(get "['claims'][0]['run']['run_id']" <<<"$claims") token=$(get "['claims'][0]['lease']['token']" <<<"$claims")

# The first event begins the run: one that is only claimed is cancelled after 5 minutes, whatever its heartbeats say.
ask "/v1/runs/$run/events" "{\"lease_token\": \"$token\", \"message\": \"the command begins\"}" >/dev/null
"$@" &
child=$! status=success
while kill -0 "$child" 2>/dev/null; do # every heartbeat keeps the lease, and tells of a cancel
  beat=$(ask "/v1/runs/$run/heartbeat" "{\"lease_token\": \"$token\"}") || { kill "$child"; exit 1; }
  [ "$(get "['cancel_requested']" <<<"$beat")" = False ] || { status=cancelled; kill "$child" || true; }
  sleep 0.5
done
wait "$child" || [ "$status" = cancelled ] || status=failed
ask "/v1/runs/$run/events" "{\"lease_token\": \"$token\", \"message\": \"the command ended\"}" >/dev/null
ask "/v1/runs/$run/finish" "{\"lease_token\": \"$token\", \"status\": \"$status\"}" | get "['status']"
