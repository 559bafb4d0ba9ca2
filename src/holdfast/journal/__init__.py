"""What is remembered: the record a run or study is rebuilt from."""
