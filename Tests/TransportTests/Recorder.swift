import BindruneTransport
import BindruneWire
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// A receiver that records its calls. A test can wait for them, at most ten minutes, which only a hang takes.
final class Recorder: HCIReceiver, @unchecked Sendable {
  // Everything happens on the loop.
  let loop: any EventLoop
  var packets: [[UInt8]] = []
  var batches = 0
  var writables = 0
  var errors: [TransportError] = []
  /// An action for each packet, besides recording it.
  var onPacket: (Recorder, Span<UInt8>) -> Void = { _, _ in }
  var onWritable: () -> Void = {}
  private var waiting: (predicate: (Recorder) -> Bool, promise: EventLoopPromise<Void>)?

  init(_ loop: any EventLoop) { self.loop = loop }

  func received(_ packet: Span<UInt8>) {
    loop.preconditionInEventLoop()
    packets.append(packet.indices.map { packet[$0] })
    onPacket(self, packet)
    check()
  }
  func receivedAll() {
    batches += 1
    check()
  }
  func writable() {
    writables += 1
    onWritable()
    check()
  }
  func failed(_ error: TransportError) {
    errors.append(error)
    check()
  }
  private func check() {
    guard let waiting, waiting.predicate(self) else { return }
    self.waiting = nil
    waiting.promise.succeed()
  }

  /// Waits until `predicate` holds.
  func wait(
    _ sourceLocation: SourceLocation = #_sourceLocation, until predicate: @escaping @Sendable (Recorder) -> Bool
  ) async throws {
    try await loop.flatSubmit {
      let promise = self.loop.makePromise(of: Void.self)
      self.waiting = (predicate, promise)
      let limit = self.loop.scheduleTask(in: .seconds(Int64(Hang.seconds))) {
        Issue.record("nothing more came: \(self.packets.count) packets, \(self.errors)", sourceLocation: sourceLocation)
        self.waiting = nil
        promise.fail(CancellationError())
      }
      promise.futureResult.whenComplete { _ in limit.cancel() }
      self.check()
      return promise.futureResult
    }.get()
  }
}

extension EventLoop {
  /// Runs `body` on the loop.
  func run<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result {
    try await submit(body).get()
  }
}

/// An event loop for one test.
func withLoop(_ body: (any EventLoop) async throws -> Void) async throws {
  let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
  do { try await body(group.next()) } catch {
    try await group.shutdownGracefully()
    throw error
  }
  try await group.shutdownGracefully()
}

/// A numbered ACL packet with `count` octets of data.
func acl(_ number: Int, count: Int = 20) -> [UInt8] {
  [0x02, 0x40, 0x20, UInt8(count & 0xFF), UInt8(count >> 8)]
    + (0..<count).map { $0 < 4 ? UInt8(truncatingIfNeeded: number >> (8 * $0)) : UInt8(truncatingIfNeeded: $0) }
}

extension HCITransport {
  /// A packet from an array.
  func send(_ packet: [UInt8]) { send(packet.span) }
}
