#!/usr/bin/env bash
# Opens a pull request of GitHub with the patch of refresh.sh, or updates the one that is open. Only facts and locks of
# the patch are used.
#
#   GH_TOKEN  may write contents and pull requests; gh and git read it from the environment
#   GITHUB_REPOSITORY  OWNER/NAME, of GitHub
#   BRANCH    of the pull request; it is written again (default: envbuild-refresh)
#   PATCH     (default: OUT/refresh.patch)
# And those of common.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
for name in GH_TOKEN GITHUB_REPOSITORY; do require "$name" …; done
BRANCH=${BRANCH:-envbuild-refresh}
PATCH=$(realpath "${PATCH:-$OUT/refresh.patch}")
if [ ! -s "$PATCH" ]; then
  echo "facts and locks are up to date"
  exit 0
fi
base=$(git symbolic-ref --short HEAD)
git switch --quiet --force-create "$BRANCH"
git apply --index --include='images/*.lock' --include='envbuild/matrix/data/*.yaml' --include='facts/*.yaml' "$PATCH"
if git diff --cached --quiet; then
  echo "the patch has no facts and no locks"
  exit 0
fi
# --include compares the new name of a rename alone, and takes links and files in folders: each change is compared again.
own='^:[0-7]{6} 100644 [0-9a-f]+ [0-9a-f]+ [AM]\t(images/[^/]+\.lock|envbuild/matrix/data/([^/]+/)?[^/]+\.yaml|facts/([^/]+/)?[^/]+\.yaml)$'
if git -c core.quotePath=true diff --cached --raw --no-renames --no-abbrev | grep -vP "$own" >&2; then
  fail "the patch changes other files than facts and locks, or their kind" "read it: $PATCH"
fi
title="Refresh facts of the version matrix and locks"
git -c user.name="github-actions[bot]" -c user.email="41898282+github-actions[bot]@users.noreply.github.com" \
  commit --quiet --message "$title"
gh auth setup-git # git gets the token from gh
git push --quiet --force origin "HEAD:refs/heads/$BRANCH"
# gh pr list --head would also find the branch of this name in a fork, which anybody can propose.
if [ -n "$(gh api --method GET "repos/$GITHUB_REPOSITORY/pulls" -f state=open \
  -f "head=${GITHUB_REPOSITORY%%/*}:$BRANCH" --jq '.[].number')" ]; then
  echo "the open pull request of $BRANCH has the new commit"
else
  gh pr create --base "$base" --head "$BRANCH" --title "$title" --body "Newest versions and facts; the images were not built.
Pull requests that a workflow opens start no workflows: close and open this one to build what it changes."
fi
