import BindruneSystem
import BindruneTransport
import BindruneWire
import BindruneGAP
import Glibc
import Logging
import NIOPosix
import Synchronization
import SystemPackage

/// Stores bonds in one file, which several processes may share.
///
/// **A crash loses nothing.** A change is a new file, complete and on the disk before it takes the old one's name: a
/// reader finds the old bonds or the new ones, whenever a process or the machine stops. Once `save` has returned, the
/// bond is on the disk.
///
/// **Processes do not lose each other's bonds.** A change reads, changes and replaces the file under a lock, that of
/// `PATH.lock`, for which it waits at most 5 s.
///
/// **What cannot be read is not overwritten.** A file that is damaged, or has a later format, is renamed to
/// `PATH.damaged-1` (or -2 …), and the call throws; the next one begins a new file. Anything else in the file's place
/// (a folder, a link, a pipe, a file of another kind) stays where it is, and each call throws.
///
/// **A change that cannot be written stays in memory**, after its call has thrown: `bonds(of:)` includes it, and the
/// next change that can be written brings it into the file. This holds for the last 1,024 of them.
///
/// **The file holds keys**: <doc:StoredBonds> says what they permit. It has the mode 0600, as has every file that
/// replaces it. Folders that are missing are made with the mode 0700; an existing folder keeps its mode, because its
/// owner may let others read on purpose. ``warnings`` names what other users can read. A file that another user has
/// made, or can change or replace, is neither read nor written: each call throws, and its sentence names the part of
/// the path at fault.
public final class BondFile: BondStore {
  public let path: String
  /// Bonds of each adapter.
  public let capacity: Int
  private let place: BondPlace
  /// Changes that are not in the file, in their order.
  private let unwritten = Mutex<[BondChange]>([])

  /// `capacity`: bonds of each adapter, at least 1. Touches no file.
  public convenience init(path: String, capacity: Int = 128) {
    self.init(path: path, capacity: capacity, patience: .seconds(5))
  }
  /// `patience`: for the lock.
  init(path: String, capacity: Int = 128, patience: Duration) {
    precondition(capacity > 0)
    self.path = path
    self.capacity = capacity
    place = BondPlace(FilePath(text: path), patience: patience)
  }

  /// The file of programs that name none: `BINDRUNE_BONDS`, or else for root
  /// `/var/lib/bindrune/bonds`, for others `$XDG_STATE_HOME/bindrune/bonds`, by default
  /// `~/.local/state/bindrune/bonds`. Throws if the environment has no home.
  public static func defaultPath() throws(BluetoothError) -> String {
    try defaultPath(isRoot: geteuid() == 0, AdapterChoice.variable)
  }
  /// The file of a host on the adapter of `spec`. Nil: bonds stay in memory, because devices of `sim` end with the
  /// process, or because the environment names no place, which `logger` reports.
  package static func ofPrograms(_ spec: TransportSpec, _ logger: Logger) -> BondFile? {
    if spec == .sim { return nil }
    do throws(BluetoothError) { return BondFile(path: try defaultPath()) } catch {
      logger.warning("Bonds end with this program. \(error.diagnostics)")
      return nil
    }
  }
  static func defaultPath(isRoot: Bool, _ variable: (String) -> String?) throws(BluetoothError) -> String {
    if let path = variable("BINDRUNE_BONDS"), !path.isEmpty { return path }
    if isRoot { return "/var/lib/bindrune/bonds" }
    // Relative paths are to be ignored: XDG Base Directory Specification, "Environment variables".
    if let folder = variable("XDG_STATE_HOME"), folder.hasPrefix("/") { return folder + "/bindrune/bonds" }
    if let home = variable("HOME"), home.hasPrefix("/") { return home + "/.local/state/bindrune/bonds" }
    throw BluetoothError(
      .storage, "There is no place for bonds, as HOME is not set: set BINDRUNE_BONDS to the path of a file.")
  }

  /// Sentences that say what other users can read or replace, and how to prevent it; none if all is well. Reads the
  /// modes of the file and its folder.
  public var warnings: [String] { place.warnings }

  // MARK: BondStore

  public func bonds(of adapter: PeerAddress) async throws(BluetoothError) -> [Bond] {
    try await perform("read the bonds of \(adapter)") { [self] () throws(BluetoothError) in
      try list().bonds(of: adapter)
    }
  }
  /// The bonds of all adapters.
  package func all() async throws(BluetoothError) -> BondList {
    try await perform("read the bonds") { [self] () throws(BluetoothError) in try list() }
  }
  private func list() throws(BluetoothError) -> BondList {
    try unwritten.withLock { unwritten throws(BluetoothError) in
      var list = try place.read()
      for change in unwritten { _ = list.change(change, capacity: capacity) }
      return list
    }
  }
  @discardableResult
  public func save(_ bond: Bond, of adapter: PeerAddress) async throws(BluetoothError) -> [PeerID] {
    try await perform("store the bond with \(bond.address)") { [self] () throws(BluetoothError) in
      try write(BondChange(adapter, bond))
    }
  }
  public func remove(_ peer: PeerID, of adapter: PeerAddress) async throws(BluetoothError) {
    _ = try await perform("remove the bond with \(peer)") { [self] () throws(BluetoothError) in
      try write(BondChange(adapter, removing: peer))
    }
  }

