#!/bin/sh
# Reads what it is told, answers with an Outcome.
told=$(cat)
case $told in
*'"decision"'*) ;;
*)
  cat >"$WAYPOST_OUTPUT" <<'OUTCOME'
{"outcome": "pause", "reason": "esx2 is blocked",
 "blockers": {"esx2": {"choices": ["power_off", "skip"],
   "blockers": [{"vm_name": "licence", "reason": "USB passthrough", "severity": "critical", "remediation": "power it off"}]}}}
OUTCOME
  exit 0
  ;;
esac
outdated=true
case $told in *'"decision":"skip"'*) outdated=false ;; esac
cat >"$WAYPOST_OUTPUT" <<OUTCOME
{"output": {"hosts": [{"name": "esx1", "outdated": true}, {"name": "esx2", "outdated": $outdated}]}}
OUTCOME
