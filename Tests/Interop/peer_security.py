#!/usr/bin/env python3
"""A Bumble device that pairs with an external host, in either role: encryption, permissions, and the bond on a second link.

peer_security.py --role central|peripheral --mode MODE --digits FILE

MODE is legacy or sc, and the method: jw (Just Works), nc (numeric comparison), passkey (this side displays 123456), entry
(this side enters what the other one has written into FILE). As central it prints a line per check; as peripheral it serves the
database of database.py, whose protected values then have values, and prints {"event":"ready","port":…}, {"event":"pairing",…}
for each pairing and {"event":"exit"}.
"""
import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from bumble import hci
from bumble.att import ATT_Error
from bumble.device import Peer
from bumble.keys import MemoryKeyStore
from bumble.pairing import PairingConfig, PairingDelegate

import database
import peer_peripheral
import peers

PASSKEY = 123456
ENCRYPTED_VALUE, AUTHENTICATED_VALUE = b'secret', b'mitm-secret'


class User(PairingDelegate):
    """Who looks at both devices."""

    def __init__(self, args):
        method = args.mode.split('-')[1]
        super().__init__({
            'jw': PairingDelegate.NO_OUTPUT_NO_INPUT, 'nc': PairingDelegate.DISPLAY_OUTPUT_AND_YES_NO_INPUT,
            'passkey': PairingDelegate.DISPLAY_OUTPUT_ONLY, 'entry': PairingDelegate.KEYBOARD_INPUT_ONLY}[method])
        self.digits = Path(args.digits)

    async def read(self):
        for _ in range(200):
            with contextlib.suppress(FileNotFoundError, ValueError):
                return int(self.digits.read_text())
            await asyncio.sleep(0.05)
        return None

    async def compare_numbers(self, number, digits):
        return await self.read() == number

    async def get_number(self):
        return await self.read()

    async def generate_passkey(self):
        return PASSKEY

    async def display_number(self, number, digits):
        pass


def answer_with_own_key(device):
    """Bumble 0.0.236, bonded as a peripheral by legacy pairing, answers with the key that the central has distributed, not with its
    own: Vol 3, Part H, §2.4.4."""
    stock = device.get_long_term_key

    async def get(connection_handle, rand, ediv):
        connection = device.lookup_connection(connection_handle)
        keys = connection and await device.keystore.get(str(connection.peer_address))
        if keys and not keys.ltk and connection.role == hci.Role.PERIPHERAL and keys.ltk_central \
                and device.smp_manager.get_long_term_key(connection, rand, ediv) is None:
            return keys.ltk_central.value
        return await stock(connection_handle, rand, ediv)
    device.get_long_term_key = get
    device.host.long_term_key_provider = get


def prepare(device, args):
    device.keystore = MemoryKeyStore()
    device.pairing_config_factory = lambda _: PairingConfig(
        sc=args.mode.startswith('sc'), mitm=not args.mode.endswith('jw'), bonding=True, delegate=User(args),
        identity_address_type=PairingConfig.AddressType.RANDOM)
    answer_with_own_key(device)


async def read(peer, uuid):
    """The value, or the error."""
    found = peer.get_characteristics_by_uuid(uuid)
    if not found:
        return 'not found'
    try:
        return await peer.gatt_client.read_value(found[0])
    except ATT_Error as error:
        return 'refused' if error.error_code in (0x05, 0x0F) else error.error_code


async def change_address(device, check):
    addresses = [device.random_address]
    await peers.change_private_address(device)
    addresses.append(device.random_address)
    is_another = addresses[0] != addresses[1]
    check('another private address', is_another and all(address.is_resolvable for address in addresses))


async def central(device, args):
    check, found = peers.Checks(), asyncio.get_running_loop().create_future()
    is_authenticated = not args.mode.endswith('jw')

    def heard(advertisement):
        name = advertisement.data.get(9) or advertisement.data.get(8)
        if name in (database.NAME, database.NAME.encode()) and not found.done():
            found.set_result(advertisement.address)
    device.on('advertisement', heard)
    await device.start_scanning()
    address = await asyncio.wait_for(found, 20)
    await device.stop_scanning()
    connection = await device.connect(address, timeout=20)
    peer = Peer(connection)
    await peer.discover_services()
    await peer.discover_characteristics()
    check('refused before', await read(peer, database.ENCRYPTED), 'refused')
    await asyncio.wait_for(connection.pair(), 20)
    check('encrypted', connection.is_encrypted)
    check('Secure Connections', bool(connection.sc), args.mode.startswith('sc'))
    check('encrypted value', await read(peer, database.ENCRYPTED), ENCRYPTED_VALUE)
    check('authenticated value', await read(peer, database.AUTHENTICATED),
          AUTHENTICATED_VALUE if is_authenticated else 'refused')
    await connection.disconnect()
    await asyncio.sleep(0.5)
    if args.privacy:
        await change_address(device, check)
    connection = await device.connect(address, timeout=20)
    await asyncio.wait_for(connection.encrypt(), 20)
    check('bond: encrypted', connection.is_encrypted)
    peer = Peer(connection)
    await peer.discover_services()
    await peer.discover_characteristics()
    check('bond: encrypted value', await read(peer, database.ENCRYPTED), ENCRYPTED_VALUE)
    await connection.disconnect()
    return check.status


async def peripheral(device, args, port):
    served = peer_peripheral.Peripheral(device, args)
    # Its own Security Manager, which the base class replaces by none.
    device.l2cap_channel_manager.register_fixed_channel(0x0006, device.on_smp_pdu)
    for uuid, value in ((database.ENCRYPTED, ENCRYPTED_VALUE), (database.AUTHENTICATED, AUTHENTICATED_VALUE)):
        served.characteristics[uuid].value = value
    left, enough, check = 2, asyncio.get_running_loop().create_future(), peers.Checks()

    async def advertise_again():
        await change_address(device, check)
        await served.advertise(restarts=False)

    def on_connection(connection):
        connection.on('pairing', lambda keys: peers.say(
            'pairing', sc=bool(connection.sc), authenticated=bool(connection.authenticated)))

        def on_disconnection(reason):
            nonlocal left
            left -= 1
            if left == 0 and not enough.done():
                enough.set_result(None)
            elif args.privacy:
                served.task = asyncio.get_running_loop().create_task(advertise_again())
        connection.on('disconnection', on_disconnection)
    device.on('connection', on_connection)
    await served.advertise(restarts=not args.privacy)
    peers.say('ready', port=port)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(enough, args.run_for)
    peers.say('exit', links=2 - left)
    return 0


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_arguments(parser)
    parser.add_argument('--role', choices=['central', 'peripheral'], required=True)
    parser.add_argument('--mode', required=True)
    parser.add_argument('--digits', required=True, help='file of the six digits that the other side shows')
    args = parser.parse_args()
    args.extended, args.interval = False, 0.01
    is_central = args.role == 'central'
    device, port = await peers.make_peer(
        args, 'InteropCentral' if is_central else database.NAME,
        'E0:E1:E2:E3:E4:E5' if is_central else database.ADDRESS, 'C0:DE:00:00:00:03/P')
    prepare(device, args)
    await device.power_on()
    if not is_central:
        return await peripheral(device, args, port)
    if port:
        peers.say('ready', port=port)
    try:
        return await asyncio.wait_for(central(device, args), args.run_for)
    except Exception as error:  # a line for the runner
        print(f'FAIL completed: got {error!r} want the end', flush=True)
        return 1


if __name__ == '__main__':
    sys.exit(asyncio.run(main()))
