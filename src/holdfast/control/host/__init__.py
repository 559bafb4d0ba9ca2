"""The driver's own machine: signals, preemption notices, and what workers print."""
