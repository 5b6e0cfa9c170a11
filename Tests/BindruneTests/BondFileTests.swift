import BindruneSystem
import BindruneTransport
import BindruneWire
import Foundation
import BindruneGAP
import Glibc
import SystemPackage
import TestSupport
import Testing

@testable import Bindrune

/// The file of bonds: what others may read of it, what stands in its place, and what happens to it when processes are
/// killed or have it in common.
@Suite(.realTime, .hang) struct BondFileTests {
  private typealias Lists = BondStoreTests

  /// A folder of the test, in which the file's own folder is `state`.
  private func withPlace(_ body: (_ root: String, _ path: String) async throws -> Void) async throws {
    let root = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path()
    try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: false)
    defer { try? FileManager.default.removeItem(atPath: root) }
    try await body(root, root + "/state/bonds")
  }
  private func mode(_ path: String) throws -> Int? {
    try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
  }
  private func set(_ mode: Int, _ path: String) throws {
    try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
  }
  private func names(_ folder: String) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: folder).sorted()
  }
  private func contents(_ path: String) throws -> String { try String(contentsOfFile: path, encoding: .utf8) }
  private func makeFolder(_ path: String) throws {
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    try set(0o700, path)
  }
  private func write(_ text: String, _ path: String) throws { try Data(text.utf8).write(to: URL(filePath: path)) }

  /// Expects an error with these words in one sentence, and that it names no key.
  private func expectError(
    _ words: String, _ location: SourceLocation = #_sourceLocation, _ body: () async throws -> Void
  ) async {
    let error = await #expect(throws: BluetoothError.self, sourceLocation: location) { try await body() }
    #expect(error?.code == .storage, sourceLocation: location)
    #expect(error?.description.contains(words) == true, "\(String(describing: error))", sourceLocation: location)
    #expect(error?.diagnostics.hasSuffix(".") == true, sourceLocation: location)
  }

  // MARK: Alone

  @Test func itOutlivesItsProcess() async throws {
    try await withPlace { root, path in
      let file = BondFile(path: path, capacity: 3)
      // Reading makes nothing.
      #expect(try await file.bonds(of: Lists.adapter) == [])
      #expect(try names(root) == [])
      var chance = SplitMix64(seed: Fuzz.seed)
      // Alike in strength, which decides first: `BondStoreTests.authenticatedBondsStay`.
      let bonds = (0..<5).map { _ in
        var bond = Bond.random(using: &chance)
        bond.strength.isAuthenticated = false
        return bond
      }
      for bond in bonds.prefix(3) { #expect(try await file.save(bond, of: Lists.adapter) == []) }
      for (bond, gone) in zip(bonds.dropFirst(3), bonds) {
        #expect(try await file.save(bond, of: Lists.adapter) == [gone.peer])
      }
      try await file.save(bonds[0], of: Lists.other)
      let next = BondFile(path: path)
      #expect(try await next.bonds(of: Lists.adapter) == Array(bonds.dropFirst(2)))
      try await next.remove(bonds[3].peer, of: Lists.adapter)
      #expect(try await file.bonds(of: Lists.adapter) == [bonds[2], bonds[4]])
      #expect(try await file.bonds(of: Lists.other) == [bonds[0]])
      #expect(
        try await file.all().entries.map(\.bond) == Array(bonds.dropFirst(2).filter { $0 != bonds[3] }) + [bonds[0]])
      #expect(try names(root + "/state") == ["bonds", "bonds.lock"])
      #expect(try mode(root + "/state") == 0o700 && mode(path) == 0o600 && mode(path + ".lock") == 0o600)
      #expect(file.warnings == [])
    }
  }

  /// The modes of what exists are reported; the next change closes the file, and leaves the folder to its owner.
  @Test func whatOthersMayReadIsReported() async throws {
    try await withPlace { root, path in
      let file = BondFile(path: path)
      #expect(file.warnings == [], "nothing is there")
      try await file.save(Lists.bond(1), of: Lists.adapter)
      try set(0o755, root + "/state")
      try set(0o640, path)
      #expect(file.warnings.count == 2)
      #expect(file.warnings.first?.contains("chmod 700 \(root)/state") == true)
      #expect(file.warnings.last?.contains("read the keys in \(path): close it with chmod 600 \(path)") == true)
      #expect(try await file.bonds(of: Lists.adapter) == [Lists.bond(1)])
      try await file.save(Lists.bond(2), of: Lists.adapter)
      #expect(try mode(root + "/state") == 0o755 && mode(path) == 0o600)
      #expect(file.warnings.count == 1)
      try set(0o770, root + "/state")
      #expect(file.warnings.first?.contains("may replace files in the folder") == true)
    }
  }

  @Test("Bonds that another user could have written are not believed, and keys are not written there")
  func plantedBonds() async throws {
    try await withPlace { root, path in
      let file = BondFile(path: path), folder = root + "/state"
      try await file.save(Lists.bond(1), of: Lists.adapter)
      func expectRefusal(_ place: String) async {
        let words = "\(path) is not safe, as \(place)"
        await expectError(words) { _ = try await file.bonds(of: Lists.adapter) }
        await expectError(words) { try await BondFile(path: path).save(Lists.bond(2), of: Lists.adapter) }
        await expectError(words) { try await BondFile(path: path).remove(Lists.bond(1).peer, of: Lists.adapter) }
      }
      try set(0o646, path)
      await expectRefusal("other users may write to \(path)")
      try set(0o600, path)
      try set(0o777, folder)
      await expectRefusal("other users may write to \(folder)")
      try set(0o700, folder)
      try set(0o757, root)
      await expectRefusal("other users may write to \(root)")
      try set(0o1777, root)
      #expect(try await file.bonds(of: Lists.adapter) == [Lists.bond(1)])
      guard geteuid() == 0 else { return }
      for place in [path, folder] {
        #expect(unsafe chown(place, 65_534, 65_534) == 0)
        await expectRefusal("\(place) belongs to user 65534")
        #expect(unsafe chown(place, 0, 0) == 0)
      }
      #expect(try names(folder) == ["bonds", "bonds.lock"])
      #expect(try await BondFile(path: path).bonds(of: Lists.adapter) == [Lists.bond(1)])
    }
  }

  // MARK: Something else in its place

  enum Damage: String, CaseIterable { case flipped, cut, empty, zeros, newer }
  /// What cannot be read is renamed, never overwritten: neither the file nor another one at the new name.
  @Test(arguments: Damage.allCases, [true, false])
  func aDamagedFileIsSetAside(damage: Damage, isSaved: Bool) async throws {
    try await withPlace { root, path in
      let file = BondFile(path: path)
      for number: UInt64 in 1...3 { try await file.save(Lists.bond(number), of: Lists.adapter) }
      try write("mine", path + ".damaged-1")
      var text = try contents(path)
      switch damage {
      case .flipped: text.replace("random", with: "randoM", maxReplacements: 1)
      case .cut: text.removeLast(100)
      case .empty: text = ""
      case .zeros: text = String(repeating: "\0", count: 4096)
      case .newer: text.replace("bindrune-bonds 1", with: "bindrune-bonds 27")
      }
      try write(text, path)
      let words = damage == .newer ? "another version of Bindrune, in format 27" : "\(path) is damaged: it"
      await expectError("It is now \(path).damaged-2") {
        do {
          if isSaved {
            try await file.save(Lists.bond(4), of: Lists.adapter)
          } else {
            _ = try await file.bonds(of: Lists.adapter)
          }
        } catch {
          #expect("\(error)".contains(words), "\(error)")
          throw error
        }
      }
      #expect(try contents(path + ".damaged-1") == "mine" && contents(path + ".damaged-2") == text)
      #expect(try names(root + "/state") == ["bonds.damaged-1", "bonds.damaged-2", "bonds.lock"])
      // The bond that was not stored is not lost.
      let kept = isSaved ? [Lists.bond(4)] : []
      #expect(try await file.bonds(of: Lists.adapter) == kept)
      try await file.save(Lists.bond(5), of: Lists.adapter)
      #expect(try await BondFile(path: path).bonds(of: Lists.adapter) == kept + [Lists.bond(5)])
      #expect(try contents(path + ".damaged-2") == text)
    }
  }

  enum Foreign: CaseIterable { case folder, link, deadLink, fifo, otherFile, large, device }
  /// Somebody else's file stays as it is, and the bonds stay in memory until it is gone.
  @Test(arguments: Foreign.allCases) func aForeignFileStays(foreign: Foreign) async throws {
    try await withPlace { root, path in
      try makeFolder(root + "/state")
      var words = "\(path) is not a file of bonds: move it away"
      switch foreign {
      case .folder: try makeFolder(path)
      case .link:
        try write(String(decoding: BondList().text, as: UTF8.self), root + "/good")
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: root + "/good")
      case .deadLink: try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: root + "/none")
      case .fifo: #expect(unsafe mkfifo(path, 0o600) == 0)
      case .otherFile: try write("alias ll='ls -l'\n", path)
      case .large:
        try write("bindrune-bonds 1\n", path)
        #expect(unsafe truncate(path, 1 << 30) == 0)
        words = "\(path) cannot be read, File too large"
      case .device:
        // The device of /dev/full, which only root can make.
        guard unsafe mknod(path, S_IFCHR | 0o600, 1 << 8 | 7) == 0 else { return print("skipped: no right to mknod") }
        if let error = openingError(path) { words = "\(path) cannot be read, \(error)" }
      }
      let before = try FileManager.default.attributesOfItem(atPath: path)
      let file = BondFile(path: path)
      await expectError(words) { _ = try await file.bonds(of: Lists.adapter) }
      for number: UInt64 in 1...3 {
        await expectError(words) { try await file.save(Lists.bond(number), of: Lists.adapter) }
      }
      await expectError(words) { try await file.remove(Lists.bond(2).peer, of: Lists.adapter) }
      let after = try FileManager.default.attributesOfItem(atPath: path)
      #expect(after[.systemFileNumber] as? Int == before[.systemFileNumber] as? Int)
      #expect(after[.type] as? FileAttributeType == before[.type] as? FileAttributeType)
      #expect(after[.size] as? Int == before[.size] as? Int)
      #expect(try names(root + "/state") == ["bonds", "bonds.lock"])
      #expect(!FileManager.default.fileExists(atPath: root + "/none"))
      try FileManager.default.removeItem(atPath: path)
      #expect(try await file.bonds(of: Lists.adapter) == [Lists.bond(1), Lists.bond(3)])
      try await file.save(Lists.bond(4), of: Lists.adapter)
      let bonds = try await BondFile(path: path).bonds(of: Lists.adapter)
      #expect(bonds == [Lists.bond(1), Lists.bond(3), Lists.bond(4)])
    }
  }
  /// A file system may refuse devices.
  private func openingError(_ path: String) -> Errno? {
    do throws(Errno) {
      try Errno.typed { try FileDescriptor.open(FilePath(path), .readOnly).close() }
      return nil
    } catch { return error }
  }

  /// Where the draft and the lock are: nothing is written through a link, nothing waits for a pipe.
  @Test func neighboursInTheWay() async throws {
    try await withPlace { root, path in
      try makeFolder(root + "/state")
      try write("mine", root + "/victim")
      let manager = FileManager.default, file = BondFile(path: path), draft = path + ".draft", lock = path + ".lock"
      try manager.createSymbolicLink(atPath: draft, withDestinationPath: root + "/victim")
      try await file.save(Lists.bond(1), of: Lists.adapter)
      #expect(unsafe mkfifo(draft, 0o600) == 0)
      try await file.save(Lists.bond(2), of: Lists.adapter)
      #expect(try names(root + "/state") == ["bonds", "bonds.lock"])
      try makeFolder(draft)
      await expectError("\(draft) cannot be written, Is a directory") {
        try await file.save(Lists.bond(3), of: Lists.adapter)
      }
      try manager.removeItem(atPath: draft)
      try manager.removeItem(atPath: lock)
      try manager.createSymbolicLink(atPath: lock, withDestinationPath: root + "/victim")
      await expectError("\(lock) cannot be opened, Too many levels of symbolic links") {
        try await file.save(Lists.bond(4), of: Lists.adapter)
      }
      // A reader needs no lock.
      #expect(try await BondFile(path: path).bonds(of: Lists.adapter) == [Lists.bond(1), Lists.bond(2)])
      try manager.removeItem(atPath: lock)
      try await file.save(Lists.bond(5), of: Lists.adapter)
      #expect(try await BondFile(path: path).bonds(of: Lists.adapter) == (1...5).map { Lists.bond($0) })
      #expect(try contents(root + "/victim") == "mine")
    }
  }

  @Test func aFolderThatCannotBe() async throws {
    try await withPlace { root, _ in
      try write("mine", root + "/state")
      for path in [root + "/state/bonds", root + "/state/deeper/bonds"] {
        let file = BondFile(path: path)
        await expectError("\(path) cannot be read, Not a directory") { _ = try await file.bonds(of: Lists.adapter) }
        await expectError("Not a directory") { try await file.save(Lists.bond(1), of: Lists.adapter) }
      }
      #expect(try contents(root + "/state") == "mine")
    }
  }

  // MARK: In common

  @Test func anotherProcessHasTheLock() async throws {
    try await withPlace { root, path in
      try makeFolder(root + "/state")
      let holder = try FileDescriptor.open(
        FilePath(path + ".lock"), .readWrite, options: .create, permissions: .ownerReadWrite)
      try holder.lock()
      let file = BondFile(path: path, patience: .milliseconds(20))
      await expectError("Another process has had the lock of \(path).lock for 0.02 seconds") {
        try await file.save(Lists.bond(1), of: Lists.adapter)
      }
      #expect(try await file.bonds(of: Lists.adapter) == [Lists.bond(1)])
      holder.unlock()
      try holder.close()
      try await file.save(Lists.bond(2), of: Lists.adapter)
      #expect(try await BondFile(path: path).bonds(of: Lists.adapter) == [Lists.bond(1), Lists.bond(2)])
    }
  }

  /// Tasks of one process, with one `BondFile` and with two.
  @Test func tasksShareTheFile() async throws {
    try await withPlace { _, path in
      let files = [BondFile(path: path), BondFile(path: path)]
      try await withThrowingTaskGroup(of: Void.self) { group in
        for task: UInt64 in 0..<4 {
          group.addTask {
            for number: UInt64 in 0..<10 {
              try await files[Int(task % 2)].save(Lists.bond(task << 8 | number), of: Lists.adapter)
            }
          }
        }
        try await group.waitForAll()
      }
      let counts = try await files[0].bonds(of: Lists.adapter).map { $0.peer.rawValue >> 8 & 0xFF }
      #expect((0..<4).map { task in counts.filter { $0 == task }.count } == [10, 10, 10, 10])
    }
  }

  @Test func processesShareTheFile() async throws {
    try await withPlace { root, path in
      let writers = try (1...2).map { try Writer([path, "\($0)", "40"]) }
      for writer in writers { #expect(writer.rest() == (1...40).map { "\($0)" } && writer.end() == 0) }
      for number: UInt64 in 1...2 {
        let bonds = try await BondFile(path: path).bonds(of: Writer.adapter(number))
        #expect(bonds.map(\.ourSignCounter) == Array(37...40))
      }
      #expect(try names(root + "/state") == ["bonds", "bonds.lock"])
    }
  }

  /// Processes that store one bond after another, killed at random moments, half of them while they write: the file is
  /// whole each time, and has every bond that the process knew to be stored.
  @Test func aKilledProcessLeavesAWholeFile() async throws {
    var chance = SplitMix64(seed: Fuzz.seed), drafts = 0
    let rounds = 100
    try await withPlace { root, path in
      for round in 0..<rounds {
        let writer = try Writer([path, "1", "0"])
        var stored = 0
        for _ in 0..<Int.random(in: 1...5, using: &chance) {
          stored = try #require(writer.line().flatMap { Int($0) }, "round \(round)")
        }
        let clock = ContinuousClock()
        if round.isMultiple(of: 2) {
          let patience = clock.now + .seconds(1)
          while !FileManager.default.fileExists(atPath: path + ".draft"), clock.now < patience {}
        }
        let moment = clock.now + .microseconds(.random(in: 0...(round.isMultiple(of: 2) ? 500 : 8_000), using: &chance))
        while clock.now < moment {}
        writer.kill()
        stored = writer.rest().last.flatMap { Int($0) } ?? stored
        #expect(writer.end() == 128 + SIGKILL)
        let found = try names(root + "/state")
        #expect(Set(found).isSubset(of: ["bonds", "bonds.draft", "bonds.lock"]))
        if found.contains("bonds.draft") { drafts += 1 }
        let bonds = try await BondFile(path: path).bonds(of: Writer.adapter(1))
        let last = Int(bonds.last?.ourSignCounter ?? 0)
        #expect(last == stored || last == stored + 1, "round \(round), seed \(Fuzz.seed)")
        for bond in bonds {
          #expect(bond.client == [UInt8](repeating: UInt8(truncatingIfNeeded: bond.ourSignCounter), count: 400))
        }
      }
      // The next change removes what a killed one has left.
      try await BondFile(path: path).save(Lists.bond(1), of: Lists.adapter)
      #expect(try names(root + "/state") == ["bonds", "bonds.lock"])
    }
    print("killed processes: seed \(Fuzz.seed), \(drafts) of \(rounds) left a draft")
  }

  // MARK: A disk that takes nothing

  /// Without room the old file stays, and the bond stays in memory.
  @Test func aProcessThatMayWriteNothing() async throws {
    try await withPlace { root, path in
      let full = try Writer(script: #"trap "" XFSZ; ulimit -f 0; exec "$@""#, [path, "1", "1"])
      let lines = full.rest()
      #expect(full.end() == 1 && lines.count == 2)
      #expect(lines.first?.contains("\(path).draft cannot be written, File too large: ") == true, "\(lines)")
      #expect(lines.last == "file: 0, memory: 1")
      #expect(try names(root + "/state") == ["bonds.lock"])
    }
  }

  enum Disk: CaseIterable { case full, readOnly }
  @Test(arguments: Disk.allCases) func aDisk(_ disk: Disk) async throws {
    try await withPlace { root, path in
      try makeFolder(root + "/state")
      // A file system of its own, which ends with the process.
      let options = disk == .full ? "size=4k" : "ro"
      let script = #"mount -t tmpfs -o \#(options) none "\#(root)/state" && exec "$@""#
      let writer = try Writer(script: "exec unshare -m /bin/sh -c '\(script)' sh \"$@\"", [path, "1", "64"])
      let lines = writer.rest(), status = writer.end()
      guard let error = lines.last(where: { $0.hasPrefix("Could not") }) else {
        return print("skipped: no right to mount, \(status), \(lines)")
      }
      switch disk {
      case .full:
        let stored = lines.count - 2
        #expect(error.contains("\(path).draft cannot be written, No space left on device: free some space."))
        #expect(stored > 0 && lines.last == "file: \(stored), memory: \(stored + 1)")
      case .readOnly:
        #expect(error.contains("\(path).lock cannot be opened, Read-only file system: let this user"), "\(error)")
        #expect(lines.last == "file: 0, memory: 1")
      }
    }
  }
}

/// A run of `BondWriter`, which lies beside the tests.
private final class Writer {
  private let process = Process()
  private let pipe = Pipe()
  private var waiting = Data()

  static func adapter(_ number: UInt64) -> PeerAddress {
    PeerAddress(DeviceAddress(0xC000_0000_0000 | number), .random)
  }
  private static var program: String {
    URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
      .appending(path: "BondWriter").path
  }

  init(_ arguments: [String]) throws {
    process.executableURL = URL(filePath: Self.program)
    process.arguments = arguments
    try start()
  }
  /// The shell runs the program with `"$@"`.
  init(script: String, _ arguments: [String]) throws {
    process.executableURL = URL(filePath: "/bin/sh")
    process.arguments = ["-c", script, "sh", Self.program] + arguments
    try start()
  }
  private func start() throws {
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = pipe
    process.standardError = FileHandle.nullDevice
    try process.run()
    try? pipe.fileHandleForWriting.close()
  }

  /// The next line of its output; nil at the end.
  func line() -> String? {
    while true {
      if let end = waiting.firstIndex(of: UInt8(ascii: "\n")) {
        defer { waiting.removeSubrange(...end) }
        return String(decoding: waiting[..<end], as: UTF8.self)
      }
      let data = pipe.fileHandleForReading.availableData
      if data.isEmpty { return nil }
      waiting += data
    }
  }
  func rest() -> [String] {
    var lines: [String] = []
    while let line = line() { lines.append(line) }
    return lines
  }
  func kill() { Glibc.kill(process.processIdentifier, SIGKILL) }
  /// Its status; 128 + n after signal n.
  func end() -> Int32 {
    process.waitUntilExit()
    return (process.terminationReason == .uncaughtSignal ? 128 : 0) + process.terminationStatus
  }
}
