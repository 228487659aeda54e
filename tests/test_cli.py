"""The command `cans`: one JSON document, one line for bad input, exit codes, and a quick start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cans
from cans import cli
from cans.errors import CansError

QUICK = ["--devices", "5", "--rounds", "60", "--seeds", "2", "--engine", "reference"]
DOCUMENT = {
    "model", "policy", "world", "devices", "rounds", "gamma", "delivery", "engine", "seeds",
    "runs", "mean", "std", "rounds_per_second",
}  # fmt: skip
RUN = {
    "seed", "regret_ms", "mean_latency_ms", "estimation_error_ms", "uploads", "bytes", "picks",
    "picks_by_type", "probes", "ties", "trials",
}  # fmt: skip
SUMMARY = {"regret_ms", "mean_latency_ms", "estimation_error_ms", "uploads", "bytes"}


def cans_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cans", *arguments], capture_output=True, text=True, check=False
    )


def test_json_is_all_there_is_on_standard_output() -> None:
    done = cans_command("simulate", "--policy", "fedlinucb-dw", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(document) == DOCUMENT
    assert document["seeds"] == [0, 1]
    for run in document["runs"]:
        assert set(run) == RUN
        assert sum(run["picks"].values()) == 60
    assert set(document["mean"]) == set(document["std"]) == SUMMARY
    assert done.stderr == ""

    # the Python function gives the same numbers
    result = cans.simulate("vgg16", "fedlinucb-dw", devices=5, rounds=60, seeds=2,
                           engine="reference")  # fmt: skip
    ours, theirs = result.to_dict(), document
    ours.pop("rounds_per_second"), theirs.pop("rounds_per_second")
    assert json.loads(json.dumps(ours)) == theirs


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulate", "--rounds", "x"], "--rounds"),
        (["simulate", "--nope"], "--nope"),
        (["frob"], "frob"),
        (["inspect"], "MODEL"),
    ],
)
def test_what_the_parser_refuses_is_one_line_too(arguments, said) -> None:
    done = cans_command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("cans: ")
    assert said in line


def test_a_reader_that_leaves_early_is_no_crash() -> None:
    done = subprocess.run(
        f"{sys.executable} -m cans simulate --json {' '.join(QUICK)} | true",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_output_that_a_full_disk_does_not_take_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cans", "models", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "cans: cannot write the output: No space left on device\n"


def test_without_json_there_is_a_table() -> None:
    done = cans_command("simulate", "--policy", "local", *QUICK)
    assert done.returncode == 0
    assert "regret" in done.stdout
    assert "mean" in done.stdout


def test_policies_that_predict_nothing_have_no_error() -> None:
    document = cans.simulate(
        "vit_b16", "random", devices=2, rounds=10, seeds=1, engine="reference"
    ).to_dict()
    assert document["runs"][0]["estimation_error_ms"] is None
    json.loads(json.dumps(document, allow_nan=False))


BAD = [
    ("--model", "alexnet", "vgg16, resnet50, vit_b16"),
    ("--policy", "magic", "fedlinucb-dw"),
    ("--world", "mars", "paper, literal, layered"),
    ("--engine", "steam", "fast, reference"),
    ("--delivery", "pigeon", "immediate, next-contact"),
    ("--model", "mobilenet_v2", 'model = "mobilenet_v2" in WORLD.toml'),
    ("--model", "own.onnx", 'model = "own.onnx" in WORLD.toml'),
    ("--noise", "pink", "gaussian, truncated, lognormal"),
    ("--participation", "never", "uniform, round-robin"),
    ("--gamma-mode", "hour", "device, round"),
    ("--rounds", "0", "rounds must be at least 1"),
    ("--rounds", "-5", "rounds must be at least 1"),
    ("--rounds", "100000000001", "rounds must be at most 100,000,000"),
    ("--devices", "0", "devices must be at least 1"),
    ("--devices", "1000000000", "devices must be at most 1,000,000"),
    ("--pool-age", "-1", "pool_age must be 0 or more"),
    ("--pool-age", "nan", "pool_age must be 0 or more"),
    ("--seeds", "0", "seeds must be at least 1"),
    ("--gamma", "nan", "gamma must be"),
    ("--gamma", "-0.1", "gamma must be"),
    ("--gamma", "1", "gamma must be"),
    ("--ridge", "nan", "ridge must be"),
    ("--ridge", "0", "ridge must be"),
    ("--ridge", "inf", "ridge must be"),
    ("--alpha", "nan", "alpha must be"),
    ("--alpha", "-1", "alpha must be"),
    ("--beta-ms", "nan", "beta_ms must be"),
    ("--beta-ms", "-1", "beta_ms must be"),
    ("--beta-ms", "inf", "beta_ms must be"),
    ("--beta-ms", "wide", "--beta-ms must be"),
]


@pytest.mark.parametrize(("option", "value", "reason"), BAD)
def test_bad_input_says_why(option, value, reason) -> None:
    result = CliRunner().invoke(cli.app, ["simulate", *QUICK, "--json", option, value])
    assert isinstance(result.exception, CansError)
    assert result.exception.exit_code == 2
    assert reason in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""


IGNORED = [
    ("--gamma", "0.3"),
    ("--gamma-mode", "round"),
    ("--noise", "gaussian"),
    ("--participation", "round-robin"),
    ("--engine", "fast"),
    ("--delivery", "next-contact"),
    ("--trace", "mobilenet_v2"),
    ("--delay", "3"),
    ("--pool-age", "5"),
]


@pytest.mark.parametrize(("option", "value"), IGNORED)
def test_what_a_crowd_knows_nothing_of_is_refused(option: str, value: str) -> None:
    result = CliRunner().invoke(cli.app, ["simulate", "--world", "crowded", option, value])
    assert str(result.exception) == f"{option}: not in world 'crowded'"


def test_a_crowd_has_sizes_too() -> None:
    for option, most in (("--devices", "1,000,000"), ("--rounds", "100,000,000")):
        words = ["simulate", "--world", "crowded", option, "100000000001"]
        result = CliRunner().invoke(cli.app, words)
        assert f"must be at most {most}, not" in str(result.exception)


def test_no_memory_is_one_line(monkeypatch, capsys) -> None:
    def fails(**_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    assert capsys.readouterr().err == "cans: not enough memory for what was asked\n"


def test_bad_input_is_one_line_and_exit_code_2() -> None:
    done = cans_command("simulate", "--model", "alexnet", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "cans: unknown model 'alexnet'; choose one of: vgg16, resnet50, vit_b16"
    ]


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['cans', '--help']\n"
        "from cans.cli import app\n"
        "try: app()\n"
        "except SystemExit as done: assert not done.code\n"
        "heavy = {'numba', 'matplotlib', 'onnx', 'onnxruntime', 'grpc', 'networkx', 'PIL'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "simulate" in done.stdout
    assert done.stderr.strip() == "[]"


def test_version() -> None:
    assert cans_command("--version").stdout == f"cans {cans.__version__}\n"
