import BindruneSystem
import BindruneWire
import Glibc
import SystemPackage

/// Which controller a program uses, and how. It uses the first of these that is set:
///
/// 1. what the program or its command line names: `DirectSession(adapter:)`, the tool's `--hci`;
/// 2. the environment: `BINDRUNE_HCI`, `BINDRUNE_TAKE_DOWN`, `BINDRUNE_TRACE`, `BINDRUNE_TRACE_CALLS`,
///    `BINDRUNE_SIGNALS`;
/// 3. the configuration file, `$XDG_CONFIG_HOME/bindrune/config` (by default in `~/.config`), or else
///    `/etc/bindrune/config`;
/// 4. `hci0`.
///
/// A line of the file is `KEY = VALUE`, empty, or a comment:
///
///     # The dongle, although bluetoothd uses it.
///     adapter = hci1
///     take-down = yes
///     trace = /tmp/program.btsnoop
///     trace-calls = yes
///     signals = no
package struct AdapterChoice: Equatable, Sendable {
  package var spec: TransportSpec
  /// An adapter that is up is taken down, and brought up again at the end. Adapters of this machine only: others have
  /// no kernel above them.
  package var takesDown: Bool
  /// The path of a btsnoop file for every packet.
  package var trace: String?
  /// The trace names the call that causes each packet.
  package var tracesCalls: Bool
  /// SIGINT and SIGTERM close the adapter first, in a program that leaves them at their default.
  package var handlesSignals: Bool
  package init(
    spec: TransportSpec, takesDown: Bool = false, trace: String? = nil, tracesCalls: Bool = false,
    handlesSignals: Bool = true
  ) {
    self.spec = spec
    self.takesDown = takesDown
    self.trace = trace
    self.tracesCalls = tracesCalls
    self.handlesSignals = handlesSignals
  }

  package static func result(_ adapter: String?) -> Result<AdapterChoice, TransportError> {
    do throws(TransportError) { return .success(try AdapterChoice(adapter)) } catch { return .failure(error) }
  }

  /// Throws a `.specification` whose sentence names the place of the mistake and the remedy.
  /// `environment` returns a variable's value, `read` a file's text; nil: there is no such variable or file.
  package init(
    _ adapter: String? = nil, environment: (String) -> String? = AdapterChoice.variable,
    read: (String) throws -> String? = AdapterChoice.text(ofFile:)
  ) throws(TransportError) {
    let file = try Self.file(environment, read)
    func variable(_ name: String) -> String? { environment(name).flatMap { $0.isEmpty ? nil : $0 } }
    let (text, place) = Self.named(adapter, environment, file) ?? ("hci0", "")
    do throws(TransportError) {
      spec = try TransportSpec(text)
    } catch {
      guard case .specification(let sentence) = error else { throw error }
      throw .specification(place + sentence)
    }

    func flag(_ name: String) throws(TransportError) -> Bool? {
      guard let word = variable(name) else { return nil }
      guard let isMeant = Self.truth(word) else {
        throw .specification("\(name) is \"\(word.printable(limit: 60))\": set it to 1 or 0")
      }
      return isMeant
    }
    let takesDown = try flag("BINDRUNE_TAKE_DOWN") ?? file.takesDown ?? false
    handlesSignals = try flag("BINDRUNE_SIGNALS") ?? file.handlesSignals ?? true
    if case .adapter = spec { self.takesDown = takesDown } else { self.takesDown = false }
    trace = variable("BINDRUNE_TRACE") ?? file.trace
    tracesCalls = try flag("BINDRUNE_TRACE_CALLS") ?? file.tracesCalls ?? false
  }

  /// What names the controller, and where, as the beginning of a sentence; nil: nothing does.
  private static func named(
    _ adapter: String?, _ environment: (String) -> String?, _ file: File
  ) -> (text: String, place: String)? {
    if let adapter { return (adapter, "") }
    if let text = environment("BINDRUNE_HCI"), !text.isEmpty { return (text, "BINDRUNE_HCI: ") }
    return file.adapter.map { ($0.value, $0.place) }
  }
  /// The same text for a program that may also use an adapter of bindruned. Throws as `init`.
  package static func named(
    _ adapter: String?, environment: (String) -> String?, read: (String) throws -> String?
  ) throws(TransportError) -> String? {
    named(adapter, environment, try file(environment, read))?.text
  }

  // MARK: The file

  private struct File {
    var adapter: (value: String, place: String)?
    var takesDown: Bool?
    var trace: String?
    var tracesCalls: Bool?
    var handlesSignals: Bool?
  }
  /// The first existing file.
  private static func file(
    _ environment: (String) -> String?, _ read: (String) throws -> String?
  ) throws(TransportError) -> File {
    var folders: [String] = []
    // Relative paths are to be ignored: XDG Base Directory Specification, "Environment variables".
    if let folder = environment("XDG_CONFIG_HOME"), folder.hasPrefix("/") {
      folders.append(folder)
    } else if let home = environment("HOME"), home.hasPrefix("/") {
      folders.append(home + "/.config")
    }
    for folder in folders + ["/etc"] {
      let path = folder + "/bindrune/config", text: String?
      do { text = try read(path) } catch let planted as PlantedPath {
        throw .specification(planted.sentence(or: "remove it"))
      } catch {
        throw .specification("\(path) cannot be read (\(error)): mend or remove it")
      }
      if let text { return try parse(text, path) }
    }
    return File()
  }
  private static func parse(_ text: String, _ path: String) throws(TransportError) -> File {
    var file = File()
    for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
      let line = line.trimmed, place = "\(path), line \(index + 1): "
      if line.isEmpty || line.hasPrefix("#") { continue }
      let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        .map { $0.trimmed }
      guard parts.count == 2, !parts[1].isEmpty else {
        throw .specification(
          "\(place)\"\(line.printable(limit: 60))\" sets nothing: write KEY = VALUE, for example adapter = hci0")
      }
      switch parts[0] {
      case "adapter": file.adapter = (parts[1], place)
      case "take-down", "trace-calls", "signals":
        guard let isMeant = truth(parts[1]) else {
          throw .specification("\(place)\(parts[0]) is \"\(parts[1].printable(limit: 60))\": write yes or no")
        }
        switch parts[0] {
        case "signals": file.handlesSignals = isMeant
        case "trace-calls": file.tracesCalls = isMeant
        default: file.takesDown = isMeant
        }
      case "trace": file.trace = parts[1]
      default:
        throw .specification(
          "\(place)there is no \"\(parts[0].printable(limit: 60))\": write adapter, take-down, trace, trace-calls or "
            + "signals")
      }
    }
    return file
  }
  private static func truth(_ word: String) -> Bool? {
    switch word.lowercased() {
    case "1", "yes", "true", "on": true
    case "0", "no", "false", "off": false
    default: nil
    }
  }
  /// A variable of the process's environment.
  package static func variable(_ name: String) -> String? { unsafe getenv(name).map { unsafe String(cString: $0) } }

  /// A configuration has a few lines; a longer file is something else.
  private static var limit: Int { 65_536 }

  /// The text of a regular file of at most 64 KiB; nil: there is no such file. Throws a `PlantedPath` for one that
  /// another user could have written.
  package static func text(ofFile path: String) throws -> String? {
    do {
      // Opening a pipe would wait for a writer, which may never come.
      let file = try FileDescriptor.opened(
        FilePath(text: path), .readOnly, options: [.nonBlocking, .noControllingTerminal])
      return try file.closeAfter {
        guard let status = try? file.stat(), status.type == .regular else {
          throw Unreadable(description: "it is not a regular file")
        }
        let name = FilePath(text: path)
        if let planted = try name.planted(.file) { throw planted }
        // The name may have led elsewhere when it was opened.
        if let planted = name.planted(status, .file) { throw planted }
        let octets = try file.readAll(upTo: limit + 1)
        if octets.count > limit { throw Unreadable(description: "it has more than \(limit) octets") }
        return String(decoding: octets, as: UTF8.self)
      }
    } catch Errno.noSuchFileOrDirectory, Errno.notDirectory {
      return nil
    }
  }
  private struct Unreadable: Error, CustomStringConvertible { var description: String }
}

extension StringProtocol {
  /// Without the white space at both ends.
  fileprivate var trimmed: String {
    guard let first = firstIndex(where: { !$0.isWhitespace }), let last = lastIndex(where: { !$0.isWhitespace }) else {
      return ""
    }
    return String(self[first...last])
  }
}
