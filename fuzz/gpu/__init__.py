"""`python -m fuzz gpu`: the kernels on a real device, checked and measured in one sitting.

In: the parts to run and a time. Out: `results.json`, rewritten after every part, and a report.

`parts.py` lists the parts, in order. `results.py` keeps the results on disk. `supervise.py` runs a worker
(`python -m fuzz.gpu`), and starts another one if the first dies. `report.py` and `plots.py` show the results, on any
machine. The rest runs in the worker: `session.py` runs the parts, `correctness.py`, `bits.py` and `units.py` check,
`benchmarks.py` times, and `data.py` and `measure.py` serve them all.

Unlike the rest of `fuzz`, the worker imports kvcore, torch and Triton: it checks what only kvcore promises. None of
these is imported before a worker starts.

Imports: fuzz.runs, kvcore, properties, matplotlib, numpy, rich, torch, triton.
"""
