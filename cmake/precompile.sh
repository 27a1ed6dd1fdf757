#!/bin/sh
# Launcher of the compiler for precompiled headers: removes the old one first. GCC would read it while it makes the new
# one, and a compiler cache would take it for the only input, so that headers that have changed would go unnoticed.
for argument in "$@"; do
  if [ "${option-}" = -o ]; then rm -f "$argument"; fi
  option=$argument
done
exec "$@"
