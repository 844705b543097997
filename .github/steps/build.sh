#!/usr/bin/env bash
# Builds an image, and first the images of the project that it is based on: units that the cache has are taken from it.
#
#   IMAGE  name of the image
#   SEND   yes: units that are built here are sent to the cache after the image is verified (default: no)
#   REGISTRY_USER, REGISTRY_PASSWORD, CACHE, REPOSITORY  a login for the registry of REPOSITORY, or of CACHE
# And those of common.sh. Writes OUT/IMAGE/make.json, also of a build that fails.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
require_image
log_in
options=(--json)
[ "${SEND:-no}" = yes ] || options+=(--no-send)
# Of what is wrong with the project make writes the reason.
below=$(run_envbuild list --json | "$PYTHON" "$STEPS/plan_rows.py" --below "$IMAGE") || below=
for base in $below; do # a new store has none of them; one that fails is the failure of the image
  run_envbuild make "$base" "${options[@]}" > "$OUT/$IMAGE/make.json"
done
run_envbuild make "$IMAGE" "${options[@]}" > "$OUT/$IMAGE/make.json"
