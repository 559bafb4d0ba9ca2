"""The journal that a run or study is rebuilt from, and the lease on writing it."""
