#!/usr/bin/env bash
# Checks a model exhaustively: every order in which it can happen. 77 (a test that is skipped) where there is no spin.
#   check.sh [MODEL.pml] [-DNAME=VALUE]...   a model of this folder (round.pml); sizes, as the model names them
set -euo pipefail
name=round.pml
if [[ "${1:-}" == *.pml ]]; then
  name=$1
  shift
fi
model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$name
for program in spin cc; do
  if ! command -v "$program" >/dev/null; then
    echo "skipped: there is no $program (apt-get install spin gcc)"
    exit 77
  fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$model" .  # spin looks for the trail beside the model
spin -a "$@" "$name"
cc -w -O2 -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -DMEMLIM=8000 -o pan pan.c
./pan -w22 -m100000 -n >report || true
if ! grep -q 'errors: 0' report || grep -q 'Search not completed' report; then
  cat report
  # The events that lead to the fault.
  if [[ -f $name.trail ]]; then spin -t -p -g "$@" "$name" | tail -n 150; fi
  exit 1
fi
grep -E 'errors:|states, stored|transitions|elapsed' report
