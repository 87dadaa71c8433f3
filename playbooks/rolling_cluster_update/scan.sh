#!/usr/bin/env bash
# Which running machines keep hosts from maintenance mode. Looks only: machines are powered off when their host's turn
# comes, so that they are down as briefly as can be.
cd "$(dirname "$0")"
. ./lib.sh

check_decisions
hosts='[]' skipped='[]' blockers='{}'
while IFS= read -r host; do
  [[ -n $host ]] || continue
  name=$(jq -r .name <<<"$host")
  decision=$(decision_for "$name")
  if [[ $decision == skip ]]; then
    say "$name is left out, as decided"
    skipped=$(jq -c --arg name "$name" '. + [$name]' <<<"$skipped")
    continue
  fi
  found=$(blockers_of "$(jq -r .path <<<"$host")")
  if [[ $found == '[]' ]]; then
    say "$name: nothing blocks"
  elif [[ $decision == power_off ]] && ! holds_appliance "$found"; then
    say "$name: to be powered off, as decided: $(in_words <<<"$found")"
  elif [[ $unattended == skip ]]; then
    say "$name is left out, since nobody can be asked: $(in_words <<<"$found")"
    skipped=$(jq -c --arg name "$name" '. + [$name]' <<<"$skipped")
    continue
  else
    say "$name is blocked: $(in_words <<<"$found")"
    blockers=$(with_blockers "$blockers" "$name" "$found")
  fi
  hosts=$(jq -c --argjson host "$host" '. + [$host]' <<<"$hosts")
done < <(jq -c '.[]' <<<"$HOSTS")

[[ $blockers == '{}' ]] || pause_for "$blockers"
word="done"
[[ $hosts != '[]' ]] || word=finish
outcome --arg word "$word" --argjson hosts "$hosts" --argjson skipped "$skipped" '
  {outcome: $word, reason: (if $word == "finish" then "every host is left out" else "" end),
   output: {hosts: $hosts, skipped: $skipped},
   details: {hosts_total: ($hosts | length), hosts_skipped: $skipped}}'
