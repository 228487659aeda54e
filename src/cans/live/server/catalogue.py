"""The models a server offers, and which uploads and tensors belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cans.errors import InputError, Refused, RemoteProtocolError
from cans.learning import PoolKey
from cans.learning.arithmetic.arrays import Array
from cans.learning.device.part import observable
from cans.learning.edge import MergeRules, rules_of
from cans.learning.policies import Pool
from cans.live.split import SplitModel, TensorSpec
from cans.live.wire.inference import TensorMeta
from cans.live.wire.terms import Terms

_SCOPES = {Pool.GROUP: "group:", Pool.NETWORK: "network:"}


class Catalogue:
    """Finds models by name or digest and refuses what does not fit them."""

    def __init__(self, models: Iterable[SplitModel], terms: Terms) -> None:
        self.terms = terms
        given = tuple(models)
        self._by_digest = {each.digest: each for each in given}
        self._by_name = {each.name: each for each in given}
        self._given: set[str] = set()  # names of models that devices gave
        if len(self._by_name) < len(given):
            raise InputError("two models have the same name; rename a file")
        self.when_removed: list[Callable[[], None]] = []
        self.shared_parts = tuple(part for part in terms.policy.parts if part.shared)
        self._parts = {part.name: part for part in self.shared_parts}
        self._rows: dict[tuple[str, str], Array] = {}
        self._rules = {
            name: rules_of(terms.policy, terms.hyperparameters, name) for name in self._parts
        }

    @property
    def models(self) -> tuple[SplitModel, ...]:
        return tuple(self._by_name.values())

    def put(self, model: SplitModel, given: bool = False) -> None:
        """Offer a model, instead of the one of the same name if there is one; `given`: by a device,
        so that nobody gets it who has not asked for it."""
        self.remove(model.name)
        if given:
            self._given.add(model.name)
        self._by_name[model.name] = self._by_digest[model.digest] = model

    def remove(self, name: str) -> None:
        """Offer a model no longer; requests that have it run to their end."""
        self._given.discard(name)
        old = self._by_name.pop(name, None)
        if old is not None and self._by_digest.get(old.digest) is old:
            del self._by_digest[old.digest]
            for told in self.when_removed:
                told()

    def offers(self, digest: str) -> bool:
        """Whether this very model is served."""
        return digest in self._by_digest

    def offered(self, digest: str) -> SplitModel | None:
        """The model of this digest; None: it is not served."""
        return self._by_digest.get(digest)

    def find(self, wanted: str) -> SplitModel:
        """A model by digest or name; without either, the only one there is."""
        own = [each for each in self.models if each.name not in self._given]
        if not wanted and len(own) == 1:
            return own[0]
        found = self._by_digest.get(wanted) or self._by_name.get(wanted)
        if found is None:
            names = ", ".join(self._by_name) or "none"
            if not wanted:
                raise Refused(f"say which model; there are: {names[:500]}", "NOT_FOUND")
            raise Refused(f"no model {wanted[:64]!r} here; there are: {names[:500]}", "NOT_FOUND")
        return found

    def with_table(self, digest: str, version: str) -> SplitModel:
        """The model, if the caller uses the table of today."""
        model = self.find(digest)
        if model.table.version != version:
            raise Refused(
                f"table {version!r} is stale, join again to get {model.table.version!r}",
                "FAILED_PRECONDITION",
            )
        return model

    def rules(self, key: PoolKey) -> MergeRules:
        """How uploads enter this pool; one whose `rows` were asked for before."""
        return self._rules[key.part]

    def rows(self, key: PoolKey) -> Array:
        """The features of the part that a pool is about; raises for a pool that cannot exist."""
        model = self.with_table(key.model, key.table)
        if key.model != model.table.digest:
            raise Refused(f"no pools of model {key.model!r} here", "NOT_FOUND")
        part = self._parts.get(key.part)
        if part is None or key.policy != self.terms.policy.name:
            raise Refused(
                f"this server learns by {self.terms.policy.name!r}; join again",
                "FAILED_PRECONDITION",
            )
        prefix = _SCOPES.get(part.pool)
        fits = key.scope == "everyone" if prefix is None else key.scope.startswith(prefix)
        if not fits:
            raise Refused(f"{key.scope!r} is no pool of part {key.part!r}", "INVALID_ARGUMENT")
        cached = self._rows.get((key.model, key.part))
        if cached is None:
            cached = self._rows[key.model, key.part] = observable(part, model.table)
        return cached


def check_tensors(sent: Sequence[TensorMeta], wanted: Sequence[TensorSpec], what: str) -> None:
    """Names, types and shapes as the table has them, before a byte is touched."""
    if len(sent) != len(wanted):
        raise RemoteProtocolError(f"{len(sent)} tensors for {what}, it has {len(wanted)}")
    for meta, tensor in zip(sent, wanted, strict=True):
        same = (meta.name, meta.dtype) == (tensor.name, tensor.dtype)
        if not same or not tensor.fits(tuple(meta.shape)):
            raise RemoteProtocolError(
                f"tensor {meta.name[:64]!r} of {meta.dtype[:16]}{list(meta.shape)[:8]} for {what}, "
                f"which takes {tensor.name!r} of {tensor.dtype}{list(tensor.shape)}"
            )


def largest_payload(tensor: TensorSpec) -> int:
    """Bytes that any codec may make of a tensor: at worst its own, with a little around them."""
    return tensor.nbytes + tensor.nbytes // 64 + 4096


def check_sizes(sizes: Sequence[int], wanted: Sequence[TensorSpec]) -> None:
    """As many encoded tensors as there must be, and none larger than it can be."""
    if len(sizes) != len(wanted):
        raise RemoteProtocolError(f"{len(sizes)} tensors came, {len(wanted)} were announced")
    for size, tensor in zip(sizes, wanted, strict=True):
        if size > largest_payload(tensor):
            raise RemoteProtocolError(
                f"{size} bytes for {tensor.name!r}, which has {tensor.nbytes} before encoding"
            )
