"""Runs and studies that earlier versions have left: each must open and go on, for ever."""
