#!/usr/bin/env bash
# Publishes an image as REPOSITORY:IMAGE-COMMIT, which is never moved, then as REPOSITORY:TAG.
#
#   IMAGE       name of the image
#   REPOSITORY  such as ghcr.io/team/images
#   TAG         the tag that names the newest image (default: IMAGE)
#   REGISTRY_USER, REGISTRY_PASSWORD  a login for it (default: logins of the user)
# And those of common.sh. Writes OUT/IMAGE/publish.json and the output reference (REPOSITORY@sha256:…).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
require_image
require REPOSITORY ghcr.io/team/images
log_in
commit=$(git rev-parse --short=12 HEAD)
run_envbuild publish "$IMAGE" --to "$REPOSITORY:$IMAGE-$commit"
run_envbuild publish "$IMAGE" --to "$REPOSITORY:${TAG:-$IMAGE}" --move --json > "$OUT/$IMAGE/publish.json"
digest=$("$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["digest"])' < "$OUT/$IMAGE/publish.json")
[[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || fail "the digest in $OUT/$IMAGE/publish.json is not one: $digest" "run the step again"
printf '%s\n' "$REPOSITORY@$digest" > "$OUT/$IMAGE/reference.txt"
output reference "$REPOSITORY@$digest"
# shellcheck disable=SC2016 # the backticks are Markdown
printf 'Published `%s` and `%s:%s`.\n\n' "$REPOSITORY@$digest" "$REPOSITORY" "$IMAGE-$commit" >> "$SUMMARY"
