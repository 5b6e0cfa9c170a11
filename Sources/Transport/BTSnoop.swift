import BindruneWire
import HCI
import NIOCore
import NIOPosix
import SystemPackage

/// The btsnoop file format, version 1, datalink 1002: HCI packets with their H4 type octet. Everything big-endian.
/// Wireshark, `btmon` and hcidump read it.
public enum BTSnoop {
  /// The first 16 octets of a file: identification, version 1, datalink 1002.
  public static var header: [UInt8] { Array("btsnoop\0".utf8) + [0, 0, 0, 1, 0, 0, 0x03, 0xEA] }

  /// Microseconds from midnight of 1 January of the year 0 to the same of 1970.
  public static var microsecondsTo1970: UInt64 { 0x00DC_DDB3_0F2F_8000 }

  /// Appends one record. `time` is in microseconds since 1970.
  ///
  /// Flags: bit 0 is set for packets to the host, bit 1 for commands and events (against data). `drops`: the packets that are
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

/// Writes a btsnoop file: gathers records, and hands them to a thread that writes them at each `flush`, or when 64 kB have come
/// together.
///
/// What is traced never waits for the file. Records for which there is no room, of the 4 MiB that may wait, are dropped, and
/// the next record says how many. A file that can no longer be written (a full disk) ends with a whole record or inside one,
/// never with a hole. In both cases `failure` says so.
public struct BTSnoopWriter: ~Copyable {
  private let path: String
  fileprivate let file: OutputQueue
  private var waiting: [UInt8] = []
  private var waitingCount: UInt32 = 0
  private var dropped: UInt32 = 0

  private static var batch: Int { 65_536 }
  private static var limit: Int { 4 << 20 }

  /// Makes the file, for its owner alone, or empties one that exists, and writes its header.
  ///
  /// A pipe with a reader, or a device, may stand at `path` too; a block device, a folder and a pipe that nobody reads are
  /// refused.
  public init(path: String) throws(TransportError) {
    let descriptor: FileDescriptor
    do throws(Errno) {
      descriptor = try Errno.typed {
        // A pipe's other end may never come: not waited for.
        try .open(
          FilePath(text: path), .writeOnly,
          options: [.create, .closeOnExec, .nonBlocking, .noControllingTerminal], permissions: .ownerReadWrite)
      }
    } catch {
      let isUnread = error == .noSuchAddressOrDevice
      throw .trace(path: path, isUnread ? "nobody reads this pipe yet: start its reader first" : error.description)
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

  /// Empties the file and writes its header. Returns what is wrong with it.
  private static func prepare(_ file: FileDescriptor) throws -> String? {
    switch try file.stat().type {
    case .regular: try file.resize(to: 0)
    case .fifo, .characterSpecial: break
    default: return "this is no file, pipe or character device"
    }
    let header = BTSnoop.header
    let count = try unsafe header.withUnsafeBytes { try unsafe file.write($0) }
    return count < header.count ? "there is no room for its header" : nil
  }

  /// Why the file is not whole: the system's words, or how many packets are missing.
  public var failure: TransportError? {
    if let error = file.failure { return .trace(path: path, error.description) }
    return dropped > 0 ? .trace(path: path, "\(dropped) packets are missing: it was written too slowly") : nil
  }

  /// One packet, now by the system's clock.
  public mutating func record(_ packet: Span<UInt8>, _ direction: HCIDirection) {
    record(packet, direction, time: wallClockMicroseconds())
  }

  /// One packet; `time` is in microseconds since 1970.
  public mutating func record(_ packet: Span<UInt8>, _ direction: HCIDirection, time: UInt64) {
    BTSnoop.append(packet, direction, time: time, drops: dropped, to: &waiting)
    waitingCount += 1
    if waiting.count >= Self.batch { flush() }
  }

  /// Hands over what has been gathered.
  public mutating func flush() {
    guard waitingCount > 0 else { return }
    if !file.put(waiting) { dropped &+= waitingCount }
    waiting.removeAll(keepingCapacity: true)
    waitingCount = 0
  }
}

/// Any transport, with every packet of it in a btsnoop file.
///
///     let transport = TracingTransport(try await H4Stream.connect(to: spec, on: loop), writer: try BTSnoopWriter(path: path))
///
/// Records are handed to the file's thread at the end of each batch; the file is whole when `closeFuture` is.
public final class TracingTransport: ForwardingTransport, @unchecked Sendable {
  private let outgoing: HCIDirection
  private var writer: BTSnoopWriter

  /// `outgoing` is what `send` means: a host's transport sends from the host.
  public init(_ inner: any HCITransport, writer: consuming BTSnoopWriter, outgoing: HCIDirection = .fromHost) {
    self.writer = writer
    self.outgoing = outgoing
    super.init(inner)
  }

  /// Why the file is not whole: tell the user, the transport goes on.
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
  /// When the transport is closed and the file has been written, for which it waits two seconds at most.
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
