#!/usr/bin/env bash
# Checks the model of the round exhaustively: every order in which it can happen. 77 (a test that is skipped) where
# there is no spin.
#   check.sh [-DNAME=VALUE]...   sizes, as round.pml names them
set -euo pipefail
model=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/round.pml
for program in spin cc; do
  if ! command -v "$program" >/dev/null; then
    echo "skipped: there is no $program (apt-get install spin gcc)"
    exit 77
  fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
spin -a "$@" "$model"
cc -O2 -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -DMEMLIM=8000 -o pan pan.c
./pan -w22 -m100000 -n >report || true
if ! grep -q 'errors: 0' report || grep -q 'Search not completed' report; then
  cat report
  # The events that lead to the fault.
  if [[ -f round.pml.trail ]]; then spin -t -p -g "$@" "$model" | tail -n 150; fi
  exit 1
fi
grep -E 'errors:|states, stored|transitions|elapsed' report
