import BindruneSystem
import BindruneTransport
import BindruneWire
import Dispatch
import Glibc
import Logging
import NIOCore
import SystemPackage

/// What the daemon keeps of an app while the app, or the daemon itself, does not run.
struct AppRecord: Equatable, Sendable {
  struct Manager: Equatable, Sendable {
    /// The name of its adapter.
    var adapter: String
    var manager: PreservedManager
  }
  var user: UInt32
  var manifest: AppManifest
  /// What its user has said about sharing data; nil: nobody was asked.
  var mayShareData: Bool?
  var managers: [Manager] = []

  /// There is nothing to keep.
  var isEmpty: Bool { mayShareData == nil && managers.isEmpty }
}

extension AppRecord: MessageRecord {
  static var empty: AppRecord { AppRecord(user: 0, manifest: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("User", &user)
    try visitor.field("Manifest", &manifest)
    try visitor.field("May Share Data", &mayShareData)
    try visitor.field("Managers", &managers)
  }
}
extension AppRecord.Manager: MessageRecord {
  static var empty: Self { Self(adapter: "", manager: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Adapter", &adapter)
    try visitor.field("Manager", &manager)
  }
}

extension AppRecord {
  /// Its file: these eight letters, the format's number, 2 octets, and the record as messages have it. Format 1 was
  /// JSON.
  private static var letters: String { "bindrune" }
  private static var format: UInt16 { 2 }

  var octets: [UInt8] {
    var writer = MessageWriter(), record = self
    writer.writeHeader(Self.letters, Self.format)
    try? record.visit(&writer)
    return Array(writer.buffer.readableBytesView)
  }
  init(octets: [UInt8]) throws(FrameError) {
    var buffer = ByteBuffer(bytes: octets)
    guard buffer.readString(length: Self.letters.utf8.count) == Self.letters else {
      throw FrameError("it is not a record of bindruned")
    }
    guard let format = buffer.readInteger(endianness: .little, as: UInt16.self), format == Self.format else {
      throw FrameError("its format is not \(Self.format)")
    }
    var reader = MessageReader(buffer)
    self = .empty
    try visit(&reader)
  }
}

/// The records of all apps, a file each, in a folder of the daemon: `USER-IDENTIFIER.record`. A JSON file of an earlier
/// version becomes one: `AppRecord(json:)`.
///
/// A change replaces the file, so that a reader finds the old record or the new one, whenever the daemon or the machine
/// stops. A file that is damaged is renamed to `….damaged-N`, and its app begins anew. A change that cannot be written
/// is tried again, with the next change or after a minute, whichever is first.
///
/// A thread of its own reads and writes: the calls do not block.
final class AppStore: @unchecked Sendable {
  // Sendable: everything that changes is on the queue.
  let folder: FilePath
  private let logger: Logger
  private let queue = DispatchQueue(label: "bindruned.store")
  /// Records that are not on the disk; nil: the file is to be removed.
  private var unwritten: [String: AppRecord?] = [:]
  private var failures = 0
  private var isRetrying = false
  /// A record has more than 1,000 peers before it is as long.
  private static var longest: Int { 4 << 20 }

  init(folder: String, logger: Logger) {
    self.folder = FilePath(folder)
    self.logger = logger
  }

