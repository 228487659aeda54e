"""The learner: pure mathematics, the same in simulation and on real devices."""

from cans.learning.choice import Choice, Context, Latencies
from cans.learning.device.learner import DeviceLearner
from cans.learning.device.part import PartRecord
from cans.learning.edge import EdgeAggregator
from cans.learning.messages import DeviceIdentity, Download, PoolKey, Upload
from cans.learning.policies import POLICIES, Hyperparameters, Part, Policy, Pool, policy_named
from cans.learning.statistics import SufficientStatistics
from cans.learning.table import PartitionTable

__all__ = [
    "POLICIES",
    "Choice",
    "Context",
    "DeviceIdentity",
    "DeviceLearner",
    "Download",
    "EdgeAggregator",
    "Hyperparameters",
    "Latencies",
    "Part",
    "PartRecord",
    "PartitionTable",
    "Policy",
    "Pool",
    "PoolKey",
    "SufficientStatistics",
    "Upload",
    "policy_named",
]
