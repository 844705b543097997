#!/usr/bin/env bash
# Pulls a published image by its digest into an empty store, and runs a command in it.
#
#   IMAGE      name of the image
#   REFERENCE  REPOSITORY@sha256:… (default: what publish.sh wrote)
#   COMMAND    of the shell in the image (default: true)
#   REGISTRY_USER, REGISTRY_PASSWORD, REPOSITORY  a login for the registry of REPOSITORY (default: logins of the user)
# And those of common.sh. Writes OUT/IMAGE/pull.json and OUT/IMAGE/start.txt, the output of the command.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
require_image
REFERENCE=${REFERENCE:-$(cat "$OUT/$IMAGE/reference.txt")}
[[ $REFERENCE =~ @sha256:[0-9a-f]{64}$ ]] || fail "REFERENCE has no digest" "REFERENCE=ghcr.io/team/images@sha256:… $0"
log_in
ENVBUILD_STORE=$(mktemp -d "$WORK/start.XXXXXX")
export ENVBUILD_STORE
trap 'rm -rf "$ENVBUILD_STORE" ${login:+"$login"} || true' EXIT
run_envbuild pull "$REFERENCE" -o "$ENVBUILD_STORE/image.sqsh" --json > "$OUT/$IMAGE/pull.json"
run_envbuild run "$ENVBUILD_STORE/image.sqsh" -- sh -c "${COMMAND:-true}" | tee "$OUT/$IMAGE/start.txt"
