"""Statistics on evidence. NumPy and SciPy only."""

from engram.measure.judgement import judge, proportion, shuffled, simultaneous

__all__ = ["judge", "proportion", "shuffled", "simultaneous"]
