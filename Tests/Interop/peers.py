"""Shared by both peers: virtual controllers over TCP (H4), traces, the checks' lines.

A peer opens a port on 127.0.0.1. Every TCP connection to it is one fresh controller, on one radio with the peer's
own; closing the connection takes the controller away, and whoever was connected sees the link lost.
"""
import asyncio
import contextlib
import json
import logging
import secrets
import socket
import sys

from bumble import core, hci, ll
from bumble.controller import Controller
from bumble.device import Device, DeviceConfiguration
from bumble.host import Host
from bumble.link import LocalLink
from bumble.snoop import BtSnooper, Snooper
from bumble.transport import open_transport
from bumble.transport.common import PacketParser


def say(event, **values):
    """One JSON object on a line of its own, for the runner."""
    print(json.dumps({'event': event, **values}), flush=True)


class Checks:
    """`ok  name` or `FAIL name: got … want …`, a line each."""

    def __init__(self):
        self.passed = self.failed = 0

    def __call__(self, name, got, want=True):
        if got == want:
            self.passed += 1
            print(f'ok  {name}', flush=True)
        else:
            self.failed += 1
            print(f'FAIL {name}: got {self.text(got)} want {self.text(want)}', flush=True)
        return got == want

    @staticmethod
    def text(value):
        value = value.hex().upper() if isinstance(value, (bytes, bytearray)) else repr(value)
        return value if len(value) <= 300 else value[:300] + f'… ({len(value)})'

    @property
    def status(self):
        """0 all passed, 1 some failed, 2 nothing ran."""
        return 1 if self.failed else 0 if self.passed else 2


class VirtualController(Controller):
    """Bumble's controller, which forgets to end what LE Create Connection Cancel cancels. Vol 4, Part E, §7.8.13."""

    def on_hci_le_create_connection_cancel_command(self, _command):
        pending, self.pending_le_connection = self.pending_le_connection, None
        if pending is None:
            return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.COMMAND_DISALLOWED_ERROR)
        event = hci.HCI_LE_Connection_Complete_Event(
            status=hci.HCI_ErrorCode.UNKNOWN_CONNECTION_IDENTIFIER_ERROR, connection_handle=0, role=hci.Role.CENTRAL,
            peer_address_type=pending.peer_address_type, peer_address=pending.peer_address, connection_interval=0,
            peripheral_latency=0, supervision_timeout=0, central_clock_accuracy=0)
        asyncio.get_running_loop().call_soon(self.send_hci_packet, event)
        return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.SUCCESS)


class Radio(LocalLink):
    """Bumble's link between controllers in one process.

    `LocalLink.send_acl_data` names the sender by its random address, so that data of a controller that connected or
    advertised by its public address is dropped: the connection's own address is used here.
    """

    def __init__(self, legacy_only, resolves=True):
        super().__init__()
        self.legacy_only, self.resolves = legacy_only, resolves

    def send_acl_data(self, sender_controller, destination_address, transport, data):
        connection = sender_controller.le_connections.get(destination_address)
        destination = self.find_le_controller(destination_address)
        if connection is not None and destination is not None:
            asyncio.get_running_loop().call_soon(destination.on_link_acl_data, connection.self_address, transport, data)

    def new_controller(self, name, public_address):
        controller = VirtualController(name, link=self, public_address=public_address)
        if self.legacy_only:  # otherwise scanning reports are extended ones, whatever command was used
            controller.le_features &= ~hci.LeFeatureMask.LE_EXTENDED_ADVERTISING
        if not self.resolves:  # it accepts a resolving list and ignores it: without room in the list the host resolves
            controller.resolving_list_size = 0
        return controller

    def take_away(self, controller):
        for connection in list(controller.le_connections.values()):
            with contextlib.suppress(Exception):
                connection.send_ll_control_pdu(ll.TerminateInd(hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR))
        controller.le_legacy_advertiser.stop()
        for advertising_set in controller.advertising_sets.values():
            advertising_set.stop()
        asyncio.get_running_loop().call_soon(lambda: self.controllers.discard(controller))


class Trace:
    """A btsnoop file of one host's packets."""

    def __init__(self, path):
        self.file = open(path, 'wb')
        self.snooper = BtSnooper(self.file)

    def snoop(self, packet, direction):
        self.snooper.snoop(bytes(packet), direction)
        self.file.flush()


