"""Pure decisions: no clock, no disk, no threads; imports the standard library and errors only."""
