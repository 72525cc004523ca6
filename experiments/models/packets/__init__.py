"""Packet-level TCP simulation: queues that drop packets, senders that detect losses, and ACKs."""
