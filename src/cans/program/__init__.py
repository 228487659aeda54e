"""Programs that were written for onnxruntime, with a server's help.

session.py   `cans.InferenceSession`: onnxruntime's own, whose `run` may be helped
helper.py    a session's device: when it can help, and why it cannot
hook.py      an unmodified program's sessions become ours; startup/ is how Python finds it
commands.py  `cans run`
"""
