import BindruneCapture
import BindruneSystem
import BindruneWire
import BindruneHCI
import NIOCore
import NIOPosix
import SystemPackage

/// Writes a btsnoop file: datalink 1002, or 2001, Linux's monitor, which also holds the calls that cause packets.
///
/// A record is in the file when `record` returns: if the program crashes, the trace has every packet up to that moment.
/// A pipe or a device may stop taking octets, so a thread of its own writes to it, and traffic never waits: at most
/// 4 MiB of records wait, further ones are dropped, and the next record contains their number.
///
/// A file that can no longer be written (a full disk) ends with a whole record. `failure` reports both.
///
/// A writer that is released closes its file without waiting: the thread passes to a pipe what still waits, for at most
/// two seconds, while the program goes on. `close()` waits for that, for a program that ends next.
public struct BTSnoopWriter: ~Copyable {
  private enum Output {
    /// `length`: octets of whole records.
    case file(FileDescriptor, length: Int64)
    case queue(OutputQueue)
    case failed(Errno)
  }
  private let path: String
  /// True: datalink 2001.
  let recordsCalls: Bool
  private var output: Output
  private var waiting: [UInt8] = []
  private var waitingCount: UInt32 = 0
  private var dropped: UInt32 = 0

  private static var batch: Int { 65_536 }
  private static var limit: Int { 4 << 20 }

  /// Creates the file, readable by its owner only, or empties an existing one, and writes its header.
  ///
  /// `path` may also name a pipe with a reader, or a character device; a block device, a folder and a pipe without a
  /// reader are refused.
  ///
  /// `recordsCalls`: for `record(call:)`.
  public init(path: String, recordsCalls: Bool = false) throws(TransportError) {
    let descriptor: FileDescriptor
    do throws(Errno) {
      descriptor = try Errno.typed {
        // Does not wait for the other end of a pipe, which may never open.
        try .opened(
          FilePath(text: path), .writeOnly,
          options: [.create, .nonBlocking, .noControllingTerminal], permissions: .ownerReadWrite)
      }
    } catch {
      let isUnread = error == .noSuchAddressOrDevice
      throw .trace(path: path, isUnread ? "this pipe has no reader yet: start its reader first" : error.description)
    }
    let begun: Output
    do { begun = try Self.begin(descriptor, path, recordsCalls ? .monitor : .h4) } catch {
      try? descriptor.close()
      throw error as? TransportError ?? .trace(path: path, "\(error)")
    }
    self.path = path
    self.recordsCalls = recordsCalls
    output = begun
  }

  // Never waits: the last reference may go on an event loop, which a pipe that nobody reads would hold.
  deinit {
    switch output {
    case .file(let file, _): try? file.close()
    case .queue(let queue):
      queue.put(waiting)
      queue.finishAlone(within: Self.patience)
    case .failed: break
    }
  }
  private static var patience: Duration { .seconds(2) }

  /// Writes what still waits and closes the file. Returns when a pipe or device has taken everything, or after two
  /// seconds, with the reason if the file is incomplete. No event loop and no task's thread waits.
  public consuming func close() async -> TransportError? {
    flush()
    let finish = finish
    let isWhole = await withCheckedContinuation { (done: CheckedContinuation<Bool, Never>) in
      NIOThreadPool.singleton.submit { _ in done.resume(returning: finish()) }
    }
    if isWhole { return failure }
    return failure ?? .trace(path: path, "its reader has not taken the last packets within two seconds")
  }

  /// Empties the file and writes its header.
  private static func begin(_ file: FileDescriptor, _ path: String, _ datalink: BTSnoopDatalink) throws -> Output {
    let type = try file.stat().type
    switch type {
    case .regular: try file.resize(to: 0)
    case .fifo, .characterSpecial: break
    default: throw TransportError.trace(path: path, "it is not a file, pipe or character device")
    }
    var header: [UInt8] = []
    BTSnoop.appendHeader(datalink, to: &header)
    let count = try unsafe header.withUnsafeBytes { try unsafe file.write($0) }
    guard count == header.count else { throw TransportError.trace(path: path, "there is no room for its header") }
    return type == .regular
      ? .file(file, length: Int64(count)) : .queue(OutputQueue(to: file, limit: limit, closesDescriptor: true))
  }

  /// Why the file is incomplete: the system's message, or the number of missing packets.
  public var failure: TransportError? {
    switch output {
    case .failed(let error): return .trace(path: path, error.description)
    case .queue(let queue):
      if let error = queue.failure { return .trace(path: path, error.description) }
    case .file: break
    }
    return dropped > 0 ? .trace(path: path, "\(dropped) packets are missing: it could not be written fast enough") : nil
  }

