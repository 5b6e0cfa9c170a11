import Glibc
import Synchronization

/// Until `end`, the terminal delivers each key at once, without echo and signals, and marks pasted text.
enum RawMode {
  private static let saved = Mutex<termios?>(nil)

  /// `keepsSignals`: Ctrl-C and Ctrl-Z act as usual, and pasted text is not marked.
  static func begin(keepsSignals: Bool = false) {
    saved.withLock { saved in
      var mode = termios()
      guard saved == nil, unsafe tcgetattr(STDIN_FILENO, &mode) == 0 else { return }
      saved = mode
      // Output is processed as before: a line feed begins a line.
      mode.c_lflag &= ~tcflag_t(keepsSignals ? ICANON | ECHO : ICANON | ECHO | ISIG | IEXTEN)
      if !keepsSignals { mode.c_iflag &= ~tcflag_t(IXON | ICRNL) }
      unsafe tcsetattr(STDIN_FILENO, TCSANOW, &mode)
      if !keepsSignals { Console.write("\u{1B}[?2004h") }
    }
  }
  /// Restores the mode before `begin`. Any thread may call it, more than once.
  static func end() {
    saved.withLock { saved in
      guard var mode = saved.take() else { return }
      Console.write("\u{1B}[?2004l")
      unsafe tcsetattr(STDIN_FILENO, TCSANOW, &mode)
    }
  }
}