  /// Makes the folder, and reads everything. Throws a sentence. It blocks.
  func load() throws(FrameError) -> [AppRecord] {
    let names: [String]
    do {
      try folder.makeFolders()
      // A record names a command that the daemon runs.
      if let planted = try folder.planted(.folder) {
        throw FrameError("\(planted.sentence(or: "name another folder for the state of apps with --state")).")
      }
      names = try folder.names()
    } catch let error as FrameError { throw error } catch {
      throw FrameError(
        "The folder \(folder) cannot be used for the state of apps (\(error)): mend that, or name another one with --state."
      )
    }
    let records = names.compactMap { name in
      read(name, ".record") { octets throws(FrameError) in try AppRecord(octets: octets) }
    }
    let known = Set(records.map(Self.name))
    let migrated = names.compactMap { name -> AppRecord? in
      if name.hasSuffix(".json"), known.contains(String(name.dropLast(5))) {
        // The daemon has ended before it could remove it.
        try? folder.appending(name).remove()
        return nil
      }
      return read(name, ".json") { octets throws(FrameError) in try AppRecord(json: octets) }
    }
    for record in migrated { save(record) }
    return records + migrated
  }
  /// Nil: it ends otherwise, or is damaged and set aside.
  private func read(
    _ name: String, _ ending: String, _ decode: ([UInt8]) throws(FrameError) -> AppRecord
  ) -> AppRecord? {
    guard name.hasSuffix(ending) else { return nil }
    let path = folder.appending(name)
    do {
      // Somebody could have put it there, or opened it, while the folder was open to others.
      let record = try decode(try path.trustedContents(upTo: Self.longest))
      guard Self.name(record) + ending == name else {
        throw FrameError("it is the record of \(record.manifest.identifier.printable())")
      }
      return record
    } catch {
      setAside(path, Self.cause(error))
      return nil
    }
  }
  private static func cause(_ error: any Error) -> String {
    switch error {
    case FilePath.DistrustedFile.planted(let planted): planted.cause
    default: "\(error)"
    }
  }
  private func setAside(_ path: FilePath, _ why: String) {
    for number in 1...999 {
      let aside = FilePath("\(path).damaged-\(number)")
      if (try? aside.stat(followTargetSymlink: false)) != nil { continue }
      do throws(Errno) {
        try path.rename(to: aside)
        return logger.error("\(path) is damaged: \(why). It is now \(aside), and its app begins anew.")
      } catch { return logger.error("\(path) is damaged: \(why), and cannot be renamed: \(error).") }
    }
  }

  /// Keeps the record, or removes an empty one.
  func save(_ record: AppRecord) {
    queue.async { [self] in
      unwritten[Self.name(record)] = .some(record.isEmpty ? nil : record)
      write()
    }
  }
  /// The processes that the daemon has stopped, for a daemon that begins after a crash: it resumes them.
  func saveStopped(_ processes: Set<StoppedProcess>) {
    queue.async { [self] in
      let path = folder.appending("stopped")
      guard !processes.isEmpty else {
        try? path.remove()
        return
      }
      let text = processes.map { "\($0.text)\n" }.sorted().joined()
      do throws(Errno) { try path.replace(with: Array(text.utf8), by: folder.appending("stopped.draft")) } catch {
        failures += 1
        logger.error("\(path) cannot be written (\(error)): apps that are suspended stay so if bindruned crashes.")
      }
    }
  }
  func loadStopped() -> [StoppedProcess] {
    guard let text = try? folder.appending("stopped").trustedContents(upTo: 65_536) else { return [] }
    return String(decoding: text, as: UTF8.self).split(separator: "\n").compactMap { StoppedProcess(text: $0) }
  }
  /// Returns when everything that can be written has been.
  func flush() { queue.sync {} }
  /// Changes that could not be written since the beginning.
  var countOfFailures: Int { queue.sync { failures } }
  /// The same for a task, whose thread does not wait for the disk.
  func failedWrites() async -> Int {
    await withCheckedContinuation { done in queue.async { done.resume(returning: self.failures) } }
  }

  private func write() {
    for (name, record) in unwritten {
      do {
        try write(record, name)
        unwritten[name] = nil
      } catch {
        failures += 1
        logger.error(
          """
          \(folder)/\(name).record cannot be written (\(error)), so a restart would lose its change: free some space, \
          or mend the folder.
          """
        )
      }
    }
    if unwritten.isEmpty || isRetrying { return }
    isRetrying = true
    queue.asyncAfter(deadline: .now() + .seconds(60)) { [weak self] in
      self?.isRetrying = false
      self?.write()
    }
  }
  private func write(_ record: AppRecord?, _ name: String) throws {
    let path = folder.appending(name + ".record"), old = folder.appending(name + ".json")
    if let record {
      try path.replace(with: record.octets, by: folder.appending(name + ".record.draft"))
    } else if Self.isThere(path) {
      try path.remove()
      try folder.synchroniseFolder()
    }
    if Self.isThere(old) { try old.remove() }
  }
  private static func isThere(_ path: FilePath) -> Bool { (try? path.stat(followTargetSymlink: false)) != nil }
  private static func name(_ record: AppRecord) -> String { "\(record.user)-\(record.manifest.identifier)" }
}