  /// Records one packet, with the system clock's time.
  public mutating func record(_ packet: Span<UInt8>, _ direction: HCIDirection) {
    record(packet, direction, time: wallClockMicroseconds())
  }

  /// Records one packet; `time` is in microseconds since 1970.
  public mutating func record(_ packet: Span<UInt8>, _ direction: HCIDirection, time: UInt64) {
    if case .failed = output { return }
    if !recordsCalls {
      BTSnoop.append(packet, direction, time: time, drops: dropped, to: &waiting)
    } else if !packet.isEmpty, let type = HCIPacketType(rawValue: packet[0]) {
      BTSnoop.append(
        packet.extracting(droppingFirst: 1), MonitorOpcode(type, direction), time: time, drops: dropped, to: &waiting)
    } else {
      return
    }
    waitingCount += 1
    if case .file(let file, let length) = output {
      write(to: file, length)
    } else if waiting.count >= Self.batch {
      flush()
    }
  }

  /// Records the call that causes the next packet, as a program's line in the log: btmon, Wireshark (from 4.2 on; an
  /// earlier version shows the octets) and `bindrune trace` show it before that packet. Traps unless the writer
  /// `recordsCalls`. Both are written by one call of the system, when the packet is recorded.
  public mutating func record(call: String) { record(call: call, time: wallClockMicroseconds()) }
  public mutating func record(call: String, time: UInt64) {
    precondition(recordsCalls, "datalink 1002 holds packets only")
    if case .failed = output { return }
    BTSnoop.append(UserLogging(message: call).octets.span, .userLogging, time: time, drops: dropped, to: &waiting)
    waitingCount += 1
  }

  /// Writes the record that waits. What fits of a record on a full disk is removed again.
  private mutating func write(to file: FileDescriptor, _ length: Int64) {
    do throws(Errno) {
      let count = try Errno.typed { try unsafe waiting.withUnsafeBytes { try unsafe file.write($0) } }
      guard count == waiting.count else { throw .noSpace }
      output = .file(file, length: length + Int64(count))
    } catch {
      try? file.resize(to: length)
      try? file.close()
      output = .failed(error)
    }
    waiting.removeAll(keepingCapacity: true)
    waitingCount = 0
  }

  /// Passes the gathered records of a pipe or device to its thread.
  public mutating func flush() {
    guard case .queue(let queue) = output, waitingCount > 0 else { return }
    if !queue.put(waiting) { dropped &+= waitingCount }
    waiting.removeAll(keepingCapacity: true)
    waitingCount = 0
  }

  /// Waits until a pipe or device has taken everything, for two seconds at most. False: it has not.
  fileprivate var finish: @Sendable () -> Bool {
    guard case .queue(let queue) = output else { return { true } }
    return { queue.finish(within: Self.patience) }
  }
}

/// Records every packet of another transport in a btsnoop file.
///
///     let transport = TracingTransport(try await H4Stream.connect(to: spec, on: loop), writer: try BTSnoopWriter(path: path))
///
/// The file is complete when `closeFuture` is.
public final class TracingTransport: ForwardingTransport, @unchecked Sendable {
  private let outgoing: HCIDirection
  private var writer: BTSnoopWriter

  /// `outgoing` is the direction of `send`: a host's transport sends from the host.
  public init(_ inner: any HCITransport, writer: consuming BTSnoopWriter, outgoing: HCIDirection = .fromHost) {
    self.writer = writer
    self.outgoing = outgoing
    super.init(inner)
  }

  /// Why the file is incomplete, for the user; the transport continues.
  public var traceFailure: TransportError? { writer.failure }

  public override var recordsCalls: Bool { writer.recordsCalls }
  public override func willSend(becauseOf call: String) {
    if writer.recordsCalls { writer.record(call: call) }
  }
  public override func send(_ packet: Span<UInt8>) {
    writer.record(packet, outgoing)
    super.send(packet)
  }
  public override func flush() {
    writer.flush()
    super.flush()
  }
  public override func close() {
    writer.flush()
    super.close()
  }
  /// Completes when the transport is closed and the file is written, or after two seconds of writing.
  public override var closeFuture: EventLoopFuture<Void> {
    let closed = eventLoop.makePromise(of: Void.self)
    super.closeFuture.whenComplete { [self] result in
      writer.flush()
      NIOThreadPool.singleton.runIfActive(eventLoop: eventLoop, writer.finish)
        .whenComplete { _ in closed.completeWith(result) }
    }
    return closed.futureResult
  }

  public override func received(_ packet: Span<UInt8>) {
    writer.record(packet, outgoing.opposite)
    super.received(packet)
  }
  public override func receivedAll() {
    super.receivedAll()
    writer.flush()
  }
  public override func failed(_ error: TransportError) {
    writer.flush()
    super.failed(error)
  }
}
