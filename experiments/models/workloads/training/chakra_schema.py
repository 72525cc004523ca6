"""Protobuf messages of MLCommons Chakra execution traces, from a table of their field numbers.

The numbers are those of Chakra's ``schema/protobuf/et_def.proto``. Only fields that a training
iteration needs are declared; protobuf skips all others. A trace file is a sequence of messages,
each after its length as a varint: a ``GlobalMetadata``, followed by ``Node`` messages.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "ChakraProtoMsg"
DOCUMENTATION = 2  # number of an attribute's field "doc_string"; values have larger numbers
# Types of an attribute's value. The value's field has the type's name and the suffix "_val"; field
# numbers are odd, from 3 on, since a list of each type has the number after it.
ATTRIBUTE_TYPES = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
# Number, type and name of each field; "repeated" precedes the type of a list.
FIELDS = {
    "GlobalMetadata": ((1, "string", "version"), (2, "repeated AttributeProto", "attr")),
    "Node": (
        (1, "uint64", "id"),
        (2, "string", "name"),
        (3, "int32", "type"),  # An enumeration: see NODE_TYPES.
        (4, "repeated uint64", "ctrl_deps"),
        (5, "repeated uint64", "data_deps"),
        (6, "uint64", "start_time_micros"),
        (7, "uint64", "duration_micros"),
        (10, "repeated AttributeProto", "attr"),
    ),
    "AttributeProto": (
        (1, "string", "name"),
        *((3 + 2 * at, kind, f"{kind}_val") for at, kind in enumerate(ATTRIBUTE_TYPES)),
        (10, "Int64List", "int64_list"),
    ),
    "Int64List": ((1, "repeated int64", "values"),),
}
# Values of the enumerations NodeType and CollectiveCommType, in the order of their numbers.
NODE_TYPES = ("invalid", "metadata", "load", "store", "compute", "send", "receive", "collective")
COLLECTIVES = (
    *("all-reduce", "reduce", "all-gather", "gather", "scatter", "broadcast", "total-exchange"),
    *("reduce-scatter", "reduce-scatter", "barrier"),
)


def _message_classes() -> dict[str, Any]:
    """Return the classes of the Chakra messages by name."""
    file = FileDescriptorProto(name="chakra.proto", package=PACKAGE, syntax="proto3")
    for message, fields in FIELDS.items():
        declared = file.message_type.add(name=message)
        if message == "AttributeProto":
            declared.oneof_decl.add(name="value")
        for number, kind, name in fields:
            repeated, _, element = kind.rpartition(" ")
            field = declared.field.add(name=name, number=number)
            field.label = getattr(FieldDescriptorProto, f"LABEL_{(repeated or 'optional').upper()}")
            if element in FIELDS:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{PACKAGE}.{element}"
            else:
                field.type = getattr(FieldDescriptorProto, f"TYPE_{element.upper()}")
            if message == "AttributeProto" and number > DOCUMENTATION:
                field.oneof_index = 0
    pool = DescriptorPool()
    pool.Add(file)
    return {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in FIELDS
    }


_CLASSES = _message_classes()
GlobalMetadata, Node, Attribute, Int64List = (
    _CLASSES[name] for name in ("GlobalMetadata", "Node", "AttributeProto", "Int64List")
)


def attributes_of(node: Any) -> dict[str, Any]:
    """Return the attributes of a Chakra node by name; lists of other types than int64 are left out.

    >>> node = Node(attr=[Attribute(name="comm_size", int64_val=4096)])
    >>> attributes_of(node)
    {'comm_size': 4096}
    """
    found = {}
    for one in node.attr:
        field = one.WhichOneof("value")
        if field == "int64_list":
            found[one.name] = tuple(one.int64_list.values)
        elif field:
            found[one.name] = getattr(one, field)
    return found
