from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Statistics(_message.Message):
    __slots__ = ("sigma", "b", "squares", "weight", "count", "choice", "choice_weight", "choice_sum", "choice_squares", "choice_unlike", "choice_telling")
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    B_FIELD_NUMBER: _ClassVar[int]
    SQUARES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CHOICE_SUM_FIELD_NUMBER: _ClassVar[int]
    CHOICE_SQUARES_FIELD_NUMBER: _ClassVar[int]
    CHOICE_UNLIKE_FIELD_NUMBER: _ClassVar[int]
    CHOICE_TELLING_FIELD_NUMBER: _ClassVar[int]
    sigma: _containers.RepeatedScalarFieldContainer[float]
    b: _containers.RepeatedScalarFieldContainer[float]
    squares: float
    weight: float
    count: int
    choice: _containers.RepeatedScalarFieldContainer[int]
    choice_weight: _containers.RepeatedScalarFieldContainer[float]
    choice_sum: _containers.RepeatedScalarFieldContainer[float]
    choice_squares: _containers.RepeatedScalarFieldContainer[float]
    choice_unlike: _containers.RepeatedScalarFieldContainer[float]
    choice_telling: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, sigma: _Optional[_Iterable[float]] = ..., b: _Optional[_Iterable[float]] = ..., squares: _Optional[float] = ..., weight: _Optional[float] = ..., count: _Optional[int] = ..., choice: _Optional[_Iterable[int]] = ..., choice_weight: _Optional[_Iterable[float]] = ..., choice_sum: _Optional[_Iterable[float]] = ..., choice_squares: _Optional[_Iterable[float]] = ..., choice_unlike: _Optional[_Iterable[float]] = ..., choice_telling: _Optional[_Iterable[float]] = ...) -> None: ...

