"""The `holdfast` command: each subcommand parses, calls the layer below, prints and exits.

Exit codes: 0 success, 1 something is damaged, 2 the command line is wrong, 3 the run or the storage
cannot be used.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import click

from holdfast import __version__
from holdfast.cli.gc import gc
from holdfast.cli.logs import logs
from holdfast.cli.ls import ls
from holdfast.cli.output import EXIT_UNUSABLE, say
from holdfast.cli.show import show
from holdfast.cli.verify import verify
from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """Inspect runs and studies, verify them, and clean them up."""


for command in (ls, show, logs, verify, gc):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an expected error is a message and an exit code, not a traceback."""
    handler = _PrintingHandler(logging.WARNING)
    log.addHandler(handler)
    try:
        cli.main(arguments, prog_name="holdfast")
    except HoldfastError as error:
        say(f"error: {error}", err=True)
        sys.exit(EXIT_UNUSABLE)
    finally:
        log.removeHandler(handler)


class _PrintingHandler(logging.Handler):
    """Prints log messages by `say`, as the commands print everything."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), err=True)
