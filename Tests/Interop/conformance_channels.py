"""Bumble's L2CAP behind the sockets of `bindrune conform`: Fixtures/Scripts/FORMAT.md, "Channels".

Bumble has no part in the sockets: its ChannelManager sees a connection that is none, and a host that only sends. What
Bumble cannot be told is `unsupported`: security, limits, empty SDUs, and an application that does not read or gives up.
"""

import asyncio
import types

from bumble import hci, l2cap, utils


class Host(utils.EventEmitter):
    """As much of bumble.host.Host as a ChannelManager uses."""

    def __init__(self, send):
        super().__init__()
        self.send = send

    def send_l2cap_pdu(self, handle, cid, pdu):
        self.send(handle, cid.to_bytes(2, 'little') + bytes(pdu))

    def send_acl_sdu(self, handle, frame):
        self.send(handle, frame[2:])

    async def send_async_command(self, _command):
        pass


def text(cid, octets=b''):
    return (cid.to_bytes(2, 'little') + octets).hex(' ').upper()


class Channels:
    """The side under test of one script."""

    def __init__(self, role, write):
        self.role = hci.Role.CENTRAL if role == 'central' else hci.Role.PERIPHERAL
        self.write = write
        self.send = None
        self.count = 0
        self.connection = None
        self.manager = l2cap.ChannelManager()
        self.manager.host = Host(self.send_pdu)
        # SDUs that wait, by channel: Bumble joins what it is given at once.
        self.queues = {}

    def send_pdu(self, handle, pdu):
        if self.send and handle == self.connection.handle:
            self.send(pdu)

    def connect(self, send):
        if self.connection is not None:
            self.manager.on_disconnection(self.connection.handle, 0x13)
        self.send = send
        self.count += 1
        self.connection = types.SimpleNamespace(handle=self.count, role=self.role, peer_address='tester')

    def receive(self, pdu):
        self.manager.on_pdu(self.connection, int.from_bytes(pdu[:2], 'little'), pdu[2:])

    # The application

    def take(self, channel):
        handle = self.connection.handle

        def say(line):
            if handle == self.connection.handle:
                self.write(line)

        channel.sink = lambda sdu: say(f'received {text(channel.source_cid, sdu)}')
        channel.on(channel.EVENT_CLOSE, lambda: say(f'ended {text(channel.source_cid)}'))
        say(f'opened {text(channel.source_cid)}')

    async def open(self, spec, count):
        known = set(self.manager.channels.get(self.connection.handle, {}))
        task = asyncio.ensure_future(
            self.manager.create_le_credit_based_channel(self.connection, spec)
            if count is None
            else self.manager.create_enhanced_credit_based_channels(self.connection, spec, count)
        )
        await asyncio.sleep(0)
        cids = sorted(set(self.manager.channels.get(self.connection.handle, {})) - known)
        try:
            channels = await task
        except l2cap.L2capError as error:
            for cid in cids:
                self.write(f'failed {text(cid, int(error.error_code).to_bytes(2, "little"))}')
        except asyncio.CancelledError:
            pass
        except Exception:  # pylint: disable=broad-except
            for cid in cids:
                self.write(f'failed {text(cid)}')
        else:
            for channel in [channels] if count is None else channels:
                self.take(channel)

    def channel(self, octets):
        return self.manager.channels[self.connection.handle][int.from_bytes(octets[:2], 'little')]

    def command(self, verb, words):
        if verb in ('listen', 'connect'):
            numbers = [int(word, 0) for word in (words[0], words[2], words[4])]
            spec = l2cap.LeCreditBasedChannelSpec(*numbers, max_credits=8)
            rest = words[5:]
            if verb == 'listen':
                if rest:
                    return 'unsupported'
                self.manager.le_coc_servers.pop(spec.psm, None)
                self.manager.create_le_credit_based_server(spec, self.take)
            else:
                asyncio.ensure_future(self.open(spec, int(rest[1]) if rest else None))
        elif verb == 'send':
            octets = bytes.fromhex(''.join(words))
            channel = self.channel(octets)
            if len(octets) == 2:
                return 'unsupported'
            if channel not in self.queues:
                self.queues[channel] = asyncio.Queue()
                asyncio.ensure_future(self.write_all(channel))
            self.queues[channel].put_nowait(octets[2:])
        elif verb == 'close':
            channel = self.channel(bytes.fromhex(''.join(words)))
            if channel.state != channel.State.CONNECTED:
                return 'unsupported'
            task = asyncio.ensure_future(channel.disconnect())
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        elif verb == 'parameters':
            asyncio.ensure_future(self.update(*(int(word) for word in words)))
        else:
            return 'unsupported'
        return 'ok'

    async def write_all(self, channel):
        while True:
            channel.write(await self.queues[channel].get())
            await channel.drain()

    async def update(self, *numbers):
        result = await self.manager.update_connection_parameters(self.connection, *numbers)
        self.write(f'result {"done" if result == 0 else "failed"}\nend')
