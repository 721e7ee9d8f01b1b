from lance_spark.proto import encodings_v2_1_pb2 as _encodings_v2_1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import Any as _Any, ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlanarLayout(_message.Message):
    __slots__ = ("structure", "values")
    STRUCTURE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    structure: StructuralPlane
    values: ValuePlane
    def __init__(self, structure: _Optional[_Union[StructuralPlane, _Mapping[str, _Any]]] = ..., values: _Optional[_Union[ValuePlane, _Mapping[str, _Any]]] = ...) -> None: ...

class StructuralPlane(_message.Message):
    __slots__ = ("dense", "sparse")
    DENSE_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    dense: DenseStructure
    sparse: SparseStructure
    def __init__(self, dense: _Optional[_Union[DenseStructure, _Mapping[str, _Any]]] = ..., sparse: _Optional[_Union[SparseStructure, _Mapping[str, _Any]]] = ...) -> None: ...

class DenseStructure(_message.Message):
    __slots__ = ("layers",)
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    layers: _containers.RepeatedScalarFieldContainer[_encodings_v2_1_pb2.RepDefLayer]
    def __init__(self, layers: _Optional[_Iterable[_Union[_encodings_v2_1_pb2.RepDefLayer, str]]] = ...) -> None: ...

class SparseStructure(_message.Message):
    __slots__ = ("layers",)
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    layers: _containers.RepeatedCompositeFieldContainer[SparseStructuralLayer]
    def __init__(self, layers: _Optional[_Iterable[_Union[SparseStructuralLayer, _Mapping[str, _Any]]]] = ...) -> None: ...

class SparseStructuralLayer(_message.Message):
    __slots__ = ("validity", "list", "fixed_size_list")
    VALIDITY_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    FIXED_SIZE_LIST_FIELD_NUMBER: _ClassVar[int]
    validity: SparseValiditySet
    list: SparseListLayer
    fixed_size_list: SparseFixedSizeListLayer
    def __init__(self, validity: _Optional[_Union[SparseValiditySet, _Mapping[str, _Any]]] = ..., list: _Optional[_Union[SparseListLayer, _Mapping[str, _Any]]] = ..., fixed_size_list: _Optional[_Union[SparseFixedSizeListLayer, _Mapping[str, _Any]]] = ...) -> None: ...

