import Foundation
import Synchronization
import Testing

/// The tool on a pseudo terminal, and the screen that a person would see: enough of a terminal to distinguish a picture
/// that fits from one that wraps or scrolls.
final class Terminal: @unchecked Sendable {
  // Several threads use the process, which Foundation permits for the members used here.
  private let process = Process()
  private let master: CInt
  private let state: Mutex<VirtualScreen>
  private let changes: AsyncStream<Void>

  /// `bindrune` with these arguments, in a window of this size; with `isTyped` its standard input is the terminal, too.
  init(
    _ arguments: String..., program: String = Tool.path, columns: Int, rows: Int, isTyped: Bool = false,
    environment: [String: String] = [:]
  ) throws {
    master = unsafe open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    // TIOCSPTLCK unlocks the slave, TIOCGPTN tells its number: ioctl_tty(2).
    var lock: CInt = 0, number: CInt = 0
    _ = unsafe ioctl(master, 0x4004_5431, &lock)
    _ = unsafe ioctl(master, 0x8004_5430, &number)
    let slave = unsafe open("/dev/pts/\(number)", O_RDWR | O_NOCTTY | O_CLOEXEC)
    state = Mutex(VirtualScreen(columns: columns, rows: rows))
    let (stream, changed) = AsyncStream.makeStream(of: Void.self)
    changes = stream
    resize(columns: columns, rows: rows)
    let line = FileHandle(fileDescriptor: slave, closeOnDealloc: true)
    process.executableURL = URL(filePath: program)
    process.arguments = arguments
    process.environment = ProcessInfo.processInfo.environment.merging(["TERM": "xterm", "NO_COLOR": ""]) { $1 }
      .merging(environment) { $1 }
    process.standardInput = isTyped ? line : FileHandle.nullDevice
    process.standardOutput = line
    process.standardError = line
    process.terminationHandler = { _ in }
    try Tool.withDefaultSignals { try process.run() }
    try line.close()
    Thread.detachNewThread { [self] in
      var buffer = [UInt8](repeating: 0, count: 4096)
      while true {
        // EIO when nobody holds the other end any more.
        let count = unsafe read(master, &buffer, buffer.count)
        if count <= 0 { break }
        state.withLock { $0.take(buffer[..<count]) }
        changed.yield()
      }
      changed.finish()
      close(master)
    }
    Thread.detachNewThread { [weak self] in
      Thread.sleep(forTimeInterval: 600)
      if let self, self.process.isRunning { kill(self.process.processIdentifier, SIGKILL) }
    }
  }

  /// As if somebody typed it.
  func type(_ text: String) {
    let octets = Array(text.utf8)
    #expect(unsafe write(master, octets, octets.count) == octets.count)
  }
  /// Whether the terminal shows what is typed by itself, as it does in a shell.
  var echoes: Bool {
    var mode = termios()
    #expect(unsafe tcgetattr(master, &mode) == 0)
    return mode.c_lflag & tcflag_t(ECHO | ICANON | ISIG) == tcflag_t(ECHO | ICANON | ISIG)
  }
  func signal(_ number: Int32) { kill(process.processIdentifier, number) }
  func resize(columns: Int, rows: Int) {
    state.withLock { $0.resize(columns: columns, rows: rows) }
    var size = winsize(ws_row: UInt16(rows), ws_col: UInt16(columns), ws_xpixel: 0, ws_ypixel: 0)
    #expect(unsafe ioctl(master, UInt(TIOCSWINSZ), &size) == 0)
  }

  /// Waits until the screen is so, and has it.
  func screen(_ location: SourceLocation = #_sourceLocation, _ isSo: (VirtualScreen) -> Bool) async throws
    -> VirtualScreen
  {
    for await _ in changes {
      let screen = state.withLock { $0 }
      if isSo(screen) { return screen }
    }
    throw Missing(screen: state.withLock { $0.lines.joined(separator: "\n") })
  }
  struct Missing: Error, CustomStringConvertible {
    var screen: String
    var description: String { "it ended with this on the screen:\n\(screen)" }
  }
  /// The last of the screen, and the exit status.
  func end() async -> (screen: VirtualScreen, status: Int32) {
    for await _ in changes {}
    process.waitUntilExit()
    return (state.withLock { $0 }, (process.terminationReason == .uncaughtSignal ? 128 : 0) + process.terminationStatus)
  }
}

/// A window: main and alternate screen, and the sequences that the tool uses, all others being faults.
struct VirtualScreen {
  private(set) var columns: Int
  private(set) var rows: Int
  private var cells: [[Character]] = []
  private var place = (row: 0, column: 0)
  private var main: (cells: [[Character]], place: (row: Int, column: Int))?
  private(set) var isCursorVisible = true
  private(set) var marksPastes = false
  /// What no tidy picture does: a line that wrapped, a scroll of the alternate screen, an unknown sequence.
  private(set) var faults: [String] = []
  /// The window has changed its size, which the tool may not know yet.
  private var isStale = false
  private var pending: [UInt8] = []

