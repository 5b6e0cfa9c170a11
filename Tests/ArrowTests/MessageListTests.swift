import Foundation
import Testing

/// The lists of messages that `Scripts/messages` has written.
@Suite struct MessageListTests {
  private let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()

  /// Each list is what the declarations say: nobody has edited one, and no declaration is missing.
  @Test func listsAreWhatTheDeclarationsSay() throws {
    let process = Process(), output = Pipe()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = ["python3", root.appending(path: "Scripts/messages").path, "--check"]
    process.standardError = output
    try process.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    #expect(process.terminationStatus == 0, "\(text)")
  }

  /// `Commands/NotSent` has the commands that no host here sends, and no others.
  @Test func commandsThatNoHostSendsStandApart() throws {
    let senders = ["Sources/GAP", "Sources/Bindrune", "Sources/HCI"].flatMap { sources(below: $0) }
      .filter { !$0.path.contains("/HCI/Commands/") && !$0.path.hasSuffix("List.swift") }
    let code = try senders.map { try String(contentsOf: $0, encoding: .utf8) }.joined(separator: "\n")
      .split(separator: "\n").filter { !$0.contains(#/^ *///#) }.joined(separator: "\n")
    let words = Set(code.split { !$0.isLetter && !$0.isNumber && $0 != "_" })
    var commands = 0, notSent = 0
    for file in sources(below: "Sources/HCI/Commands") {
      let isApart = file.path.contains("/NotSent/")
      let text = try String(contentsOf: file, encoding: .utf8)
      for match in text.matches(of: #/public struct (\w+): HCICommand/#) {
        commands += 1
        if isApart { notSent += 1 }
        #expect(words.contains(match.1) != isApart, "\(match.1) in \(file.lastPathComponent)")
      }
    }
    #expect(commands == 84 && notSent == 28)
  }
  private func sources(below folder: String) -> [URL] {
    let files = FileManager.default.enumerator(at: root.appending(path: folder), includingPropertiesForKeys: nil)
    return (files?.compactMap { $0 as? URL } ?? []).filter { $0.pathExtension == "swift" }
  }
}
