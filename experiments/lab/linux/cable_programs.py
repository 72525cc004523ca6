"""Small BPF programs of cables, assembled here, and netlink requests that attach them.

The programs drop all packets (a silent cut), drop a fraction of them (loss, bit errors), send some
twice (duplicates) or late (`hold_randomly`), pass packets to another interface's far end (a patch
panel), detach packets from the socket that sent them (see `detach_from_socket`), send them past a
bridge (`straight_on`), and recognize control messages for the queue (`control_message_filter`).
Each is a few instructions long, so no compiler is needed. The programs that hold, drop or duplicate
packets run before all other programs at an interface, which see only the packets that passed.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pillarbox.experiments.lab.linux import classic_filters
from pillarbox.experiments.lab.linux.classic_filters import (
    ACT_SHOT,
    ACT_STOLEN,
    ACT_UNSPEC,
    DCN_PROTOCOL_AT,
    ETHERTYPE_AT,
    INNER_PROTOCOL_AT,
    IP_PROTOCOL_AT,
)
from pillarbox.experiments.lab.linux.link_requests import mac_bytes
from pillarbox.hosts.linux import bpf
from pillarbox.hosts.linux import instructions as ebpf
from pillarbox.hosts.linux import netlink_numbers as nl
from pillarbox.hosts.linux.instructions import R0, R1, R2, R3, R6, R7, R8, R9
from pillarbox.hosts.linux.netlink import Message, Netlink, attribute, number, tc_header, text
from pillarbox.hosts.live.devices import PAST_SHAPERS
from pillarbox.hosts.wire.dcn import FIRST_MESSAGE, MESSAGE_MASK, Protocol
from pillarbox.hosts.wire.frame import ETH_DCN, ETH_IP
from pillarbox.hosts.wire.ipv4 import IP_IN_IP
from pillarbox.topos.base.errors import KernelError

GET_PRANDOM_U32, CLONE_REDIRECT, REDIRECT, REDIRECT_PEER = 7, 13, 23, 155  # BPF helper functions
TO_INGRESS = 1
# Offsets of fields in a packet's BPF context (struct __sk_buff).
LENGTH, MARK, PROTOCOL, PRIORITY, IFINDEX, SEGMENTS, SOCKET = 0, 8, 16, 32, 40, 164, 168
DUPLICATE_MARK = 0x70647570  # mark of a duplicate, which is not duplicated again
LATE_MARK = 0x6C617465  # mark of a packet that was held, which is not held again

# first 16 bits of the locally administered MAC addresses of `mac_of_peer`
NAMED_PEER = 0x0670

# Order in which the lab's BPF programs run at an interface, all before a forwarder's.
OWN, REORDER, CUT, CORRUPT, LOSS, DUPLICATE, PATCH, STRAIGHT_ON = range(1, 9)
# priority of tunnel filters at a machine's cards, where other software has programs too
GUARD = 14789
CONTROL, MARKING = 1, 2  # priorities of tc filters that select a packet's queue


class CableProgram(bytes):
    """An eBPF program of a cable, for which a classic filter does the same without eBPF.

    Attributes
    ----------
    classic : bytes
        Options of the classic filter (`classic_filters`).
    """

    classic = b""

    def or_classic(self, classic: bytes) -> CableProgram:
        """Return this program with the options of its classic filter."""
        made = CableProgram(self)
        made.classic = classic
        return made


def drop() -> CableProgram:
    """Return the BPF program that drops all packets."""
    return CableProgram(_verdict_instructions(ACT_SHOT)).or_classic(classic_filters.drop())


def _verdict_instructions(verdict: int) -> bytes:
    """Return the instructions that end a BPF program with a verdict: drop or continue."""
    return ebpf.set_register(R0, verdict) + ebpf.EXIT


def drop_randomly(probability: float) -> CableProgram:
    """Return the BPF program that drops a packet with a probability."""
    program = _unless_drawn(probability) + _verdict_instructions(ACT_SHOT)
    return CableProgram(program).or_classic(classic_filters.drop_randomly(probability))


def _unless_drawn(probability: float) -> bytes:
    """Return the start of a BPF program that lets a packet pass unless a random draw selects it."""
    threshold = min(int(probability * 2**32), 2**32 - 1)
    low = struct.unpack("=i", struct.pack("=I", threshold))[0]
    passes = _verdict_instructions(ACT_UNSPEC)
    return (
        ebpf.call_helper(GET_PRANDOM_U32)
        + ebpf.copy(R0, R0, bits=32)  # clears the upper 32 bits of the random number
        + ebpf.set_register(R1, low, bits=32)
        + ebpf.skip_if_register(ebpf.BELOW, R0, R1, ebpf.length(passes))
        + passes
    )


def drop_with_bit_errors(rate: float) -> bytes:
    """Return the BPF program that drops packets in which bits have flipped, given the error rate.

    A port discards a frame with a wrong check sum. A frame of L bits has an error with the
    probability 1 - (1 - rate)^L, here x - x^2 / 2 with x = rate L, as a fraction of 2^32. Of a
    super-packet, L is the length of one segment: all its segments are lost together, and the mean
    loss is that of single frames.
    """
    per_byte = max(1, round(8 * rate * 2**32))
    count = ebpf.load(ebpf.WORD, R8, R1, SEGMENTS)
    count += ebpf.skip_if(ebpf.DIFFERENT, R8, 0, 1) + ebpf.set_register(R8, 1)
    likely = ebpf.load(ebpf.WORD, R7, R1, LENGTH)
    likely += ebpf.calculate(ebpf.MULTIPLY, R7, per_byte) + ebpf.calculate_with(ebpf.DIVIDE, R7, R8)
    likely += ebpf.set_register(R9, -1, bits=32)  # 2^32 - 1: the largest value of x
    likely += ebpf.skip_if_register(ebpf.AT_MOST, R7, R9, 1) + ebpf.copy(R7, R9)
    likely += ebpf.copy(R9, R7) + ebpf.calculate_with(ebpf.MULTIPLY, R9, R7)
    likely += ebpf.calculate(ebpf.SHIFT_RIGHT, R9, 33) + ebpf.calculate_with(ebpf.SUBTRACT, R7, R9)
    passes = _verdict_instructions(ACT_UNSPEC)
    drawn = ebpf.call_helper(GET_PRANDOM_U32) + ebpf.copy(R0, R0, bits=32)
    drawn += ebpf.skip_if_register(ebpf.BELOW, R0, R7, ebpf.length(passes)) + passes
    return count + likely + drawn + _verdict_instructions(ACT_SHOT)


def duplicate_randomly(probability: float, hook: int) -> bytes:
    """Return the BPF program that sends a packet a second time with a probability.

    The duplicate passes all programs of the interface and direction again; its mark prevents
    further duplicates.
    """
    unmark = ebpf.set_register(R1, 0) + ebpf.store(ebpf.WORD, R6, MARK, R1)
    passes = unmark + _verdict_instructions(ACT_UNSPEC)
    start = ebpf.copy(R6, R1) + ebpf.load(ebpf.WORD, R2, R1, MARK)
    start += ebpf.skip_if(ebpf.DIFFERENT, R2, DUPLICATE_MARK, ebpf.length(passes)) + passes
    send = ebpf.set_register(R1, DUPLICATE_MARK) + ebpf.store(ebpf.WORD, R6, MARK, R1)
    send += ebpf.copy(R1, R6) + ebpf.load(ebpf.WORD, R2, R6, IFINDEX)
    send += ebpf.set_register(R3, TO_INGRESS if hook == nl.CLSACT_INGRESS else 0)
    send += ebpf.call_helper(CLONE_REDIRECT)
    return start + _unless_drawn(probability) + send + passes


def hold_randomly(probability: float, index: int) -> bytes:
    """Return the BPF program that sends a packet to interface `index` with a probability.

    The interface leads to a process that holds the packet (see `delays`), and `end_hold` brings
    it back with a mark. A packet is held once; duplicates are not held.
    """
    passes = _verdict_instructions(ACT_UNSPEC)
    unmark = ebpf.set_register(R1, 0) + ebpf.store(ebpf.WORD, R6, MARK, R1) + passes
    start = ebpf.copy(R6, R1) + ebpf.load(ebpf.WORD, R2, R1, MARK)
    start += ebpf.skip_if(ebpf.DIFFERENT, R2, LATE_MARK, ebpf.length(unmark)) + unmark
    start += ebpf.skip_if(ebpf.DIFFERENT, R2, DUPLICATE_MARK, ebpf.length(passes)) + passes
    hold = ebpf.set_register(R1, index) + _redirect_instructions(REDIRECT)
    return start + _unless_drawn(probability) + hold


def end_hold(tap: CableTap) -> bytes:
    """Return the BPF program that returns a held packet to the tap at which it was taken.

    A switch forwards heartbeats past its shapers (`PAST_SHAPERS`), after their hold as well.
    """
    back = ebpf.set_register(R1, tap.ifindex)
    back += _redirect_instructions(REDIRECT, to_ingress=tap.hook == nl.CLSACT_INGRESS)
    mark = ebpf.copy(R6, R1) + ebpf.set_register(R1, LATE_MARK)
    mark += ebpf.store(ebpf.WORD, R6, MARK, R1) + ebpf.copy(R1, R6)
    return mark + _bypass_of_heartbeats(back) + back


def detach_from_socket(*, by_filter: bool) -> bytes:
    """Return the BPF program that detaches packets from the TCP socket that sent them.

    Linux lets a TCP socket have about two packets below it (TCP Small Queues), and counts them
    until they arrive: over veth and bridge, that is the whole path through all switches, whose
    queues then neither fill nor drop nor share their rate fairly. On a real cable the count ends at
    the sender's own network card. Here it ends where a packet comes in: the program sends a clone,
    which no socket counts, into the same interface again, and drops the packet; a tc filter can
    steal the packet instead, which drop tracing does not report. (An XDP program would do the same,
    but then Linux segments super-packets, and drops those with headers that it does not know.)

    Packets without a socket pass immediately: the clone, and packets that a server has relayed,
    which were detached at the first switch. So do heartbeats, which no queue delays; they also
    bypass the shapers of the ports at which a switch forwards them (`PAST_SHAPERS`).
    """
    again = ebpf.load(ebpf.WORD, R2, R1, IFINDEX) + ebpf.set_register(R3, TO_INGRESS)
    again += ebpf.call_helper(CLONE_REDIRECT)
    owned = again + _verdict_instructions(ACT_STOLEN if by_filter else ACT_SHOT)
    has_no_socket = ebpf.load(ebpf.DOUBLE, R2, R1, SOCKET)
    has_no_socket += ebpf.skip_if(ebpf.EQUAL, R2, 0, ebpf.length(owned))
    return _bypass_of_heartbeats() + has_no_socket + owned + _verdict_instructions(ACT_UNSPEC)


def bypass_shapers_for_heartbeats() -> bytes:
    """Return the BPF program that only lets heartbeats bypass the shapers."""
    return _bypass_of_heartbeats() + _verdict_instructions(ACT_UNSPEC)


def _bypass_of_heartbeats(end: bytes | None = None) -> bytes:
    """Return the start of a BPF program that lets heartbeats bypass the shapers.

    For heartbeats the program ends with the instructions `end`; by default they pass.
    """
    past = ebpf.set_register(R1, PAST_SHAPERS) + ebpf.store(ebpf.WORD, R6, PRIORITY, R1)
    past += _verdict_instructions(ACT_UNSPEC) if end is None else end
    is_beat = ebpf.load_packet(ebpf.BYTE, DCN_PROTOCOL_AT)
    is_beat += ebpf.skip_if(ebpf.DIFFERENT, R0, Protocol.HEARTBEAT, ebpf.length(past)) + past
    is_dcn = ebpf.load(ebpf.WORD, R2, R1, PROTOCOL)
    is_dcn += ebpf.skip_if(ebpf.DIFFERENT, R2, socket.htons(ETH_DCN), ebpf.length(is_beat))
    return ebpf.copy(R6, R1) + is_dcn + is_beat + ebpf.copy(R1, R6)


def hand_to_peer(index: int) -> CableProgram:
    """Return the BPF program that passes a packet to the peer of veth interface `index`."""
    program = ebpf.set_register(R1, index) + _redirect_instructions(REDIRECT_PEER)
    return CableProgram(program).or_classic(classic_filters.pass_copies_to(index))


def mac_of_peer(index: int) -> str:
    """Return the MAC address that encodes a veth interface's index for `hand_to_named_peer`.

    >>> mac_of_peer(258)
    '06:70:00:00:01:02'
    """
    return ":".join(f"{byte:02x}" for byte in struct.pack("!HI", NAMED_PEER, index))


def _redirect_instructions(helper: int, *, to_ingress: bool = False) -> bytes:
    """Return the BPF instructions that pass a packet to the interface with index R1."""
    return (
        ebpf.set_register(R2, TO_INGRESS if to_ingress else 0)
        + ebpf.call_helper(helper)
        + ebpf.EXIT
    )


def hand_to_named_peer() -> bytes:
    """Return the BPF program that passes a frame to the interface encoded in its MAC address.

    Frames to other addresses (broadcasts, or a bridge's own address) pass unchanged.
    """
    there = (
        ebpf.load_packet(ebpf.WORD, 2) + ebpf.copy(R1, R0) + _redirect_instructions(REDIRECT_PEER)
    )
    named = ebpf.copy(R6, R1) + ebpf.load_packet(ebpf.HALF, 0)
    named += ebpf.skip_if(ebpf.DIFFERENT, R0, NAMED_PEER, ebpf.length(there))
    return named + there + _verdict_instructions(ACT_UNSPEC)


def send_by(index: int) -> bytes:
    """Return the BPF program that transmits a packet by interface `index`."""
    return ebpf.set_register(R1, index) + _redirect_instructions(REDIRECT)


def straight_on(ports: Mapping[str, int]) -> bytes:
    """Return the BPF program that sends a frame out of the port that leads to its destination.

    Frames to other addresses, and frames that would leave by the port they came in at, go on to the
    bridge.
    """
    program = ebpf.copy(R6, R1) + ebpf.load(ebpf.WORD, R9, R1, IFINDEX)  # incoming interface
    program += ebpf.load_packet(ebpf.HALF, 0) + ebpf.copy(R8, R0)  # first 16 bits of destination
    program += ebpf.load_packet(ebpf.WORD, 2) + ebpf.copy(R7, R0)  # last 32 bits of destination
    for mac, index in ports.items():
        high, low = struct.unpack("!Hi", mac_bytes(mac))
        there = ebpf.set_register(R1, index) + _redirect_instructions(REDIRECT)
        there = ebpf.skip_if(ebpf.EQUAL, R9, index, ebpf.length(there)) + there
        there = ebpf.skip_if(ebpf.DIFFERENT, R8, high, ebpf.length(there)) + there
        program += ebpf.skip_if(ebpf.DIFFERENT, R7, low, ebpf.length(there), bits=32) + there
    return program + _verdict_instructions(ACT_UNSPEC)


def control_message_filter() -> bytes:
    """Return the BPF filter that matches servers' control messages among outgoing packets.

    A DCN or BCube header has its protocol in its second byte, an IPv4 header in its tenth; in a
    tunnel the inner header decides. The program is a filter: -1 is a match, 0 is none.
    """
    return b"".join(
        [
            ebpf.copy(R6, R1),
            ebpf.load_packet(ebpf.HALF, ETHERTYPE_AT),
            # DCN header: jump to the load of its protocol
            ebpf.skip_if(ebpf.EQUAL, R0, ETH_DCN, 5),
            ebpf.skip_if(ebpf.DIFFERENT, R0, ETH_IP, 9),  # no match
            ebpf.load_packet(ebpf.BYTE, IP_PROTOCOL_AT),
            ebpf.skip_if(ebpf.DIFFERENT, R0, IP_IN_IP, 3),  # no IP in IP: check the outer protocol
            ebpf.load_packet(ebpf.BYTE, INNER_PROTOCOL_AT),
            ebpf.skip(1),
            ebpf.load_packet(ebpf.BYTE, DCN_PROTOCOL_AT),
            ebpf.calculate(ebpf.AND, R0, MESSAGE_MASK),
            ebpf.skip_if(ebpf.DIFFERENT, R0, FIRST_MESSAGE, 2),
            _verdict_instructions(-1),
            _verdict_instructions(0),
        ]
    )


def drop_from_other_sources(port: int, addresses: Sequence[str]) -> bytes:
    """Return the BPF program that drops packets to a UDP port from other than given IPv4 addresses.

    The program is for interfaces that receive Ethernet frames; other packets pass.
    """
    known = [struct.unpack("!i", socket.inet_aton(one))[0] for one in addresses]
    tests = [
        (ebpf.copy(R6, R1) + ebpf.load_packet(ebpf.HALF, ETHERTYPE_AT), ETH_IP),
        (ebpf.load_packet(ebpf.BYTE, IP_PROTOCOL_AT), socket.IPPROTO_UDP),
        (
            ebpf.load_packet(ebpf.BYTE, 14)
            + ebpf.calculate(ebpf.AND, R0, 0x0F)  # length of the IP header in words
            + ebpf.calculate(ebpf.SHIFT_LEFT, R0, 2)
            + ebpf.copy(R7, R0)
            + ebpf.load_packet(ebpf.HALF, 14 + 2, beyond=R7),
            port,
        ),
    ]
    end = ebpf.load_packet(ebpf.WORD, 14 + 12)
    for at, one in enumerate(known):  # packet from a known source address: jump to the verdict
        end += ebpf.skip_if(ebpf.EQUAL, R0, one, len(known) - at + 1, bits=32)
    end += _verdict_instructions(ACT_SHOT)
    # A packet with another port or protocol: jump to the verdict.
    for read, wanted in reversed(tests):
        end = read + ebpf.skip_if(ebpf.DIFFERENT, R0, wanted, ebpf.length(end)) + end
    return end + _verdict_instructions(ACT_UNSPEC)


def load(program: bytes) -> int:
    """Load a BPF program; return its file descriptor."""
    try:
        return bpf.load_program(program)
    except OSError as error:
        raise KernelError(
            f"the kernel refused a BPF program ({error.strerror}): silent cuts, losses, rates and "
            "cables between servers need one with CONFIG_NET_CLS_BPF, and root"
        ) from None


class CableTap(NamedTuple):
    """Interface and direction at which a BPF program intercepts one direction of a cable."""

    ifindex: int  # index of an interface in the switches' namespace
    hook: int  # nl.CLSACT_INGRESS or nl.CLSACT_EGRESS
    alone: bool = False  # True if only this direction ever gets programs


def hook(tap: CableTap, *, new: bool = False) -> Message:
    """Return the netlink request for an interface's clsact, to which tc attaches BPF programs.

    The clsact stays when the last program is detached: other software may have programs there. It
    serves both directions, or only the ingress: the kernel keeps an entry per direction in a list
    of the whole machine, and walks the list at each new entry. With `new` the request fails if a
    clsact exists.
    """
    incoming_alone = tap.alone and tap.hook == nl.CLSACT_INGRESS
    body = _clsact_header(tap) + text(nl.TCA_KIND, "ingress" if incoming_alone else "clsact")
    flags = nl.NLM_F_CREATE | (nl.NLM_F_EXCL if new else 0)
    return Message(nl.RTM_NEWQDISC, flags, body, f"prepare interface {tap.ifindex} for programs")


def clsact_removal_request(tap: CableTap) -> Message:
    """Return the netlink request that removes an interface's clsact with all its BPF programs."""
    return Message(
        nl.RTM_DELQDISC, 0, _clsact_header(tap), f"leave interface {tap.ifindex} as it was"
    )


def is_empty(kernel: Netlink, tap: CableTap) -> bool:
    """Return True if an interface's clsact has no BPF program or filter of any owner."""
    deed = f"list the programs at interface {tap.ifindex}"
    places = (
        tc_header(tap.ifindex, 0, direction) for direction in (nl.CLSACT_INGRESS, nl.CLSACT_EGRESS)
    )
    return not any(kernel.dump(nl.RTM_GETTFILTER, place, deed) for place in places)


def _clsact_header(tap: CableTap) -> bytes:
    return tc_header(tap.ifindex, nl.CLSACT_HANDLE, nl.CLSACT_PARENT)


def attach(tap: CableTap, priority: int, program: int, deed: str) -> Message:
    """Return the tc request that attaches a loaded BPF program to an interface."""
    options = number(nl.TCA_BPF_FD, program)
    options += number(nl.TCA_BPF_FLAGS, nl.TCA_BPF_FLAG_ACT_DIRECT)
    return attach_filter(tap, priority, options, deed)


def attach_filter(tap: CableTap, priority: int, options: bytes, deed: str) -> Message:
    """Return the tc request that attaches a BPF filter with given options to an interface."""
    body = _filter_header(tap, priority) + text(nl.TCA_KIND, "bpf")
    body += attribute(nl.TCA_OPTIONS, options + text(nl.TCA_BPF_NAME, "pillarbox"))
    return Message(nl.RTM_NEWTFILTER, nl.NLM_F_CREATE | nl.NLM_F_REPLACE, body, deed)


def detach(tap: CableTap, priority: int, deed: str) -> Message:
    """Return the tc request that detaches a BPF program from an interface, by its priority."""
    body = _filter_header(tap, priority) + text(nl.TCA_KIND, "bpf")
    return Message(nl.RTM_DELTFILTER, 0, body, deed)


def queue_filter_request(
    index: int, queue: int, band: int, program: bytes, deed: str, priority: int = CONTROL
) -> Message:
    """Return the request for a BPF filter that selects packets for a class of a port's queue.

    `program` is a netlink attribute with the descriptor of a loaded program, or classic options.
    """
    options = number(nl.TCA_BPF_CLASSID, band) + program
    options += text(nl.TCA_BPF_NAME, "pillarbox")
    body = _filter_header(CableTap(index, queue), priority) + text(nl.TCA_KIND, "bpf")
    body += attribute(nl.TCA_OPTIONS, options)
    return Message(nl.RTM_NEWTFILTER, nl.NLM_F_CREATE, body, deed)


def _filter_header(tap: CableTap, priority: int) -> bytes:
    protocol = struct.unpack("=H", struct.pack("!H", nl.ETH_P_ALL))[0]
    return tc_header(tap.ifindex, 1, tap.hook, priority << 16 | protocol)
