#!/usr/bin/env bash
# Builds the site of docs/ into build/site, and fails on any warning: a broken link or anchor, a page that is not in
# the navigation. MkDocs and its theme are installed, in pinned versions, into a virtual environment under build/.
#   docs/build.sh            makes build/site/index.html
#   docs/build.sh serve      the same at http://127.0.0.1:8000, rebuilt when a page changes
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

venv=build/docs-venv
stamp=$venv/requirements.txt
if ! cmp -s docs/requirements.txt "$stamp"; then
  rm -rf "$venv"
  mkdir -p build
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r docs/requirements.txt
  cp docs/requirements.txt "$stamp"
fi

export NO_MKDOCS_2_WARNING=1
case ${1-build} in
  build) "$venv/bin/mkdocs" build --strict --clean ;; # not --quiet, with which --strict passes over warnings
  serve) exec "$venv/bin/mkdocs" serve ;;
  *)
    echo "usage: docs/build.sh [build|serve]" >&2
    exit 2
    ;;
esac