  private static var mostUnwritten: Int { 1_024 }
  private func write(_ change: BondChange) throws(BluetoothError) -> [PeerID] {
    try unwritten.withLock { unwritten throws(BluetoothError) in
      unwritten.removeAll { $0.adapter == change.adapter && $0.peer == change.peer }
      unwritten.append(change)
      if unwritten.count > Self.mostUnwritten { unwritten.removeFirst() }
      let changes = unwritten
      let forgotten = try place.update { list in changes.flatMap { list.change($0, capacity: capacity) } }
      unwritten = []
      return forgotten
    }
  }

  /// Runs `work`, which blocks its thread, on one that no event loop and no task needs.
  private func perform<Value: Sendable>(
    _ operation: String, _ work: @escaping @Sendable () throws(BluetoothError) -> Value
  ) async throws(BluetoothError) -> Value {
    let result: Result<Value, BluetoothError>
    do {
      result = try await NIOThreadPool.singleton.runIfActive {
        do throws(BluetoothError) { return .success(try work()) } catch { return .failure(error) }
      }
    } catch {
      // Before it began: that pool never ends.
      throw .cancelled.during(operation)
    }
    do { return try result.get() } catch { throw error.during(operation) }
  }
}

/// The file of a `BondFile`, and its neighbours. All calls block.
struct BondPlace: Sendable {
  let file: FilePath
  let patience: Duration
  private let lockFile: FilePath
  /// The next file, while it is being written: under the lock, so that one name suffices, and a process that was killed
  /// leaves at most one.
  private let draft: FilePath

  init(_ file: FilePath, patience: Duration) {
    self.file = file
    self.patience = patience
    lockFile = FilePath("\(file).lock")
    draft = FilePath("\(file).draft")
  }

  private var folder: FilePath {
    let folder = file.removingLastComponent()
    return folder.isEmpty ? "." : folder
  }
  /// More than 1,000 bonds have.
  private static var longest: Int { 4 << 20 }

  // MARK: Reading

  func read() throws(BluetoothError) -> BondList {
    try refusePlanted()
    do throws(ReadFailure) { return try contents() } catch {
      if case .refused(let error) = error { throw error }
    }
    // Under the lock, because another process may be renaming or replacing the file.
    return try withLock { () throws(BluetoothError) in try contentsOrSetAside() }
  }

  /// Keys that another user has planted would let that user's device pass for one of this user's, and keys that are
  /// written where others can replace them are soon those of others.
  private func refusePlanted() throws(BluetoothError) {
    // What is missing, or cannot be seen, is named by the call that needs it.
    guard let planted = try? file.planted(.file) else { return }
    throw BluetoothError(.storage, planted.sentence(or: "set BINDRUNE_BONDS to another path") + ".")
  }

  private enum ReadFailure: Error {
    /// The file stays.
    case refused(BluetoothError)
    /// The file is ours, but not to be read; why, as the end of a sentence.
    case unreadable(String)
  }
  private func contents() throws(ReadFailure) -> BondList {
    let text: [UInt8]
    do throws(FilePath.DistrustedFile) { text = try file.trustedContents(upTo: Self.longest) } catch {
      guard case .system(let error) = error else { throw .refused(BluetoothError(.storage, "\(error)")) }
      if error == .noSuchFileOrDirectory { return BondList() }
      throw switch error {
      // A link, and a device without a driver.
      case .tooManySymbolicLinkLevels, .noSuchAddressOrDevice: .refused(isNoFile)
      default: .refused(failure("cannot be read", error))
      }
    }
    do throws(BondTextError) { return try BondList(text: text) } catch {
      throw error == .foreign ? .refused(isNoFile) : .unreadable(error.words)
    }
  }

