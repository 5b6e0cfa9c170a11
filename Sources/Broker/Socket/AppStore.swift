import BindruneSystem
import BindruneTransport
import BindruneWire
import Dispatch
import Glibc
import Logging
import SystemPackage

/// What the daemon keeps of an app while the app, or the daemon itself, does not run.
struct AppRecord: Codable, Equatable, Sendable {
  struct Manager: Codable, Equatable, Sendable {
    /// The name of its adapter.
    var adapter: String
    var manager: PreservedManager
  }
  static var format: Int { 1 }
  var format = Self.format
  var user: UInt32
  var manifest: AppManifest
  /// What its user has said about sharing data; nil: nobody was asked.
  var mayShareData: Bool?
  var managers: [Manager] = []

  /// There is nothing to keep.
  var isEmpty: Bool { mayShareData == nil && managers.isEmpty }
}

/// The records of all apps, a JSON file each, in a folder of the daemon: `USER-IDENTIFIER.json`.
///
/// A change replaces the file, so that a reader finds the old record or the new one, whenever the daemon or the machine stops. A file that is
/// damaged is renamed to `….damaged-N`, and its app begins anew. A change that cannot be written is tried again, with the next change or after
/// a minute, whichever is first.
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
    return names.filter { $0.hasSuffix(".json") }.compactMap { name in
      let path = folder.appending(name)
      do {
        // Somebody could have put it there, or opened it, while the folder was open to others.
        let text = try path.trustedContents(upTo: Self.longest)
        let record = try JSONDecoder().decode(AppRecord.self, from: Data(text))
        guard record.format == AppRecord.format else { throw FrameError("it has format \(record.format)") }
        guard Self.name(record) == name else {
          throw FrameError("it is the record of \(record.manifest.identifier.printable())")
        }
        return record
      } catch {
        setAside(path, Self.cause(error))
        return nil
      }
    }
  }
  private static func cause(_ error: any Error) -> String {
    switch error {
    case let error as DecodingError: error.cause
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
          "\(folder)/\(name) cannot be written (\(error)), so a restart would lose its change: free some space, or mend the folder."
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
    let path = folder.appending(name)
    if let record {
      let encoder = JSONEncoder()
      encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
      return try path.replace(with: Array(try encoder.encode(record)), by: folder.appending("\(name).draft"))
    }
    if (try? path.stat(followTargetSymlink: false)) == nil { return }
    try path.remove()
    try folder.synchroniseFolder()
  }
  private static func name(_ record: AppRecord) -> String { "\(record.user)-\(record.manifest.identifier).json" }
}
