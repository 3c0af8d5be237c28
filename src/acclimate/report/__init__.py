"""Figures and pages that open from disk, offline.

One way for the whole project: our own SVG, a few pure functions that return strings. altair with
vl-convert was weighed and left: each page would carry 0.9 MB of JavaScript where ours needs none,
the wheel is 33 MB, and log-log fields with arrows take a second grammar to learn. What a report
needs (lines, points, heat maps, a colour bar) is the 200 lines of ``svg``, ``axes`` and ``marks``.
PNG is the same SVG through resvg (``pip install 'acclimate[plots]'``, 1.4 MB, no browser).
"""
