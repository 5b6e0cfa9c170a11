import BindruneWire

/// A file that is known by its first octets and is not a trace that is read here.
public struct ForeignFile: BitwiseCopyable, Sendable {
  public var name: StaticString
  /// What to do.
  public var remedy: StaticString

  private init(_ name: StaticString, _ remedy: StaticString) {
    self.name = name
    self.remedy = remedy
  }

  /// nil: not known.
  init?(_ bytes: Span<UInt8>) {
    for (magic, at, file) in Self.magics where Self.has(magic, bytes, at) {
      self = file
      return
    }
    if Self.isEventTrace(bytes) {
      self = .eventTrace
    } else if Self.isJSON(bytes) {
      self.init("JSON", "give the capture that it was made from")
    } else {
      return nil
    }
  }
  /// An object or a list, whose first value is a name, an object, a list or nothing.
  private static func isJSON(_ bytes: Span<UInt8>) -> Bool {
    var signs: [UInt8] = []
    for index in bytes.indices where bytes[index] > 0x20 {
      signs.append(bytes[index])
      if signs.count == 2 { break }
    }
    guard signs.count == 2 else { return false }
    return (signs[0] == UInt8(ascii: "{") && "\"}".utf8.contains(signs[1]))
      || (signs[0] == UInt8(ascii: "[") && "{[\"".utf8.contains(signs[1]))
  }
  /// A file whose octets say nothing, by the end of its name. nil: that says nothing either.
  public init?(name: String) {
    let parts = name.lowercased().split(separator: "."), ending = parts.count > 1 ? parts[parts.count - 1] : ""
    switch ending {
    case "etl": self = .eventTrace
    case "btt": self.init("a trace of Ellisys", "export it there as btsnoop or pcapng")
    case "cfa", "cfax": self.init("a capture of Frontline", "save it there as btsnoop")
    default: return nil
    }
  }
  private static func has(_ magic: [UInt8], _ bytes: Span<UInt8>, _ at: Int) -> Bool {
    guard bytes.count >= at + magic.count else { return false }
    for index in magic.indices where bytes[at + index] != magic[index] { return false }
    return true
  }

  /// Event Tracing for Windows.
  static let eventTrace = ForeignFile(
    "an event trace of Windows (ETL)",
    "convert it with Microsoft's BTETLParse, btetlparse.exe FILE.etl, which writes FILE.cfa, a btsnoop file")
  /// A buffer's header of 72 octets, which begins with the buffer's size, what is saved of it and what is used; then
  /// the header of the first event, whose marker has the two highest bits and the type of a system event.
  private static func isEventTrace(_ bytes: Span<UInt8>) -> Bool {
    guard bytes.count >= 76 else { return false }
    let size = bytes.little32(0)
    return size >= 1_024 && size <= 16_777_216 && size & (size - 1) == 0 && bytes.little32(4) <= size
      && bytes.little32(8) <= size && bytes[75] == 0xC0 && (1...2).contains(bytes[74])
  }

  private static let archive = "extract the trace from it, and read that" as StaticString
  private static let record = "record the packets with btmon -w, or bindrune trace convert monitor:" as StaticString
  private static let magics: [(magic: [UInt8], at: Int, file: ForeignFile)] = [
    (Array("PK\u{3}\u{4}".utf8), 0, ForeignFile("a zip archive", archive)),
    ([0x1F, 0x8B], 0, ForeignFile("a file compressed by gzip", "unpack it with gunzip, and read the result")),
    (Array("BZh".utf8), 0, ForeignFile("a file compressed by bzip2", "unpack it with bunzip2, and read the result")),
    (
      [0xFD, 0x37, 0x7A, 0x58, 0x5A, 0], 0,
      ForeignFile("a file compressed by xz", "unpack it with unxz, and read the result")
    ),
    (
      [0x28, 0xB5, 0x2F, 0xFD], 0,
      ForeignFile("a file compressed by zstd", "unpack it with unzstd, and read the result")
    ),
    ([0x37, 0x7A, 0xBC, 0xAF, 0x27, 0x1C], 0, ForeignFile("a 7z archive", archive)),
    (Array("Rar!".utf8), 0, ForeignFile("a rar archive", archive)),
    (
      Array("ustar".utf8), 257,
      ForeignFile(
        "a tar archive",
        """
        extract the trace from it, and read that; Apple's sysdiagnose has its traces, *.pklg, in logs/Bluetooth
        """)
    ),
    ([0x7F] + Array("ELF".utf8), 0, ForeignFile("a program (ELF)", record)),
    (Array("MZ".utf8) + [0x90, 0], 0, ForeignFile("a program of Windows", record)),
    (Array("%PDF".utf8), 0, ForeignFile("a PDF document", record)),
    ([0x89] + Array("PNG".utf8), 0, ForeignFile("a picture (PNG)", "give the trace itself, not a picture of it")),
    ([0xFF, 0xD8, 0xFF], 0, ForeignFile("a picture (JPEG)", "give the trace itself, not a picture of it")),
    (Array("GIF8".utf8), 0, ForeignFile("a picture (GIF)", "give the trace itself, not a picture of it")),
    (Array("SQLite format 3".utf8), 0, ForeignFile("a database (SQLite)", record)),
    (Array("<!DOCTYPE".utf8), 0, ForeignFile("a web page", record)),
    (Array("<html".utf8), 0, ForeignFile("a web page", record)),
    (Array("<?xml".utf8), 0, ForeignFile("XML", "give the capture that it was made from")),
    (Array("bplist00".utf8), 0, ForeignFile("a property list of Apple", record)),
    (
      Array("snoop\0\0\0".utf8), 0,
      ForeignFile("a capture of a network (snoop)", "open it in Wireshark and save it as pcapng")
    ),
  ]
}
