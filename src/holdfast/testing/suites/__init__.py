"""Conformance suites: the tests that every implementation of an interface must pass.

Subclass a suite in a test file, define how to open your implementation, and run pytest.
"""
