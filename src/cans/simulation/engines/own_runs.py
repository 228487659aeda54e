"""What the server runs by itself before anyone joins, so that the first device to ask is not the
one to find out how fast it is."""

from __future__ import annotations

from cans.learning.device.learner import DeviceLearner
from cans.learning.messages import DeviceIdentity, Upload
from cans.learning.policies import Hyperparameters, Policy
from cans.learning.table import PartitionTable
from cans.simulation.worlds.episode import Episode


def new_server(
    table: PartitionTable, policy: Policy, hyperparameters: Hyperparameters
) -> DeviceLearner | None:
    """What learns of a server by itself, if the policy has parts for that."""
    if not policy.of_server:
        return None
    own = policy.as_server()
    never_chooses = {part.name: 0.0 for part in own.parts}
    who = DeviceIdentity("server")
    return DeviceLearner(table, own, who, hyperparameters, radius=never_chooses)


def own_runs(server: DeviceLearner | None, episode: Episode) -> tuple[Upload, ...]:
    """What it has to say of itself."""
    if server is None:
        return ()
    runs = zip(episode.server_choice.tolist(), episode.server_ms.tolist(), strict=True)
    return server.join(list(runs))
