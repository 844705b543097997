# shellcheck shell=bash
# What all steps share; each of them reads this file first. It is not a step.
#
#   OUT      folder of the results, which others may read and not write (default: ci-out)
#   WORK     private folder outside of the checkout: Python's environment, the site file, logins (default: in RUNNER_TEMP
#            of GitHub, else a folder of this checkout in ~/.cache)
#   SUMMARY  file to which Markdown is appended (default: GITHUB_STEP_SUMMARY, else OUT/summary.md)
#   PYTHON   Python 3.11 or newer (default: python3)
set -euo pipefail
umask 022
# shellcheck disable=SC2034 # the steps use it
STEPS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHON=${PYTHON:-python3}

# fail MESSAGE HINT
fail() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 2
}

# resolve VARIABLE: follow the links on the way to this folder, none of which another user made, and can exchange. What is
# found is not resolved again: a link that is made later is refused by require_private.
resolve() {
  local place=/ rest=${!1} part link count=0
  [[ $rest == /* ]] || rest=$(pwd -P)/$rest
  while [ -n "$rest" ]; do
    part=${rest%%/*}
    [ "$part" = "$rest" ] && rest= || rest=${rest#*/}
    case $part in
      '' | .) continue ;;
      ..) place=$(dirname -- "$place") && continue ;;
    esac
    link=${place%/}/$part
    if [ -L "$link" ]; then
      case $(stat -c %u -- "$link") in
        "$UID" | 0) ;;
        *) fail "$1 is not private: the link $link is another user's" "$1=\$(mktemp -d) $0, the same for all steps" ;;
      esac
      ((++count <= 40)) || fail "$1 has too many links: ${!1}" "$1=/another/folder $0"
      link=$(readlink -- "$link")
      [[ $link != /* ]] || place=/
      rest=$link/$rest
    else
      place=$link
    fi
  done
  printf -v "$1" %s "$place"
}

OUT=${OUT:-ci-out}
resolve OUT
[ -n "${WORK:-}" ] || WORK=${RUNNER_TEMP:-${XDG_CACHE_HOME:-$HOME/.cache}/envbuild-ci/$(pwd -P | sha256sum | head -c 16)}/envbuild
resolve WORK
SUMMARY=${SUMMARY:-${GITHUB_STEP_SUMMARY:-$OUT/summary.md}}
# Names of registries' repositories are lower case; those of GitHub's repositories need not be.
REPOSITORY=${REPOSITORY:-} && REPOSITORY=${REPOSITORY,,}
CACHE=${CACHE:-}
case $CACHE in /*) ;; *) CACHE=${CACHE,,} ;; esac
# GitLab's: recipes are programs that run with the environment of envbuild
unset CI_JOB_TOKEN CI_REGISTRY_PASSWORD CI_DEPLOY_PASSWORD CI_REPOSITORY_URL DOCKER_AUTH_CONFIG

# env.sh is a program: it must be what prepare.sh wrote, and not what the checkout has under this name.
case $WORK/ in
  "$(pwd -P)"/*) fail "WORK is in the checkout: $WORK" "WORK=/another/folder $0" ;;
esac
# own_group: the id of the group in which this user is alone: it has the user's name, and no other members; else -1
own_group() {
  local members
  members=$(getent group "$(id -g)" | cut -d: -f4)
  if [ "$(id -gn)" = "$(id -un)" ] && [[ -z $members || $members = "$(id -un)" ]]; then id -g; else echo -1; fi
}
# is_own FOLDER: it is this user's, and no other user may write in it.
is_own() {
  local owner group mode
  read -r owner group mode < <(stat -c '%u %g %a' -- "$1")
  [[ ! $(LC_ALL=C ls -ld -- "$1") =~ ^.{10}\+ ]] || group=-2
  [ "$owner" = "$UID" ] && ! (((8#$mode & 8#0002) || ((8#$mode & 8#0020) && group != $(own_group))))
}
# require_private VARIABLE FOLDER [TRUSTED]: neither it nor a folder above it is one that another user could have made or
# can exchange. Below and at the folder TRUSTED its owner is no other user; it and those above it are not judged.
require_private() {
  local place=$2 owner group mode own trusted=0 hint="$1=\$(mktemp -d) $0, the same for all steps; or a folder of yours"
  own=$(own_group)
  case $place/ in "${3:-//}"/*) trusted=$(stat -c %u -- "$3") ;; esac
  while [ "$place" != "${3:-}" ]; do
    read -r owner group mode < <(stat -c '%u %g %a' -- "$place")
    case $owner in "$UID" | 0 | "$trusted") ;; *) fail "$1 is not private: $place belongs to uid $owner" "$hint" ;; esac
    # An access list has its mask in the place of the group's rights, and `ls` marks it.
    [[ ! $(LC_ALL=C ls -ld -- "$place") =~ ^.{10}\+ ]] || group=-2
    if (((8#$mode & 8#0002) || ((8#$mode & 8#0020) && group != own))) && ((!(8#$mode & 8#1000))); then
      fail "$1 is not private: other users may write in $place" "$hint"
    fi
    [ "$place" != / ] || return 0
    place=$(dirname -- "$place")
  done
}

(umask 077 && mkdir -p "$WORK") && require_private WORK "$WORK" && mkdir -p "$OUT"
[ -O "$WORK" ] || fail "WORK belongs to another user: $WORK" "WORK=\$(mktemp -d) $0, the same for all steps"
# Its owner could put links in it, over which the results are written, and what later steps read. The checkout above it
# may be another user's, as in a container of GitHub.
is_own "$OUT" ||
  fail "other users may write in OUT: $OUT" "OUT=/a/folder/of/yours $0, the same for all steps"
require_private OUT "$(dirname -- "$OUT")" "$(pwd -P)"
# Results in the checkout are not content of a project (`dev: ..`), whose image would change with each step.
[ "$OUT" = "$(pwd -P)" ] || [ -e "$OUT/.gitignore" ] || printf '*\n' > "$OUT/.gitignore"
if [ -f "$WORK/env.sh" ]; then
  [ -O "$WORK/env.sh" ] || fail "$WORK/env.sh is of another user" "rm $WORK/env.sh, and start with prepare.sh"
  # prepare.sh writes it again: what an earlier run installed is not what this one is to use
  # shellcheck source=/dev/null
  [ "${0##*/}" = prepare.sh ] || . "$WORK/env.sh"
fi

# require VARIABLE EXAMPLE
require() {
  [ -n "${!1:-}" ] || fail "$1 is empty" "$1=$2 $0"
}

# Checks IMAGE, which becomes a part of paths and command lines.
require_image() {
  require IMAGE cpu-ucx
  [[ $IMAGE =~ ^[a-z0-9][a-z0-9._-]*$ ]] || fail "IMAGE is not the name of an image" "IMAGE=cpu-ucx $0"
  mkdir -p "$OUT/$IMAGE"
  is_own "$OUT/$IMAGE" || fail "other users may write in $OUT/$IMAGE" "OUT=/a/folder/of/yours $0, the same for all steps"
}

# output NAME VALUE: for later jobs of GitHub; the value is one line
output() {
  [ -z "${GITHUB_OUTPUT:-}" ] || printf '%s=%s\n' "$1" "$2" >> "$GITHUB_OUTPUT"
}

# Writes the login of docker from REGISTRY_USER and REGISTRY_PASSWORD; without a password, logins are those of the user.
# Passwords go through built-in commands and pipes: an argument of a program is visible to all users of the machine.
log_in() {
  [ -n "${REGISTRY_PASSWORD:-}" ] || return 0
  require REGISTRY_USER robot
  local host=${REPOSITORY:-$CACHE}
  host=${host%%/*}
  [ "$host" != docker.io ] || host=https://index.docker.io/v1/
  login=$(mktemp -d "$WORK/docker.XXXXXX") # of this step alone: others may run at the same time
  export DOCKER_CONFIG=$login
  trap 'rm -rf "$login"' EXIT # a later job of this folder may be one of a stranger's change
  (
    umask 077
    mkdir -p "$DOCKER_CONFIG"
    auth=$(printf '%s:%s' "$REGISTRY_USER" "$REGISTRY_PASSWORD" | base64 --wrap=0)
    printf '{"auths": {"%s": {"auth": "%s"}}}\n' "$host" "$auth" > "$DOCKER_CONFIG/config.json"
  )
  unset REGISTRY_PASSWORD # recipes are programs that run with the environment of envbuild
}

# run_envbuild ARGUMENT…: with the site file that prepare.sh wrote
run_envbuild() {
  local site=()
  [ ! -f "$WORK/config/envbuild/site.yaml" ] || site=("XDG_CONFIG_HOME=$WORK/config")
  env "${site[@]}" "${ENVBUILD:-envbuild}" "$@"
}
