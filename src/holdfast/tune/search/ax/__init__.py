"""AxSearch: search by Ax."""

from holdfast.tune.search.ax.ax_search import AxSearch as AxSearch

__all__ = ["AxSearch"]
