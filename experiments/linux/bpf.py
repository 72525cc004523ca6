"""A few tiny BPF programs, assembled here, and how they are attached to an interface.

A cable needs no more than: drop what passes (a silent cut), drop some of it (loss),
hand it to another interface's far end (a patch panel), take it from its sender (see `own`), send it
past a bridge (`straight_on`), and tell control messages apart (for the queue: `is_control`). Each
is a handful of instructions, so there is nothing to compile. The first three run before whatever
other programs are attached to an interface, which get what they let pass.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.linux.netlink import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    Message,
    Netlink,
    attribute,
    mac_bytes,
    number,
    text,
)
from hosts.linux import bpf
from hosts.linux.instructions import EXIT, call_helper, instruction, set_register
from hosts.live.devices import PAST_SHAPERS
from hosts.wire.dcn import FIRST_MESSAGE, MESSAGE_MASK, Protocol
from hosts.wire.frame import ETH_DCN, ETH_IP
from hosts.wire.ipv4 import IP_IN_IP
from topos.base.errors import PillarboxError

RTM_NEWQDISC, RTM_DELQDISC, RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 36, 37, 44, 45, 46
CLSACT_PARENT, CLSACT_HANDLE = 0xFFFFFFF1, 0xFFFF0000
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3  # where on an interface a program runs
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_BPF_CLASSID, TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS, DIRECT_ACTION = 3, 6, 7, 8, 1
ETH_P_ALL = 0x0003

ACT_UNSPEC, ACT_SHOT, ACT_STOLEN = -1, 2, 4  # go on to the next program; drop; drop uncounted
GET_PRANDOM_U32, CLONE_REDIRECT, REDIRECT, REDIRECT_PEER = 7, 13, 23, 155  # helper functions
TO_INGRESS = 1
# Where in a packet's context (struct __sk_buff).
PROTOCOL, PRIORITY, IFINDEX, SOCKET = 16, 32, 40, 168
# Where in a frame.
ETHERTYPE_AT, DCN_PROTOCOL_AT, IP_PROTOCOL_AT, INNER_PROTOCOL_AT = 12, 14 + 1, 14 + 9, 14 + 20 + 9

NAMED_PEER = 0x0670  # how the MAC addresses of `mac_of_peer` begin: local ones

# Priorities of our programs at a place: before those of a forwarder.
OWN, CUT, LOSS, PATCH, STRAIGHT_ON = 1, 2, 3, 4, 5
GUARD = 14789  # at a machine's own cards, where others may have programs too
CONTROL, MARKING = 1, 2  # at a queue


def drop() -> bytes:
    """Return the program that drops everything."""
    return set_register(0, ACT_SHOT) + EXIT


def drop_some(probability: float) -> bytes:
    """Return the program that drops a packet with that probability."""
    threshold = min(int(probability * 2**32), 2**32 - 1)
    low = struct.unpack("=i", struct.pack("=I", threshold))[0]
    return (
        call_helper(GET_PRANDOM_U32)
        + instruction(0xBC, 0x00)  # w0 = w0: a number of 32 bits
        + instruction(0xB4, 1, 0, low)  # w1 = threshold
        + instruction(0xAD, 0x10, 2)  # if r0 < r1: two further
        + set_register(0, ACT_UNSPEC)
        + EXIT
        + set_register(0, ACT_SHOT)
        + EXIT
    )


def own(*, by_filter: bool) -> bytes:
    """Return the program that takes what comes in from the socket that sent it.

    Linux lets a TCP socket have about two packets below it (TCP Small Queues), and counts them
    until they arrive: over veth and bridge that reaches from the sender through every switch, whose
    queues then neither fill nor drop nor share their rate fairly. On a real cable the sender's
    account ends at its own network card. Here it ends where a packet comes in: the program lets a
    clone, which no socket counts, come in once more, and drops the packet; a filter can take it
    away instead, which who traces drops does not see. (An XDP program would do the same, but then
    Linux cuts super-packets apart, and drops those of headers it does not know.)

    What no socket sent passes at once: the clone, and what a server has relayed, whose sender's
    account ended at the first switch. So do heart-beats, which no queue delays, and by the shapers
    of the ports at which a switch sends them on (`PAST_SHAPERS`).
    """
    again = (
        instruction(0x61, 0x12, IFINDEX) + set_register(3, TO_INGRESS) + call_helper(CLONE_REDIRECT)
    )
    owned = again + set_register(0, ACT_STOLEN if by_filter else ACT_SHOT) + EXIT
    has_no_socket = instruction(0x79, 0x12, SOCKET) + instruction(0x15, 2, len(owned) // 8, 0)
    return _heart_beats_past_shapers() + has_no_socket + owned + set_register(0, ACT_UNSPEC) + EXIT


def hurry() -> bytes:
    """Return the program that only lets heart-beats by the shapers: they were owned elsewhere."""
    return _heart_beats_past_shapers() + set_register(0, ACT_UNSPEC) + EXIT


def _heart_beats_past_shapers() -> bytes:
    """Return a program's beginning: heart-beats end it, all else goes on, with r1 as it was."""
    past = instruction(0xB7, 1, 0, PAST_SHAPERS) + instruction(0x63, 0x16, PRIORITY)
    past += set_register(0, ACT_UNSPEC) + EXIT
    is_dcn = instruction(0x61, 0x12, PROTOCOL), instruction(0x55, 2, 6, socket.htons(ETH_DCN))
    # A load (0x30) takes the packet from r6.
    heart_beat = instruction(0x30, 0, 0, DCN_PROTOCOL_AT)
    heart_beat += instruction(0x55, 0, len(past) // 8, Protocol.HEART_BEAT) + past
    return instruction(0xBF, 0x16) + b"".join(is_dcn) + heart_beat + instruction(0xBF, 0x61)


def hand_to_peer(index: int) -> bytes:
    """Return the program that lets a packet come in where interface `index` has its far end."""
    return set_register(1, index) + set_register(2, 0) + call_helper(REDIRECT_PEER) + EXIT


def mac_of_peer(index: int) -> str:
    """Return the MAC address by which `hand_to_named_peer` finds interface `index`'s far end.

    >>> mac_of_peer(258)
    '06:70:00:00:01:02'
    """
    return ":".join(f"{byte:02x}" for byte in struct.pack("!HI", NAMED_PEER, index))


def hand_to_named_peer() -> bytes:
    """Return the program that lets a frame come in at the interface that its address names.

    What has another address (a broadcast, or a bridge's own) goes on.
    """
    # Loads (0x20, 0x28) take the packet from r6.
    there = instruction(0x20, 0, 0, 2) + instruction(0xBF, 0x01)  # r1 = r0
    there += set_register(2, 0) + call_helper(REDIRECT_PEER) + EXIT
    named = instruction(0xBF, 0x16) + instruction(0x28, 0, 0, 0)
    named += instruction(0x55, 0, len(there) // 8, NAMED_PEER)
    return named + there + set_register(0, ACT_UNSPEC) + EXIT


def send_by(index: int) -> bytes:
    """Return the program that sends a packet by interface `index`."""
    return set_register(1, index) + set_register(2, 0) + call_helper(REDIRECT) + EXIT


def straight_on(ports: Mapping[str, int]) -> bytes:
    """Return the program that sends a frame out of the interface behind which its address is.

    What has no such address goes on, to the bridge, and so does what would go out where it came in.
    """
    # Loads (0x20, 0x28) take the packet from r6.
    program = instruction(0xBF, 0x16) + instruction(0x61, 0x19, IFINDEX)  # r9: where it came in
    program += instruction(0x28, 0, 0, 0) + instruction(0xBF, 0x08)  # r8: its address, 16 bits
    program += instruction(0x20, 0, 0, 2) + instruction(0xBF, 0x07)  # r7: the other 32
    for mac, index in ports.items():
        high, low = struct.unpack("!Hi", mac_bytes(mac))
        there = set_register(1, index) + set_register(2, 0) + call_helper(REDIRECT) + EXIT
        for code, register, constant in ((0x15, 9, index), (0x55, 8, high), (0x56, 7, low)):
            # Equal, or unequal: on to the next address.
            there = instruction(code, register, len(there) // 8, constant) + there
        program += there
    return program + set_register(0, ACT_UNSPEC) + EXIT


def is_control() -> bytes:
    """Return the program that finds servers' control messages among what leaves a port.

    A DCN or BCube header names its protocol in its second byte, an IPv4 header in its tenth; within
    a tunnel it is the inner header that tells. To be used as a filter: -1 is a match, 0 is none.
    """
    # Loads (0x28, 0x30) take the packet from r6; one beyond its end ends the program with 0.
    return b"".join(
        [
            instruction(0xBF, 0x16),  # r6 = r1
            instruction(0x28, 0, 0, ETHERTYPE_AT),
            instruction(0x15, 0, 5, ETH_DCN),  # equal: on to the load of DCN's protocol
            instruction(0x55, 0, 9, ETH_IP),  # not equal: no
            instruction(0x30, 0, 0, IP_PROTOCOL_AT),
            instruction(0x55, 0, 3, IP_IN_IP),  # not equal: judge this one
            instruction(0x30, 0, 0, INNER_PROTOCOL_AT),
            instruction(0x05, 0, 1),
            instruction(0x30, 0, 0, DCN_PROTOCOL_AT),
            instruction(0x57, 0, 0, MESSAGE_MASK),
            instruction(0x55, 0, 2, FIRST_MESSAGE),
            set_register(0, -1) + EXIT,
            set_register(0, 0) + EXIT,
        ]
    )


def only_from(port: int, addresses: Sequence[str]) -> bytes:
    """Return the program that drops what comes to a UDP port, but from these IPv4 addresses.

    To be used where frames come in from an Ethernet; what it does not drop goes on.
    """
    # Loads (0x20, 0x28, 0x30; 0x48 beyond r7) take the packet from r6.
    known = [struct.unpack("!i", socket.inet_aton(one))[0] for one in addresses]
    tests = [
        (instruction(0xBF, 0x16) + instruction(0x28, 0, 0, ETHERTYPE_AT), ETH_IP),
        (instruction(0x30, 0, 0, IP_PROTOCOL_AT), socket.IPPROTO_UDP),
        (
            instruction(0x30, 0, 0, 14)
            + instruction(0x57, 0, 0, 0x0F)  # of the header, in words
            + instruction(0x67, 0, 0, 2)
            + instruction(0xBF, 0x07)  # r7 = r0
            + instruction(0x48, 0x70, 0, 14 + 2),
            port,
        ),
    ]
    end = instruction(0x20, 0, 0, 14 + 12)
    end += b"".join(instruction(0x16, 0, len(known) - at + 1, one) for at, one in enumerate(known))
    end += set_register(0, ACT_SHOT) + EXIT
    for read, wanted in reversed(tests):  # not equal: on to the last two instructions
        end = read + instruction(0x55, 0, len(end) // 8, wanted) + end
    return end + set_register(0, ACT_UNSPEC) + EXIT


def load(program: bytes) -> int:
    """Return an open file that stands for a loaded program."""
    try:
        return bpf.load(program)
    except OSError as error:
        raise PillarboxError(
            f"the kernel refused a BPF program ({error.strerror}): silent cuts, losses, rates and "
            "cables between servers need one with CONFIG_NET_CLS_BPF, and root"
        ) from None


class Tap(NamedTuple):
    """A place where one direction of a cable can be interfered with."""

    ifindex: int  # of an interface of the fabric
    hook: int  # INGRESS or EGRESS
    alone: bool = False  # nothing is ever done there to what passes the other way


def hook(tap: Tap, *, new: bool = False) -> Message:
    """Return the request for the place on an interface where programs are attached.

    It stays when the last of them is detached: others may have theirs there. It is for both
    directions, or for what comes in alone: of each direction the kernel keeps an entry in one list
    of the whole machine, and walks along that list at each new one. One that has to be new is
    refused where there is one.
    """
    incoming_alone = tap.alone and tap.hook == INGRESS
    body = _place(tap) + text(TCA_KIND, "ingress" if incoming_alone else "clsact")
    flags = NLM_F_CREATE | (NLM_F_EXCL if new else 0)
    return Message(RTM_NEWQDISC, flags, body, f"prepare interface {tap.ifindex} for programs")


def unhook(tap: Tap) -> Message:
    """Return the request that takes the place for programs away, and all that are there."""
    return Message(RTM_DELQDISC, 0, _place(tap), f"leave interface {tap.ifindex} as it was")


def is_empty(kernel: Netlink, tap: Tap) -> bool:
    """Tell whether no program, of anybody's, is attached at an interface."""
    deed = f"list the programs at interface {tap.ifindex}"
    places = (struct.pack("=BxHiIII", 0, 0, tap.ifindex, 0, way, 0) for way in (INGRESS, EGRESS))
    return not any(kernel.dump(RTM_GETTFILTER, place, deed) for place in places)


def _place(tap: Tap) -> bytes:
    return struct.pack("=BxHiIII", 0, 0, tap.ifindex, CLSACT_HANDLE, CLSACT_PARENT, 0)


def attach(tap: Tap, priority: int, program: int, deed: str) -> Message:
    """Return the request that puts a loaded program there; its file may be closed afterwards."""
    options = number(TCA_BPF_FD, program) + text(TCA_BPF_NAME, "pillarbox")
    options += number(TCA_BPF_FLAGS, DIRECT_ACTION)
    body = _filter(tap, priority) + text(TCA_KIND, "bpf") + attribute(TCA_OPTIONS, options)
    return Message(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_REPLACE, body, deed)


def detach(tap: Tap, priority: int, deed: str) -> Message:
    """Return the request that takes our program of that priority away."""
    body = _filter(tap, priority) + text(TCA_KIND, "bpf")
    return Message(RTM_DELTFILTER, 0, body, deed)


def classify(
    index: int, queue: int, band: int, program: int, deed: str, priority: int = CONTROL
) -> Message:
    """Return the request that lets a loaded program choose what goes to a band of a queue."""
    options = number(TCA_BPF_CLASSID, band) + number(TCA_BPF_FD, program)
    options += text(TCA_BPF_NAME, "pillarbox")
    body = _filter(Tap(index, queue), priority) + text(TCA_KIND, "bpf")
    body += attribute(TCA_OPTIONS, options)
    return Message(RTM_NEWTFILTER, NLM_F_CREATE, body, deed)


def _filter(tap: Tap, priority: int) -> bytes:
    protocol = struct.unpack("=H", struct.pack("!H", ETH_P_ALL))[0]
    return struct.pack("=BxHiIII", 0, 0, tap.ifindex, 1, tap.hook, priority << 16 | protocol)
