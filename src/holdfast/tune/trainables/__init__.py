"""What a trial runs: functions, classes and trainers, and the process around them."""
