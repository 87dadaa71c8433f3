#!/bin/sh
# How many notes the archive has is its revision.
set -eu
archive=${ARCHIVE:-archive}
mkdir -p "$archive"
revision=$(find "$archive" -type f | wc -l | tr -d ' ')
printf '{"outcome": "done", "output": {"revision": %s}}' "$revision" > "$WAYPOST_OUTPUT"
