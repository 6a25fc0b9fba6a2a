"""Statistics on evidence. NumPy and SciPy only."""
