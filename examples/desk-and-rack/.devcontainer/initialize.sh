#!/bin/sh
# Runs on the host before the container starts, from VS Code and from ./launch, as you: makes what is mounted, so that
# Docker does not make it as root. `cpu` as its argument means: no GPU is asked for.
set -eu

fail() {
  printf '%s\n' "$1" >&2
  exit 1
}

folder() {
  [ -e "$1" ] && [ ! -d "$1" ] && fail "$1 is mounted into the container and must be a folder, but it is a file: move it away."
  [ -d "$1" ] && return
  mkdir -p "$1" || fail "$1 is mounted into the container and cannot be made: make it yourself, or change the mount."
  echo "made $1"
}

if [ "${GPUKIT_ENTRANCE:-}" != launch ]; then
  case $PWD in *,*) fail "Docker cannot mount a folder with a comma in its path: rename $PWD." ;; esac
  if [ "$(id -u)" = 0 ] && [ -n "$(find . -prune -user 0)" ]; then
    fail "You are root, and VS Code's container would not be allowed to write here: work as an ordinary user, or use ./launch."
  fi
fi

mkdir -p outputs
umask 077
mkdir -p .launch
cache=${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}
folder "$cache"
ln -sfn "$cache" .launch/huggingface

# compose.yaml reads from .env who you are, and a name that no other folder's containers have.
touch .env
for line in "USER_UID=$(id -u)" "USER_GID=$(id -g)" "COMPOSE_PROJECT_NAME=desk-rack-$(pwd | cksum | cut -d' ' -f1)"; do
  grep -qx "$line" .env && continue
  others=$(grep -v "^${line%%=*}=" .env || true)
  printf '%s\n' ${others:+"$others"} "$line" >.env
done

# Better now than after the image is built: what would stop the container here, a line each; then ask for the GPU.
if [ "${GPUKIT_ENTRANCE:-}" != launch ] && command -v python3 >/dev/null; then
  GPUKIT_DEVICE="${1:-}" ./launch doctor --early 2>/dev/null || true
  [ "${1:-}" = cpu ] || ./launch preflight
fi
