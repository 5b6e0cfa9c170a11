"""Bumble's Security Manager behind the sockets of `bindrune conform`: Fixtures/Scripts/FORMAT.md, "Pairing".

Bumble has no part in the sockets: its Manager sees a connection that is none, a controller that only takes the key of
the link, and a user who answers when the script does. What Bumble cannot be told is `unsupported`.
"""

import asyncio
import types

from bumble import hci, pairing, smp, utils
from bumble.core import PhysicalTransport
from bumble.device import Connection as BumbleConnection

METHODS = {
    smp.PairingMethod.JUST_WORKS: 'just-works',
    smp.PairingMethod.NUMERIC_COMPARISON: 'numeric-comparison',
    smp.PairingMethod.PASSKEY: 'passkey-entry',
    smp.PairingMethod.OOB: 'out-of-band',
}
KEYS = {'none': 0, 'enc': 1, 'id': 2, 'sign': 4}


def text(octets):
    return octets.hex(' ').upper()


class Connection(utils.EventEmitter):
    """As much of bumble.device.Connection as a session uses."""

    EVENT_DISCONNECTION = BumbleConnection.EVENT_DISCONNECTION
    EVENT_CONNECTION_ENCRYPTION_CHANGE = BumbleConnection.EVENT_CONNECTION_ENCRYPTION_CHANGE
    EVENT_CONNECTION_ENCRYPTION_KEY_REFRESH = BumbleConnection.EVENT_CONNECTION_ENCRYPTION_KEY_REFRESH
    EVENT_SECURITY_REQUEST = BumbleConnection.EVENT_SECURITY_REQUEST

    count = 0
    transport = PhysicalTransport.LE
    self_resolvable_address = peer_resolvable_address = None

    def __init__(self, peer):
        super().__init__()
        Connection.count += 1
        self.handle = Connection.count
        self.peer = peer
        self.is_encrypted = False
        self.self_address, self.peer_address = peer.addresses
        self.role = hci.Role.CENTRAL if peer.is_initiator else hci.Role.PERIPHERAL

    def send_l2cap_pdu(self, _cid, pdu):
        self.peer.send_pdu(self, bytes(pdu))

    def cancel_on_disconnection(self, awaitable):
        return utils.cancel_on_event(self, self.EVENT_DISCONNECTION, awaitable)

    async def drain(self):
        pass


class User(pairing.PairingDelegate):
    """Asks the script."""

    def __init__(self, peer):
        super().__init__()
        self.peer = peer
        self.maximum_encryption_key_size = 16
        self.local_initiator_key_distribution = self.local_responder_key_distribution = 0
        self.consents = True
        self.answer = None

    async def accept(self):
        return self.consents

    async def ask(self, line):
        self.answer = asyncio.get_running_loop().create_future()
        self.peer.write(line)
        return await self.answer

    async def compare_numbers(self, number, digits):
        return await self.ask(f'asks comparison {text(number.to_bytes(4, "little"))}') == 'yes'

    async def get_number(self):
        answer = await self.ask('asks passkey')
        return None if answer == 'no' else int(answer)

    async def display_number(self, number, digits):
        self.peer.write(f'shows passkey {text(number.to_bytes(4, "little"))}')


