import CoreFoundation
import Foundation
import TestSupport

@testable import CoreBluetooth

/// The other end of a channel's pipe: takes what the app writes and offers what it reads, when the test says so. Counts
/// the pipe's calls.
final class FarEnd: ChannelPipeDriver, @unchecked Sendable {
  // Sendable: everything that changes is guarded by the condition; the pipe is set once.
  enum Call: CaseIterable { case outputWaits, inputWasRead, inputHasRoom, appHasClosed }
  private let condition = NSCondition()
  private var calls: [Call: Int] = [:]
  private(set) var pipe: ChannelPipe!
  /// What to do when octets wait, on the thread that has written them. Set before the first write.
  var onOutputWaits: ((ChannelPipe) -> Void)?

  init(inputCapacity: Int = 64, outputCapacity: Int = 64) {
    pipe = ChannelPipe(inputCapacity: inputCapacity, outputCapacity: outputCapacity, driver: self)
  }
  func channel(_ peer: CBPeer = CBPeripheral()) -> CBL2CAPChannel { CBL2CAPChannel(psm: 0x80, peer: peer, pipe: pipe) }

  func outputWaits(in pipe: ChannelPipe) {
    note(.outputWaits)
    onOutputWaits?(pipe)
  }
  func inputWasRead(in pipe: ChannelPipe) { note(.inputWasRead) }
  func inputHasRoom(in pipe: ChannelPipe) { note(.inputHasRoom) }
  func appHasClosed(_ pipe: ChannelPipe) { note(.appHasClosed) }
  private func note(_ call: Call) {
    condition.withLock {
      calls[call, default: 0] += 1
      condition.broadcast()
    }
  }
  /// How often the pipe has made this call since the last time.
  func count(_ call: Call) -> Int { condition.withLock { calls.removeValue(forKey: call) ?? 0 } }
  /// Waits for one of these calls, and returns whether it came within the bound. They are counted no more.
  func wait(for awaited: Call...) -> Bool {
    condition.withLock {
      let limit = Date(timeIntervalSinceNow: Hang.seconds)
      while !awaited.contains(where: { calls[$0] != nil }) { guard condition.wait(until: limit) else { return false } }
      for call in awaited { calls[call] = nil }
      return true
    }
  }
  func offer(_ sdu: [UInt8]) -> Bool { pipe.offer(sdu.span) }
  /// The next SDU of `mtu` octets at most; empty: there is none now; nil: there is none any more.
  func take(_ mtu: Int = 23) -> [UInt8]? {
    var taken = ChannelPipe.Taken.nothing
    let sdu = [UInt8](capacity: mtu) { taken = pipe.takeSDU(into: &$0) }
    return taken == .finished ? nil : sdu
  }
  /// What the app has written, in SDUs, until there is nothing more to take.
  func takeAll(_ mtu: Int = 23) -> [[UInt8]] {
    var sdus: [[UInt8]] = []
    while let sdu = take(mtu), !sdu.isEmpty { sdus.append(sdu) }
    return sdus
  }
}

/// A delegate that notes its events, in order, and then calls the test's handler.
final class StreamRecorder: NSObject, StreamDelegate, @unchecked Sendable {
  // Sendable: the events are guarded by the lock; the handler is set before the stream is scheduled.
  private let lock = NSLock()
  private var noted: [String] = []
  private let handler: (Stream, Stream.Event) -> Void
  init(_ handler: @escaping (Stream, Stream.Event) -> Void = { _, _ in }) { self.handler = handler }

  func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
    let side = aStream is InputStream ? "in" : "out"
    let word =
      switch eventCode {
      case .openCompleted: "open"
      case .hasBytesAvailable: "bytes"
      case .hasSpaceAvailable: "space"
      case .endEncountered: "end"
      case .errorOccurred: "error"
      default: "\(eventCode.rawValue)"
      }
    lock.withLock { noted.append("\(side) \(word)") }
    handler(aStream, eventCode)
  }
  var events: [String] { lock.withLock { noted } }
  /// The events since the last time.
  func take() -> [String] {
    lock.withLock {
      defer { noted = [] }
      return noted
    }
  }
}

extension InputStream {
  /// What one `read` of this length returns; nil: −1.
  func read(_ count: Int) -> [UInt8]? {
    var buffer = [UInt8](repeating: 0, count: count)
    let read = unsafe read(&buffer, maxLength: count)
    return read < 0 ? nil : Array(buffer.prefix(read))
  }
}
extension OutputStream {
  func write(_ octets: [UInt8]) -> Int { unsafe write(octets, maxLength: octets.count) }
}
/// 0, 1, 2 …
func ramp(_ count: Int, from first: Int = 0) -> [UInt8] {
  (first..<first + count).map { UInt8(truncatingIfNeeded: $0) }
}

extension RunLoop {
  /// Runs the current thread's loop, event by event, until the condition holds. False: not within the bound.
  static func turn(_ mode: Mode = .default, until condition: () -> Bool) -> Bool {
    let limit = Date(timeIntervalSinceNow: Hang.seconds)
    while !condition() {
      guard Date() < limit else { return false }
      _ = current.run(mode: mode, before: limit)
    }
    return true
  }
  /// Runs it until nothing is left to deliver.
  static func turnAll() { while CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .handledSource {} }
}

/// What a test's threads use by turns, or what says itself that it is for one thread.
final class Shared<Value>: @unchecked Sendable {
  // Sendable: the test orders the accesses.
  var value: Value
  init(_ value: Value) { self.value = value }
}

/// Runs the body of a test on a thread of its own, which may wait and whose run loop is nobody else's. The test itself
/// must not wait: it runs on one of Swift's threads.
func onThread<Value>(_ body: @escaping @Sendable () -> sending Value) async -> sending Value {
  await withCheckedContinuation { continuation in Thread { continuation.resume(returning: body()) }.start() }
}
/// Another thread, started by the thread of a test. A child task would wait for one of Swift's threads, which the tests
/// beside this one occupy.
final class Worker<Value>: @unchecked Sendable {
  // Sendable: the result is guarded by the condition.
  private let condition = NSCondition()
  private var result: Value?

  init(_ body: @escaping @Sendable () -> Value) {
    Thread { [self] in
      let result = body()
      condition.withLock {
        self.result = result
        condition.broadcast()
      }
    }.start()
  }
  /// Waits for the result. Nil: there was none within the bound.
  var value: Value? {
    condition.withLock {
      let limit = Date(timeIntervalSinceNow: Hang.seconds)
      while result == nil, condition.wait(until: limit) {}
      return result
    }
  }
}

extension ChannelPipe {
  /// Waits until this many threads wait for octets and for room. False: not within the bound.
  func haveSleepers(_ count: Int) -> Bool {
    let limit = Date(timeIntervalSinceNow: Hang.seconds)
    while sleeperCount < count { guard Date() < limit, sched_yield() == 0 else { return false } }
    return true
  }
}
