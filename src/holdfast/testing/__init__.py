"""Conformance suites, fault injection and crash states, shipped so that users can test with them.

May import everything; nothing imports it.
"""
