import BindruneSystem
import Glibc
import SystemPackage

/// The files in a zip archive, by its central directory: what a phone's bug report is. The archive is read where it
/// lies; only its directory is in memory, at most ``mostOctets``.
///
/// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, §4.3.
struct ZipArchive {
  static var mostOctets: Int { 16 << 20 }
  /// The first octets of a file in it, and of an archive without files.
  static var magic: [UInt8] { Array("PK\u{3}\u{4}".utf8) }

  struct Entry {
    var name: String
    var flags: UInt16, method: UInt16
    /// The date above the time, as MS-DOS has them: they compare as numbers.
    var modified: UInt32
    var crc: UInt32, compressedSize: UInt32, size: UInt32, header: UInt32

    /// What the name says of a file: a trace, or text that may have one.
    var kind: Kind? {
      let path = name.lowercased(), file = path.split(separator: "/").last.map(String.init) ?? ""
      if path.hasSuffix("/") || size == 0 { return nil }
      if file.contains("btsnoo") || file.contains("bt_hci") || file.contains("hci_snoop") { return .trace }
      let parts = file.split(separator: ".").map(String.init)
      // `btsnoop.log.last`, `capture.pcapng.gz`.
      if parts.dropFirst().contains(where: { Self.endings.contains($0) }) { return .trace }
      let isBluetooth = path.contains("bluetooth/") || path.contains("/bt/")
      if isBluetooth, parts.contains("log") || parts.contains("cfa") { return .trace }
      return parts.last == "txt" || parts.last == "log" ? .text : nil
    }
    enum Kind { case trace, text }
    private static var endings: Set<String> { ["btsnoop", "snoop", "pklg", "pcap", "pcapng", "hcidump", "cfa"] }
  }
  private(set) var entries: [Entry] = []

  /// nil: it is damaged, or it needs more than 32-bit sizes, or it is a pipe.
  init?(_ file: FileDescriptor) {
    guard let length = try? file.seek(offset: 0, from: .end), length >= 22 else { return nil }
    // The end of the directory may be followed by a comment of 65,535 octets.
    let tail = Int(min(length, 65_557))
    guard let end = Self.read(file, at: length - Int64(tail), tail),
      let place = (0...(tail - 22)).last(where: { Self.has("PK\u{5}\u{6}", end, $0) })
    else { return nil }
    let size = Self.number32(end, place + 12), offset = Self.number32(end, place + 16)
    guard size <= Self.mostOctets, Int64(offset) + Int64(size) <= length,
      let directory = Self.read(file, at: Int64(offset), Int(size))
    else { return nil }
    var at = 0
    while at + 46 <= directory.count, Self.has("PK\u{1}\u{2}", directory, at) {
      let nameCount = Int(Self.number16(directory, at + 28))
      let next = at + 46 + nameCount + Int(Self.number16(directory, at + 30)) + Int(Self.number16(directory, at + 32))
      guard at + 46 + nameCount <= directory.count else { break }
      entries.append(
        Entry(
          name: String(decoding: directory[(at + 46)..<(at + 46 + nameCount)], as: UTF8.self),
          flags: Self.number16(directory, at + 8), method: Self.number16(directory, at + 10),
          modified: UInt32(Self.number16(directory, at + 14)) << 16 | UInt32(Self.number16(directory, at + 12)),
          crc: Self.number32(directory, at + 16), compressedSize: Self.number32(directory, at + 20),
          size: Self.number32(directory, at + 24), header: Self.number32(directory, at + 42)))
      at = next
    }
  }

  /// The files that are traces by their names, the newest first; if there are none, the texts, the longest first, or the
  /// only file there is.
  var candidates: [Entry] {
    let traces = entries.filter { $0.kind == .trace }.sorted {
      ($1.modified, $0.name.utf8.count, $0.name) < ($0.modified, $1.name.utf8.count, $1.name)
    }
    if !traces.isEmpty { return traces }
    let files = entries.filter { !$0.name.hasSuffix("/") && $0.size > 0 }
    let texts = files.filter { $0.kind == .text }.sorted { ($1.size, $0.name) < ($0.size, $1.name) }
    return texts.isEmpty && files.count == 1 ? files : texts
  }

  /// Unpacks an entry. nil: it is encrypted, compressed by another method, or not where the directory has it.
  func unpacker(of entry: Entry, _ file: FileDescriptor) throws(Errno) -> Unpacker? {
    // Greater sizes are elsewhere, in zip64's own fields.
    guard entry.flags & 1 == 0, entry.compressedSize < .max, entry.header < .max,
      let header = Self.read(file, at: Int64(entry.header), 30),
      Self.has("PK\u{3}\u{4}", header, 0)
    else { return nil }
    let start = Int64(entry.header) + 30 + Int64(Self.number16(header, 26)) + Int64(Self.number16(header, 28))
    do { _ = try file.seek(offset: start, from: .start) } catch { throw error as? Errno ?? .ioError }
    let trailer = [entry.crc, entry.size].flatMap { number in
      (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
    }
    return switch entry.method {
    case 0: try Unpacker(file, stored: entry.compressedSize)
    case 8: try Unpacker(file, deflated: entry.compressedSize, trailer: trailer)
    default: nil
    }
  }

  private static func read(_ file: FileDescriptor, at offset: Int64, _ count: Int) -> [UInt8]? {
    var octets = [UInt8](repeating: 0, count: count), done = 0
    while done < count {
      let number = unsafe try? octets.withUnsafeMutableBytes {
        unsafe try file.read(
          fromAbsoluteOffset: offset + Int64(done), into: UnsafeMutableRawBufferPointer(rebasing: $0[done...]))
      }
      guard let number, number > 0 else { return nil }
      done += number
    }
    return octets
  }
  private static func has(_ magic: String, _ octets: [UInt8], _ at: Int) -> Bool {
    octets[at..<(at + 4)].elementsEqual(magic.utf8)
  }
  private static func number16(_ octets: [UInt8], _ at: Int) -> UInt16 {
    UInt16(octets[at]) | UInt16(octets[at + 1]) << 8
  }
  private static func number32(_ octets: [UInt8], _ at: Int) -> UInt32 {
    UInt32(number16(octets, at)) | UInt32(number16(octets, at + 2)) << 16
  }
}
