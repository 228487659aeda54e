"""The section "Beyond the paper": policy `cans` in worlds that the paper does not have.

`studies.py` runs what `beyond.toml` lists, `bars.py` judges it (with `scenes.py` and
`ingredients.py`) and `section.py` shows it. All of it is apart from the paper's experiments, whose
results it does not touch.
"""
