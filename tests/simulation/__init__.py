"""Whole runs under one seed: controller, workers, store, machines and time, none of them real.

The code under test is the real one, from the run machine to the worker's reports. What is simulated
is what it stands on: threads that take turns in an order the seed decides, a clock that moves when
nobody has anything to do, an engine with machines that come and go, and a store that fails.
`python -m tests.simulation --seed 123 --story` plays one such run again.
"""
