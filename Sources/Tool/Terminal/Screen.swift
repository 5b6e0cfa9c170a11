import Dispatch
import Glibc
import Synchronization

/// The whole terminal, for a picture that is drawn repeatedly: the alternate screen, which preserves the previous
/// content. Lines for standard error wait until it is closed.
enum Screen {
  private enum Phase { case untouched, on, suspended, closed }
  private struct State {
    var phase = Phase.untouched
    /// Of the last picture: after a change of size the screen is cleared first.
    var size = Size(columns: 0, rows: 0)
    var waiting = WaitingText()
    var stopSource: (any DispatchSourceSignal)?
  }
  struct Size: Equatable { var columns: Int, rows: Int }
  private static let state = Mutex(State())

  /// True if standard output understands the sequences below.
  static let isPossible = unsafe Console.isTerminal && getenv("TERM").map { unsafe String(cString: $0) } != "dumb"

  /// The current size: a window may change at any time. If the terminal does not report it, 80 columns and 24 rows.
  static var size: Size {
    var window = winsize()
    guard unsafe ioctl(Pager.terminal, UInt(TIOCGWINSZ), &window) == 0, window.ws_col > 0, window.ws_row > 0 else {
      return Size(columns: 80, rows: 24)
    }
    return Size(columns: Int(window.ws_col), rows: Int(window.ws_row))
  }

  /// Shows `lines`, which fit `size`, from the top, and nothing else. Does nothing after `close`.
  static func draw(_ lines: [String], in size: Size) {
    state.withLock { state in
      guard state.phase == .untouched || state.phase == .on else { return }
      // A terminal that was stopped gets the newest picture when it resumes, not all of them.
      guard Console.isDrained else { return }
      var picture = ""
      if state.phase == .untouched {
        picture = "\u{1B}[?1049h\u{1B}[?25l"
        state.stopSource = state.stopSource ?? Interruption.source(SIGTSTP, suspend)
      }
      if state.phase == .untouched || state.size != size { picture += "\u{1B}[2J" }
      (state.phase, state.size) = (.on, size)
      // Each row is erased before it is written: after the last column the cursor is still on it. Line feeds would
      // scroll, so there are none, and the cursor waits in the corner, so that typed text does not scroll either.
      for (row, line) in lines.prefix(size.rows).enumerated() { picture += "\u{1B}[\(row + 1);1H\u{1B}[2K" + line }
      if lines.count < size.rows { picture += "\u{1B}[\(lines.count + 1);1H\u{1B}[J" }
      Console.write(picture + "\u{1B}[H")
    }
  }

  /// Restores the terminal for good, and prints the lines that waited.
  static func close() {
    let waiting = state.withLock { state in
      if state.phase == .on { Console.write(restoration) }
      state.phase = .closed
      defer { state.waiting = WaitingText() }
      return state.waiting
    }
    if !waiting.text.isEmpty { Console.printed(waiting.text) }
  }

  /// Returns true if the line waits until the screen is closed.
  static func holdBack(_ text: String) -> Bool {
    guard isatty(STDERR_FILENO) == 1 else { return false }
    return state.withLock { state in
      if state.phase == .on { state.waiting.add(text) }
      return state.phase == .on
    }
  }

  private static let restoration = "\u{1B}[?25h\u{1B}[?1049l"

  /// Ctrl-Z: restores the shell's terminal. After `fg` the next drawing restores the picture.
  private static func suspend() {
    state.withLock { state in
      guard state.phase == .on else { return }
      Console.write(restoration)
      state.phase = .suspended
    }
    Console.drain()
    kill(getpid(), SIGSTOP)
    state.withLock { state in
      if state.phase == .suspended { state.phase = .untouched }
    }
  }
}

/// The newest of the lines that wait: memory is bounded.
private struct WaitingText {
  private var words: [String] = []
  private var dropped = 0
  mutating func add(_ text: String) {
    if words.count == 256 {
      words.removeFirst()
      dropped += 1
    }
    words.append(text)
  }
  var text: String {
    (dropped == 0 ? "" : "Warning: \(dropped) earlier messages were not kept.\n") + words.joined(separator: "\n")
  }
}
