"""`cans inspect`, `verify`, `split` and `plan`. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cans.errors import InputError, RunError, unknown_name

if TYPE_CHECKING:
    from cans.models.codecs.image import ImageSpec
    from cans.models.onnx.model import Model
    from cans.models.points.points import Point

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="ONNX file or built-in name.")]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1x3x224x224",
        help="Fix an input's open dimensions; 32..640: any size between.",
    ),
]
TensorsOption = Annotated[int, typer.Option("--max-tensors", help="Tensors that may cross a cut.")]
PointsOption = Annotated[
    int | None, typer.Option("--max-points", help="Keep only this many points, the most useful.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ProviderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--provider", metavar="NAME[,KEY=VALUE]", help="Execution provider; several: in order."
    ),
]
OptimisationOption = Annotated[
    str, typer.Option(help="How much graphs are rewritten: all, extended, basic or none.")
]
ImageOption = Annotated[
    str | None,
    typer.Option(
        "--image", metavar="MEAN/STD", help="The input is a picture, normalised by these."
    ),
]


def register(app: typer.Typer) -> None:
    """Mount this layer's commands."""
    panel = "Cut a model"
    app.command(
        rich_help_panel=panel, epilog="\b\nExample:\n  cans inspect resnet50.onnx --plot points.png"
    )(inspect)
    app.command(rich_help_panel=panel, epilog="\b\nExample:\n  cans verify mobilenet_v2")(verify)
    app.command(
        rich_help_panel=panel,
        epilog="\b\nExample:\n  cans split resnet50.onnx --at 7 --out halves",
    )(split)
    app.command(
        rich_help_panel=panel,
        epilog="\b\nExample:\n  cans plan vgg16 --device-gmacs 10 --server-gmacs 200 --mbps 50",
    )(plan)


def inspect(
    model: ModelArgument,
    shape: ShapeOption = None,
    max_tensors: TensorsOption = 1,
    max_points: PointsOption = None,
    as_json: JsonOption = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw work and crossing bytes.")
    ] = None,
) -> None:
    """List the partition points of a model. Each with what crosses, and the work on both sides."""
    from cans.models.points.points import hint
    from cans.models.tools.describe import describe, json_text, spelled_macs

    loaded, points = _load(model, shape, max_tensors, max_points)
    if plot is not None:
        from cans.models.tools.plotting import plot as draw

        draw(loaded.name, points, plot)
    if as_json:
        print(json_text(describe(loaded, points)))
        return
    said = hint(loaded, points, max_tensors)
    total = max(points[-1].front.total_macs, 1)
    work = spelled_macs(points[-1].front.total_macs)
    print(f"{loaded.name}: {work}, {len(points)} points, {loaded.digest[:12]}")
    rows = [
        [
            str(point.index),
            _short(point.name),
            " ".join(each.dims or "scalar" for each in point.tensors),
            f"{point.bytes:,}",
            f"{100 * point.front.total_macs / total:.1f}",
            f"{point.front.weight_bytes / 1e6:.1f}",
            f"{point.back.weight_bytes / 1e6:.1f}",
        ]
        for point in points
    ]
    _print_table(["#", "point", "crossing", "bytes", "front MACs %", "front MB", "back MB"], rows)
    if said:
        print(said)


def verify(
    model: ModelArgument,
    shape: ShapeOption = None,
    max_tensors: TensorsOption = 1,
    max_points: PointsOption = None,
    codec: Annotated[str, typer.Option(help="How the crossing tensors are written.")] = "float32",
    image: ImageOption = None,
    samples: Annotated[int | None, typer.Option(help="Inputs to try (lossy codecs: 4).")] = None,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Real inputs: .npz or .npy."),
    ] = None,
    provider: ProviderOption = None,
    threads: Annotated[int, typer.Option(help="Threads of one session; 0: all cores.")] = 1,
    optimisation: OptimisationOption = "all",
    as_json: JsonOption = False,
) -> None:
    """Run every cut and compare with the whole model."""
    from cans.models.codecs.codec import get_codec
    from cans.models.run.runtime import RuntimeOptions
    from cans.models.tools.describe import json_text
    from cans.models.tools.verifying import verify as run

    spec = _image(image)
    lossy = get_codec(codec, spec).lossy
    count = samples if samples is not None else (4 if lossy else 1)
    if count < 1:
        raise InputError("--samples must be at least 1")
    runtime = RuntimeOptions.parse(provider or (), threads, optimisation)
    given = None if input_file is None else _arrays(input_file, model)
    loaded, points = _load(model, shape, max_tensors, max_points, given)
    report = run(loaded, points, codec, spec, count, given, runtime)
    if as_json:
        print(json_text(report))
    else:
        _print_report(report)
    if report["verdict"] == "differs":
        raise RunError(
            f"{loaded.name}: split differs from whole by {report['worst_error']:.1e} "
            f"(allowed {report['tolerance']:.0e})"
        )
    if report["verdict"] == "unproven":
        raise RunError(
            f"{loaded.name}: nothing is shown, {'; '.join(report['remarks'])}. "
            "Give real inputs with --input FILE.npz"
        )


