import BindruneWire
import Glibc
import HCI
import NIOCore

/// The btsnoop file format, version 1, datalink 1002: HCI packets with their H4 type octet. Everything big-endian.
/// Wireshark, `btmon` and hcidump read it.
public enum BTSnoop {
  /// The first 16 octets of a file: identification, version 1, datalink 1002.
  public static var header: [UInt8] { Array("btsnoop\0".utf8) + [0, 0, 0, 1, 0, 0, 0x03, 0xEA] }

  /// Microseconds from midnight of 1 January of the year 0 to the same of 1970.
  public static var microsecondsTo1970: UInt64 { 0x00DC_DDB3_0F2F_8000 }

  /// Appends one record. `time` is in microseconds since 1970.
  ///
  /// Flags: bit 0 is set for packets to the host, bit 1 for commands and events (against data).
  public static func append(
    _ packet: Span<UInt8>, _ direction: HCIDirection, time: UInt64, to octets: inout [UInt8]
  ) {
    let type = packet.isEmpty ? nil : HCIPacketType(rawValue: packet[0])
    let flags: UInt32 = (direction == .fromController ? 1 : 0) | (type == .command || type == .event ? 2 : 0)
    append(UInt32(packet.count), to: &octets)  // original length
    append(UInt32(packet.count), to: &octets)  // included length: all of it
    append(flags, to: &octets)
    append(UInt32(0), to: &octets)  // cumulative drops
    append(time &+ microsecondsTo1970, to: &octets)
    unsafe packet.withUnsafeBufferPointer { unsafe octets.append(contentsOf: $0) }
  }

  private static func append(_ value: some FixedWidthInteger, to octets: inout [UInt8]) {
    for place in 1...value.bitWidth / 8 {
      octets.append(UInt8(truncatingIfNeeded: value >> (value.bitWidth - 8 * place)))
    }
  }
}

/// Writes a btsnoop file: gathers records, and writes them when told to or when 64 kB have come together.
///
/// A file that can no longer be written (a full disk) does not stop what is traced: `failure` says so, and no more is
/// written, so that the file ends with a whole record or inside one, never with a hole.
public struct BTSnoopWriter: ~Copyable {
  private let descriptor: CInt
  private let path: String
  private var waiting: [UInt8]
  /// Why the file ends early.
  public private(set) var failure: TransportError?

  private static var batch: Int { 65_536 }

  /// Makes the file, or empties one that exists, and writes its header.
  public init(path: String) throws(TransportError) {
    let descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    guard descriptor >= 0 else { throw .trace(path: path, systemWords(errno)) }
    let code = Self.write(BTSnoop.header, to: descriptor)
    if code != 0 {
      _ = Glibc.close(descriptor)
      throw .trace(path: path, systemWords(code))
    }
    self.descriptor = descriptor
    self.path = path
    waiting = []
  }

  deinit {
    Self.write(waiting, to: descriptor)
    _ = Glibc.close(descriptor)
  }

  /// One packet, now by the system's clock.
  public mutating func record(_ packet: Span<UInt8>, _ direction: HCIDirection) {
    record(packet, direction, time: wallClockMicroseconds())
  }

  /// One packet; `time` is in microseconds since 1970.
  public mutating func record(_ packet: Span<UInt8>, _ direction: HCIDirection, time: UInt64) {
    guard failure == nil else { return }
    BTSnoop.append(packet, direction, time: time, to: &waiting)
    if waiting.count >= Self.batch { flush() }
  }

  /// Writes what has been gathered.
  public mutating func flush() {
    guard failure == nil, !waiting.isEmpty else { return }
    let code = Self.write(waiting, to: descriptor)
    waiting.removeAll(keepingCapacity: true)
    if code != 0 { failure = .trace(path: path, systemWords(code)) }
  }

  /// Zero or the error number.
  @discardableResult
  private static func write(_ octets: [UInt8], to descriptor: CInt) -> CInt {
    unsafe octets.withUnsafeBytes { bytes in
      var done = 0
      while done < bytes.count {
        let count = unsafe Glibc.write(descriptor, bytes.baseAddress.unsafelyUnwrapped + done, bytes.count - done)
        if count > 0 { done += count } else if errno != EINTR { return errno }
      }
      return 0
    }
  }
}

/// Any transport, with every packet of it in a btsnoop file.
///
///     let transport = TracingTransport(try await H4Stream.connect(to: spec, on: loop), writer: try BTSnoopWriter(path: path))
///
/// The file is up to date whenever the event loop is idle: records are written at the end of each batch.
public final class TracingTransport: HCITransport, HCIReceiver, @unchecked Sendable {
  // Sendable because every access is on the inner transport's event loop.
  private let inner: any HCITransport
  private let outgoing: HCIDirection
  private var writer: BTSnoopWriter
  private var receiver: (any HCIReceiver)?

  /// `outgoing` is what `send` means: a host's transport sends from the host.
  public init(_ inner: any HCITransport, writer: consuming BTSnoopWriter, outgoing: HCIDirection = .fromHost) {
    self.inner = inner
    self.writer = writer
    self.outgoing = outgoing
  }

  /// Why the file ends early: tell the user, the transport goes on.
  public var traceFailure: TransportError? { writer.failure }

  public var eventLoop: any EventLoop { inner.eventLoop }
  public var isWritable: Bool { inner.isWritable }
  public func resynchronise() { inner.resynchronise() }
  public func start(_ receiver: any HCIReceiver) {
    self.receiver = receiver
    inner.start(self)
  }
  public func send(_ packet: Span<UInt8>) {
    writer.record(packet, outgoing)
    inner.send(packet)
  }
  public func flush() {
    writer.flush()
    inner.flush()
  }
  public func close() {
    receiver = nil
    writer.flush()
    inner.close()
  }
  public var closeFuture: EventLoopFuture<Void> { inner.closeFuture }

  public func received(_ packet: Span<UInt8>) {
    writer.record(packet, outgoing.opposite)
    receiver?.received(packet)
  }
  public func receivedAll() {
    receiver?.receivedAll()
    writer.flush()
  }
  public func writable() { receiver?.writable() }
  public func failed(_ error: TransportError) {
    writer.flush()
    let receiver = receiver
    self.receiver = nil
    receiver?.failed(error)
  }
}
