#!/usr/bin/env bash
# Writes MovieLens-100K (GroupLens) as RecBole's atomic files: DIR/train.inter, and DIR/test.inter with every fifth
# rating (row i, from 0, where i mod 5 = 0). The ratings come with the Python package recbole.
#   tests/bench/movielens.sh DIR
#   cairn train deploy/examples/movielens.json --data_dir DIR --label_column rating --embedding_tables all
set -euo pipefail

readonly package=recbole==1.2.1
readonly member=recbole/dataset_example/ml-100k/ml-100k.inter
readonly sha256=4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff

if [[ $# -ne 1 || $1 == -* ]]; then
  echo "usage: tests/bench/movielens.sh DIR" >&2
  exit 2
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! timeout 300 python3 -m pip download --quiet --no-deps --dest "$scratch" "$package"; then
  echo "movielens: pip cannot download $package" >&2
  exit 1
fi
python3 -m zipfile -e "$scratch"/recbole-*.whl "$scratch"
ratings=$scratch/$member
if ! echo "$sha256  $ratings" | sha256sum --check --status; then
  echo "movielens: $member of $package is not the file that is known: its SHA-256 is $(sha256sum <"$ratings")" >&2
  exit 1
fi
mkdir -p "$1"
awk -v dir="$1" 'NR == 1 { print >dir "/train.inter"; print >dir "/test.inter"; next }
                 { print >(dir ((NR - 2) % 5 == 0 ? "/test.inter" : "/train.inter")) }' "$ratings"
echo "$1: $(($(wc -l <"$1/train.inter") - 1)) training and $(($(wc -l <"$1/test.inter") - 1)) test ratings"