class SparseValiditySet(_message.Message):
    __slots__ = ("meaning", "positions", "num_positions")
    class Meaning(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SPARSE_VALIDITY_UNSPECIFIED: _ClassVar[SparseValiditySet.Meaning]
        SPARSE_VALIDITY_NULL_POSITIONS: _ClassVar[SparseValiditySet.Meaning]
        SPARSE_VALIDITY_VALID_POSITIONS: _ClassVar[SparseValiditySet.Meaning]
    SPARSE_VALIDITY_UNSPECIFIED: SparseValiditySet.Meaning
    SPARSE_VALIDITY_NULL_POSITIONS: SparseValiditySet.Meaning
    SPARSE_VALIDITY_VALID_POSITIONS: SparseValiditySet.Meaning
    MEANING_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    meaning: SparseValiditySet.Meaning
    positions: _encodings_v2_1_pb2.CompressiveEncoding
    num_positions: int
    def __init__(self, meaning: _Optional[_Union[SparseValiditySet.Meaning, str]] = ..., positions: _Optional[_Union[_encodings_v2_1_pb2.CompressiveEncoding, _Mapping[str, _Any]]] = ..., num_positions: _Optional[int] = ...) -> None: ...

class SparseListLayer(_message.Message):
    __slots__ = ("num_child_slots", "non_empty_positions", "num_non_empty_positions", "counts", "validity")
    NUM_CHILD_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NON_EMPTY_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_NON_EMPTY_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    VALIDITY_FIELD_NUMBER: _ClassVar[int]
    num_child_slots: int
    non_empty_positions: _encodings_v2_1_pb2.CompressiveEncoding
    num_non_empty_positions: int
    counts: _encodings_v2_1_pb2.CompressiveEncoding
    validity: SparseValiditySet
    def __init__(self, num_child_slots: _Optional[int] = ..., non_empty_positions: _Optional[_Union[_encodings_v2_1_pb2.CompressiveEncoding, _Mapping[str, _Any]]] = ..., num_non_empty_positions: _Optional[int] = ..., counts: _Optional[_Union[_encodings_v2_1_pb2.CompressiveEncoding, _Mapping[str, _Any]]] = ..., validity: _Optional[_Union[SparseValiditySet, _Mapping[str, _Any]]] = ...) -> None: ...

class SparseFixedSizeListLayer(_message.Message):
    __slots__ = ("dimension", "validity")
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    VALIDITY_FIELD_NUMBER: _ClassVar[int]
    dimension: int
    validity: SparseValiditySet
    def __init__(self, dimension: _Optional[int] = ..., validity: _Optional[_Union[SparseValiditySet, _Mapping[str, _Any]]] = ...) -> None: ...

class ValuePlane(_message.Message):
    __slots__ = ("chunked", "zipped", "constant", "no_values", "indexed")
    CHUNKED_FIELD_NUMBER: _ClassVar[int]
    ZIPPED_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    NO_VALUES_FIELD_NUMBER: _ClassVar[int]
    INDEXED_FIELD_NUMBER: _ClassVar[int]
    chunked: ChunkedValues
    zipped: ZippedValues
    constant: ConstantValue
    no_values: NoValues
    indexed: IndexedValues
    def __init__(self, chunked: _Optional[_Union[ChunkedValues, _Mapping[str, _Any]]] = ..., zipped: _Optional[_Union[ZippedValues, _Mapping[str, _Any]]] = ..., constant: _Optional[_Union[ConstantValue, _Mapping[str, _Any]]] = ..., no_values: _Optional[_Union[NoValues, _Mapping[str, _Any]]] = ..., indexed: _Optional[_Union[IndexedValues, _Mapping[str, _Any]]] = ...) -> None: ...

class ChunkedValues(_message.Message):
    __slots__ = ("compression", "levels", "dictionary", "num_dictionary_items", "num_buffers", "num_items")
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    DICTIONARY_FIELD_NUMBER: _ClassVar[int]
    NUM_DICTIONARY_ITEMS_FIELD_NUMBER: _ClassVar[int]
    NUM_BUFFERS_FIELD_NUMBER: _ClassVar[int]
    NUM_ITEMS_FIELD_NUMBER: _ClassVar[int]
    compression: _encodings_v2_1_pb2.CompressiveEncoding
    levels: DenseChunkLevels
    dictionary: _encodings_v2_1_pb2.CompressiveEncoding
    num_dictionary_items: int
    num_buffers: int
    num_items: int
    def __init__(self, compression: _Optional[_Union[_encodings_v2_1_pb2.CompressiveEncoding, _Mapping[str, _Any]]] = ..., levels: _Optional[_Union[DenseChunkLevels, _Mapping[str, _Any]]] = ..., dictionary: _Optional[_Union[_encodings_v2_1_pb2.CompressiveEncoding, _Mapping[str, _Any]]] = ..., num_dictionary_items: _Optional[int] = ..., num_buffers: _Optional[int] = ..., num_items: _Optional[int] = ...) -> None: ...

class DenseChunkLevels(_message.Message):
    __slots__ = ("repetition", "definition", "repetition_index_depth")
    REPETITION_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    REPETITION_INDEX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    repetition: _encodings_v2_1_pb2.CompressiveEncoding
    definition: _encodings_v2_1_pb2.CompressiveEncoding
    repetition_index_depth: int
    def __init__(self, repetition: _Optional[_Union[_encodings_v2_1_pb2.CompressiveEncoding, _Mapping[str, _Any]]] = ..., definition: _Optional[_Union[_encodings_v2_1_pb2.CompressiveEncoding, _Mapping[str, _Any]]] = ..., repetition_index_depth: _Optional[int] = ...) -> None: ...

class ZippedValues(_message.Message):
    __slots__ = ("compression", "levels", "bits_per_value", "bits_per_offset", "num_items", "num_visible_items")
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    BITS_PER_VALUE_FIELD_NUMBER: _ClassVar[int]
    BITS_PER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NUM_ITEMS_FIELD_NUMBER: _ClassVar[int]
    NUM_VISIBLE_ITEMS_FIELD_NUMBER: _ClassVar[int]
    compression: _encodings_v2_1_pb2.CompressiveEncoding
    levels: DenseZipLevels
    bits_per_value: int
    bits_per_offset: int
    num_items: int
    num_visible_items: int
    def __init__(self, compression: _Optional[_Union[_encodings_v2_1_pb2.CompressiveEncoding, _Mapping[str, _Any]]] = ..., levels: _Optional[_Union[DenseZipLevels, _Mapping[str, _Any]]] = ..., bits_per_value: _Optional[int] = ..., bits_per_offset: _Optional[int] = ..., num_items: _Optional[int] = ..., num_visible_items: _Optional[int] = ...) -> None: ...

class DenseZipLevels(_message.Message):
    __slots__ = ("bits_repetition", "bits_definition")
    BITS_REPETITION_FIELD_NUMBER: _ClassVar[int]
    BITS_DEFINITION_FIELD_NUMBER: _ClassVar[int]
    bits_repetition: int
    bits_definition: int
    def __init__(self, bits_repetition: _Optional[int] = ..., bits_definition: _Optional[int] = ...) -> None: ...

class ConstantValue(_message.Message):
    __slots__ = ("scalar",)
    SCALAR_FIELD_NUMBER: _ClassVar[int]
    scalar: bytes
    def __init__(self, scalar: _Optional[bytes] = ...) -> None: ...

class NoValues(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IndexedValues(_message.Message):
    __slots__ = ("indices", "items")
    INDICES_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    indices: _encodings_v2_1_pb2.CompressiveEncoding
    items: ZippedValues
    def __init__(self, indices: _Optional[_Union[_encodings_v2_1_pb2.CompressiveEncoding, _Mapping[str, _Any]]] = ..., items: _Optional[_Union[ZippedValues, _Mapping[str, _Any]]] = ...) -> None: ...
