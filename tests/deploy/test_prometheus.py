"""The metrics of a running server; alert rules and Grafana dashboard in a real Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cans.live.device.hooked import HookedDevice
from cans.live.server.fleet.measures import METRICS
from cans.live.server.metrics import Collector, expose
from tests.live.process import free_port
from tests.live.running import Running, running, terms
from tests.live.toy import example, toy

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "cans-rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "cans-fleet.json"


def used_names(text: str) -> set[str]:
    return set(re.findall(r"\bcans_[a-z_]+", text))


def known_names() -> set[str]:
    found = set()
    for name, metric in METRICS.items():
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {name + ending for ending in endings}
    return found


@pytest.fixture
def worked(tmp_path) -> Iterator[Running]:
    """A server that a device has used, there and locally."""
    split = toy()
    with (
        running(split, terms=terms("cans")) as server,
        HookedDevice(server.address, split, "rpi5", name="camera", state=tmp_path) as device,
    ):
        server.collector = Collector(server.server)  # type: ignore[attr-defined]
        server.metrics = free_port()  # type: ignore[attr-defined]
        expose(server.server, f"127.0.0.1:{server.metrics}")  # type: ignore[attr-defined]
        for row in (0, 0, 2, split.table.local, split.table.local):
            device.hooks.force = row
            device.infer(example())
        device.close()  # which tells what it has not told yet
        server.server.recorder.digest()
        yield server


def test_every_metric_is_counted_by_part_and_model(worked: Any) -> None:
    families = {family.name: family for family in worked.collector.collect()}
    assert {name.removesuffix("_total") for name in METRICS} == set(families)
    parts = families["cans_part_seconds"]
    counts = {
        each.labels["part"]: each.value for each in parts.samples if each.name.endswith("_count")
    }
    assert counts == {"front": 5, "total": 5, "wait": 3, "link": 3, "server": 3}
    assert {each.labels["model"] for each in parts.samples} == {"toy"}
    answered = {
        each.labels["answered_by"]: each.value for each in families["cans_inferences"].samples
    }
    assert answered == {"server": 3, "device": 2}
    states = {each.labels["state"]: each.value for each in families["cans_devices"].samples}
    assert states["local"] == 1
    backends = families["cans_backend_seconds"].samples
    assert next(each.value for each in backends if each.name.endswith("_count")) == 3
    for name, metric in METRICS.items():
        assert metric.help.endswith("."), name
        assert name.endswith("_total") == (metric.kind == "counter"), name


def test_rules_and_dashboard_use_names_that_exist() -> None:
    for file in (RULES, DASHBOARD):
        unknown = used_names(file.read_text()) - known_names() - {"cans_fleet"}
        assert unknown == set(), file.name


def _promtool(*words: str) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.fail("needs Prometheus: apt-get install -y prometheus", pytrace=False)
    done = subprocess.run([tool, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_real_prometheus_loads_and_answers_everything(worked: Any, tmp_path) -> None:
    metrics, web = worked.metrics, free_port()
    folder = tmp_path / "prometheus"
    shutil.copytree(ROOT / "deploy" / "prometheus", folder)
    config = folder / "prometheus.yml"
    text = config.read_text().replace("127.0.0.1:9464", f"127.0.0.1:{metrics}")
    config.write_text(text.replace("15s", "1s"))
    _promtool("check", "config", str(config))
    _promtool("check", "rules", str(folder / "cans-rules.yml"))
    program = shutil.which("prometheus")
    assert program is not None
    process = subprocess.Popen(
        [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
         f"--web.listen-address=127.0.0.1:{web}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _until(lambda: _query(web, 'cans_uploads_total{verdict="merged"}'))
        rules = _get(web, "/api/v1/rules")["groups"][0]["rules"]
        _until(lambda: all(each["health"] == "ok" for each in
                           _get(web, "/api/v1/rules")["groups"][0]["rules"]))  # fmt: skip
        assert len([each for each in rules if each["type"] == "alerting"]) == 7
        panels = json.loads(DASHBOARD.read_text())["panels"]
        assert len(panels) == 14
        for panel in panels:
            for target in panel["targets"]:
                _query(web, target["expr"].replace("$model", ".*"))  # raises if it is no query
        assert _query(web, 'cans_part_seconds_count{part="total",model="toy"}')
    finally:
        process.terminate()
        process.wait(20)


def _get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return json.load(answer)["data"]


def _query(port: int, expression: str) -> Any:
    return _get(port, "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))["result"]


def _until(done: Any, seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if done():
                return
        except OSError:
            pass
        assert time.monotonic() < end, "Prometheus did not answer in time"
        time.sleep(0.5)
