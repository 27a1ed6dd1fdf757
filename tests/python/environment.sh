#!/usr/bin/env bash
# Prints the path of a Python interpreter that has what building and testing the Python package needs: the packages of
# requirements.txt. The first call installs them: a download of 0.7 GB. The folder, of 2.1 GB, is in the user's cache,
# with a name that depends on what is installed, so all clones of a user share it.
#   tests/python/environment.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=/usr/bin/python3
limit=1200 # seconds, for all of PyPI's downloads; PyTorch has 530 MB
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
key=$(cat "$here/requirements.txt" "$here/nvidia_stand_ins.py" | sha256sum | cut -c 1-12)
all=${XDG_CACHE_HOME:-$HOME/.cache}/cairn
venv=$all/python$version-$key

if [[ ! -e $venv/complete ]]; then
  mkdir -p "$all"
  exec 9>"$all/lock"
  if ! flock --timeout "$limit" 9; then
    echo "environment: another process installs Python packages in $all, for $limit seconds already" >&2
    exit 1
  fi
  if [[ ! -e $venv/complete ]]; then
    echo "environment: installing the Python packages of the tests in $venv" >&2
    rm -rf "$venv"
    log=$all/install.log
    if ! { "$python" -m venv "$venv" &&
      timeout "$limit" "$venv/bin/python" -m pip --disable-pip-version-check install --no-cache-dir --no-deps \
        --only-binary :all: --requirement "$here/requirements.txt" &&
      "$venv/bin/python" "$here/nvidia_stand_ins.py" "$venv/lib/python$version/site-packages/torch/lib" &&
      timeout 300 "$venv/bin/python" -c 'import torch; assert not torch.cuda.is_available()'; } >"$log" 2>&1; then
      tail -n 20 "$log" >&2
      rm -rf "$venv"
      echo "environment: pip could not install the packages of $here/requirements.txt within $limit seconds." \
        "They come from PyPI, or from the index that pip's configuration names. All output: $log" >&2
      exit 1
    fi
    touch "$venv/complete"
    # Deletes other environments that no clone has used for a month.
    find "$all" -mindepth 2 -maxdepth 2 -name complete -mtime +30 -printf '%h\0' | xargs -0 --no-run-if-empty rm -rf
  fi
fi
touch "$venv/complete"
echo "$venv/bin/python"
