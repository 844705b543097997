#!/usr/bin/env bash
# Lists the images to build: those that changed since a commit and have a lock.
#
#   BASE    a commit or branch: images that changed since it diverged. Empty, or not in the repository: all images
#   IMAGES  names: only these (default: all)
# And those of common.sh. Writes OUT/plan.json, OUT/images.txt (a name per line), and the outputs matrix and count.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
unset REGISTRY_PASSWORD # nothing here needs the registry

answer=$OUT/list.json
if [ -n "${BASE:-}" ] && git rev-parse --quiet --verify --end-of-options "$BASE^{commit}" > /dev/null; then
  run_envbuild list --changed "$BASE" --json > "$answer"
else
  echo "no earlier commit to compare with: all images count as changed"
  run_envbuild list --keys --json > "$answer"
fi
"$PYTHON" "$STEPS/plan_rows.py" "$answer" "${IMAGES:-}" > "$OUT/plan.json"
"$PYTHON" "$STEPS/plan_rows.py" --names "$OUT/plan.json" > "$OUT/images.txt"
output matrix "$(cat "$OUT/plan.json")"
output count "$(wc -l < "$OUT/images.txt")"
echo "images to build: $(paste -sd ' ' "$OUT/images.txt")"
