#!/bin/sh
# VS Code and ./launch run this on the host before they start the container. It creates the folders to be mounted, so
# that Docker does not create them as root. With the argument `cpu`, no GPU is requested.
set -eu

fail() {
  printf '%s\n' "$1" >&2
  exit 1
}

folder() {
  [ -d "$1" ] && return
  [ ! -e "$1" ] || fail "$1 is mounted into the container and must be a folder, but it is a file: move it away."
  mkdir -p "$1" || fail "$1 is mounted into the container, but it could not be created: create it, or change the mount."
  echo "Created $1"
}

if [ "${GPUKIT_ENTRANCE:-}" != launch ]; then
  case $PWD in *,*) fail "Docker cannot mount a folder with a comma in its path: rename $PWD." ;; esac
  if [ "$(id -u)" = 0 ] && [ -n "$(find . -prune -user 0)" ]; then
    fail "You are root, and the user in VS Code's container could not write here: use a regular user, or ./launch."
  fi
fi
if [ "${1:-}" != cpu ] && [ -z "${GPUS:-}" ]; then
  fail "This machine is shared, so select your GPUs: set GPUS=0 (or 0,1, or a GPU's UUID) and start again."
fi

mkdir -p outputs/mlflow
umask 077
mkdir -p .launch
cache=${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}
folder "$cache"
ln -sfn "$cache" .launch/huggingface

# compose.yaml reads your user id and a project name that is unique to this folder from .env.
touch .env
for line in "USER_UID=$(id -u)" "USER_GID=$(id -g)" "COMPOSE_PROJECT_NAME=training-service-$(pwd | cksum | cut -d' ' -f1)"; do
  grep -qx "$line" .env && continue
  others=$(grep -v "^${line%%=*}=" .env || true)
  printf '%s\n' ${others:+"$others"} "$line" >.env
done

# The network on which the container finds MLflow.
network=training-service-${USER:-me}
engine=${GPUKIT_ENGINE:-docker}
"$engine" network inspect "$network" >/dev/null 2>&1 || "$engine" network create "$network" >/dev/null 2>&1 || true

# Report what would stop the container before the image is built. 127: gpukit cannot run here, which stops nothing.
if [ "${GPUKIT_ENTRANCE:-}" != launch ]; then
  status=0
  GPUKIT_DEVICE="${1:-}" sh launch doctor --early || status=$?
  [ "$status" = 127 ] || [ "${1:-}" = cpu ] || sh launch preflight
fi
