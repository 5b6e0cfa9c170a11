#!/usr/bin/env python3
"""A Bumble device that exchanges octets with `bindrune pipe` over a credit-based channel, or ATT PDUs over enhanced bearers.

peer_channels.py --role central|peripheral --channels le|enhanced|bearers --input FILE --output FILE

Channels: as central it opens one to PSM 0x80, as peripheral it serves one; it sends FILE, writes what it gets into the other FILE,
and closes the channel after the end of both. Bearers: as central it pairs, opens three, and reads values on all of them at once;
as peripheral it serves the database of database.py on as many as the other side opens. Prints a line per check, the peripheral
{"event":"ready","port":…} before and {"event":"exit"} after them.
"""
import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from bumble import att, gatt_client, l2cap
from bumble.device import Peer

import database
import peer_peripheral
import peer_security
import peers

PSM = 0x80
# The longest SDU, and K-frames that need several packets of the controller and are not a divisor of it.
SPEC = {'mtu': 2000, 'mps': 300, 'max_credits': 20}


def spec(psm):
    return l2cap.LeCreditBasedChannelSpec(psm=psm, **SPEC)


class Channel(l2cap.LeCreditBasedChannel):
    """Bumble's channel drops the frames that come before its user has set a sink, and then takes the middle of an SDU for
    the beginning of one: here they wait."""
    early = None

    def on_pdu(self, pdu):
        if self.sink is None:
            self.early = [*(self.early or []), pdu]
        else:
            super().on_pdu(pdu)

    def begin(self, sink):
        self.sink = sink
        for pdu in self.early or []:
            super().on_pdu(pdu)


l2cap.LeCreditBasedChannel = Channel


class Pipe:
    """One end: the octets that came, and whether the other side has ended."""

    def __init__(self, args, channel):
        self.args, self.channel, self.received, self.sdus = args, channel, bytearray(), 0
        self.ended = asyncio.get_running_loop().create_future()
        channel.begin(self.take)

    def take(self, sdu):
        self.received += sdu
        self.sdus += 1
        if not sdu and not self.ended.done():  # how `bindrune pipe` ends its input
            self.ended.set_result(None)

    async def run(self, check):
        self.channel.write(Path(self.args.input).read_bytes())
        await asyncio.wait_for(self.ended, 30)
        await asyncio.wait_for(self.channel.drain(), 30)
        Path(self.args.output).write_bytes(self.received)
        check('the other side ended its input after some SDUs', self.sdus > 1)
        await asyncio.wait_for(self.channel.disconnect(), 10)


async def connect(device):
    found = asyncio.get_running_loop().create_future()

    def heard(advertisement):
        if advertisement.is_connectable and not found.done():
            found.set_result(advertisement.address)
    device.on('advertisement', heard)
    await device.start_scanning()
    address = await asyncio.wait_for(found, 20)
    await device.stop_scanning()
    return await device.connect(address, timeout=20)


async def central(device, args, check):
    connection = await connect(device)
    if args.channels == 'bearers':
        return await use_bearers(connection, check)
    if args.channels == 'le':
        channel = await connection.create_l2cap_channel(spec(PSM))
    else:
        manager = device.l2cap_channel_manager
        try:
            await manager.create_enhanced_credit_based_channels(connection, spec(0x81), 1)
            check('a PSM without a service', 'opened', 'refused')
        except l2cap.L2capError as error:
            check('a PSM without a service', error.error_code, 0x0002)
        channel = (await manager.create_enhanced_credit_based_channels(connection, spec(PSM), 1))[0]
    await Pipe(args, channel).run(check)
    # The listener ends the link.
    await asyncio.sleep(0.5)


