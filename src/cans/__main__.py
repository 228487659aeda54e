"""`python -m cans`, the same as `cans`."""

from cans.cli import main

main()
