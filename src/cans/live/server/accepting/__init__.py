"""Models that devices give to their server (`cans serve --accept-models DIR`).

accepted.py  which are served: bounded in number, the one unused for longest goes
arriving.py  files on their way: bounded in size, resumable, checked against their digests
trying.py    whether one can be served: found out in a process of its own, with limits
"""
