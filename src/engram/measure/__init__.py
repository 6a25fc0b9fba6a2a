"""Statistics on evidence. NumPy and SciPy only."""

from engram.measure.judgement import epsilon_at, judge, proportion, shuffled, simultaneous

__all__ = ["epsilon_at", "judge", "proportion", "shuffled", "simultaneous"]