class PoolKey(_message.Message):
    __slots__ = ("model", "table", "policy", "part", "scope")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    model: str
    table: str
    policy: str
    part: str
    scope: str
    def __init__(self, model: _Optional[str] = ..., table: _Optional[str] = ..., policy: _Optional[str] = ..., part: _Optional[str] = ..., scope: _Optional[str] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("device", "incarnation", "key", "epoch", "sequence", "statistics", "pace")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    device: str
    incarnation: str
    key: PoolKey
    epoch: int
    sequence: int
    statistics: Statistics
    pace: float
    def __init__(self, device: _Optional[str] = ..., incarnation: _Optional[str] = ..., key: _Optional[_Union[PoolKey, _Mapping]] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., statistics: _Optional[_Union[Statistics, _Mapping]] = ..., pace: _Optional[float] = ...) -> None: ...

class Download(_message.Message):
    __slots__ = ("key", "epoch", "statistics", "round", "acknowledged", "time", "refused")
    KEY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    key: PoolKey
    epoch: int
    statistics: Statistics
    round: int
    acknowledged: int
    time: float
    refused: str
    def __init__(self, key: _Optional[_Union[PoolKey, _Mapping]] = ..., epoch: _Optional[int] = ..., statistics: _Optional[_Union[Statistics, _Mapping]] = ..., round: _Optional[int] = ..., acknowledged: _Optional[int] = ..., time: _Optional[float] = ..., refused: _Optional[str] = ...) -> None: ...

class KnownPool(_message.Message):
    __slots__ = ("key", "epoch", "round")
    KEY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    key: PoolKey
    epoch: int
    round: int
    def __init__(self, key: _Optional[_Union[PoolKey, _Mapping]] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class Identity(_message.Message):
    __slots__ = ("device", "incarnation", "type", "network")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    device: str
    incarnation: str
    type: str
    network: str
    def __init__(self, device: _Optional[str] = ..., incarnation: _Optional[str] = ..., type: _Optional[str] = ..., network: _Optional[str] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("identity", "model", "uploads", "whole_ms", "provider", "moved", "wire")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_MS_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    identity: Identity
    model: str
    uploads: _containers.RepeatedCompositeFieldContainer[Upload]
    whole_ms: float
    provider: str
    moved: bool
    wire: int
    def __init__(self, identity: _Optional[_Union[Identity, _Mapping]] = ..., model: _Optional[str] = ..., uploads: _Optional[_Iterable[_Union[Upload, _Mapping]]] = ..., whole_ms: _Optional[float] = ..., provider: _Optional[str] = ..., moved: bool = ..., wire: _Optional[int] = ...) -> None: ...

class Matrix(_message.Message):
    __slots__ = ("rows", "columns", "values", "names")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    values: _containers.RepeatedScalarFieldContainer[float]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ..., values: _Optional[_Iterable[float]] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class Table(_message.Message):
    __slots__ = ("model", "digest", "version", "points", "point_of", "codec_of", "front", "link", "server", "probe", "bytes_of")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    POINT_OF_FIELD_NUMBER: _ClassVar[int]
    CODEC_OF_FIELD_NUMBER: _ClassVar[int]
    FRONT_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    BYTES_OF_FIELD_NUMBER: _ClassVar[int]
    model: str
    digest: str
    version: str
    points: _containers.RepeatedScalarFieldContainer[str]
    point_of: _containers.RepeatedScalarFieldContainer[int]
    codec_of: _containers.RepeatedScalarFieldContainer[str]
    front: Matrix
    link: Matrix
    server: Matrix
    probe: _containers.RepeatedScalarFieldContainer[float]
    bytes_of: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[str] = ..., digest: _Optional[str] = ..., version: _Optional[str] = ..., points: _Optional[_Iterable[str]] = ..., point_of: _Optional[_Iterable[int]] = ..., codec_of: _Optional[_Iterable[str]] = ..., front: _Optional[_Union[Matrix, _Mapping]] = ..., link: _Optional[_Union[Matrix, _Mapping]] = ..., server: _Optional[_Union[Matrix, _Mapping]] = ..., probe: _Optional[_Iterable[float]] = ..., bytes_of: _Optional[_Iterable[int]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("server", "time", "policy", "hyperparameters", "table", "pools", "fresh_pools", "delivery", "lowest_latency_ms", "highest_latency_ms", "largest_message", "model_name", "model_file_sha256", "cutting", "group", "wire", "whole_policy", "max_error", "min_agreement", "compared", "load", "books_server")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    HYPERPARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    FRESH_POOLS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    LOWEST_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FILE_SHA256_FIELD_NUMBER: _ClassVar[int]
    CUTTING_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    WHOLE_POLICY_FIELD_NUMBER: _ClassVar[int]
    MAX_ERROR_FIELD_NUMBER: _ClassVar[int]
    MIN_AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    BOOKS_SERVER_FIELD_NUMBER: _ClassVar[int]
    server: str
    time: float
    policy: str
    hyperparameters: str
    table: Table
    pools: _containers.RepeatedCompositeFieldContainer[Download]
    fresh_pools: bool
    delivery: str
    lowest_latency_ms: float
    highest_latency_ms: float
    largest_message: int
    model_name: str
    model_file_sha256: str
    cutting: Cutting
    group: str
    wire: int
    whole_policy: str
    max_error: float
    min_agreement: float
    compared: _containers.RepeatedCompositeFieldContainer[Compared]
    load: Load
    books_server: bool
    def __init__(self, server: _Optional[str] = ..., time: _Optional[float] = ..., policy: _Optional[str] = ..., hyperparameters: _Optional[str] = ..., table: _Optional[_Union[Table, _Mapping]] = ..., pools: _Optional[_Iterable[_Union[Download, _Mapping]]] = ..., fresh_pools: bool = ..., delivery: _Optional[str] = ..., lowest_latency_ms: _Optional[float] = ..., highest_latency_ms: _Optional[float] = ..., largest_message: _Optional[int] = ..., model_name: _Optional[str] = ..., model_file_sha256: _Optional[str] = ..., cutting: _Optional[_Union[Cutting, _Mapping]] = ..., group: _Optional[str] = ..., wire: _Optional[int] = ..., whole_policy: _Optional[str] = ..., max_error: _Optional[float] = ..., min_agreement: _Optional[float] = ..., compared: _Optional[_Iterable[_Union[Compared, _Mapping]]] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., books_server: bool = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("wait", "utilisation", "recent", "arrivals", "joined", "inside", "workers")
    WAIT_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    ARRIVALS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    INSIDE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    wait: int
    utilisation: int
    recent: int
    arrivals: int
    joined: int
    inside: int
    workers: int
    def __init__(self, wait: _Optional[int] = ..., utilisation: _Optional[int] = ..., recent: _Optional[int] = ..., arrivals: _Optional[int] = ..., joined: _Optional[int] = ..., inside: _Optional[int] = ..., workers: _Optional[int] = ...) -> None: ...

class Compared(_message.Message):
    __slots__ = ("row", "count", "worst_error", "judged", "agreed")
    ROW_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    WORST_ERROR_FIELD_NUMBER: _ClassVar[int]
    JUDGED_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    row: int
    count: int
    worst_error: float
    judged: int
    agreed: float
    def __init__(self, row: _Optional[int] = ..., count: _Optional[int] = ..., worst_error: _Optional[float] = ..., judged: _Optional[int] = ..., agreed: _Optional[float] = ...) -> None: ...

class Cutting(_message.Message):
    __slots__ = ("max_tensors", "max_points", "image", "shapes", "lowest")
    MAX_TENSORS_FIELD_NUMBER: _ClassVar[int]
    MAX_POINTS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    max_tensors: int
    max_points: int
    image: str
    shapes: _containers.RepeatedCompositeFieldContainer[TensorMeta]
    lowest: _containers.RepeatedCompositeFieldContainer[TensorMeta]
    def __init__(self, max_tensors: _Optional[int] = ..., max_points: _Optional[int] = ..., image: _Optional[str] = ..., shapes: _Optional[_Iterable[_Union[TensorMeta, _Mapping]]] = ..., lowest: _Optional[_Iterable[_Union[TensorMeta, _Mapping]]] = ...) -> None: ...

class TensorMeta(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class InferHeader(_message.Message):
    __slots__ = ("device", "incarnation", "model", "table", "point", "codec", "tensors", "uploads", "known", "sizes", "patience_ms", "account", "trace")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_MS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    device: str
    incarnation: str
    model: str
    table: str
    point: int
    codec: str
    tensors: _containers.RepeatedCompositeFieldContainer[TensorMeta]
    uploads: _containers.RepeatedCompositeFieldContainer[Upload]
    known: _containers.RepeatedCompositeFieldContainer[KnownPool]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    patience_ms: float
    account: Account
    trace: str
    def __init__(self, device: _Optional[str] = ..., incarnation: _Optional[str] = ..., model: _Optional[str] = ..., table: _Optional[str] = ..., point: _Optional[int] = ..., codec: _Optional[str] = ..., tensors: _Optional[_Iterable[_Union[TensorMeta, _Mapping]]] = ..., uploads: _Optional[_Iterable[_Union[Upload, _Mapping]]] = ..., known: _Optional[_Iterable[_Union[KnownPool, _Mapping]]] = ..., sizes: _Optional[_Iterable[int]] = ..., patience_ms: _Optional[float] = ..., account: _Optional[_Union[Account, _Mapping]] = ..., trace: _Optional[str] = ...) -> None: ...

class InferRequest(_message.Message):
    __slots__ = ("header", "tensors", "padding")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    header: InferHeader
    tensors: _containers.RepeatedScalarFieldContainer[bytes]
    padding: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[_Union[InferHeader, _Mapping]] = ..., tensors: _Optional[_Iterable[bytes]] = ..., padding: _Optional[_Iterable[bytes]] = ...) -> None: ...

class InferPiece(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: InferHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[InferHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class InferReplyHeader(_message.Message):
    __slots__ = ("tensors", "compute_ms", "queue_ms", "pools", "time", "warming", "load")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    WARMING_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[TensorMeta]
    compute_ms: float
    queue_ms: float
    pools: _containers.RepeatedCompositeFieldContainer[Download]
    time: float
    warming: bool
    load: Load
    def __init__(self, tensors: _Optional[_Iterable[_Union[TensorMeta, _Mapping]]] = ..., compute_ms: _Optional[float] = ..., queue_ms: _Optional[float] = ..., pools: _Optional[_Iterable[_Union[Download, _Mapping]]] = ..., time: _Optional[float] = ..., warming: bool = ..., load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class InferReply(_message.Message):
    __slots__ = ("header", "tensors", "padding")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    header: InferReplyHeader
    tensors: _containers.RepeatedScalarFieldContainer[bytes]
    padding: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, header: _Optional[_Union[InferReplyHeader, _Mapping]] = ..., tensors: _Optional[_Iterable[bytes]] = ..., padding: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("uploads", "account", "device")
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    uploads: _containers.RepeatedCompositeFieldContainer[Upload]
    account: Account
    device: str
    def __init__(self, uploads: _Optional[_Iterable[_Union[Upload, _Mapping]]] = ..., account: _Optional[_Union[Account, _Mapping]] = ..., device: _Optional[str] = ...) -> None: ...

class SyncReply(_message.Message):
    __slots__ = ("pools", "time")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[Download]
    time: float
    def __init__(self, pools: _Optional[_Iterable[_Union[Download, _Mapping]]] = ..., time: _Optional[float] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ("padding",)
    PADDING_FIELD_NUMBER: _ClassVar[int]
    padding: bytes
    def __init__(self, padding: _Optional[bytes] = ...) -> None: ...

class ProbeReply(_message.Message):
    __slots__ = ("time", "load")
    TIME_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    time: float
    load: Load
    def __init__(self, time: _Optional[float] = ..., load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("device", "known")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    device: str
    known: _containers.RepeatedCompositeFieldContainer[KnownPool]
    def __init__(self, device: _Optional[str] = ..., known: _Optional[_Iterable[_Union[KnownPool, _Mapping]]] = ...) -> None: ...

class PoolNews(_message.Message):
    __slots__ = ("pools", "time", "load")
    POOLS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    pools: _containers.RepeatedCompositeFieldContainer[Download]
    time: float
    load: Load
    def __init__(self, pools: _Optional[_Iterable[_Union[Download, _Mapping]]] = ..., time: _Optional[float] = ..., load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class QuoteRequest(_message.Message):
    __slots__ = ("device", "model", "point", "codec", "hold_ms", "withdrawn", "work")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    device: str
    model: str
    point: int
    codec: str
    hold_ms: float
    withdrawn: bool
    work: bool
    def __init__(self, device: _Optional[str] = ..., model: _Optional[str] = ..., point: _Optional[int] = ..., codec: _Optional[str] = ..., hold_ms: _Optional[float] = ..., withdrawn: bool = ..., work: bool = ...) -> None: ...

class QuoteReply(_message.Message):
    __slots__ = ("load", "time", "granted")
    LOAD_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    load: Load
    time: float
    granted: bool
    def __init__(self, load: _Optional[_Union[Load, _Mapping]] = ..., time: _Optional[float] = ..., granted: bool = ...) -> None: ...

class FetchModelRequest(_message.Message):
    __slots__ = ("model", "offset", "file")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    model: str
    offset: int
    file: str
    def __init__(self, model: _Optional[str] = ..., offset: _Optional[int] = ..., file: _Optional[str] = ...) -> None: ...

class ModelChunk(_message.Message):
    __slots__ = ("size", "sha256", "name", "data", "beside")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    BESIDE_FIELD_NUMBER: _ClassVar[int]
    size: int
    sha256: str
    name: str
    data: bytes
    beside: _containers.RepeatedCompositeFieldContainer[ModelFile]
    def __init__(self, size: _Optional[int] = ..., sha256: _Optional[str] = ..., name: _Optional[str] = ..., data: _Optional[bytes] = ..., beside: _Optional[_Iterable[_Union[ModelFile, _Mapping]]] = ...) -> None: ...

class ModelFile(_message.Message):
    __slots__ = ("name", "size", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    size: int
    sha256: str
    def __init__(self, name: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class ModelPiece(_message.Message):
    __slots__ = ("model", "files", "shapes", "file", "offset", "data", "name")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    model: str
    files: _containers.RepeatedCompositeFieldContainer[ModelFile]
    shapes: _containers.RepeatedCompositeFieldContainer[TensorMeta]
    file: int
    offset: int
    data: bytes
    name: str
    def __init__(self, model: _Optional[str] = ..., files: _Optional[_Iterable[_Union[ModelFile, _Mapping]]] = ..., shapes: _Optional[_Iterable[_Union[TensorMeta, _Mapping]]] = ..., file: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., name: _Optional[str] = ...) -> None: ...

class ModelReceipt(_message.Message):
    __slots__ = ("have", "ready")
    HAVE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    have: _containers.RepeatedScalarFieldContainer[int]
    ready: bool
    def __init__(self, have: _Optional[_Iterable[int]] = ..., ready: bool = ...) -> None: ...

class Account(_message.Message):
    __slots__ = ("inferences", "row", "front", "wait", "link", "server", "total", "age_ms", "outcome", "why", "predicted_ms", "width_ms", "compared")
    INFERENCES_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    FRONT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_MS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_MS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_FIELD_NUMBER: _ClassVar[int]
    inferences: int
    row: _containers.RepeatedScalarFieldContainer[int]
    front: _containers.RepeatedScalarFieldContainer[int]
    wait: _containers.RepeatedScalarFieldContainer[int]
    link: _containers.RepeatedScalarFieldContainer[int]
    server: _containers.RepeatedScalarFieldContainer[int]
    total: _containers.RepeatedScalarFieldContainer[int]
    age_ms: _containers.RepeatedScalarFieldContainer[int]
    outcome: _containers.RepeatedScalarFieldContainer[int]
    why: str
    predicted_ms: _containers.RepeatedScalarFieldContainer[float]
    width_ms: _containers.RepeatedScalarFieldContainer[float]
    compared: _containers.RepeatedCompositeFieldContainer[Compared]
    def __init__(self, inferences: _Optional[int] = ..., row: _Optional[_Iterable[int]] = ..., front: _Optional[_Iterable[int]] = ..., wait: _Optional[_Iterable[int]] = ..., link: _Optional[_Iterable[int]] = ..., server: _Optional[_Iterable[int]] = ..., total: _Optional[_Iterable[int]] = ..., age_ms: _Optional[_Iterable[int]] = ..., outcome: _Optional[_Iterable[int]] = ..., why: _Optional[str] = ..., predicted_ms: _Optional[_Iterable[float]] = ..., width_ms: _Optional[_Iterable[float]] = ..., compared: _Optional[_Iterable[_Union[Compared, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("device", "most")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    device: str
    most: int
    def __init__(self, device: _Optional[str] = ..., most: _Optional[int] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("document",)
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    document: str
    def __init__(self, document: _Optional[str] = ...) -> None: ...

class PartRecord(_message.Message):
    __slots__ = ("key", "epoch", "sequence", "synced", "local", "sent", "retired", "sent_epoch", "synced_time", "own")
    KEY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    SENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SYNCED_TIME_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    key: PoolKey
    epoch: int
    sequence: int
    synced: Statistics
    local: Statistics
    sent: Statistics
    retired: Statistics
    sent_epoch: int
    synced_time: float
    own: Statistics
    def __init__(self, key: _Optional[_Union[PoolKey, _Mapping]] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., synced: _Optional[_Union[Statistics, _Mapping]] = ..., local: _Optional[_Union[Statistics, _Mapping]] = ..., sent: _Optional[_Union[Statistics, _Mapping]] = ..., retired: _Optional[_Union[Statistics, _Mapping]] = ..., sent_epoch: _Optional[int] = ..., synced_time: _Optional[float] = ..., own: _Optional[_Union[Statistics, _Mapping]] = ...) -> None: ...

class RefusedUploads(_message.Message):
    __slots__ = ("key", "statistics", "uploads", "reason")
    KEY_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    key: PoolKey
    statistics: Statistics
    uploads: int
    reason: str
    def __init__(self, key: _Optional[_Union[PoolKey, _Mapping]] = ..., statistics: _Optional[_Union[Statistics, _Mapping]] = ..., uploads: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class DeviceState(_message.Message):
    __slots__ = ("identity", "welcome", "records", "joined", "inferences", "observations", "former", "refused")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    INFERENCES_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    identity: Identity
    welcome: Welcome
    records: _containers.RepeatedCompositeFieldContainer[PartRecord]
    joined: bool
    inferences: int
    observations: int
    former: _containers.RepeatedCompositeFieldContainer[PartRecord]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedUploads]
    def __init__(self, identity: _Optional[_Union[Identity, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., records: _Optional[_Iterable[_Union[PartRecord, _Mapping]]] = ..., joined: bool = ..., inferences: _Optional[int] = ..., observations: _Optional[int] = ..., former: _Optional[_Iterable[_Union[PartRecord, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[RefusedUploads, _Mapping]]] = ...) -> None: ...
