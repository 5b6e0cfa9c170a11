import BindruneConformance
import Foundation
import Synchronization
import TestSupport
import Testing

/// Our stack behind a socket, with a tester that sends and does not read.
@Suite(.realTime, .hang) struct StackServerTests {
  private static let database = """
    { "services": [ { "uuid": "FFE0", "characteristics": [
      { "uuid": "FFE1", "properties": ["read"], "value": "01 02" } ] } ] }
    """
  private let request: [UInt8] = [0x0A, 0x03, 0x00], response: [UInt8] = [0x0B, 0x01, 0x02]

  /// Runs a server on a thread of its own while `body` is a tester on another. True: it ended on request.
  private func serve(_ body: @escaping @Sendable (SocketAddress) throws -> Void) async throws {
    let file = try DatabaseFile(Self.database, file: "d"), isOver = Atomic(false)
    let (addresses, continuation) = AsyncStream.makeStream(of: SocketAddress.self)
    // A unix socket's buffers are small, and the same everywhere.
    let path = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString.prefix(8))").path
    async let server: Result<Void, any Error> = withCheckedContinuation { ended in
      Thread.detachNewThread {
        ended.resume(
          returning: Result {
            let server = try StackServer(on: .unix(path: path), control: nil, database: file)
            continuation.yield(server.address)
            continuation.finish()
            try server.run(until: { isOver.load(ordering: .relaxed) }) { _ in }
          })
      }
    }
    for await address in addresses {
      let result: Result<Void, any Error> = await withCheckedContinuation { ended in
        Thread.detachNewThread { ended.resume(returning: Result { try body(address) }) }
      }
      isOver.store(true, ordering: .relaxed)
      try await server.get()
      try result.get()
    }
  }

  /// It stops reading while an answer waits, so that the flood fills the sockets' buffers and not its memory; when the
  /// tester reads at last, each request has its answer.
  @Test func aFlood() async throws {
    let (request, response) = (request, response)
    try await serve { address in
      let socket = try MessageSocket.connect(to: address, .pdus)
      var sent = 0
      // Until the socket accepts nothing for a second; a server without a bound would read on.
      flood: while sent < 1_000_000 {
        #expect(try socket.send(request))
        sent += 1
        let end = ContinuousClock.now + .seconds(1)
        while socket.hasUnsent {
          if ContinuousClock.now >= end { break flood }
          try MessageSocket.wait(for: [socket], [], within: .milliseconds(100))
          #expect(try socket.flush())
        }
      }
      #expect(sent < 1_000_000 && socket.hasUnsent)
      var received = 0
      while received < sent {
        #expect(try socket.flush())
        guard case .message(let answer) = try socket.receive(within: .seconds(30)) else { break }
        if answer != response { #expect(answer == response) }
        received += 1
      }
      #expect(received == sent)
    }
  }

  /// Its end does not wait for the tester.
  @Test func theEndOfAFlood() async throws {
    let request = request
    try await serve { address in
      let socket = try MessageSocket.connect(to: address, .pdus)
      for _ in 0..<1_000_000 where !socket.hasUnsent { _ = try socket.send(request) }
      #expect(socket.hasUnsent)
    }
  }
}
