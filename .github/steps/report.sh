#!/usr/bin/env bash
# Reports a build, and what it changes of the published image: components, sizes, digests, verdicts.
#
#   IMAGE       name of the image
#   REPOSITORY  where the image is published, such as ghcr.io/team/images; empty: nothing is compared
#   TAG         its tag there (default: IMAGE)
#   REGISTRY_USER, REGISTRY_PASSWORD  a login for it
# And those of common.sh. Writes OUT/IMAGE/report.json, which comment.sh reads, and OUT/IMAGE/report.md; appends the
# latter to SUMMARY.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
require_image
log_in
folder=$OUT/$IMAGE
rm -f "$folder/diff.json"
if [ -n "$REPOSITORY" ]; then
  # Exit code 0: equal, 1: different. An error is in the file.
  run_envbuild diff "docker://$REPOSITORY:${TAG:-$IMAGE}" "$IMAGE" --json > "$folder/diff.json" || true
fi
"$PYTHON" "$STEPS/collect_report.py" "$IMAGE" "$folder" > "$folder/report.json"
"$PYTHON" "$STEPS/render_report.py" "$folder/report.json" > "$folder/report.md"
cat "$folder/report.md" >> "$SUMMARY"
