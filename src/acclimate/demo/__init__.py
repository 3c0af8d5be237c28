"""The embedded default: real handwritten digits, a small trained network, and fog."""
