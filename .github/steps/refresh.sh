#!/usr/bin/env bash
# Collects the facts of the version matrix again, and locks the newest versions. Needs no rights: propose.sh publishes.
#
#   IMAGES       names of images (default: all with a lock)
#   LOCK_OPTION  --fresh: newest versions of everything (default); --refresh: only what is no longer available
# And those of common.sh. Writes OUT/refresh.patch. Ends with an error if a part failed; the patch has the others.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
unset REGISTRY_PASSWORD # nothing here needs the registry
failed=()
facts=()
[ "$(git rev-parse --show-toplevel)" = "$(cd "$STEPS/../.." && pwd -P)" ] || facts=(--to facts/derived)
run_envbuild matrix refresh "${facts[@]}" || failed+=(facts)
if [ -z "${IMAGES:-}" ]; then
  IMAGES=$(for lock in images/*.lock; do [ ! -f "$lock" ] || basename "$lock" .lock; done)
fi
for image in $IMAGES; do
  run_envbuild lock "$image" "${LOCK_OPTION:---fresh}" || failed+=("$image")
done
git add --intent-to-add -- images
[ ! -d facts ] || git add --intent-to-add -- facts
git diff --binary > "$OUT/refresh.patch"
git diff --stat
[ ${#failed[@]} = 0 ] || fail "not refreshed: ${failed[*]}" "read the messages above; the patch has what succeeded"
