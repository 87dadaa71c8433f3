#!/usr/bin/env bash
# HA off, and on again if it was on. The note on the cluster is made before HA is turned off: without it a script killed
# in between would find HA off and take that for how it was.
cd "$(dirname "$0")"
. ./lib.sh

look() { # sets now (HA's settings), enabled, text (the note)
  now=$(govc object.collect -json -s "$cluster_path" configurationEx.dasConfig)
  enabled=$(jq .enabled <<<"$now")
  text=$(noted "$cluster_path")
}

disable() {
  look
  if [[ $enabled == true ]]; then
    note "$cluster_path" "HA is off for run $run_id and was on before"
    govc cluster.change -ha-enabled=false "$cluster_path"
    say "HA is off now"
  elif [[ -n $text ]]; then
    say "HA was turned off before: $text"
    now=$(jq -c '.enabled = true' <<<"$now")
  else
    say "HA is off already, and stays so"
  fi
  outcome --argjson ha "$now" '{outcome: "done", output: {ha: $ha, was_on: $ha.enabled}}'
}

restore() {
  local was was_enabled admission
  look
  was=$(jq -c '.ha // {}' <<<"${WAS:-"{}"}")
  was_enabled=$(jq .enabled <<<"$was")
  if [[ $enabled == true ]]; then
    say "HA is on"
  elif [[ -n $text || $was_enabled == true ]]; then
    # Turning HA off leaves its other settings alone; whether admission control is on is said again all the same.
    admission=$(jq --argjson now "$now" 'if has("admissionControlEnabled") then . else $now end | .admissionControlEnabled' <<<"$was")
    govc cluster.change -ha-enabled=true -ha-admission-control-enabled="$admission" "$cluster_path"
    say "HA is on again"
    now=$(govc object.collect -json -s "$cluster_path" configurationEx.dasConfig)
  else
    say "HA was off before, and stays so"
  fi
  if [[ $was != '{}' && $(jq --argjson was "$was" '. == $was' <<<"$now") != true ]]; then
    say "HA's settings are not those of before: $was, now $now" >&2
  fi
  [[ -z $text ]] || note "$cluster_path" ""
  outcome --argjson ha "$now" '{outcome: "done", output: {ha: $ha}}'
}

find_cluster
case ${1-} in
  disable) disable ;;
  restore) restore ;;
  *) fail USAGE "ha.sh disable | restore" ;;
esac
