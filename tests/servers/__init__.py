"""Servers on loopback that tests talk to: storage, cloud metadata, and a proxy that misbehaves."""
