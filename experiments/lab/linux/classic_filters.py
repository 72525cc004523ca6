"""Filters of cables in classic BPF, for labs of ordinary users: the kernel loads eBPF of root only.

Each function returns the options of a filter of kind ``bpf`` (TCA_BPF_*), which tc attaches as it
attaches an eBPF program. Classic BPF has an accumulator, loads bytes of the packet, and jumps
forward; it cannot change packets. Actions of tc do that part.
"""

from __future__ import annotations

import struct

from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.netlink import attribute, number, text
from pillarbox.hosts.wire.dcn import FIRST_MESSAGE, MESSAGE_MASK
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.hosts.wire.ipv4 import IP_IN_IP

# Opcodes of classic BPF (linux/filter.h, linux/bpf_common.h).
LOAD_WORD, LOAD_HALF, LOAD_BYTE = 0x20, 0x28, 0x30
AND, JUMP, IF_EQUAL, IF_AT_LEAST, RETURN = 0x54, 0x05, 0x15, 0x35, 0x06
# Offset that loads a random number (SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h).
RANDOM = -0x1000 + 56
MATCH, NO_MATCH = -1, 0  # results of a filter
ACT_UNSPEC, ACT_SHOT, ACT_STOLEN = -1, 2, 4  # verdicts: next program; drop; drop without counting
# Offsets of protocol numbers in an Ethernet frame.
ETHERTYPE_AT, DCN_PROTOCOL_AT, IP_PROTOCOL_AT, INNER_PROTOCOL_AT = 12, 14 + 1, 14 + 9, 14 + 20 + 9

_INSTRUCTION = struct.Struct("=HBBi")


def drop() -> bytes:
    """Return the filter that drops all packets."""
    return _with_verdicts(_step(RETURN, ACT_SHOT))


def drop_randomly(probability: float) -> bytes:
    """Return the filter that drops a packet with a probability."""
    threshold = min(int(probability * 2**32), 2**32 - 1)
    signed = struct.unpack("=i", struct.pack("=I", threshold))[0]
    return _with_verdicts(
        _step(LOAD_WORD, RANDOM),
        _step(IF_AT_LEAST, signed, 1),
        _step(RETURN, ACT_SHOT),
        _step(RETURN, ACT_UNSPEC),
    )


def pass_copies_to(index: int) -> bytes:
    """Return the filter that transmits a clone of every packet by an interface, in its place.

    A clone counts for no socket, as after `cable_programs.detach_from_socket`.
    """
    # struct tc_mirred: number, capabilities, verdict, two reference counts, kind, interface
    parameters = struct.pack("=IIiiiiI", 0, 0, ACT_STOLEN, 0, 0, nl.TCA_EGRESS_MIRROR, index)
    mirror = text(nl.TCA_ACT_KIND, "mirred")
    mirror += attribute(nl.TCA_ACT_OPTIONS, attribute(nl.TCA_MIRRED_PARMS, parameters))
    return _filter(_step(RETURN, MATCH)) + attribute(nl.TCA_BPF_ACT, attribute(1, mirror))


def control_messages() -> bytes:
    """Return the filter that matches servers' control messages among outgoing packets.

    The tests are those of `cable_programs.control_message_filter`.
    """
    return _filter(
        _step(LOAD_HALF, ETHERTYPE_AT),
        _step(IF_EQUAL, ETH_DCN, 5),
        _step(IF_EQUAL, ETH_IP, 0, 8),
        _step(LOAD_BYTE, IP_PROTOCOL_AT),
        _step(IF_EQUAL, IP_IN_IP, 0, 3),
        _step(LOAD_BYTE, INNER_PROTOCOL_AT),
        _step(JUMP, 1),
        _step(LOAD_BYTE, DCN_PROTOCOL_AT),
        _step(AND, MESSAGE_MASK),
        _step(IF_EQUAL, FIRST_MESSAGE, 0, 1),
        _step(RETURN, MATCH),
        _step(RETURN, NO_MATCH),
    )


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return an instruction; its jumps count instructions to skip if its test is true or false."""
    return _INSTRUCTION.pack(code, if_true, if_false, operand)


def _filter(*steps: bytes) -> bytes:
    length = struct.pack("=H", len(steps))
    return attribute(nl.TCA_BPF_OPS_LEN, length) + attribute(nl.TCA_BPF_OPS, b"".join(steps))


def _with_verdicts(*steps: bytes) -> bytes:
    """Return a filter whose result is a verdict, without a further action."""
    return _filter(*steps) + number(nl.TCA_BPF_FLAGS, nl.TCA_BPF_FLAG_ACT_DIRECT)
