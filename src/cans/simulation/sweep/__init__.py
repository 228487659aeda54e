"""`cans sweep`: grids of simulations on this machine or a cluster, one file of results.

grid.py      from SWEEP.toml to cells          cells.py    plays cells; what a row holds
running.py   hands cells to workers in batches results.py  the file, and what makes it resumable
summary.py   means and intervals by setting    picture.py  the plot
command.py   all of it in order
"""
