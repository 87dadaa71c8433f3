#!/usr/bin/env bash
# One host: maintenance mode, firmware, a start, and back. Every part looks first whether it was done already.
cd "$(dirname "$0")"
. ./lib.sh

eval "$(jq -r '.item | @sh "name=\(.name) path=\(.path) idrac=\(.idrac) wanted=\(.updates | tojson)"' <<<"$call")"
readonly ENTER='Enter maintenance mode' APPLY='Apply firmware'
readonly REBOOT='Reboot and wait for reconnection' EXIT='Exit maintenance mode'

# Nothing is touched before the export of the last step has ended well.
await_backup() {
  local state
  state=$(jobs_of "$idrac" ExportConfiguration 'if unfinished != [] then "busy" else last.JobState end')
  while [[ $state == '"busy"' ]]; do
    sleep "$poll_seconds"
    state=$(jobs_of "$idrac" ExportConfiguration 'if unfinished != [] then "busy" else last.JobState end')
  done
  if [[ $state == '"Failed"' ]]; then
    state=$(jobs_of "$idrac" ExportConfiguration last.Message)
    fail BACKUP_FAILED "$name is not touched: the export of its configuration failed: $state"
  fi
}

power_off() { # path of a machine
  local power deadline=$((SECONDS + shutdown_seconds))
  note "$1" "powered off by run $run_id"
  say "powers $1 off"
  govc vm.power -s "$1" || deadline=0
  power=$(power_of "$1")
  while [[ $power != poweredOff ]] && ((SECONDS < deadline)); do
    sleep "$poll_seconds"
    power=$(power_of "$1")
  done
  [[ $power == poweredOff ]] || govc vm.power -off "$1"
}

# What has come since the scan is found here, and asked about.
clear_blockers() {
  local found vm
  found=$(blockers_of "$path")
  [[ $found != '[]' ]] || return 0
  if [[ $decision == power_off ]] && ! holds_appliance "$found"; then
    while IFS= read -r vm; do power_off "$vm"; done < <(jq -r 'map(.path) | unique | .[]' <<<"$found")
    return 0
  fi
  leave_host "$path"
  if [[ $decision == skip || $unattended == skip ]]; then
    outcome --arg reason "blocked: $(in_words <<<"$found")" '{outcome: "skip", reason: $reason}'
  fi
  pause_for "$(with_blockers '{}' "$name" "$found")"
}

enter() {
  task 0 "$ENTER"
  stop_entering "$path"
  look_at_host "$path"
  if [[ $in_maintenance == false ]]; then
    note "$path" "run $run_id updates it"
    clear_blockers
    govc host.maintenance.enter -timeout "$evacuation_seconds" "$path"
  elif [[ -z $text ]]; then
    note "$path" "run $run_id updates it; was in maintenance mode"
  fi
  task 100 "$ENTER"
}

# The state of the unfinished job for one component, or nothing.
state_of() { # name of a component
  COMPONENT=$1 jobs_of "$idrac" FirmwareUpdate 'unfinished | map(select(.Name | contains(env.COMPONENT))) | last.JobState // empty'
}

schedule() { # component, image
  local state
  state=$(state_of "$1")
  if [[ -z $state ]]; then
    say "schedules $1"
    redfish POST "$idrac/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate" \
      "$(jq -n -c --arg image "$2" '{ImageURI: $image, "@Redfish.OperationApplyTime": "OnReset"}')" >/dev/null
    state=$(state_of "$1")
  fi
  # It is gone from the unfinished ones if its download failed.
  until [[ $state =~ ^(|\"Scheduled\"|\"Running\")$ ]]; do
    sleep "$poll_seconds"
    state=$(state_of "$1")
  done
}

apply() {
  local inventory component image
  task 0 "$APPLY"
  inventory=$(installed_on "$idrac")
  while IFS=$'\t' read -r component image; do
    schedule "$component" "$image"
  done < <(missing "$wanted" "$inventory" | jq -r '.[] | [.name, .image] | @tsv')
  task 50 "$APPLY"
}

restart() {
  local states
  task 0 "$REBOOT"
  states=$(jobs_of "$idrac" FirmwareUpdate 'unfinished | map(.JobState) | unique')
  look_at_host "$path"
  # One that is on its way already is not sent again.
  if [[ $connection == connected && $states == '["Scheduled"]' ]]; then
    [[ $in_maintenance == true ]]
    say "restarts $name"
    redfish POST "$idrac/redfish/v1/Systems/System.Embedded.1/Actions/ComputerSystem.Reset" \
      '{"ResetType": "GracefulRestart"}' >/dev/null
  fi
  until [[ $states == '[]' ]]; do
    sleep "$poll_seconds"
    states=$(jobs_of "$idrac" FirmwareUpdate 'unfinished | map(.JobState) | unique')
  done
  task 100 "$APPLY"
  await_connection "$path"
  task 100 "$REBOOT"
}

verify() {
  local inventory left why
  inventory=$(installed_on "$idrac")
  left=$(missing "$wanted" "$inventory")
  [[ $left != '[]' ]] || return 0
  why=$(jobs_of "$idrac" FirmwareUpdate 'map(select(.JobState != "Completed") | "\(.Name): \(.Message)") | join("; ")')
  task failed "$APPLY"
  fail FIRMWARE_FAILED "$name does not have $(jq -r 'map("\(.name) \(.version)") | join(", ")' <<<"$left"): $why"
}

check_decisions
decision=$(decision_for "$name")
text=$(noted "$path")
if [[ $decision == skip && -z $text ]]; then
  outcome '{outcome: "skip", reason: "left out, as decided"}'
fi
await_backup
enter
apply
restart
verify
task 0 "$EXIT"
leave_host "$path"
task 100 "$EXIT"
outcome --arg name "$name" --argjson wanted "$wanted" \
  '{outcome: "done", output: {host: $name, firmware: ($wanted | map({(.name): .version}) | add)}}'
