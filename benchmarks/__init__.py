"""Our own figures beside those of our peers: `python -m benchmarks`, or `make bench`.

One small module per system under `systems/`, all behind the interface of `systems/base.py`; the runner lets them take
turns, so that what else the machine does falls on all of them alike, and the report gives ratios within the run beside
the plain times.
"""
