"""From a TOML file, or the name of a shipped experiment, to an `Experiment`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from cans.errors import InputError
from cans.testbed.run.experiment import Experiment
from cans.toml_file import parsed, read_toml

_SHIPPED = files("cans.testbed.run") / "experiments"


def shipped() -> list[str]:
    """Names of the experiments that come with the package."""
    names = (each.name for each in _SHIPPED.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_experiment(source: str) -> Experiment:
    """The experiment of a file or a shipped name; whatever is wrong is one clear line."""
    path = Path(source)
    if path.suffix != ".toml" and source in shipped():
        text = (_SHIPPED / f"{source}.toml").read_text(encoding="utf-8")
    else:
        try:
            text = read_toml(path)
        except InputError as error:
            raise InputError(f"{error}; shipped: {', '.join(shipped())}") from None
    return parsed(Experiment, text, source)