  /// The caller holds the lock.
  private func contentsOrSetAside() throws(BluetoothError) -> BondList {
    do throws(ReadFailure) { return try contents() } catch {
      switch error {
      case .refused(let error): throw error
      case .unreadable(let why): throw setAside(why)
      }
    }
  }
  /// Renames the file to the first free name; the error says so.
  private func setAside(_ why: String) -> BluetoothError {
    for number in 1...999 {
      let aside = FilePath("\(file).damaged-\(number)")
      do throws(Errno) {
        // The new file takes the name, so that the renaming overwrites nothing else.
        try Errno.typed {
          try FileDescriptor.opened(
            aside, .writeOnly, options: [.create, .exclusiveCreate, .noFollow],
            permissions: .ownerReadWrite
          ).close()
        }
        try file.rename(to: aside)
        try folder.synchroniseFolder()
        return BluetoothError(
          .storage,
          "\(file) \(why). It is now \(aside): put it back if you can mend it, or pair its devices again.")
      } catch .fileExists {
      } catch { return failure("\(why), and cannot be renamed to \(aside)", error) }
    }
    return BluetoothError(.storage, "\(file) \(why), and 999 files like it are there: remove \(file).damaged-*.")
  }

  // MARK: Changing

  /// Replaces the file by one with the changed bonds; leaves it if nothing has changed.
  func update<Value>(_ change: (inout BondList) -> Value) throws(BluetoothError) -> Value {
    do throws(Errno) { try folder.makeFolders() } catch { throw failure(of: folder, "cannot be made", error) }
    try refusePlanted()
    return try withLock { () throws(BluetoothError) in
      let before = try contentsOrSetAside()
      var list = before
      let value = change(&list)
      if list != before { try replace(list.text) }
      return value
    }
  }

  private func replace(_ text: [UInt8]) throws(BluetoothError) {
    guard text.count <= Self.longest else {
      throw BluetoothError(.storage, "\(file) would be longer than 4 MiB: remove bonds of devices that are gone.")
    }
    do throws(Errno) { try file.replace(with: text, by: draft) } catch {
      throw failure(of: draft, "cannot be written", error)
    }
  }

  // MARK: The lock

  /// The kernel holds the lock, and releases it when the process ends. The file stays: a process must not lock one that
  /// another has removed.
  private func withLock<Value>(_ body: () throws(BluetoothError) -> Value) throws(BluetoothError) -> Value {
    let descriptor: FileDescriptor
    do throws(Errno) {
      descriptor = try Errno.typed {
        try FileDescriptor.opened(
          lockFile, .readWrite, options: [.create, .noFollow, .nonBlocking, .noControllingTerminal],
          permissions: .ownerReadWrite)
      }
    } catch { throw failure(of: lockFile, "cannot be opened", error) }
    defer {
      // Closing is not enough: a forked child also has the descriptor until its `exec`.
      descriptor.unlock()
      try? descriptor.close()
    }
    let deadline = ContinuousClock.now + patience
    while true {
      do throws(Errno) {
        try descriptor.lock()
        break
      } catch .resourceTemporarilyUnavailable {
        guard ContinuousClock.now < deadline else {
          throw BluetoothError(
            .storage, "Another process has had the lock of \(lockFile) for \(patience): end it, or try again.")
        }
        usleep(5_000)
      } catch { throw failure(of: lockFile, "cannot be locked", error) }
    }
    return try body()
  }

  // MARK: Words

  private var isNoFile: BluetoothError {
    BluetoothError(.storage, "\(file) is not a file of bonds: move it away, or name another path.")
  }
  private func failure(_ what: String, _ error: Errno) -> BluetoothError { failure(of: file, what, error) }
  private func failure(of path: FilePath, _ what: String, _ error: Errno) -> BluetoothError {
    let cure =
      switch error {
      case .noSpace, .diskQuotaExceeded: "free some space"
      case .fileTooLarge: "it has more octets than a file of bonds, or than this process may write"
      case .permissionDenied, .notPermitted, .readOnlyFileSystem:
        "let this user read and write it, or set BINDRUNE_BONDS to another path"
      default: "mend that, or set BINDRUNE_BONDS to another path"
      }
    return BluetoothError(.storage, "\(path) \(what), \(error): \(cure).")
  }

  var warnings: [String] {
    var warnings: [String] = []
    let others: FilePermissions = [.groupReadWriteExecute, .otherReadWriteExecute]
    if let status = try? folder.stat(), !status.permissions.isDisjoint(with: others) {
      let canReplace = !status.permissions.isDisjoint(with: [.groupWrite, .otherWrite])
      warnings.append(
        "Other users may \(canReplace ? "replace files in" : "enter") the folder \(folder), which has bonds: "
          + "close it with chmod 700 \(folder).")
    }
    if let status = try? file.stat(followTargetSymlink: false), status.type == .regular,
      !status.permissions.isDisjoint(with: others)
    {
      warnings.append(
        "Other users may read the keys in \(file): close it with chmod 600 \(file), and pair its devices again.")
    }
    for path in [folder, file] {
      if let status = try? path.stat(), status.userID.rawValue != geteuid(), status.userID.rawValue != 0 {
        warnings.append("\(path) has bonds and belongs to another user: use a file of your own, with BINDRUNE_BONDS.")
      }
    }
    return warnings
  }
}