class Sink:
    def __init__(self, on_packet):
        self.on_packet = on_packet


class ControllerPort(asyncio.Protocol):
    """One TCP connection: one controller for the host at the other end."""
    count = 0

    def __init__(self, radio, trace):
        self.radio, self.trace_path = radio, trace

    def connection_made(self, transport):
        ControllerPort.count += 1
        number = ControllerPort.count
        self.transport = transport
        transport.get_extra_info('socket').setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.controller = self.radio.new_controller(f'external {number}', f'C0:FF:EE:00:00:{number:02X}/P')
        self.trace = Trace(self.trace_path if number == 1 else f'{self.trace_path}.{number}') if self.trace_path else None
        self.controller.host = Sink(self.to_host)
        self.parser = PacketParser(Sink(self.from_host))

    def from_host(self, packet):
        if self.trace:
            self.trace.snoop(packet, Snooper.Direction.HOST_TO_CONTROLLER)
        self.controller.on_packet(packet)

    def to_host(self, packet):
        if self.trace:
            self.trace.snoop(packet, Snooper.Direction.CONTROLLER_TO_HOST)
        if not self.transport.is_closing():
            self.transport.write(packet)

    def data_received(self, data):
        self.parser.feed_data(data)

    def connection_lost(self, _error):
        self.radio.take_away(self.controller)


def add_arguments(parser):
    parser.add_argument('--port', type=int, default=0, help='port on 127.0.0.1 for the external host (0: any)')
    parser.add_argument('--controller', metavar='HOST:PORT', help='use this controller (H4 over TCP), open no port')
    parser.add_argument('--acl', type=int, help='LE ACL data packet length of the controllers (27)')
    parser.add_argument('--legacy-only', action='store_true', help='controllers without extended advertising')
    parser.add_argument('--public', action='store_true', help='own address: public')
    parser.add_argument('--privacy', action='store_true', help='own address: resolvable private, made by the host')
    parser.add_argument('--trace', help="btsnoop file of the peer's host")
    parser.add_argument('--trace-external', help='btsnoop file of the external host, taken at the port')
    parser.add_argument('--run-for', type=float, default=60, help='seconds after which the peer ends by itself')
    parser.add_argument('-v', action='count', default=0)


async def make_peer(args, name, address, public_address):
    """The peer's device, and the port that it opened (None with --controller)."""
    logging.basicConfig(level=[logging.CRITICAL, logging.INFO, logging.DEBUG][min(args.v, 2)])
    port = None
    if args.acl:
        Controller.le_acl_data_packet_length = args.acl
    if args.controller:
        transport = await open_transport(f'tcp-client:{args.controller}')
        host = Host(controller_source=transport.source, controller_sink=transport.sink)
    else:
        radio = Radio(args.legacy_only, resolves=not args.privacy)
        controller = radio.new_controller('peer', public_address)
        host = Host(controller_source=controller, controller_sink=controller)
        server = await asyncio.get_running_loop().create_server(
            lambda: ControllerPort(radio, args.trace_external), '127.0.0.1', args.port)
        port = server.sockets[0].getsockname()[1]
    if args.trace:
        host.snooper = Trace(args.trace)
    config = DeviceConfiguration(name=name, address=hci.Address(address),
                                 identity_address_type=hci.Address.RANDOM_DEVICE_ADDRESS,
                                 irk=secrets.token_bytes(16) if args.privacy else bytes(16),
                                 le_privacy_enabled=args.privacy, le_rpa_timeout=0)
    device = Device(config=config, host=host)
    device.keep_alive = (server if port else transport)
    return device, port


async def change_private_address(device):
    """Takes another resolvable private address, when none is in use: Vol 6, Part B, §1.3.2.2. Bumble's `update_rpa`
    sends the controller the address that it had before."""
    device.random_address = hci.Address.generate_private_address(device.irk)
    await device.send_sync_command(hci.HCI_LE_Set_Random_Address_Command(random_address=device.random_address))


def own_address_type(args):
    return hci.OwnAddressType.PUBLIC if args.public else hci.OwnAddressType.RANDOM
