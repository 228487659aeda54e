"""The reference pages, made from the code when the site is built (a hook of MkDocs)."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def pages() -> dict[str, str]:
    """Every reference page as Markdown, by name."""
    return {
        "commands": commands(), "python": python(), "protocol": protocol(), "metrics": metrics(),
    }  # fmt: skip


# --- commands ---


def commands() -> str:
    import typer

    from cans import cli

    root: Any = typer.main.get_command(cli.app)
    parts = ["# Commands", "", "Made from the code; `cans COMMAND --help` says the same.", ""]
    for words, command in _commands(root):
        parts += _command(words, command)
    return "\n".join(parts)


def _commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands(command, (*before, name))
        else:
            yield (*before, name), command


def _command(words: tuple[str, ...], command: Any) -> list[str]:
    example = (command.epilog or "").split("Example:")[-1].strip()
    lines = [f"## cans {' '.join(words)}", "", inspect.cleandoc(command.help or ""), ""]
    if example:
        lines += ["```", example, "```", ""]
    lines += ["| | default | |", "|---|---|---|"]
    for each in command.params:
        if each.name == "help" or getattr(each, "hidden", False):
            continue
        names = " ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
        if each.param_type_name == "argument":
            names = f"`{each.metavar or each.name.upper()}`"
        default = "" if each.default is None or callable(each.default) else f"`{each.default}`"
        says = _cell(getattr(each, "help", "") or "")
        lines.append(f"| {names} | {_cell(default)} | {says} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


# --- Python ---


def python() -> str:
    import cans
    from cans.live.device.options import DeviceOptions
    from cans.live.device.reporting.report import Report

    parts = ["# Python", "", "The public names of `import cans`; made from the code.", ""]
    for name in cans.__all__:
        if name != "__version__":
            parts += _described(f"cans.{name}", getattr(cans, name))
    parts += ["## Keywords of cans.Device", "", *_fields(DeviceOptions)]
    parts += ["## device.last", "", *_fields(Report)]
    return "\n".join(parts)


def _described(name: str, thing: Any) -> list[str]:
    lines = [f"## {name}", ""]
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return [*lines, inspect.getdoc(thing) or "", ""]
    lines += ["```python", f"{name}{_signature(thing)}", "```", "", *_doc(thing)]
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            if member.startswith("_"):
                continue
            function = getattr(value, "__func__", value)
            if isinstance(value, property):
                lines += [f"**`{member}`** {_first(value)}", ""]
            elif inspect.isfunction(function):
                lines += [f"**`{member}{_signature(function)}`** {_first(function)}", ""]
    return lines


def _signature(thing: Any) -> str:
    text = str(inspect.signature(thing))
    return re.sub(r"\(self, ", "(", text.replace("(self)", "()")).replace("'", "")


def _doc(thing: Any) -> list[str]:
    text = inspect.getdoc(thing) or ""
    before, marked, after = text.partition(">>> ")
    if marked:
        return [before.strip(), "", "```python", f">>> {after}".rstrip(), "```", ""]
    return [text, ""]


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _fields(kind: Any) -> list[str]:
    """Fields of a dataclass with the comments behind them."""
    rows = ["| field | type | |", "|---|---|---|"]
    for line in inspect.getsource(kind).splitlines():
        found = re.match(r"    (\w+): ([^=#]+?)(?: = .*?)?(?:  # (.*))?$", line)
        if found:
            name, type_, says = found.groups()
            rows.append(f"| `{name}` | `{_cell(type_)}` | {_cell(says or '')} |")
    return [*rows, ""]


# --- protocol ---


def protocol() -> str:
    import cans.live.wire.proto as proto

    text = (Path(proto.__file__).parent / "cans" / "v1" / "edge.proto").read_text()
    service = text.partition("service Edge {")[2].partition("\n}")[0]
    rows, comment = ["| call | |", "|---|---|"], []
    for line in map(str.strip, service.splitlines()):
        if line.startswith("//"):
            comment.append(line[2:].strip())
        elif line.startswith("rpc"):
            found = re.match(r"rpc (\w+)\((.+?)\) returns \((.+?)\)", line)
            assert found is not None
            name, asked, answered = found.groups()
            rows.append(f"| `{name}`({asked}) → {answered} | {' '.join(comment)} |")
            comment = []
    intro = "gRPC, `cans.v1.Edge`; the Open Inference Protocol (v2) answers on the same port."
    return "\n".join(["# Protocol", "", intro, "", *rows, "", "```proto", text.rstrip(), "```", ""])


# --- metrics ---


def metrics() -> str:
    from cans.live.server.fleet.measures import BOUNDS, METRICS

    rows = ["| name | kind | labels | |", "|---|---|---|---|"]
    for name, each in METRICS.items():
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows.append(f"| `{name}` | {each.kind} | {labels} | {_cell(each.help)} |")
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS)
    says = (
        "`cans serve --metrics HOST:PORT`, for Prometheus. Names end with their unit; times are "
        f"seconds. Buckets of the histograms end at {bounds} seconds."
    )
    return "\n".join(["# Metrics", "", says, "", *rows, ""])
