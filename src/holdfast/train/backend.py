"""`BackendConfig`: prepares a framework in the workers of a `DataParallelTrainer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.worker.context import WorkerContext

__all__ = ["BackendConfig"]


class BackendConfig:
    """Does nothing; subclass it and override `setups` to prepare a framework of your own."""

    def setups(self) -> Sequence[Callable[[WorkerContext], None]]:
        """Return functions to call in each worker, in order, before the training function."""
        return ()

    def modules(self) -> Sequence[str]:
        """Return modules that every worker needs; imported once, before workers are started."""
        return ()

    def later_modules(self) -> Sequence[str]:
        """Return modules to import after the first workers have started, for later workers.

        Each should load quickly after those before it: a worker that is started meanwhile waits for
        the current import.
        """
        return ()
