"""A run or study at rest: opened by its one driver, or read by anybody."""
