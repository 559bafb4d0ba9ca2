"""What Holdfast is tested with, shipped so that users can test with it too.

May import everything; nothing imports it.
"""
