import BindruneWire
import HCI
import NIOCore
import NIOPosix
import SystemPackage

/// The btsnoop file format, version 1, datalink 1002: HCI packets with their H4 type octet. All numbers are big-endian.
/// Wireshark, `btmon` and hcidump read it.
public enum BTSnoop {
  /// The first 16 octets of a file: identification, version 1, datalink 1002.
  public static var header: [UInt8] { Array("btsnoop\0".utf8) + [0, 0, 0, 1, 0, 0, 0x03, 0xEA] }

  /// Microseconds from 1 January of the year 0 to 1 January 1970.
  public static var microsecondsTo1970: UInt64 { 0x00DC_DDB3_0F2F_8000 }

  /// Appends one record. `time` is in microseconds since 1970.
  /// Flags: bit 0 is set for packets to the host, bit 1 for commands and events instead of data. `drops`: the packets
  /// missing in the file before this one.
  /// missing in the file before this one.
  public static func append(
    _ packet: Span<UInt8>, _ direction: HCIDirection, time: UInt64, drops: UInt32 = 0, to octets: inout [UInt8]
  ) {
    let type = packet.isEmpty ? nil : HCIPacketType(rawValue: packet[0])
    let flags: UInt32 = (direction == .fromController ? 1 : 0) | (type == .command || type == .event ? 2 : 0)
    append(UInt32(packet.count), to: &octets)  // original length
    append(UInt32(packet.count), to: &octets)  // included length: all of it
    append(flags, to: &octets)
    append(drops, to: &octets)  // cumulative
    append(time &+ microsecondsTo1970, to: &octets)
    unsafe packet.withUnsafeBufferPointer { unsafe octets.append(contentsOf: $0) }
  }

  private static func append(_ value: some FixedWidthInteger, to octets: inout [UInt8]) {
    for place in 1...value.bitWidth / 8 {
      octets.append(UInt8(truncatingIfNeeded: value >> (value.bitWidth - 8 * place)))
    }
  }
}

/// Writes a btsnoop file: gathers records, and passes them to a writing thread at each `flush`, or when 64 kB are
/// gathered.
///
/// Traced traffic never waits for the file. At most 4 MiB of records may wait; further ones are dropped, and the next
/// record contains their number. A file that can no longer be written (a full disk) ends with a whole record or inside
/// one, never with a gap. `failure` reports both.
public struct BTSnoopWriter: ~Copyable {
  private let path: String
  fileprivate let file: OutputQueue
  private var waiting: [UInt8] = []
  private var waitingCount: UInt32 = 0
  private var dropped: UInt32 = 0

  private static var batch: Int { 65_536 }
  private static var limit: Int { 4 << 20 }

  /// Creates the file, readable by its owner only, or empties an existing one, and writes its header.
  ///
  /// `path` may also name a pipe with a reader, or a character device; a block device, a folder and a pipe without a
  /// reader are refused.
  public init(path: String) throws(TransportError) {
    let descriptor: FileDescriptor
    do throws(Errno) {
      descriptor = try Errno.typed {
        // Does not wait for the other end of a pipe, which may never open.
        try .open(
          FilePath(text: path), .writeOnly,
          options: [.create, .closeOnExec, .nonBlocking, .noControllingTerminal], permissions: .ownerReadWrite)
      }
    } catch {
      let isUnread = error == .noSuchAddressOrDevice
      throw .trace(path: path, isUnread ? "this pipe has no reader yet: start its reader first" : error.description)
    }
    do {
      if let words = try Self.prepare(descriptor) { throw TransportError.trace(path: path, words) }
    } catch {
      try? descriptor.close()
      throw error as? TransportError ?? .trace(path: path, "\(error)")
    }
    self.path = path
    file = OutputQueue(to: descriptor, limit: Self.limit, closesDescriptor: true)
  }

  deinit {
    file.put(waiting)
    file.finish(within: .seconds(2))
  }

  /// Empties the file and writes its header. Returns the problem, if there is one.
  private static func prepare(_ file: FileDescriptor) throws -> String? {
    switch try file.stat().type {
    case .regular: try file.resize(to: 0)
    case .fifo, .characterSpecial: break
    default: return "it is not a file, pipe or character device"
    }
    let header = BTSnoop.header
    let count = try unsafe header.withUnsafeBytes { try unsafe file.write($0) }
    return count < header.count ? "there is no room for its header" : nil
  }

  /// Why the file is incomplete: the system's message, or the number of missing packets.
  public var failure: TransportError? {
    if let error = file.failure { return .trace(path: path, error.description) }
    return dropped > 0 ? .trace(path: path, "\(dropped) packets are missing: it could not be written fast enough") : nil
  }

  /// Records one packet, with the system clock's time.
  public mutating func record(_ packet: Span<UInt8>, _ direction: HCIDirection) {
    record(packet, direction, time: wallClockMicroseconds())
  }

  /// Records one packet; `time` is in microseconds since 1970.
  public mutating func record(_ packet: Span<UInt8>, _ direction: HCIDirection, time: UInt64) {
    BTSnoop.append(packet, direction, time: time, drops: dropped, to: &waiting)
    waitingCount += 1
    if waiting.count >= Self.batch { flush() }
  }

  /// Passes the gathered records to the writing thread.
  public mutating func flush() {
    guard waitingCount > 0 else { return }
    if !file.put(waiting) { dropped &+= waitingCount }
    waiting.removeAll(keepingCapacity: true)
    waitingCount = 0
  }
}

/// Records every packet of another transport in a btsnoop file.
///
///     let transport = TracingTransport(try await H4Stream.connect(to: spec, on: loop), writer: try BTSnoopWriter(path: path))
///
/// Records go to the file's thread at the end of each batch; the file is complete when `closeFuture` is.
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
      let file = writer.file
      NIOThreadPool.singleton.runIfActive(eventLoop: eventLoop) { _ = file.finish(within: .seconds(2)) }
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
