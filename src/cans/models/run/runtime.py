"""How sessions run: threads, execution providers and their options, how much is optimised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnxruntime as ort

from cans.errors import InputError, unknown_name

CPU = "CPUExecutionProvider"
_SUFFIX = "ExecutionProvider"
OPTIMISATIONS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "none": "ORT_DISABLE_ALL",
}


@dataclass(frozen=True)
class Provider:
    """An execution provider and its options, as ONNX Runtime names them."""

    name: str = CPU
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Provider:
        """`NAME[,KEY=VALUE...]`; the name in full or short, in any case.

        >>> Provider.parse("cpu")
        Provider(name='CPUExecutionProvider', options=())
        """
        name, *pairs = text.split(",")
        available = ort.get_available_providers()
        known = {_short(each).lower(): each for each in available}
        found = known.get(_short(name.strip()).lower())
        if found is None:
            raise unknown_name("execution provider", name, map(_short, available))
        options = []
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise InputError(f"--provider must be NAME[,KEY=VALUE...], got {text!r}")
            options.append((key.strip(), value.strip()))
        return cls(found, tuple(options))


@dataclass(frozen=True)
class RuntimeOptions:
    """How sessions run; checked when made."""

    threads: int = 1  # of one session; 0: as many as there are cores
    providers: tuple[Provider, ...] = (Provider(),)  # tried in order for every operation
    optimisation: str = "all"  # how much the runtime rewrites a graph

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise InputError("--threads must be at least 1, or 0 for all cores")
        if self.optimisation not in OPTIMISATIONS:
            raise unknown_name("optimisation", self.optimisation, OPTIMISATIONS)

    @classmethod
    def parse(
        cls, providers: Sequence[str] = (), threads: int = 1, optimisation: str = "all"
    ) -> RuntimeOptions:
        """As on the command line; says what is available when a provider is not."""
        found = tuple(Provider.parse(each) for each in providers)
        return cls(threads, found or (Provider(),), optimisation)

    @property
    def on_cpu(self) -> bool:
        """Whether the plain runtime does all the work: then every session maps one copy of the
        weights, and results are reproducible to rounding. Other providers keep their own copies."""
        return all(each.name == CPU for each in self.providers)

    @property
    def own_copies(self) -> str:
        """A sentence on weights that cuts do not share; empty: they share them all.

        >>> RuntimeOptions(providers=(Provider("XExecutionProvider"),)).own_copies
        'X keeps a copy of its weights for every cut in use'
        """
        names = ", ".join(_short(each.name) for each in self.providers if each.name != CPU)
        return f"{names} keeps a copy of its weights for every cut in use" if names else ""

    @property
    def spelled(self) -> str:
        """For people: where inferences run.

        >>> RuntimeOptions().spelled
        'CPU, 1 thread'
        """
        threads = "all cores" if self.threads == 0 else f"{self.threads} thread"
        many = "s" if self.threads > 1 else ""
        return f"{', '.join(_short(each.name) for each in self.providers)}, {threads}{many}"

    def session_options(self) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = getattr(
            ort.GraphOptimizationLevel, OPTIMISATIONS[self.optimisation]
        )
        if self.threads != 1:
            # Every session has its own threads; those of idle sessions must not burn the cores.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options

    def provider_list(self) -> list[tuple[str, dict[str, str]]]:
        return [(each.name, dict(each.options)) for each in self.providers]


def _short(name: str) -> str:
    return name.removesuffix(_SUFFIX)
