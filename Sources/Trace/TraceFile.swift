import BindruneCapture
import BindruneSystem
import BindruneWire
import Glibc
import SystemPackage

/// Receives the records of a trace.
public protocol CaptureSink: ~Copyable {
  /// `bytes` are the record's octets, lent for the duration of the call; ranges of the record refer to them.
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>)
  /// False ends the reading before the next record.
  var wantsMore: Bool { get }
  /// No more records for the moment: show what waits. Also called at the end.
  mutating func pause()
}
extension CaptureSink where Self: ~Copyable {
  public var wantsMore: Bool { true }
  public mutating func pause() {}
}

/// Octets of a trace that were no records, skipped by ``TraceFile/resynchronizes``.
public struct TraceGap: Sendable {
  public var error: CaptureError
  public var count: UInt64
}

/// Reads a trace from a file, a pipe or standard input: btsnoop, PacketLogger, pcap or pcapng, also compressed by gzip.
///
///     var file = try TraceFile(path: "capture.btsnoop")
///     try file.read(into: &sink)
///
/// Memory is flat: one buffer of a mebibyte.
@safe public struct TraceFile: ~Copyable {
  public let path: String
  /// Continue behind damage with the next believable record; `gaps` lists what was skipped.
  public var resynchronizes = false
  /// The first hundred gaps, and their number.
  public private(set) var gaps: [TraceGap] = []
  public private(set) var gapCount = 0
  private var parser = CaptureParser()
  private let input: FileDescriptor
  private var unpacker: Unpacker?
  private let closes: Bool
  private let buffer: UnsafeMutableBufferPointer<UInt8>
  /// The unread octets in `buffer`.
  private var start = 0, end = 0
  private var isBegun = false

  /// Opens a file; `-` is standard input.
  public init(path: String) throws(TraceError) {
    let file: FileDescriptor
    if path == "-" {
      file = .standardInput
    } else {
      do throws(Errno) { file = try .opened(FilePath(text: path), .readOnly) } catch {
        throw .open(path: path, error)
      }
    }
    self.path = path == "-" ? "standard input" : path
    closes = path != "-"
    input = file
    unsafe buffer = .allocate(capacity: 4 * CaptureParser.longestRecord)
  }
  deinit {
    if closes { try? input.close() }
    unpacker?.abandon()
    unsafe buffer.deallocate()
  }

  /// The format, once the first octets have been read.
  public var format: CaptureFormat? { parser.format }

  /// Passes every record to `sink`, up to the end. Throws at damage, with the whole records before it delivered.
  public mutating func read(into sink: inout some CaptureSink & ~Copyable) throws(TraceError) {
    try read(into: &sink) { false }
  }
  /// The same for a file that grows: at its end `wait` returns true when there may be more, false to stop.
  public mutating func read(into sink: inout some CaptureSink & ~Copyable, waiting wait: () -> Bool) throws(TraceError)
  {
    var isLast = false
    while true {
      let needed: Int
      do throws(CaptureError) {
        guard let more = try parse(into: &sink, isLast) else { return sink.pause() }
        needed = more
      } catch {
        guard resynchronizes, parser.format != nil else {
          sink.pause()
          throw .damaged(path: path, error)
        }
        try skip(error, &isLast, wait)
        continue
      }
      try fill(needed, &isLast) {
        sink.pause()
        return wait()
      }
    }
  }

  /// Parses what is in the buffer. Returns the octets that the next record needs; nil at the end.
  private mutating func parse(into sink: inout some CaptureSink & ~Copyable, _ isLast: Bool) throws(CaptureError)
    -> Int?
  {
    var bytes = unsafe MutableSpan(_unsafeElements: buffer[..<end])
    while sink.wantsMore {
      switch try parser.next(&bytes, at: &start, isLast: isLast) {
      case .record(var record):
        let range = record.octets.range
        record.octets = Octets(0, range.count)
        sink.receive(record, bytes.span.extracting(range))
      case .needs(let count): return count
      case .end: return nil
      }
    }
    return nil
  }

  /// Reads until `needed` octets are in the buffer, or the end is reached.
  private mutating func fill(_ needed: Int, _ isLast: inout Bool, _ wait: () -> Bool) throws(TraceError) {
    if start > 0 {
      let whole = unsafe UnsafeMutableRawBufferPointer(buffer)
      unsafe whole.copyMemory(from: UnsafeRawBufferPointer(rebasing: whole[start..<end]))
      end -= start
      start = 0
    }
    while unsafe end < min(needed, buffer.count), !isLast {
      // The first octets alone show whether gzip has to read the others.
      let limit = unsafe isBegun ? buffer.count : Unpacker.magic.count
      let room = unsafe UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(buffer)[end..<limit])
      let count: Int
      do { count = unsafe try (unpacker?.output ?? input).read(into: room) } catch {
        throw .read(path: path, error as? Errno ?? .ioError)
      }
      end += count
      try unpack()
      if count == 0, !wait() {
        isLast = true
        switch unpacker?.finish() {
        case 0, nil: break
        case 127: throw .noGzip(path: path, .noSuchFileOrDirectory)
        case let status?: throw .unpacking(path: path, status: status)
        }
      }
    }
  }

  /// At the beginning: starts gzip if the file is compressed.
  private mutating func unpack() throws(TraceError) {
    let magic = Unpacker.magic
    guard !isBegun, end == magic.count else { return }
    isBegun = true
    guard unsafe buffer[..<end].elementsEqual(magic) else { return }
    end = 0
    do throws(Errno) { unpacker = try Unpacker(input) } catch { throw .noGzip(path: path, error) }
  }

  private mutating func skip(_ error: CaptureError, _ isLast: inout Bool, _ wait: () -> Bool) throws(TraceError) {
    let before = parser.offset
    while true {
      let bytes = unsafe Span(_unsafeElements: buffer[..<end])
      guard let needed = parser.resume(bytes, at: &start, isLast: isLast) else { break }
      try fill(needed, &isLast, wait)
    }
    gapCount += 1
    if gaps.count < 100 { gaps.append(TraceGap(error: error, count: parser.offset - before)) }
  }
}
