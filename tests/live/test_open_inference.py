"""A stock Triton client on our port."""

from __future__ import annotations

import numpy as np
import pytest

from tests.live.running import running
from tests.live.toy import example, toy

triton = pytest.importorskip("tritonclient.grpc")


def test_a_stock_client_works() -> None:
    with running(toy()) as server:
        client = triton.InferenceServerClient(server.address)
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("toy")
        assert client.get_server_metadata().name == "cans"
        described = client.get_model_metadata("toy")
        assert [each.name for each in described.inputs] == ["t0"]
        inputs = example()["t0"]
        tensor = triton.InferInput("t0", [1, 64], "FP32")
        tensor.set_data_from_numpy(inputs)
        result = client.infer("toy", [tensor], outputs=[triton.InferRequestedOutput("y")])
        np.testing.assert_allclose(result.as_numpy("y"), inputs + 4, rtol=1e-6)
        client.close()


def test_mistakes_are_named() -> None:
    with running(toy()) as server:
        client = triton.InferenceServerClient(server.address)
        wrong = triton.InferInput("t0", [1, 3], "FP32")
        wrong.set_data_from_numpy(np.zeros((1, 3), np.float32))
        other = triton.InferInput("x", [1, 64], "FP32")
        other.set_data_from_numpy(np.zeros((1, 64), np.float32))
        good = triton.InferInput("t0", [1, 64], "FP32")
        good.set_data_from_numpy(np.zeros((1, 64), np.float32))
        nowhere = [triton.InferRequestedOutput("z")]
        cases = (
            ("INVALID_ARGUMENT", "toy", [wrong], None),
            ("INVALID_ARGUMENT", "toy", [other], None),
            ("INVALID_ARGUMENT", "toy", [good], nowhere),
            ("NOT_FOUND", "other", [good], None),
        )
        for code, model, inputs, outputs in cases:
            with pytest.raises(triton.InferenceServerException) as caught:
                client.infer(model, inputs, outputs=outputs)
            assert code in str(caught.value.status())
        client.close()
