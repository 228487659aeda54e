"""Back-ends as actors of a Ray cluster. The front door stays in this process.

options.py   how          sources.py   how a model gets to a node
replicas.py  an actor with one model, and the runner that gives it work
channel.py   how tensors get to it
pool.py      replicas that follow demand, behind the seam `BackEndPool`
"""
