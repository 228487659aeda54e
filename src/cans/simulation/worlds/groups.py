"""The groups that devices of a world fall into when the server looks at their speed alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cans.learning.grouping import AUTO, Family, Span, placed
from cans.simulation.worlds.episode import Episode
from cans.simulation.worlds.world import World


def grouped(world: World, episode: Episode) -> World:
    """The world as its learners see it: every device in the group of its label and its speed.

    Devices join in the order in which the episode lets them act first.
    """
    acted, first = np.unique(episode.active, return_index=True)
    order = [*acted[np.argsort(first)].tolist(), *np.setdiff1d(np.arange(world.devices), acted)]
    spans: dict[str, tuple[Span, ...]] = {}
    groups: dict[str, int] = {}
    group_of = np.zeros(world.devices, dtype=np.int64)
    for device in order:
        label = world.types[world.type_of[device]]
        number, spans[label] = placed(spans.get(label, ()), float(episode.whole_ms[device]))
        family = Family(world.table.model, "", "", "" if label == AUTO else label)
        group_of[device] = groups.setdefault(family.name(number), len(groups))
    return replace(world, types=tuple(groups), type_of=group_of)
