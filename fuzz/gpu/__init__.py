"""`python -m fuzz gpu`: the kernels on a real device, checked and measured in one sitting.

`parts.py` says what there is and in which order; `results.py` keeps it, on disk after every part; `supervise.py` runs a
worker (`python -m fuzz.gpu`), and another one where the first died; `report.py` and `plots.py` show what was kept, on
any machine. The rest is the worker's: `session.py` runs the parts, `correctness.py`, `bits.py` and `units.py` check,
`benchmarks.py` times, `data.py` and `measure.py` serve them all.

Unlike the rest of `fuzz`, the worker imports kvcore, torch and Triton: what is checked here is what no other core has.
Nothing of that is imported before a worker starts.

Imports: fuzz.runs, kvcore, properties, matplotlib, numpy, rich, torch, triton.
"""
