#!/usr/bin/env python3
"""A defective controller, on a port of 127.0.0.1: {"event":"ready","port":…}.

silent   takes everything, says nothing       garbage  answers the first packet with something that is not H4
hangup   closes after the first packet        flood    sends something that is not H4 without end
"""
import argparse
import asyncio
import json

GARBAGE = b'HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n'


class BadController(asyncio.Protocol):
    mode = 'silent'

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, _data):
        if self.mode == 'garbage':
            self.transport.write(GARBAGE)
            self.mode = 'silent'
        elif self.mode == 'hangup':
            self.transport.close()
        elif self.mode == 'flood':
            asyncio.get_running_loop().create_task(self.flood())
            self.mode = 'silent'

    async def flood(self):
        while not self.transport.is_closing():
            self.transport.write(GARBAGE)
            await asyncio.sleep(0.001)


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('mode', choices=['silent', 'garbage', 'hangup', 'flood'])
    parser.add_argument('--run-for', type=float, default=30)
    args = parser.parse_args()
    BadController.mode = args.mode
    server = await asyncio.get_running_loop().create_server(BadController, '127.0.0.1', 0)
    print(json.dumps({'event': 'ready', 'port': server.sockets[0].getsockname()[1]}), flush=True)
    await asyncio.sleep(args.run_for)


if __name__ == '__main__':
    asyncio.run(main())
