#!/usr/bin/env python3
"""Notifications a second from one host to another, each on a Bumble controller over TCP (H4): Bumble's hosts and ours.

bumble_link.py --ours PROGRAM [--count N] [--rounds N] [--acl OCTETS] [--json]
bumble_link.py controllers | send PORT COUNT | receive PORT    what it starts itself, a process each

The controllers are Bumble's, both in one process, each behind a TCP port, joined by Bumble's link: the same for every
pair of hosts. The hosts are one process each. The receiver connects, agrees on an MTU of 247, subscribes; the sender
then notifies as fast as its host lets it; the receiver takes the time from the first value to the last, and looks at the
number in each of them. Pairs take turns, and the median of the rounds is told:

  x.bumble.link    Bumble to Bumble            x.B7.tcp    ours to ours
  x.bumble.send    Bumble to ours              x.bumble.receive    ours to Bumble

PROGRAM is ours: `PROGRAM send tcp:HOST:PORT COUNT` and `PROGRAM receive tcp:HOST:PORT COUNT`, the latter printing
`per_second N`. --acl: what the controllers say of their buffers; 27, Bumble's default, makes ten packets of a value.
Exit status 1 where a pair does not get through, or ours to ours is not more than Bumble to Bumble.
"""
import argparse
import asyncio
import contextlib
import json
import logging
import statistics
import struct
import subprocess
import sys
import time

SERVICE, CHARACTERISTIC = '180D', '2A37'
LENGTH, MTU = 244, 247


# The controllers


def controllers(acl):
    from bumble.controller import Controller
    from bumble.link import LocalLink
    from bumble.transport.common import PacketParser

    class Link(LocalLink):
        """Bumble's link identifies the sender of data by its random address, and drops data of a sender with a public one."""

        def send_acl_data(self, sender, destination_address, transport, data):
            connection = sender.le_connections.get(destination_address)
            destination = self.find_le_controller(destination_address)
            if connection is not None and destination is not None:
                asyncio.get_running_loop().call_soon(
                    destination.on_link_acl_data, connection.self_address, transport, data)

    class Sink:
        def __init__(self, on_packet):
            self.on_packet = on_packet

    class Port(asyncio.Protocol):
        def __init__(self, link, number):
            self.link, self.number = link, number

        def connection_made(self, transport):
            controller = Controller(f'C{self.number}', link=self.link, public_address=f'C0:FF:EE:00:00:{self.number:02X}/P')
            controller.le_acl_data_packet_length = acl
            controller.host = Sink(transport.write)
            self.parser = PacketParser(Sink(controller.on_packet))

        def data_received(self, data):
            self.parser.feed_data(data)

    async def main():
        link, loop = Link(), asyncio.get_running_loop()
        servers = [await loop.create_server(lambda number=number: Port(link, number), '127.0.0.1', 0) for number in (1, 2)]
        print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


# Bumble's hosts


@contextlib.asynccontextmanager
async def device(port, name, address):
    from bumble import hci
    from bumble.device import Device, DeviceConfiguration
    from bumble.host import Host
    from bumble.transport import open_transport
    async with await open_transport(f'tcp-client:127.0.0.1:{port}') as transport:
        host = Host(controller_source=transport.source, controller_sink=transport.sink)
        config = DeviceConfiguration(
            name=name, address=hci.Address(address), identity_address_type=hci.Address.RANDOM_DEVICE_ADDRESS)
        yield Device(config=config, host=host)


async def send(port, count):
    from bumble import gatt
    from bumble.core import AdvertisingData
    async with device(port, 'sender', 'F0:00:00:00:00:01') as sender:
        characteristic = gatt.Characteristic(CHARACTERISTIC, gatt.Characteristic.Properties.NOTIFY, 0, b'')
        sender.add_service(gatt.Service(SERVICE, [characteristic]))
        subscribed, gone = asyncio.Event(), asyncio.Event()
        links = []

        @sender.on('connection')
        def _(connection):
            links.append(connection)
            connection.on('disconnection', lambda _: gone.set())

        characteristic.on(gatt.Characteristic.EVENT_SUBSCRIPTION, lambda *_: subscribed.set())
        await sender.power_on()
        await sender.start_advertising(
            advertising_data=bytes(AdvertisingData([(AdvertisingData.COMPLETE_LOCAL_NAME, b'sender')])),
            advertising_interval_min=30, advertising_interval_max=30)
        await subscribed.wait()
        await asyncio.sleep(0.1)  # the answer to the subscription first
        for number in range(count):
            value = struct.pack('<I', number).ljust(LENGTH, b'n')
            await sender.notify_subscriber(links[0], characteristic, value)
            # Bumble's queue has no bound: this is its way to wait for the controller, as rarely as keeps it busy.
            if number % 32 == 31:
                await sender.host.le_acl_packet_queue.drain(links[0].handle)
        await gone.wait()