  init(columns: Int, rows: Int) { (self.columns, self.rows) = (columns, rows) }
  var isAlternate: Bool { main != nil }
  var cursor: (row: Int, column: Int) { place }
  /// Without the blanks at the right, and without empty lines below.
  var lines: [String] {
    var lines = cells.map { cells in
      var line = String(cells)
      while line.last == " " { line.removeLast() }
      return line
    }
    while lines.last == "" { lines.removeLast() }
    return lines
  }
  /// The tool draws the picture again after it has learnt the size.
  mutating func resize(columns: Int, rows: Int) {
    (self.columns, self.rows) = (columns, rows)
    isStale = isAlternate
    if isAlternate { cells = cells.prefix(rows).map { Array($0.prefix(columns)) } }
  }

  mutating func take(_ octets: some Sequence<UInt8>) {
    pending += octets
    while let length = firstLength() {
      let word = String(decoding: pending[..<length], as: UTF8.self)
      pending.removeFirst(length)
      perform(word)
    }
  }
  /// Octets of the first character or sequence; nil while it is incomplete.
  private func firstLength() -> Int? {
    guard let first = pending.first else { return nil }
    if first == 0x1B {
      guard pending.count > 1 else { return nil }
      if pending[1] != UInt8(ascii: "[") { return 2 }
      return pending.dropFirst(2).firstIndex { 0x40..<0x7F ~= $0 }.map { $0 + 1 }
    }
    let length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4
    return pending.count >= length ? length : nil
  }
  private mutating func perform(_ word: String) {
    switch word {
    case "\r\n":
      place.column = 0
      lineFeed()
    case "\r": place.column = 0
    case "\n": lineFeed()
    case "\u{1B}[?2004h", "\u{1B}[?2004l": marksPastes = word.hasSuffix("h")
    case "\u{1B}[?25l": isCursorVisible = false
    case "\u{1B}[?25h": isCursorVisible = true
    case "\u{1B}[?1049h":
      main = (cells, place)
      cells = []
    case "\u{1B}[?1049l":
      if let main { (cells, place) = main }
      main = nil
    case "\u{1B}[2J":
      cells = []
      isStale = false
    case "\u{1B}[J": cells = Array(cells.prefix(place.row))
    case "\u{1B}[K", "\u{1B}[0K": erase(from: place.column)
    case "\u{1B}[2K": erase(from: 0)
    case _ where word.hasPrefix("\u{1B}[") && word.hasSuffix("H"):
      let numbers = word.dropFirst(2).dropLast().split(separator: ";").compactMap { Int($0) }
      place = numbers.count == 2 ? (numbers[0] - 1, numbers[1] - 1) : (0, 0)
      if place.row >= rows || place.column >= columns { fault("the cursor outside: \(place)") }
    case _ where word.hasPrefix("\u{1B}[") && word.hasSuffix("C"):
      place.column += Int(word.dropFirst(2).dropLast()) ?? 1
      if place.column >= columns { fault("the cursor outside: \(place)") }
    case _ where word.hasPrefix("\u{1B}[") && word.hasSuffix("m"): break
    case _ where word.hasPrefix("\u{1B}"): fault("an unknown sequence: \(word.debugDescription)")
    default:
      if place.column >= columns {
        if isAlternate { fault("a line wrapped at \(word)") }
        place.column = 0
        lineFeed()
      }
      while cells.count <= place.row { cells.append([]) }
      while cells[place.row].count <= place.column { cells[place.row].append(" ") }
      cells[place.row][place.column] = word.first ?? " "
      place.column += 1
    }
  }
  private mutating func fault(_ text: String) {
    if !isStale { faults.append(text) }
  }
  private mutating func erase(from column: Int) {
    if place.row < cells.count { cells[place.row] = Array(cells[place.row].prefix(column)) }
  }
  private mutating func lineFeed() {
    place.row += 1
    if isAlternate, place.row >= rows { fault("it scrolled") }
  }
}
