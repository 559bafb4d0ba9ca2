"""Measurements of Holdfast beside its peers and the physical limit, as ratios within one run."""
