#!/usr/bin/env python3
"""Bumble's GATT server behind the sockets of `bindrune conform --against`: Fixtures/Scripts/FORMAT.md, "Over a socket".

Bumble has no part in the sockets: its Server sees a connection that is none, and a device that only sends. A database
file becomes attributes at the handles that it names. What an application would do (the most octets of a value, delays,
errors of its own) stands in the values' callbacks; permissions are Bumble's to enforce. For scripts of pairing, its
Security Manager takes the server's place, conformance_pairing.py; for scripts of channels its L2CAP does,
conformance_channels.py.
"""

import argparse
import asyncio
import json
import re
import select
import socket
import sys
import types

from bumble import att, core, gatt, gatt_server

import conformance_channels
import conformance_pairing

PROPERTIES = {
    name: gatt.Characteristic.Properties(1 << bit)
    for bit, name in enumerate(
        'broadcast read writeWithoutResponse write notify indicate authenticatedSignedWrites extendedProperties'.split()
    )
}


def octets(text):
    """As scripts write them: hex, "text", and either of them times a number."""
    result = b""
    for quoted, digits, times in re.findall(r'(?:"((?:[^"\\]|\\.)*)"|([0-9A-Fa-f]+))\s*(?:\*\s*(\d+))?', text):
        part = re.sub(r"\\(.)", r"\1", quoted).encode() if not digits else bytes.fromhex(digits)
        # A number repeats the octet before it, not the digits.
        result += part * int(times) if times and not digits else part + part[-1:] * (int(times) - 1) if times else part
    return result


def number(value):
    return value if isinstance(value, int) else int(value, 0)


def seconds(text):
    return float(text[:-2]) / 1000 if text.endswith('ms') else float(text[:-1])


class Value:
    """The application's state for an attribute."""

    def __init__(self, entry):
        self.octets = octets(entry.get('value', ''))
        self.fixed = entry.get('fixed', False)
        self.maximum = len(self.octets) if self.fixed else number(entry.get('maximum', 512))
        self.delay = seconds(entry.get('delay', '0s'))
        self.errors = [number(entry.get(key, 0)) for key in ('readError', 'writeError')]
        self.attribute_value = att.AttributeValue(self.read, self.write)

    async def read(self, _connection):
        await asyncio.sleep(self.delay)
        if self.errors[0]:
            raise att.ATT_Error(self.errors[0])
        return self.octets

    async def write(self, _connection, value):
        await asyncio.sleep(self.delay)
        if self.errors[1]:
            raise att.ATT_Error(self.errors[1])
        if len(value) > self.maximum:
            raise att.ATT_Error(att.ATT_INVALID_ATTRIBUTE_LENGTH_ERROR)
        self.octets = value + self.octets[len(value) :] if self.fixed else value


def permissions(entry, read, write):
    flags = att.Attribute.Permissions
    result = flags(0)
    for key, otherwise, able, encrypted, authenticated in (
        ('read', read, flags.READABLE, flags.READ_REQUIRES_ENCRYPTION, flags.READ_REQUIRES_AUTHENTICATION),
        ('write', write, flags.WRITEABLE, flags.WRITE_REQUIRES_ENCRYPTION, flags.WRITE_REQUIRES_AUTHENTICATION),
    ):
        words = entry.get(key, otherwise)
        words = [words] if isinstance(words, str) else words
        if 'none' in words:
            continue
        result |= able
        if 'encrypted' in words or 'authenticated' in words:
            result |= encrypted
        if 'authenticated' in words:
            result |= authenticated
        if 'authorized' in words:
            result |= flags.READ_REQUIRES_AUTHORIZATION if key == 'read' else flags.WRITE_REQUIRES_AUTHORIZATION
    return result


class Connection:
    """The properties of a client that Bumble's server uses, and its key for it."""

    count = 0

    def __init__(self):
        Connection.count += 1
        self.handle = Connection.count
        self.att_mtu = 23
        self.encryption = 0
        self.authenticated = False

    def on_att_mtu_update(self, mtu):
        self.att_mtu = mtu


