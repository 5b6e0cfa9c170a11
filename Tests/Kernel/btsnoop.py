"""Reads btsnoop files: those that Bindrune writes, and those that btmon writes.

The layout is in BlueZ's doc/btsnoop.txt: a head of 16 octets, then for each packet its lengths, flags, drops and time
(24 octets), all big-endian, and the packet itself.
"""

import struct
from pathlib import Path

H4, MONITOR = 1002, 2001  # datalink types: one controller's packets with their H4 type; all adapters' of a kernel
COMMAND, ACL, EVENT, ISO = 1, 2, 4, 5  # H4 types

# The packets among the kernel's monitor records: opcode, H4 type, and whether it is for the controller.
MONITORED = {2: (COMMAND, True), 3: (EVENT, False), 4: (ACL, True), 5: (ACL, False), 18: (ISO, True), 19: (ISO, False)}


class Packet:
    def __init__(self, type, is_sent, octets):
        self.type, self.is_sent, self.octets = type, is_sent, octets

    def __eq__(self, other):
        return (self.type, self.is_sent, self.octets) == (other.type, other.is_sent, other.octets)

    def __str__(self):
        return f"{'>' if self.is_sent else '<'} {self.type:02X} {self.octets.hex(' ')}"


def packets(path, adapter=None):
    """The packets in `path` in their order; of btmon's file those of hci`adapter`."""
    data = Path(path).read_bytes()
    magic, version, datalink = struct.unpack_from(">8sII", data)
    if magic != b"btsnoop\0" or version != 1 or datalink not in (H4, MONITOR):
        raise ValueError(f"{path} is not btsnoop as we know it")
    found, offset = [], 16
    while offset < len(data):
        original, included, flags, drops, _ = struct.unpack_from(">IIIIq", data, offset)
        octets = data[offset + 24 : offset + 24 + included]
        if len(octets) < included or original != included or drops:
            raise ValueError(f"{path} is not whole at offset {offset}")
        offset += 24 + included
        if datalink == H4:
            found.append(Packet(octets[0], flags & 1 == 0, octets[1:]))
        elif flags >> 16 == adapter and flags & 0xFFFF in MONITORED:
            found.append(Packet(*MONITORED[flags & 0xFFFF], octets))
    return found