def split(
    model: ModelArgument,
    at: Annotated[str, typer.Option("--at", metavar="POINT", help="Index or name of the cut.")],
    out: Annotated[Path, typer.Option(help="Folder for the two halves.")],
    triton: Annotated[
        bool, typer.Option("--triton", help="Write a model repository with config.pbtxt.")
    ] = False,
    shape: ShapeOption = None,
    max_tensors: TensorsOption = 1,
    max_points: PointsOption = None,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="Real inputs to compare on: .npz or .npy."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the two halves of a cut as ONNX files. They are proved equal to the whole first."""
    from cans.models.tools.describe import json_text
    from cans.models.tools.halves import point_named, write_halves

    given = None if input_file is None else _arrays(input_file, model)
    loaded, points = _load(model, shape, max_tensors, max_points, given)
    point = point_named(points, at)
    document = write_halves(loaded, point, out, triton=triton, given=given)
    if as_json:
        print(json_text(document))
        return
    for side in ("front", "back"):
        print(f"{side}-end: {out / document[side]['file']}")
    print(f"{loaded.name}: the halves equal the whole, worst error {document['max_error']:.1e}")


def plan(
    model: ModelArgument,
    device_gmacs: Annotated[float, typer.Option(help="The device's speed, GMAC/s.")],
    server_gmacs: Annotated[float, typer.Option(help="The server's speed, GMAC/s.")],
    mbps: Annotated[float, typer.Option(help="The link, megabits per second.")],
    rtt_ms: Annotated[float, typer.Option(help="Added once when anything is sent.")] = 0.0,
    method: Annotated[str, typer.Option(help="neurosurgeon or dads.")] = "neurosurgeon",
    codec: Annotated[str, typer.Option(help="How the crossing tensors are written.")] = "float32",
    image: ImageOption = None,
    shape: ShapeOption = None,
    max_tensors: TensorsOption = 1,
    max_points: PointsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where to cut when all speeds are known."""
    from cans.models.codecs.codec import get_codec
    from cans.models.tools import planning
    from cans.models.tools.describe import json_text

    if method not in planning.METHODS:
        raise unknown_name("method", method, planning.METHODS)
    spec = _image(image)
    get_codec(codec, spec)
    speeds = planning.Speeds(device_gmacs, server_gmacs, mbps, rtt_ms)
    if method == "dads":
        from cans.models.onnx.loading import load
        from cans.models.run.inputs import parse_ranges

        highest, _ = parse_ranges(shape or ())  # of a range: its largest size, as by points
        loaded = load(model, highest)
        result = planning.dads(loaded, speeds, codec)
    else:
        loaded, points = _load(model, shape, max_tensors, max_points)
        result = planning.neurosurgeon(points, speeds, codec, spec)
    if as_json:
        print(json_text({"model": loaded.name, "digest": loaded.digest, **result}))
        return
    where = result.get("name") or ", ".join(result["crossing"]) or "nothing crosses"
    print(
        f"{loaded.name}, {method}: cut at {where}: {result['latency_ms']:.2f} ms "
        f"(device {result['front_ms']:.2f}, link {result['transfer_ms']:.2f}, "
        f"server {result['back_ms']:.2f})"
    )


def _arrays(path: Path, model: str) -> dict[str, Any]:
    from cans.models.onnx.loading import input_names
    from cans.models.run.inputs import read_arrays

    return read_arrays(path, input_names(model))


def _load(
    source: str,
    shape: list[str] | None,
    max_tensors: int,
    max_points: int | None,
    inputs: dict[str, Any] | None = None,
) -> tuple[Model, tuple[Point, ...]]:
    from cans.models.onnx.loading import load
    from cans.models.points.points import find_points
    from cans.models.run.inputs import parse_ranges

    highest, lowest = parse_ranges(shape or ())
    model = load(source, highest, inputs, lowest)
    return model, find_points(model, max_tensors, max_points)


def _image(text: str | None) -> ImageSpec | None:
    from cans.models.codecs.image import ImageSpec

    return None if text is None else ImageSpec.parse(text)


def _print_report(report: dict[str, Any]) -> None:
    rows = [
        [
            str(row["index"]),
            _short(row["name"]),
            f"{row['encoded_bytes']:,}",
            f"{row['max_error']:.1e}",
            "" if row["top1_agreement"] is None else f"{100 * row['top1_agreement']:.1f}",
        ]
        for row in report["points"]
    ]
    _print_table(["#", "point", "bytes sent", "max error", "top-1 %"], rows)
    verdict = {
        "equal": "split equals whole",
        "differs": "SPLIT DIFFERS",
        "lossy": "lossy codec",
        "unproven": "NOTHING IS SHOWN",
    }[report["verdict"]]
    print(f"{report['model']}: {verdict}, worst error {report['worst_error']:.1e}")
    for remark in report["remarks"]:
        print(f"  {remark}")


def _print_table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [
            cell.ljust(width)
            if i in (1, 2) and head[i] in ("point", "crossing")
            else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _short(name: str, limit: int = 48) -> str:
    return name if len(name) <= limit else f"…{name[1 - limit :]}"
