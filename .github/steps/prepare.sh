#!/usr/bin/env bash
# Prepares a machine: installs envbuild, with each dependency by its hash, and what builds need; makes room for the
# store; writes the site file that names the cache of units.
#
#   ENVBUILD        an installed envbuild, such as /opt/envbuild/bin/envbuild: nothing is installed
#   TOOLS           no: without the programs that builds need (for plan.sh)
#   CACHE           repository or folder of finished units, such as ghcr.io/team/units; the project has no site.yaml then
#   ENVBUILD_STORE  the store; default on a hosted runner of GitHub: in the larger of / and /mnt
# And those of common.sh. The envbuild that is installed is the checkout that this file is in. Writes the output results,
# the folder OUT.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
unset REGISTRY_PASSWORD # nothing here needs the registry
source=$(cd "$STEPS/../.." && pwd -P)

hosted() {
  [ "${RUNNER_ENVIRONMENT:-}" = github-hosted ]
}

# Programs of a hosted runner's image that no build of envbuild uses: about 25 GB.
free_disk() {
  echo "removing programs that are not used; free before and after:"
  df -h --output=avail,target /
  sudo rm -rf /usr/local/lib/android /usr/share/dotnet /usr/local/.ghcup /opt/hostedtoolcache/CodeQL /usr/share/swift
  df -h --output=avail,target /
}

choose_store() {
  local disk
  disk=$(df --output=avail,target / /mnt | tail -n +2 | sort -rn | awk 'NR == 1 {print $2}')
  ENVBUILD_STORE=${disk%/}/envbuild-store
  sudo install -d -m 755 -o "$(id -u)" -g "$(id -g)" "$ENVBUILD_STORE"
}

install_envbuild() {
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "envbuild needs Python 3.11 or newer" "PYTHON=python3.12 $0"
  [ -x "$WORK/venv/bin/pip" ] || "$PYTHON" -m venv "$WORK/venv"
  local pip=("$WORK/venv/bin/pip" --disable-pip-version-check --quiet --no-input)
  "${pip[@]}" install --require-hashes --only-binary :all: -r "$STEPS/requirements.txt"
  # Editable: `list --changed` and `matrix refresh` read and write this checkout.
  "${pip[@]}" install --no-deps --no-build-isolation --editable "$source"
  PYTHON=$WORK/venv/bin/python
  ENVBUILD=$WORK/venv/bin/envbuild
}

# The user's site file with the cache, in a copy of the user's configuration, which pip and git have there, too.
write_site() {
  local own=${XDG_CONFIG_HOME:-$HOME/.config} copy=$WORK/config entry
  rm -rf "$copy"
  [ -n "$CACHE" ] || return 0
  [[ $CACHE =~ ^[A-Za-z0-9./:_-]+$ ]] || fail "CACHE is not a repository or a folder" "CACHE=ghcr.io/team/units $0"
  [ ! -f site.yaml ] || fail "CACHE is set, but the project's site.yaml names caches" "write caches: there, leave CACHE empty"
  ! grep -qs '^caches:' "$own/envbuild/site.yaml" || fail "CACHE is set, but your site.yaml names caches" "leave CACHE empty"
  (umask 077 && mkdir -p "$copy/envbuild" && touch "$copy/envbuild/site.yaml")
  for entry in "$own"/*; do
    [ ! -e "$entry" ] || [ "${entry##*/}" = envbuild ] || ln -s "$entry" "$copy/"
  done
  cat "$own/envbuild/site.yaml" 2> /dev/null > "$copy/envbuild/site.yaml" || echo "schema: 1" > "$copy/envbuild/site.yaml"
  printf '\ncaches: [{at: "%s", write: true, unsigned: true}]\n' "$CACHE" >> "$copy/envbuild/site.yaml"
}

# A checkout of envbuild in the repository of the project, which git does not track there, is not content of a project
# folder (`dev: ..`).
ignore_source() {
  local top name exclude pattern
  top=$(git rev-parse --show-toplevel 2> /dev/null) && exclude=$(git rev-parse --git-path info/exclude) || return 0
  name=${source#"$top/"}
  [ "$name" != "$source" ] && [ -z "$(git -C "$top" ls-files -- ":(literal)$name")" ] || return 0
  pattern=/$(printf %s "$name" | sed 's/[][*?\\]/\\&/g')/ # gitignore(5)
  grep -qsxF "$pattern" "$exclude" || { mkdir -p "$(dirname "$exclude")" && printf '%s\n' "$pattern" >> "$exclude"; }
}

if hosted && [ "${TOOLS:-yes}" = yes ]; then
  free_disk
  sudo sysctl -q kernel.apparmor_restrict_unprivileged_userns=0 # builds run in user namespaces
  # the action may run for several images: the store that an earlier run chose has the first one
  # shellcheck source=/dev/null
  [ -n "${ENVBUILD_STORE:-}" ] || ENVBUILD_STORE=$({ . "$WORK/env.sh" && echo "${ENVBUILD_STORE:-}"; } 2> /dev/null || true)
  [ -n "${ENVBUILD_STORE:-}" ] || choose_store
fi
if [ -z "${ENVBUILD:-}" ]; then
  [ "${TOOLS:-yes}" = no ] || make --no-print-directory -C "$source" tools
  install_envbuild
fi
write_site
ignore_source
for name in PYTHON ENVBUILD ENVBUILD_STORE; do
  [ -z "${!name:-}" ] || printf 'export %s=%q\n' "$name" "${!name}"
done > "$WORK/env.sh"
output results "$OUT"
run_envbuild --version
