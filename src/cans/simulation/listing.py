"""`cans policies`, `cans worlds` and `cans models`: what there is, one line each."""

from __future__ import annotations

import json
from dataclasses import fields
from inspect import cleandoc
from typing import Annotated, Any

import typer

from cans.learning.policies import (
    ABLATIONS,
    CLUSTERED,
    DEFAULT_POLICY,
    POLICIES,
    VARIANTS,
    Choose,
    Policy,
    Pool,
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]
_SHARED = {
    Pool.DEVICE: "alone",
    Pool.GROUP: "with its group",
    Pool.NETWORK: "with its network",
    Pool.EVERYONE: "with everyone",
}
_FIXED = {
    Choose.UNIFORM: "any choice, at random",
    Choose.LOCAL: "always the whole model on the device",
    Choose.OFFLOAD: "always the whole model on the server",
}
_ABLATED = {
    "cans-eager": "every observation is uploaded at once",
    "cans-two-parts": "link and server are one part",
    "cans-no-deviations": "no choice deviates from its line",
    "cans-stale-pools": "a pool is adopted only after an upload of one's own",
    "cans-all-points": "every point is considered",
    "cans-one-codec": "the first codec alone is considered",
    "cans-any-sign": "coefficients may be negative",
    "cans-fixed-radius": "the width is a constant radius",
    "cans-no-detector": "a change of a pool is not detected",
    "cans-no-probes": "a device that stays local times no exchanges",
    "cans-no-offset": "devices of a pool are taken to be alike",
    "cans-labels": "devices are grouped by their label alone",
}
_TRACE = "Measured inferences, played back (--trace FILE.csv, or a shipped one: {shipped})."
_CROWDED = "Everyone at once: requests wait for each other at the server (--workers, --load)."


def register(app: typer.Typer) -> None:
    """Mount the three commands."""
    app.command(rich_help_panel="Study", epilog="\b\nExample:\n  cans policies --json")(policies)
    app.command(rich_help_panel="Study", epilog="\b\nExample:\n  cans worlds")(worlds)
    app.command(rich_help_panel="Cut a model", epilog="\b\nExample:\n  cans models")(models)


def policies(as_json: AsJson = False) -> None:
    """List the learning methods. Each with what it learns, and with whom."""
    known = {**POLICIES, **VARIANTS, **CLUSTERED, **ABLATIONS}
    rows = [
        {"name": name, "about": about(each), "simulation_only": _only_simulated(each),
         "default": name == DEFAULT_POLICY}
        for name, each in known.items()
    ]  # fmt: skip
    _print(rows, as_json)


def worlds(as_json: AsJson = False) -> None:
    """List the worlds of `cans simulate`. One of your own is a file, WORLD.toml."""
    from cans.simulation.worlds.named import OBJECT_LOOP_WORLDS, WORLDS
    from cans.simulation.worlds.trace_file import shipped_traces

    described = {
        name: _first_paragraph(make) for name, make in {**WORLDS, **OBJECT_LOOP_WORLDS}.items()
    }
    trace = _TRACE.format(shipped=", ".join(shipped_traces()))
    described |= {"trace": trace, "crowded": _CROWDED}
    _print([{"name": name, "about": text} for name, text in described.items()], as_json)


def models(as_json: AsJson = False) -> None:
    """List the built-in models. Each with its input, work and number of partition points."""
    from cans.models.builtin import NAMES
    from cans.models.onnx.loading import load
    from cans.models.points.points import find_points
    from cans.models.tools.describe import spelled_macs

    rows = []
    for name in NAMES:
        model = load(name)
        points = find_points(model)
        macs, shape = points[-1].front.total_macs, model.inputs[0].shape
        size = "x".join(map(str, shape))
        text = f"input {size}, {spelled_macs(macs)}, {len(points)} points"
        rows.append({"name": name, "about": text, "input": list(shape), "macs": macs,
                     "points": len(points), "digest": model.digest})  # fmt: skip
    _print(rows, as_json)


def about(policy: Policy) -> str:
    """A policy in one line, made from its data.

    >>> about(POLICIES["fedlinucb-dw"])
    'FedLinUCB-DW: learns front with its group (warm start), link + server with everyone'
    >>> about(ABLATIONS["cans-all-points"])
    'cans, but every point is considered (physical.prune = False)'
    """
    cans = POLICIES[DEFAULT_POLICY]
    if policy.physical is not None and policy is not cans:
        changed = ", ".join(_differences(policy, cans))
        words = _ABLATED.get(policy.name)
        return f"{cans.name}, but {f'{words} ({changed})' if words else changed}"
    said = [_FIXED[policy.choose]] if policy.choose in _FIXED else []
    if policy.knows:
        when = "as it is" if policy.truth else "from a profile"
        said.append(f"knows {' + '.join(policy.knows)} {when}")
    if policy.parts:
        learned = ", ".join(
            f"{' + '.join(part.explains)} {_SHARED[part.pool]}{' (warm start)' * part.warm}"
            for part in policy.parts
        )
        said.append(f"learns {learned}")
    traits = {
        "the default": policy is cans,
        "pools always fresh": policy.fresh,
        "physical estimates": policy.physical is not None,
        "Thompson sampling": policy.choose is Choose.SAMPLED,
        "all synchronise at once": policy.fleet_sync,
        "finds who is alike": policy.clusters is not None,
        "simulation only": _only_simulated(policy),
    }
    said += [trait for trait, has in traits.items() if has]
    return f"{policy.title}: {'; '.join(said)}"


def _only_simulated(policy: Policy) -> bool:
    """Servers refuse it: it needs what no deployment has."""
    return policy.simulation_only or bool(policy.knows)


def _differences(policy: Any, other: Any) -> list[str]:
    """Where two values of one class differ, by field; a field of all parts is said once."""
    found: dict[str, None] = {}
    for each in fields(policy):
        ours, theirs = getattr(policy, each.name), getattr(other, each.name)
        if each.name in ("name", "title") or ours == theirs:
            continue
        if each.name == "physical":
            found |= dict.fromkeys(f"physical.{text}" for text in _differences(ours, theirs))
        elif each.name == "parts" and len(ours) == len(theirs):
            for mine, its in zip(ours, theirs, strict=True):
                found |= dict.fromkeys(f"part.{text}" for text in _differences(mine, its))
        elif each.name == "parts":
            found[f"parts = {', '.join(part.name for part in ours)}"] = None
        else:
            found[f"{each.name} = {ours}"] = None
    return list(found)


def _first_paragraph(made: Any) -> str:
    return " ".join(cleandoc(made.__doc__ or "").split("\n\n")[0].split())


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows))
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        typer.echo(f"{row['name']:<{width}}  {row['about']}")
