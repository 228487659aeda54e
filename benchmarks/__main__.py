"""Runs every benchmark module's `run() -> dict`, writes JSON to benchmarks/results/ and prints it.

python -m benchmarks [name ...]
"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

HERE = Path(__file__).parent
PACKAGES = ("numpy", "numba", "mabwiser", "onnx", "onnxruntime", "grpcio")


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := installed(name))},
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def rounded(value: Any) -> Any:
    """Four significant digits are all that a measurement is worth."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return value


def main(wanted: list[str]) -> int:
    """Run the wanted benchmarks, all of them by default; 1 when one misses its bar."""
    missed = []
    for name in sorted(module.name for module in iter_modules([str(HERE)])):
        module = import_module(f"benchmarks.{name}")
        if not hasattr(module, "run") or (wanted and name not in wanted):
            continue
        result = rounded(module.run())
        (HERE / "results").mkdir(exist_ok=True)
        document = {"benchmark": name, "machine": machine(), **result}
        (HERE / "results" / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
        print(f"\n{name}: {(module.__doc__ or '').splitlines()[0]}")
        for key, value in result.items():
            if isinstance(value, dict):
                print(f"  {key}")
                for label, each in value.items():
                    print(f"    {label:40} {each}")
            else:
                print(f"  {key:42} {value}")
        missed += [f"{name}.{bar}" for bar, met in result.get("bars_met", {}).items() if not met]
    if missed:
        print(f"\nmissed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
