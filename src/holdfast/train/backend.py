"""What prepares a framework in the workers of a plain `DataParallelTrainer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.worker.context import WorkerContext

__all__ = ["BackendConfig"]


class BackendConfig:
    """Subclass it and override `setups` to prepare a framework of your own."""

    def setups(self) -> Sequence[Callable[[WorkerContext], None]]:
        """Return what is called in each worker, in order, before the training function."""
        return ()

    def modules(self) -> Sequence[str]:
        """Return what is imported once, before workers are made, because each will want it."""
        return ()

    def later_modules(self) -> Sequence[str]:
        """Return what is imported once the first workers run, so that later ones have it at once.

        Each should load quickly once those before it are loaded: a worker that is wanted just then
        waits for one of them.
        """
        return ()