async def use_bearers(connection, check):
    try:
        await gatt_client.Client.connect_eatt(connection)
        check('bearers before the link is encrypted', 'opened', 'refused')
    except l2cap.L2capError as error:
        # All connections refused, insufficient authentication.
        check('bearers before the link is encrypted', error.error_code, 0x0005)
    await asyncio.wait_for(connection.pair(), 20)
    clients = await asyncio.wait_for(gatt_client.Client.connect_eatt(connection, count=3), 10)
    check('bearers', len(clients), 3)
    try:
        await gatt_client.Client.connect_eatt(connection)
        check('a fourth bearer', 'opened', 'refused')
    except l2cap.L2capError as error:
        check('a fourth bearer', error.error_code, 0x0004)
    first = Peer(connection)
    await first.discover_all()
    names = [c.uuid for s in first.services for c in s.characteristics]
    check('characteristics', len(names) > 5)
    for client in clients:
        await client.discover_services()
        for service in client.services:
            await client.discover_characteristics([], service)
        check('the same characteristics', [c.uuid for s in client.services for c in s.characteristics], names)
    uuids = [att.UUID.from_16_bits(number) for number in (0x2A00, 0x2A29, 0x2A24, 0x2A19, 0x2A38)]

    async def read(client, uuid):
        handle = next(c.handle for s in client.services for c in s.characteristics if c.uuid == uuid)
        return [await client.read_value(handle) for _ in range(20)]
    wanted = [await read(first.gatt_client, uuid) for uuid in uuids]
    got = await asyncio.wait_for(asyncio.gather(*(
        asyncio.wait_for(read_all(client, uuids, read), 20) for client in [first.gatt_client, *clients])), 30)
    for number, values in enumerate(got):
        check(f'values on bearer {number}', values, wanted)
    await clients[0].bearer.disconnect()
    check('values after a bearer has closed', await read_all(clients[1], uuids, read), wanted)
    try:
        await clients[2].request_mtu(100)
    except att.ATT_Error as error:
        check('an MTU exchange on a bearer', error.error_code, 0x06)
    await connection.disconnect()


async def read_all(client, uuids, read):
    return [await read(client, uuid) for uuid in uuids]


async def peripheral(device, args, check, port):
    served = peer_peripheral.Peripheral(device, args)
    done, link = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()
    bearers = []
    if args.channels == 'bearers':
        device.l2cap_channel_manager.register_fixed_channel(0x0006, device.on_smp_pdu)
        for uuid, value in ((database.ENCRYPTED, peer_security.ENCRYPTED_VALUE),):
            served.characteristics[uuid].value = value
        server = device.gatt_server.register_eatt()
        server.on('connection', bearers.append)
    else:
        async def carry(channel):
            try:
                await Pipe(args, channel).run(check)
                done.set_result(None)
            except Exception as error:
                done.set_exception(error)
        device.create_l2cap_server(spec(PSM), handler=lambda channel: asyncio.ensure_future(carry(channel)))

    def on_connection(connection):
        connection.on('disconnection', lambda _reason: link.done() or link.set_result(None))
    device.on('connection', on_connection)
    await served.advertise(restarts=False)
    peers.say('ready', port=port)
    if args.channels != 'bearers':
        await asyncio.wait_for(done, 40)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(link, args.run_for)
    if args.channels == 'bearers':
        check('bearers that the other side has opened', len(bearers), 3)
    peers.say('exit')


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_arguments(parser)
    parser.add_argument('--role', choices=['central', 'peripheral'], required=True)
    parser.add_argument('--channels', choices=['le', 'enhanced', 'bearers'], required=True)
    parser.add_argument('--input', default='/dev/null', help='the octets to send')
    parser.add_argument('--output', default='/dev/null', help='where to write those that come')
    args = parser.parse_args()
    args.extended, args.interval, args.mode, args.digits = False, 0.01, 'sc-jw', '/dev/null'
    is_central = args.role == 'central'
    device, port = await peers.make_peer(
        args, 'InteropCentral' if is_central else database.NAME,
        'E0:E1:E2:E3:E4:E5' if is_central else database.ADDRESS, 'C0:DE:00:00:00:03/P')
    peer_security.prepare(device, args)
    await device.power_on()
    if is_central and port:
        peers.say('ready', port=port)
    check = peers.Checks()
    try:
        await asyncio.wait_for(
            central(device, args, check) if is_central else peripheral(device, args, check, port), args.run_for)
    except Exception as error:  # a line for the runner
        print(f'FAIL completed: got {error!r} want the end', flush=True)
        return 1
    return check.status


if __name__ == '__main__':
    sys.exit(asyncio.run(main()))