class Peer:
    def __init__(self):
        self.values = {}
        self.connection = None
        self.send = None
        manager = types.SimpleNamespace(le_coc_channels={})
        self.device = types.SimpleNamespace(send_l2cap_pdu=self.send_pdu, l2cap_channel_manager=manager)
        self.server = gatt_server.Server(self.device)
        # What has taken the server's place.
        self.other = None
        self.write = None

    def send_pdu(self, handle, _cid, pdu):
        # The client has disconnected: the answer is dropped.
        if self.send and handle == self.connection.handle:
            self.send(bytes(pdu))

    # The database

    def open(self, path):
        self.values = {}
        self.server = gatt_server.Server(self.device)
        if path != '-':
            with open(path, encoding='utf-8') as file:
                self.build(json.load(file))
        self.connect(self.send)

    def place(self, attribute, entry, key='handle'):
        attribute.handle = number(entry[key]) if key in entry else self.next
        attribute.end_group_handle = attribute.handle
        self.next = attribute.handle + 1
        self.server.attributes.append(attribute)

    def build(self, database):
        self.next = 1
        services = {}
        for entry in database['services']:
            service = gatt.Service(entry['uuid'], [], entry.get('type', 'primary') == 'primary')
            self.place(service, entry)
            services[service.handle] = service
            # Included services may stand anywhere; Bumble's declaration needs them as they will be.
            includes = []
            for include in entry.get('includes', []):
                placeholder = att.Attribute(gatt.GATT_INCLUDE_ATTRIBUTE_TYPE, att.Attribute.READABLE, b"")
                self.place(placeholder, include)
                includes.append((placeholder, number(include['service'])))
            for characteristic in entry.get('characteristics', []):
                self.characteristic(characteristic)
            last = self.next - 1
            service.end_group_handle = number(entry.get('end', last))
            self.next = max(self.next, service.end_group_handle + 1)
            service.includes = includes
            self.server.services.append(service)
        for service in services.values():
            for placeholder, handle in service.includes:
                placeholder.value = gatt.IncludedServiceDeclaration(services[handle]).value
        self.server.attributes.sort(key=lambda attribute: attribute.handle)

    def characteristic(self, entry):
        names = entry['properties']
        properties = gatt.Characteristic.Properties(0)
        for name in names:
            properties |= PROPERTIES[name]
        writes = {'write', 'writeWithoutResponse', 'authenticatedSignedWrites'} & set(names)
        access = permissions(entry, 'open' if 'read' in names else 'none', 'open' if writes else 'none')
        value = Value(entry)
        characteristic = gatt.Characteristic(entry['uuid'], properties, access, value.attribute_value)
        handle = number(entry['handle']) if 'handle' in entry else self.next
        value_handle = number(entry['valueHandle']) if 'valueHandle' in entry else handle + 1
        declaration = gatt.CharacteristicDeclaration(characteristic, value_handle)
        self.place(declaration, entry)
        self.place(characteristic, {'handle': value_handle})
        self.values[value_handle] = value
        for descriptor in entry.get('descriptors', []):
            if core.UUID(descriptor['uuid']) == gatt.GATT_CLIENT_CHARACTERISTIC_CONFIGURATION_DESCRIPTOR:
                access = permissions({'write': descriptor.get('write', 'open')}, 'open', 'open')
                content = self.server.make_descriptor_value(characteristic)
            else:
                access = permissions(descriptor, 'open', 'none')
                kept = Value(descriptor)
                content = kept.attribute_value
            attribute = gatt.Descriptor(descriptor['uuid'], access, content)
            self.place(attribute, descriptor)
            if content is not None and not isinstance(content, att.AttributeValueV2):
                self.values[attribute.handle] = kept
        declaration.end_group_handle = characteristic.end_group_handle = self.next - 1

    # The bearer

    def connect(self, send):
        if self.other:
            self.other.connect(send)
            return
        if self.connection is not None:
            self.server.on_disconnection(self.connection)
        self.send = send
        self.connection = Connection()

    def receive(self, pdu):
        """As Device.on_gatt_pdu does it; what Bumble cannot parse it drops."""
        try:
            if self.other:
                self.other.receive(pdu)
                return
            parsed = att.ATT_PDU.from_bytes(pdu)
            if not parsed.op_code & 1:
                self.server.on_gatt_pdu(self.connection, parsed)
        except Exception as error:  # pylint: disable=broad-except
            print(f"{pdu.hex()}: {error!r}", file=sys.stderr)

    # The control connection

    def command(self, line):
        verb, _, rest = line.partition(' ')
        words = rest.split()
        if verb == 'open':
            self.other = None
            self.open(rest)
        elif verb == 'channel' and words[0] in ('smp', 'l2cap'):
            if words[0] == 'smp':
                self.other = conformance_pairing.Pairing(rest[len(words[0]) :], self.write)
            else:
                self.other = conformance_channels.Channels(words[1], self.write)
            self.other.connect(None)
        elif self.other:
            return self.other.command(verb, words)
        elif verb == 'mtu':
            self.server.max_mtu = int(words[0])
        elif verb == 'security' and len(words) == 1:
            self.connection.encryption = int(words[0] in ('encrypted', 'authenticated'))
            self.connection.authenticated = words[0] == 'authenticated'
        elif verb == 'set':
            self.values[number(words[0])].octets = octets(rest[len(words[0]) :])
        elif verb in ('notify', 'indicate') and ',' not in rest:
            attribute = self.server.get_attribute(number(words[0]))
            send = self.server.notify_subscriber if verb == 'notify' else self.server.indicate_subscriber
            task = asyncio.ensure_future(send(self.connection, attribute, octets(rest[len(words[0]) :])))
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        else:
            return 'unsupported'
        return 'ok'


async def serve_bearers(peer, listener):
    loop = asyncio.get_running_loop()
    while True:
        connection, _ = await loop.sock_accept(listener)
        connection.setblocking(False)
        peer.connect(connection.send)
        poll = select.poll()
        poll.register(connection, select.POLLRDHUP | select.POLLHUP)
        while True:
            try:
                pdu = await loop.sock_recv(connection, 65536)
            except OSError:
                break
            # A packet of no octets looks like the end, but for the poll.
            if not pdu and poll.poll(0):
                break
            peer.receive(pdu)
        peer.connect(None)
        connection.close()


async def read_line(reader):
    try:
        return await reader.readline()
    except ConnectionError:
        # The tester has closed the connection before it has read everything.
        return b""


async def serve_control(peer, listener):
    async def talk(reader, writer):
        peer.write = lambda line: writer.is_closing() or writer.write(f"{line}\n".encode())
        while line := await read_line(reader):
            try:
                answer = peer.command(line.decode().rstrip("\n"))
            except Exception as error:  # pylint: disable=broad-except
                answer = f"error {error!r}"
            writer.write(f"{answer}\n".encode())
            await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(talk, sock=listener)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--bearer', required=True, help='path of the SOCK_SEQPACKET socket')
    parser.add_argument('--control', required=True, help='path of the control socket')
    arguments = parser.parse_args()
    bearer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    for listener, path in ((bearer, arguments.bearer), (control, arguments.control)):
        listener.bind(path)
        listener.listen()
        listener.setblocking(False)
    peer = Peer()
    await serve_control(peer, control)
    print(json.dumps({'event': 'ready'}), flush=True)
    await serve_bearers(peer, bearer)


if __name__ == '__main__':
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
