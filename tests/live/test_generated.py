"""The committed generated code is what the .proto files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

import cans.live.wire.proto as proto

FOLDER = Path(proto.__file__).parent


@pytest.mark.parametrize("source", ["cans/v1/edge.proto", "inference/open_inference.proto"])
def test_generated_code_is_current(source: str, tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    target = tmp_path / "set"
    assert protoc.main(["", f"-I{FOLDER}", f"--descriptor_set_out={target}", source]) == 0
    (fresh,) = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file
    committed = descriptor_pb2.FileDescriptorProto()
    proto.POOL.FindFileByName(source).CopyToProto(committed)
    for each in (fresh, committed):
        for message in each.message_type:
            _clear(message)
    assert fresh == committed, "run src/cans/live/wire/proto/generate"


def _clear(message: descriptor_pb2.DescriptorProto) -> None:
    """Compilers differ in whether they spell out the default JSON names."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _clear(nested)