async def receive(port, count):
    from bumble.core import AdvertisingData, UUID
    from bumble.device import Peer
    async with device(port, 'receiver', 'F0:00:00:00:00:02') as receiver:
        await receiver.power_on()
        found = asyncio.get_running_loop().create_future()

        @receiver.on('advertisement')
        def _(advertisement):
            if advertisement.data.get(AdvertisingData.COMPLETE_LOCAL_NAME) == 'sender' and not found.done():
                found.set_result(advertisement.address)

        await receiver.start_scanning()
        address = await found
        await receiver.stop_scanning()
        connection = await receiver.connect(address)
        peer = Peer(connection)
        await peer.request_mtu(MTU)
        await peer.discover_all()
        characteristic = peer.get_characteristics_by_uuid(UUID(CHARACTERISTIC))[0]
        times, done, numbers = [], asyncio.Event(), []

        def on_value(value):
            if not times:
                times.append(time.perf_counter())
            numbers.append(int.from_bytes(value[:4], 'little') if len(value) == LENGTH else None)
            if len(numbers) == count:
                times.append(time.perf_counter())
                done.set()

        await peer.subscribe(characteristic, on_value)
        await done.wait()
        if numbers != list(range(count)):
            sys.exit('values are missing, or not in order')
        print('per_second', round((count - 1) / (times[1] - times[0])), flush=True)
        await connection.disconnect()


# The measurement


def pair(sender, receiver, acl, count):
    """Starts controllers, a sender and a receiver; the receiver's figure."""
    running = []

    def start(command):
        running.append(subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True))
        return running[-1]

    try:
        ports = start([sys.executable, __file__, 'controllers', '--acl', acl]).stdout.readline().split()
        start([*sender('send', ports[0]), count])
        told = start([*receiver('receive', ports[1]), count]).communicate(timeout=120)[0].split()
        if len(told) < 2 or told[-2] != 'per_second':
            sys.exit(f'{" ".join(map(str, receiver("receive", ports[1])))}: no figure')
        return int(told[-1])
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def measure(args):
    def bumble(verb, port):
        return [sys.executable, __file__, verb, port]

    def ours(verb, port):
        return [args.ours, verb, f'tcp:127.0.0.1:{port}']

    rows = {'x.bumble.link': (bumble, bumble), 'x.B7.tcp': (ours, ours),
            'x.bumble.send': (bumble, ours), 'x.bumble.receive': (ours, bumble)}
    figures = {row: [] for row in rows}
    for _ in range(args.rounds):
        for row, (sender, receiver) in rows.items():
            figures[row].append(pair(sender, receiver, args.acl, args.count))
    figures = {row: round(statistics.median(each)) for row, each in figures.items()}
    for row, figure in figures.items():
        print(json.dumps({'id': row, 'per_second': figure}) if args.json else f'{row:18}{figure:8,} notifications/s')
    ratio = figures['x.B7.tcp'] / figures['x.bumble.link']
    if not args.json:
        print(f'ours to ours is {ratio:.2f} × Bumble to Bumble')
    return 0 if ratio > 1 else 1


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('what', nargs='*', default=['measure'])
    parser.add_argument('--ours', help='the program with our hosts')
    parser.add_argument('--count', type=int, default=2000)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--acl', type=int, default=27)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    what, *rest = args.what
    if what == 'controllers':
        controllers(args.acl)
    elif what == 'send':
        asyncio.run(send(int(rest[0]), int(rest[1])))
    elif what == 'receive':
        asyncio.run(receive(int(rest[0]), int(rest[1])))
    elif args.ours:
        sys.exit(measure(args))
    else:
        parser.error('--ours PROGRAM is missing')


if __name__ == '__main__':
    main()
