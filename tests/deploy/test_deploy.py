"""What is shipped can be installed, and what is in deploy/ can be used."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from live.running import running
from program.networks import classifier, served

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64")


def done(*command: object, **more: object) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, check=False, **more
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.mark.parametrize("unit", ["cans-server.service", "cans-device@.service"])
def test_units_are_valid_and_hardened(unit: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / unit).read_text()
    for line in ("DynamicUser=yes", "ProtectSystem=strict", "Restart=always", "StateDirectory="):
        assert line in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    # where the command is, which the unit's own place does not exist on this machine
    copy = tmp_path / unit.replace("@", "@camera")
    copy.write_text(text.replace("/opt/cans/bin/cans", "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in checked.stderr.splitlines() if copy.name in line]
    assert complaints == []


def test_commands_of_the_units_and_the_container_exist() -> None:
    """Every option in a unit, the container or the example is one that its command has."""
    options = {
        name: subprocess.run(
            [sys.executable, "-m", "cans", name, "--help"],
            capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "200"},
        ).stdout
        for name in ("serve", "run")
    }  # fmt: skip
    texts = [each.read_text() for each in (*DEPLOY.glob("systemd/*"), *DEPLOY.glob("example/*"))]
    for text in texts:
        for line in re.findall(r'(?:^ExecStart=.*|\w+_OPTIONS=".*")', text, re.MULTILINE):
            name = "serve" if "CANS_SERVE_" in line else "run"
            for option in re.findall(r"--[a-z-]+[a-z]", line):
                assert option in options[name], line
    entry = re.search(r"^ENTRYPOINT (.*)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert entry is not None
    for option in (each for each in json.loads(entry.group(1)) if each.startswith("--")):
        assert option in options["serve"]


def test_the_example_s_environment_files_parse() -> None:
    for file in DEPLOY.glob("example/*.env"):
        for line in file.read_text().splitlines():
            name, _, value = line.partition("=")
            assert name.isidentifier()
            assert len(shlex.split(value)) == 1, line


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    source = folder / "source"  # a copy: building leaves traces
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    done(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    """Base dependencies only; a device of it against a server, and a program under `cans run`."""
    done(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    done(python, "-m", "pip", "install", "-q", wheel)
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    clean |= {"HOME": str(tmp_path), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    extras = "import importlib.util as u; print([n for n in ('numba', 'ray') if u.find_spec(n)])"
    assert done(python, "-c", extras, env=clean).stdout == "[]\n"
    model = classifier(tmp_path / "classifier.onnx")
    with running(served(model)) as server:
        device = ["cans", "device", "--server", server.address, "--model", model, "--count", 5]
        document = json.loads(done(*device, "--json", env=clean, cwd=tmp_path).stdout)
        assert (document["answered"], document["failed"]) == (5, 0)
        app = (
            "import numpy, onnxruntime as o; s = o.InferenceSession('classifier.onnx');"
            "print(s.run(None, {'x': numpy.ones((1, 3, 16, 16), 'float32')})[1], s.local_because)"
        )
        run = ["cans", "run", "--server", server.address, "--wait", "--", "python", "-c", app]
        assert re.fullmatch(r"\[\d\] \n", done(*run, env=clean, cwd=tmp_path).stdout)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_a_raspberry_pi_needs_no_compiler(version: str, tmp_path: Path) -> None:
    """Every base dependency, and all that those need, exists as a wheel for aarch64."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    platforms = [part for each in PLATFORMS for part in ("--platform", each)]
    done(
        sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed",
        "--only-binary=:all:", "--python-version", version, *platforms,
        "--target", tmp_path / "none", *project["dependencies"],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_steps_of_the_containerfile(wheel: Path, tmp_path: Path) -> None:
    """Its RUN lines as a script, in folders of this test: what needs root is left out."""
    text = (DEPLOY / "Containerfile").read_text()
    places = {
        "/opt/cans": str(tmp_path / "opt"),
        "/tmp/": f"{tmp_path}/",
        "python -m": f"{sys.executable} -m",
    }
    shutil.copy(wheel, tmp_path)
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for step in re.findall(r"^RUN (.*)$", text, re.MULTILINE):
        if step.startswith("useradd"):
            continue
        # All at once: what stands in for one place may contain the name of another.
        here = re.sub("|".join(map(re.escape, places)), lambda found: places[found.group()], step)
        done("sh", "-euc", here, env=clean)
    cans = tmp_path / "opt" / "bin" / "cans"
    assert "serve" in done(cans, "--help", env=clean).stdout
    needs = "import grpc_health, psycopg, prometheus_client"
    done(tmp_path / "opt" / "bin" / "python", "-c", needs, env=clean)


def builder() -> str:
    """A program that builds and runs containers here; empty: there is none, or it has no engine."""
    for name in ("podman", "docker"):
        found = shutil.which(name)
        if (
            found
            and not subprocess.run([found, "info"], capture_output=True, check=False).returncode
        ):
            return found
    return ""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not builder(), reason="no container engine: its steps are tested as a script")
def test_the_container_serves_a_device(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    shutil.copy(wheel, tmp_path / "dist")
    engine, image = builder(), f"cans-test-{os.getpid()}"
    done(engine, "build", "-q", "-f", DEPLOY / "Containerfile", "-t", image, tmp_path)
    name = done(engine, "run", "-d", "--rm", "-p", "127.0.0.1:0:7070", image).stdout.strip()
    try:
        address = done(engine, "port", name, "7070").stdout.split()[0]
        command = [sys.executable, "-m", "cans", "device", "--server", address, "--json"]
        document = json.loads(done(*command, "--count", 3, cwd=tmp_path).stdout)
        assert (document["answered"], document["failed"]) == (3, 0)
    finally:
        done(engine, "kill", name)
        done(engine, "rmi", "-f", image)
