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
# field NAME FILE: a value of the image in an answer of make or publish; empty in that of a build that failed
field() {
  local read='import json, sys; found = json.load(sys.stdin)
print(((found.get("images", [found]) or [{}])[0]).get(sys.argv[1], ""))'
  "$PYTHON" -c "$read" "$1" < "$2"
}
# `publish` builds again what has changed, such as a project folder (`dev:`) into which another step wrote a file.
if [ -s "$OUT/$IMAGE/make.json" ]; then
  made=$(field sha256 "$OUT/$IMAGE/make.json")
  run_envbuild make "$IMAGE" --no-send --json > "$OUT/$IMAGE/again.json"
  [ -z "$made" ] || [ "$(field sha256 "$OUT/$IMAGE/again.json")" = "$made" ] ||
    fail "$IMAGE is no longer what build.sh built: the project has changed since" \
      "git status --short; files that a step writes into a folder of dev: need a line in .gitignore"
fi
run_envbuild publish "$IMAGE" --to "$REPOSITORY:$IMAGE-$commit" --json > "$OUT/$IMAGE/publish.json"
digest=$(field digest "$OUT/$IMAGE/publish.json")
run_envbuild publish "$IMAGE" --to "$REPOSITORY:${TAG:-$IMAGE}" --move --json > "$OUT/$IMAGE/publish.json"
[ "$(field digest "$OUT/$IMAGE/publish.json")" = "$digest" ] ||
  fail "$IMAGE-$commit and ${TAG:-$IMAGE} are two images: the project changed between them" "git status --short"
[[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || fail "the digest in $OUT/$IMAGE/publish.json is not one: $digest" "run the step again"
printf '%s\n' "$REPOSITORY@$digest" > "$OUT/$IMAGE/reference.txt"
output reference "$REPOSITORY@$digest"
# shellcheck disable=SC2016 # the backticks are Markdown
printf 'Published `%s` and `%s:%s`.\n\n' "$REPOSITORY@$digest" "$REPOSITORY" "$IMAGE-$commit" >> "$SUMMARY"
