#!/usr/bin/env bash
# Which running machines keep hosts from maintenance mode. Looks only: machines are powered off when their host's turn
# comes, so that they are down as briefly as can be.
cd "$(dirname "$0")"
. ./lib.sh

leave_out() { # host, why
  left_out=$(jq -c --argjson host "$1" --arg why "$2" '. + [$host + {skip: $why}]' <<<"$left_out")
}

check_decisions
hosts='[]' left_out='[]' blockers='{}'
while IFS= read -r host; do
  [[ -n $host ]] || continue
  name=$(jq -r .name <<<"$host")
  decision=$(decision_for "$name")
  if [[ $decision == skip ]]; then
    say "$name is left out, as decided"
    leave_out "$host" "left out, as decided"
    continue
  fi
  found=$(blockers_of "$(jq -r .path <<<"$host")")
  if [[ $found == '[]' ]]; then
    say "$name: nothing blocks"
  elif [[ $decision == power_off ]] && ! holds_appliance "$found"; then
    say "$name: to be powered off, as decided: $(in_words <<<"$found")"
  elif [[ $unattended == skip ]]; then
    say "$name is left out, since nobody can be asked: $(in_words <<<"$found")"
    leave_out "$host" "nobody can be asked about what blocks it"
    continue
  else
    say "$name is blocked: $(in_words <<<"$found")"
    blockers=$(with_blockers "$blockers" "$name" "$found")
  fi
  hosts=$(jq -c --argjson host "$host" '. + [$host]' <<<"$hosts")
done < <(jq -c '.[]' <<<"$HOSTS")

[[ $blockers == '{}' ]] || pause_for "$blockers"
outcome --argjson hosts "$hosts" --argjson left_out "$left_out" '
  {outcome: "done", output: {hosts: $hosts, all: (($hosts | map(. + {skip: null})) + $left_out), skipped: ($left_out | map(.name))},
   details: {hosts_skipped: ($left_out | map(.name))}}'
