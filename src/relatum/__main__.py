"""`python -m relatum`."""

from relatum.cli import main

main()
