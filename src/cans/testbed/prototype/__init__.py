"""`cans reproduce --prototype`: the paper's prototype on real processes, its claims and a section.

measured.py   latency by model, device and policy, from the rows of the runs
claims.py     C9, C10 and C14: statements about them      section.py    what the report says
running.py    the experiments `prototype` and `ablation`, in order
"""
