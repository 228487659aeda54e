"""The Open Inference Protocol (v2): whole-model inference for clients that know nothing of CANS."""

from __future__ import annotations

import numpy as np

from cans import __version__
from cans.errors import Refused, RemoteProtocolError
from cans.live.server.backends import BackEnds
from cans.live.server.catalogue import Catalogue
from cans.live.server.door.identity import Caller
from cans.live.split import SplitModel
from cans.live.wire.open_inference import ModelDescription, Said, WholeReply, WholeRequest


class OpenInferenceService:
    def __init__(self, catalogue: Catalogue, back_ends: BackEnds) -> None:
        self._catalogue = catalogue
        self._back_ends = back_ends

    async def server_live(self, request: None, caller: Caller) -> Said:
        return Said("ServerLiveResponse", {"live": True})

    async def server_ready(self, request: None, caller: Caller) -> Said:
        return Said("ServerReadyResponse", {"ready": True})

    async def server_metadata(self, request: None, caller: Caller) -> Said:
        return Said("ServerMetadataResponse", {"name": "cans", "version": __version__})

    async def model_ready(self, model: str, caller: Caller) -> Said:
        self._model(model)
        return Said("ModelReadyResponse", {"ready": True})

    async def model_metadata(self, model: str, caller: Caller) -> ModelDescription:
        found = self._model(model)
        return ModelDescription(found.name, found.inputs, found.outputs)

    async def model_infer(self, request: WholeRequest, caller: Caller) -> WholeReply:
        caller.speak()
        model = self._model(request.model)
        inputs = request.arrays(model.inputs)
        wanted = request.outputs or model.outputs
        for name in wanted:
            if name not in model.outputs:
                raise RemoteProtocolError(f"{model.name} has no output {name[:64]!r}")
        answer = await self._back_ends.run_whole(model, inputs, caller)
        outputs = {name: np.asarray(answer.outputs[name]) for name in wanted}
        return WholeReply(model.name, request.id, outputs)

    def _model(self, name: str) -> SplitModel:
        if not name:
            raise Refused("a model name is needed", "INVALID_ARGUMENT")
        return self._catalogue.find(name)
