"""The stored state of a run or study: opened for writing by its one driver, read by anyone."""
