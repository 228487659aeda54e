"""What the compiled engine reads and writes beside the learner's state: named tuples of arrays."""

from __future__ import annotations

from typing import NamedTuple

from cans.learning.arithmetic.arrays import Array, BoolArray, IntArray


class Truth(NamedTuple):
    """A world, as arrays; the fields are those of `World`, unless they say otherwise."""

    place_of: IntArray
    front_ms: Array
    link_ms: Array
    link_fixed_ms: Array
    server_ms: Array
    probe_ms: Array
    has_front: BoolArray  # (choices,) False at the raw input: nothing runs on the device
    allowed: BoolArray
    restricted: bool  # some choice is not allowed somewhere
    report: Array  # (devices, 3) what is told of a millisecond of each segment
    samples: Array
    sample_count: IntArray


class Rules(NamedTuple):
    """A policy's switches, as numbers."""

    parts: int  # how many of the part states are in use
    choose: int
    knows: Array  # (3,) 1.0 for each segment that is known beforehand
    truth: bool  # what is known is this round's truth
    forced_sampling: bool
    key_frame_weight: Array  # (2,) exploration on other frames and on key frames
    fleet_threshold: float  # > 0: a trigger synchronises everyone
    immediate: bool  # uploads go out at once; otherwise with the next offloaded round
    fresh: bool  # pools are adopted before a choice, not after an upload
    pool_age: float  # ... if the last adoption is at least so many rounds ago
    watched: BoolArray  # (parts,)
    explains: Array  # (parts, 3) 1.0 for each segment that a part explains
    probe_after: float
    probe_at_zero: Array  # (sizes, size) statistics of observing a probe: `contributions`
    probe_per_ms: Array
    probe_bytes: Array  # (sizes,) in units of the smallest
    link_part: int  # -1: none
    raw: BoolArray  # (choices,) True where the raw input is sent, and the policy has it


class Traffic(NamedTuple):
    """What is on its way between devices and the server, and what each device was told."""

    pool_of: IntArray  # (devices, parts)  -1: keeps its observations to itself
    waiting: BoolArray  # (devices, parts)  an upload waits for the next request
    made_for: IntArray  # (devices, parts)  the epoch of that upload
    seen_epoch: IntArray  # (devices, parts)  the pool that a device was told of last: its epoch ...
    seen_round: IntArray  # (devices, parts)  ... round ...
    seen_edition: IntArray  # (devices, parts)  ... and edition
    frames: IntArray  # (devices,)  inferences so far
    refreshed: Array  # (devices,)  the round of the last pull
    tokens: Array  # (devices,)  for news that can wait: `exchange.Watcher`
    refilled: Array  # (devices,)
    worked: Array  # (1,)  the round when the server last did most of the model's work


class Record(NamedTuple):
    """What is written down of every round."""

    active: IntArray
    picks: IntArray
    regret_ms: Array
    expected_ms: Array  # of the choice, before noise
    latency_ms: Array
    error_ms: Array
    uploads: IntArray  # (rounds,) how many parts were uploaded
    downloads: IntArray  # (rounds,) how many pools were sent to the device
    part_uploads: IntArray  # (parts,)
    part_downloads: IntArray  # (parts,)
    probes: IntArray  # (1,)
    trials: IntArray  # (1,) of parts that were idle, beside an answer
    ties: IntArray  # (1,)
