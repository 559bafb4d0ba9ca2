"""`python -m holdfast.cli`, for when the command is not on the path."""

from holdfast.cli import main

main()
