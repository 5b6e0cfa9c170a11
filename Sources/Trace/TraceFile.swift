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

/// Reads a trace from a file, a pipe or standard input, in each `CaptureFormat`, also compressed by gzip or in a zip
/// archive or in the text of an Android bug report.
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
  /// The programs that unpack, the innermost last: an archive may have compressed files.
  private var unpackers: [Unpacker] = []
  private static var mostUnpackers: Int { 3 }
  /// The file of an archive that `path` names, as `bugreport.zip:FS/data/misc/bluetooth/logs/btsnoop_hci.log`.
  private let entryName: String?
  private var archiveRemark: String?
  /// A bug report's section has no trailer that gzip could check.
  private var isSectionDamaged = false
  private let closes: Bool
  private let buffer: UnsafeMutableBufferPointer<UInt8>
  /// The unread octets in `buffer`.
  private var start = 0, end = 0
  private var isBegun = false

  /// Opens a file; `-` is standard input.
  public init(path: String) throws(TraceError) {
    let file: FileDescriptor
    var entryName: String?
    if path == "-" {
      file = .standardInput
    } else {
      do throws(Errno) { file = try .opened(FilePath(text: path), .readOnly) } catch {
        guard let (archive, entry) = Self.parts(of: path),
          let opened = try? FileDescriptor.opened(FilePath(text: archive), .readOnly)
        else { throw .open(path: path, error) }
        file = opened
        entryName = entry
      }
    }
    self.entryName = entryName
    self.path = path == "-" ? "standard input" : path
    closes = path != "-"
    input = file
    unsafe buffer = .allocate(capacity: 4 * CaptureParser.longestRecord)
  }
  deinit {
    if closes { try? input.close() }
    for unpacker in unpackers { unpacker.abandon() }
    unsafe buffer.deallocate()
  }

  /// `a.zip:b/c.log`: the archive and the file in it.
  private static func parts(of path: String) -> (archive: String, entry: String)? {
    let octets = Array(path.utf8), end = Array(".zip:".utf8)
    guard octets.count > end.count,
      let place = (0..<(octets.count - end.count)).first(where: { octets[$0...].starts(with: end) })
    else { return nil }
    return (
      String(decoding: octets[..<(place + 4)], as: UTF8.self),
      String(decoding: octets[(place + end.count)...], as: UTF8.self)
    )
  }

  /// What a reader should know beside the records, a sentence each: what was guessed, and what was passed over.
  public var remarks: [String] {
    var remarks = archiveRemark.map { [$0] } ?? []
    let foreign = parser.foreign
    if foreign.count > 0, foreign.count < parser.count {
      remarks.append(
        """
        passed over: \(Self.packets(foreign.count)) of an interface that is not Bluetooth's (link type \(foreign.linkType))
        """)
    }
    if parser.packetsWithoutOctets > 0, parser.count > 0 {
      remarks.append(
        "passed over: \(Self.packets(parser.packetsWithoutOctets)) whose octets are not in the text; btmon -w keeps them"
      )
    }
    if case .pcap(.user0, _, _) = parser.format {
      remarks.append("link type 147 is for private use: what its packets are was guessed from their lengths")
    }
    return remarks
  }

  private static func packets(_ count: Int) -> String { count == 1 ? "1 packet" : "\(count) packets" }

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
        if parser.format == nil, try beginSection(error.reason, &isLast, wait) { continue }
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
        if record.isAssembled {
          sink.receive(record, parser.assembled.span)
        } else {
          sink.receive(record, bytes.span.extracting(range))
        }
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
      // The first octets alone show whether a program has to read the others.
      let limit = unsafe isBegun ? buffer.count : ZipArchive.magic.count
      let room = unsafe UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(buffer)[end..<limit])
      let count: Int
      do { count = unsafe try source.read(into: room) } catch { throw .read(path: path, error as? Errno ?? .ioError) }
      end += count
      try unpack()
      if count == 0, !wait() {
        isLast = true
        try finish()
      }
    }
  }
  private var source: FileDescriptor { unpackers.last?.output ?? input }

  /// At the end: what the programs say of the compressed octets.
  private mutating func finish() throws(TraceError) {
    if isSectionDamaged { throw .damagedSection(path: path) }
    for unpacker in unpackers.reversed() {
      switch unpacker.finish() {
      case 0, nil: break
      case _ where !unpacker.isChecked: break
      case 127: throw .noGzip(path: path, .noSuchFileOrDirectory)
      case let status?: throw .unpacking(path: path, status: status)
      }
    }
  }

  /// At the beginning: starts a program if the file is compressed, or an archive.
  private mutating func unpack() throws(TraceError) {
    guard !isBegun, end >= ZipArchive.magic.count else { return }
    let magic = unsafe Array(buffer[..<end])
    isBegun = true
    let isArchive = magic == ZipArchive.magic
    if entryName != nil, !isArchive, unpackers.isEmpty { throw .noArchive(path: path) }
    guard unpackers.count < Self.mostUnpackers, isArchive || magic.starts(with: Unpacker.magic) else { return }
    if isArchive {
      try openArchive()
    } else {
      do throws(Errno) { unpackers.append(try Unpacker(source, before: magic)) } catch {
        throw .noGzip(path: path, error)
      }
    }
    // What was unpacked may be compressed itself.
    isBegun = false
    end = 0
  }
  /// Unpacks a file of the archive: the one that is named, or the newest trace.
  private mutating func openArchive() throws(TraceError) {
    guard unpackers.isEmpty, let archive = ZipArchive(input) else { throw .unreadableArchive(path: path) }
    let candidates = archive.candidates
    guard
      let entry = entryName.map({ name in archive.entries.first { $0.name == name } }) ?? candidates.first
    else {
      let name = entryName.map { String(path.dropLast($0.count + 1)) } ?? path
      throw .nothingInArchive(path: name, files: archive.entries.map(\.name))
    }
    if entryName == nil, candidates.count > 1, entry.kind == .trace {
      let others = candidates.dropFirst().prefix(8).map { "\(path):\($0.name)" }.joined(separator: ", ")
      archiveRemark = "of \(candidates.count) traces the newest is read, \(entry.name); the others are \(others)"
    }
    do throws(Errno) {
      guard let unpacker = try archive.unpacker(of: entry, input) else { throw Errno.notSupported }
      unpackers.append(unpacker)
    } catch {
      if error == .notSupported { throw .unreadableArchive(path: path) }
      throw .noGzip(path: path, error)
    }
  }
  /// Looks for the section of an Android bug report in a text, from what has been read of it on. False: it has none.
  private mutating func beginSection(
    _ reason: CaptureError.Reason, _ isLast: inout Bool, _ wait: () -> Bool
  ) throws(TraceError) -> Bool {
    var section = BTSnoozSection()
    switch reason {
    case .text: break
    case .unknownFormat:
      guard let file = BTSnoozSection(file: unsafe Span(_unsafeElements: buffer[start..<end])) else { return false }
      section = file
    default: return false
    }
    repeat {
      section.receive(unsafe Span(_unsafeElements: buffer[start..<end]))
      (start, end) = (0, 0)
      if !isLast, !section.isEnded { try fill(1, &isLast, wait) }
    } while end > 0 && !section.isEnded
    guard section.isBegun else { return false }
    do throws(Errno) {
      guard let records = try section.records() else { throw Errno.notSupported }
      for unpacker in unpackers { unpacker.abandon() }
      unpackers = [records.unpacker]
      isSectionDamaged = !records.isWhole
      parser = CaptureParser(format: .btsnooz(records.version))
      parser.time = records.start
    } catch {
      if error == .notSupported { throw .damagedSection(path: path) }
      throw .noGzip(path: path, error)
    }
    (start, end, isLast) = (0, 0, false)
    return true
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
