"""Wire formats of headers and messages: conversion between bytes and values, without state.

`header_layout` has the declaration of headers; the other modules declare the formats that the
papers put between Ethernet and IP, or around IP:

- `frame`: Ethernet frames without addresses,
- `dcn`: header of DCell (and FiConn); `bcube`: header with the packet's path,
- `ipv4`: packets of applications, their flows, and DPillar's tunnel,
- `messages` and `ficonn`: bodies of control messages.

These modules use no clock, no socket and no state. Invalid bytes and values raise
`layout.WireError`.
"""
