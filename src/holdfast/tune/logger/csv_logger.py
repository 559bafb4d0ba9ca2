"""`progress.csv`."""

from __future__ import annotations

from holdfast.tune.logger.csv import CsvRows
from holdfast.tune.logger.formats import Format
from holdfast.tune.logger.logger import FileLogger
from holdfast.tune.result import EXPR_PROGRESS_FILE


class CSVLoggerCallback(FileLogger):
    """Writes every result, without its config, as a line of `progress.csv`.

    What is `b` inside `a` is in the column `a/b`. A metric that appears later gets a column of its
    own, which is empty in the lines before.
    """

    _file_name = EXPR_PROGRESS_FILE

    def _format(self) -> Format[dict[str, str]]:
        return CsvRows()
