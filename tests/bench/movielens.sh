#!/usr/bin/env bash
# Writes MovieLens-100K (GroupLens) as RecBole's atomic files: DIR/train.inter, and DIR/test.inter with every fifth
# rating (row i, from 0, where i mod 5 = 0); DIR/ml-100k.user and DIR/ml-100k.item. They come with the Python package
# recbole.
#   tests/bench/movielens.sh DIR
#   cairn train deploy/examples/movielens.json --data_dir DIR --label_column rating --embedding_tables all
set -euo pipefail

readonly package=recbole==1.2.1
readonly members=recbole/dataset_example/ml-100k
readonly -A sha256=(
  [ml-100k.inter]=4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff
  [ml-100k.user]=4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972
  [ml-100k.item]=51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532
)

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
for name in "${!sha256[@]}"; do
  file=$scratch/$members/$name
  if ! echo "${sha256[$name]}  $file" | sha256sum --check --status; then
    echo "movielens: $name of $package is not the file that is known: its SHA-256 is $(sha256sum <"$file")" >&2
    exit 1
  fi
done
mkdir -p "$1"
cp "$scratch/$members"/ml-100k.{user,item} "$1"
awk -v dir="$1" 'NR == 1 { print >dir "/train.inter"; print >dir "/test.inter"; next }
                 { print >(dir ((NR - 2) % 5 == 0 ? "/test.inter" : "/train.inter")) }' "$scratch/$members/ml-100k.inter"
echo "$1: $(($(wc -l <"$1/train.inter") - 1)) training and $(($(wc -l <"$1/test.inter") - 1)) test ratings"
