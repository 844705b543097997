#!/usr/bin/env bash
# Writes the reports of a pull request as one comment of it. Runs with rights that the pull request does not have: its
# reports are data of an unknown author. Sizes are limited, every value is checked and quoted, and no program of the
# pull request is started. Which pull request it is, GitHub states, not the reports.
#
#   REPORTS     folder of the downloaded artifacts
#   HEAD_SHA    commit that was built; the comment is written only while it is the newest of the pull request
#   HEAD_OWNER, HEAD_BRANCH  owner of the repository, and branch, that the pull request is from
#   GITHUB_REPOSITORY, GH_TOKEN  of GitHub; the token may write pull requests
# And those of common.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
for name in REPORTS HEAD_OWNER HEAD_BRANCH GITHUB_REPOSITORY; do require "$name" …; done
[[ ${HEAD_SHA:-} =~ ^[0-9a-f]{40}$ ]] || fail "HEAD_SHA is not a commit" "HEAD_SHA=\$(git rev-parse HEAD) $0"
marker='<!-- envbuild: images -->'

number=$(gh api --method GET "repos/$GITHUB_REPOSITORY/pulls" -f state=open -f "head=$HEAD_OWNER:$HEAD_BRANCH" \
  --jq ".[] | select(.head.sha == \"$HEAD_SHA\") | .number" | head -n 1)
if [[ ! $number =~ ^[0-9]{1,12}$ ]]; then
  echo "no open pull request has the commit $HEAD_SHA"
  exit 0
fi
"$PYTHON" "$STEPS/render_report.py" --folder "$REPORTS" > "$WORK/body.md"
if [ ! -s "$WORK/body.md" ]; then
  echo "there are no reports"
  exit 0
fi
printf '%s\n%s\n' "$marker" "$(cat "$WORK/body.md")" > "$WORK/comment.md"
comment=$(gh api --paginate "repos/$GITHUB_REPOSITORY/issues/$number/comments" \
  --jq ".[] | select(.user.login == \"github-actions[bot]\" and (.body | startswith(\"$marker\"))) | .id" | head -n 1)
if [[ $comment =~ ^[0-9]{1,20}$ ]]; then
  gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$comment" -F "body=@$WORK/comment.md"
else
  gh api --silent --method POST "repos/$GITHUB_REPOSITORY/issues/$number/comments" -F "body=@$WORK/comment.md"
fi
