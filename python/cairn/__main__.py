"""`python -m cairn`: the program `cairn`."""

from cairn import _programs

_programs.cairn()