class Pairing:
    """The side under test of one script."""

    def __init__(self, line, write):
        role, *addresses = line.split()
        self.is_initiator = role == 'initiator'
        types_of = {'public': hci.Address.PUBLIC_DEVICE_ADDRESS, 'random': hci.Address.RANDOM_DEVICE_ADDRESS}
        both = [hci.Address(addresses[at], types_of[addresses[at + 1]]) for at in (0, 2)]
        self.addresses = both if self.is_initiator else both[::-1]
        self.write = write
        self.send = None
        self.key = None
        self.is_key_wanted = False
        self.user = User(self)
        self.config = pairing.PairingConfig(sc=True, mitm=True, bonding=False, delegate=self.user)
        self.context = self.peer_data = self.legacy = None
        self.manager = smp.Manager(self, lambda _connection: self.config)
        self.connection = None
        # What a session asks of its device.
        self.host = types.SimpleNamespace(send_async_command=self.take_command)
        self.keystore = None
        self.irk = bytes(16)
        self.public_address = self.static_address = self.addresses[0]

    # The device

    async def take_command(self, command):
        self.key = command.long_term_key
        self.answer_key()

    def on_pairing_start(self, _connection):
        pass

    def on_pairing(self, connection, _address, _keys, sc):
        session = self.manager.sessions.get(connection.handle)
        if connection is self.connection and session:
            kind = 'secure-connections' if sc else 'legacy'
            self.write(f'result paired {METHODS[session.pairing_method]} {kind} 16\nend')
            self.manager.sessions.pop(connection.handle)

    def on_pairing_failure(self, connection, reason):
        if connection is self.connection:
            self.write(f'result pairing-failed 0x{int(reason):02X}\nend')
            self.manager.sessions.pop(connection.handle, None)

    # The channel

    def connect(self, send):
        if self.connection is not None:
            self.connection.emit(Connection.EVENT_DISCONNECTION, 0)
        self.send = send
        self.key = None
        self.is_key_wanted = False
        self.connection = Connection(self)
        self.connection.on(
            Connection.EVENT_SECURITY_REQUEST, lambda auth_req: self.write(f'asks security {int(auth_req):02X}')
        )

    def send_pdu(self, connection, pdu):
        if self.send and connection is self.connection:
            self.send(pdu)

    def receive(self, pdu):
        self.manager.on_smp_pdu(self.connection, pdu)
        self.answer_key()

    def answer_key(self):
        if not self.is_key_wanted:
            return
        key = self.key
        session = self.manager.sessions.get(self.connection.handle)
        if not self.is_initiator and session:
            key = session.get_long_term_key(bytes(8), 0)
        if key:
            self.is_key_wanted = False
            self.write(f'key {text(key)}')

    # The control connection

    def command(self, verb, words):
        if verb == 'pairing':
            return self.set(words[0], words[1:])
        if verb == 'pair':
            task = asyncio.ensure_future(self.manager.pair(self.connection))
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        elif verb == 'request-security':
            self.manager.request_pairing(self.connection)
        elif verb == 'key':
            self.is_key_wanted = True
            asyncio.get_running_loop().call_soon(self.answer_key)
        elif verb == 'encryption' and words == ['on']:
            self.connection.is_encrypted = True
            self.connection.emit(Connection.EVENT_CONNECTION_ENCRYPTION_CHANGE)
        elif verb == 'answer' and words[0] in ('yes', 'no', 'passkey') and self.user.answer:
            self.user.answer.set_result(words[-1])
        else:
            return 'unsupported'
        return 'ok'

    def set(self, name, words):
        octets = bytes.fromhex(''.join(words)) if name in ('identity', 'oob-data') else b''
        first, second = ('initiator', 'responder') if self.is_initiator else ('responder', 'initiator')
        if name == 'io':
            self.user.io_capability = pairing.PairingDelegate.IoCapability(int(words[0], 0))
        elif name == 'mitm' and words[0] != 'required':
            self.config.mitm = words[0] == 'wanted'
        elif name == 'sc' and words[0] != 'only':
            self.config.sc = words[0] == 'supported'
        elif name == 'bonding':
            self.config.bonding = words[0] == 'on'
        elif name == 'key-size' and words[0] == '7':
            self.user.maximum_encryption_key_size = int(words[1])
        elif name in ('sends', 'takes'):
            side = first if name == 'sends' else second
            setattr(self.user, f'local_{side}_key_distribution', sum(KEYS[word] for word in words))
        elif name == 'identity':
            self.irk = octets[:16]
            kind = hci.AddressType(octets[22])
            self.public_address = self.static_address = hci.Address(octets[16:22], kind)
            self.config.identity_address_type = kind
        elif name == 'consents':
            self.user.consents = words[0] == 'on'
        elif name == 'debug-key':
            pass  # Bumble accepts it from everybody.
        elif name == 'oob-data' and len(octets) == 16:
            self.legacy = smp.OobLegacyContext(octets)
        elif name == 'oob-data':
            self.peer_data = smp.OobSharedData(c=octets[:16], r=octets[16:])
        elif name == 'oob-own':
            self.context = smp.OobContext()
            data = self.context.share()
            self.write(f'shows oob {text(data.c)} {text(data.r)}')
        else:
            return 'unsupported'
        if name.startswith('oob-'):
            self.config.oob = pairing.PairingConfig.OobConfig(
                self.context or smp.OobContext(), self.peer_data, self.legacy
            )
        return 'ok'
