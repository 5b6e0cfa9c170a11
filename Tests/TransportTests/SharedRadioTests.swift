import BindruneSystem
import Foundation
import NIOPosix
import SystemPackage
import TestSupport
import Testing

@testable import BindruneTransport

/// The folders of `sim:NAME`, and those that are not trusted. XDG Base Directory Specification 0.8, "Environment
/// variables".
@Suite(.realTime, .hang) struct SharedRadioTests {
  /// A radio named desk, with two folders of the test in place of the machine's.
  private func withFolders(_ body: (_ radio: inout SharedRadio, _ root: String) throws -> Void) throws {
    let root = "/tmp/bindrune-test-\(UInt64.random(in: 0 ... .max))"
    for folder in [root, root + "/run", root + "/tmp"] {
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
    }
    defer { try? FileManager.default.removeItem(atPath: root) }
    var radio = SharedRadio("desk")
    (radio.runtimeFolder, radio.temporaryFolder) = (FilePath(root + "/run"), FilePath(root + "/tmp"))
    try body(&radio, root)
  }
  private func expectMode(_ mode: Int, _ path: String, _ location: SourceLocation = #_sourceLocation) throws {
    let found = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
    #expect(found == mode, sourceLocation: location)
  }
  private func set(_ mode: Int, _ path: String) throws {
    try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
  }

  @Test func itIsInTheUsersRuntimeFolder() throws {
    try withFolders { radio, root in
      var path = try radio.path(creates: true).string
      #expect(path == root + "/run/bindrune/desk.sock")
      try expectMode(0o700, root + "/run/bindrune")
      path = try radio.path(creates: false).string
      #expect(path == root + "/run/bindrune/desk.sock")
      // The search leaves nothing behind.
      let found = try FileManager.default.subpathsOfDirectory(atPath: root).sorted()
      #expect(found == ["run", "run/bindrune", "tmp"])
    }
  }

  @Test(arguments: [nil, "", "run", "/no/such/folder", "/dev/null"] as [String?])
  func withoutOneItIsInAFolderOfTheUsersOwn(runtimeFolder: String?) throws {
    try withFolders { radio, root in
      radio.runtimeFolder = runtimeFolder.map { FilePath($0) }
      let path = try radio.path(creates: true).string
      #expect(path == root + "/tmp/bindrune-\(geteuid())/desk.sock")
      try expectMode(0o700, root + "/tmp/bindrune-\(geteuid())")
    }
  }

  /// As under sudo, which may keep the environment.
  @Test func anotherUsersRuntimeFolderIsNotUsed() throws {
    try withFolders { radio, root in
      radio.user = UserID(geteuid() + 1)
      // The replacement folder belongs to this user, not to the other one: it is not trusted either.
      let error = #expect(throws: TransportError.self) { try radio.path(creates: true) }
      #expect(error?.description.contains("\(root)/tmp/bindrune-\(geteuid() + 1) belongs to another user") == true)
      #expect(!FileManager.default.fileExists(atPath: root + "/run/bindrune"))
    }
  }

  @Test(arguments: [true, false]) func aFolderThatOthersMayEnterIsNotTrusted(creates: Bool) throws {
    try withFolders { radio, root in
      let folder = root + "/run/bindrune"
      _ = try radio.path(creates: true)
      for mode in [0o701, 0o720, 0o777] {
        try set(mode, folder)
        let error = #expect(throws: TransportError.self) { try radio.path(creates: creates) }
        #expect(error?.description.contains("close it with chmod 700 \(folder)") == true)
      }
      try set(0o700, folder)
      _ = try radio.path(creates: creates)
    }
  }

  @Test(arguments: [true, false]) func otherFilesAreNotTrusted(creates: Bool) throws {
    try withFolders { radio, root in
      let folder = root + "/run/bindrune"
      // A link to a valid folder.
      try FileManager.default.createDirectory(atPath: root + "/own", withIntermediateDirectories: false)
      try set(0o700, root + "/own")
      try FileManager.default.createSymbolicLink(atPath: folder, withDestinationPath: root + "/own")
      for _ in 0..<2 {
        let error = #expect(throws: TransportError.self) { try radio.path(creates: creates) }
        #expect(error?.description.contains("\(folder) is not a folder, remove it") == true)
        try FileManager.default.removeItem(atPath: folder)
        #expect(FileManager.default.createFile(atPath: folder, contents: nil))
      }
    }
  }

  @Test func aFolderThatCannotBeMadeSaysWhy() throws {
    try withFolders { radio, root in
      (radio.runtimeFolder, radio.temporaryFolder) = (nil, FilePath(root + "/gone"))
      let error = #expect(throws: TransportError.self) { try radio.path(creates: true) }
      #expect(error?.description.contains("cannot be created: No such file or directory") == true)
    }
  }

  @Test func noRadioIsRunning() throws {
    try withFolders { radio, root in
      let path = root + "/run/bindrune/desk.sock"
      #expect(throws: TransportError.noRadio(name: "desk", path: path)) { try radio.path(creates: false) }
      #expect(!FileManager.default.fileExists(atPath: root + "/run/bindrune"))
      let error = TransportError.noRadio(name: "desk", path: path)
      #expect(error.description.contains(#"start it with "bindrune controllers --name desk"."#))
    }
  }

  @Test func aPathThatIsTooLongIsNotCut() throws {
    try withFolders { radio, root in
      let room = 107 - "\(root)/run/bindrune/.sock".utf8.count
      for count in [room, room + 1] {
        var long = SharedRadio(String(repeating: "n", count: count))
        (long.runtimeFolder, long.temporaryFolder) = (radio.runtimeFolder, radio.temporaryFolder)
        if count == room {
          let path = try long.path(creates: true).string
          #expect(path.utf8.count == 107)
        } else {
          let error = #expect(throws: TransportError.self) { try long.path(creates: true) }
          #expect(error?.description.contains("108 octets where the system takes 107: use a shorter name") == true)
        }
      }
    }
  }

  /// The value may not come from the parser.
  @Test(arguments: ["", ".", "..", "../../home/x", "a/b", "a\0b"]) func noNameLeavesTheFolder(name: String) async throws
  {
    try await withLoop { loop in
      let spec = TransportSpec.radio(name: name)
      await #expect(throws: TransportError.self) { try await H4Stream.connect(to: spec, on: loop) }
      await #expect(throws: TransportError.self) { try await H4Server.listen(on: spec, loop: loop) { _ in } }
    }
  }

  /// One owner at a time, whatever earlier ones have left.
  @Test func theNameIsTakenOnce() throws {
    try withFolders { radio, root in
      let socket = try radio.path(creates: true).string, spec = TransportSpec.radio(name: "desk")
      for _ in 0..<3 {
        let owner = try LockFile(ofSocket: FilePath(socket), for: spec)
        #expect(owner.path.string == root + "/run/bindrune/desk.sock.lock")
        try expectMode(0o600, owner.path.string)
        #expect(throws: TransportError.addressInUse(spec)) { _ = try LockFile(ofSocket: FilePath(socket), for: spec) }
        owner.release()
        // The file stays, so that no process locks a removed one.
        #expect(FileManager.default.fileExists(atPath: owner.path.string))
      }
    }
  }

  /// The lock is free when its owner releases it, not when the last copy of its descriptor is closed.
  @Test func aChildThatHasTheDescriptorDoesNotKeepTheName() throws {
    try withFolders { radio, _ in
      let socket = try radio.path(creates: true).string, spec = TransportSpec.radio(name: "desk")
      let owner = try LockFile(ofSocket: FilePath(socket), for: spec), copy = try owner.descriptor.duplicate()
      owner.release()
      try LockFile(ofSocket: FilePath(socket), for: spec).release()
      try copy.close()
    }
  }

  enum Foreign: CaseIterable { case link, folder, fifo }
  @Test(arguments: Foreign.allCases) func aLockThatIsNoFileIsNotOpened(foreign: Foreign) throws {
    try withFolders { radio, root in
      let socket = try radio.path(creates: true).string, lock = socket + ".lock"
      switch foreign {
      case .link:
        try FileManager.default.createSymbolicLink(atPath: lock, withDestinationPath: root + "/victim")
      case .folder: try FileManager.default.createDirectory(atPath: lock, withIntermediateDirectories: false)
      case .fifo: #expect(unsafe mkfifo(lock, 0o600) == 0)
      }
      let error = #expect(throws: TransportError.self) {
        _ = try LockFile(ofSocket: FilePath(socket), for: .radio(name: "desk"))
      }
      #expect(
        error?.description.contains("\(lock) is not a regular file, remove it") == true, "\(String(describing: error))")
      #expect(!FileManager.default.fileExists(atPath: root + "/victim"))
    }
  }

  enum Place: CaseIterable { case file, folder, link, deadLink, fifo }
  /// A file that is not a socket stays.
  @Test(arguments: Place.allCases, [true, false]) func aFileInTheSocketsPlace(place: Place, isNamed: Bool) async throws
  {
    let name = "test-\(UInt64.random(in: 0 ... .max))", path = try SharedRadio(name).path(creates: true).string
    defer {
      for end in [".sock", ".sock.lock", ".aim"] { try? FileManager.default.removeItem(atPath: path.dropLast(5) + end) }
    }
    let spec = isNamed ? TransportSpec.radio(name: name) : .unix(path: path)
    switch place {
    case .file: #expect(FileManager.default.createFile(atPath: path, contents: Data("mine".utf8)))
    case .folder: try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
    case .link, .deadLink:
      let aim = path.dropLast(5) + ".aim"
      if place == .link { #expect(FileManager.default.createFile(atPath: String(aim), contents: Data("mine".utf8))) }
      try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: String(aim))
    case .fifo: #expect(unsafe mkfifo(path, 0o600) == 0)
    }
    let before = try FileManager.default.attributesOfItem(atPath: path)
    try await withLoop { loop in
      let error = await #expect(throws: TransportError.self) {
        try await H4Server.listen(on: spec, loop: loop) { _ in }
      }
      #expect(error?.description.contains("\(path) is not a socket, remove it") == true, "\(String(describing: error))")
      let after = try FileManager.default.attributesOfItem(atPath: path)
      #expect(after[.systemFileNumber] as? Int == before[.systemFileNumber] as? Int)
      #expect(after[.type] as? FileAttributeType == before[.type] as? FileAttributeType)
      // The name is free again.
      try FileManager.default.removeItem(atPath: path)
      let server = try await H4Server.listen(on: spec, loop: loop) { _ in }
      await server.close()
    }
  }

  /// A socket file without a listener from the start, so that no forked child can keep it alive.
  private func leaveSocket(_ path: String) {
    let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: path.utf8) }
    let size = socklen_t(MemoryLayout<sockaddr_un>.size)
    let status = unsafe withUnsafePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe bind(descriptor, $0, size) }
    }
    #expect(descriptor >= 0 && status == 0)
    close(descriptor)
  }
  /// Of several processes that find the same abandoned socket one replaces it, and none removes the new one.
  @Test(arguments: [true, false]) func anAbandonedSocketIsReplacedOnce(isNamed: Bool) async throws {
    let name = "test-\(UInt64.random(in: 0 ... .max))", path = try SharedRadio(name).path(creates: true).string
    defer { for end in ["", ".lock"] { try? FileManager.default.removeItem(atPath: path + end) } }
    let spec = isNamed ? TransportSpec.radio(name: name) : .unix(path: path)
    for _ in 0..<20 {
      try await withLoop { loop in
        leaveSocket(path)
        let servers = try await withThrowingTaskGroup(of: H4Server?.self) { group in
          for _ in 0..<8 {
            let loop = MultiThreadedEventLoopGroup.singleton.next()
            group.addTask {
              do throws(TransportError) {
                return try await H4Server.listen(on: spec, loop: loop) { _ in }
              } catch {
                #expect(error == .addressInUse(spec))
                return nil
              }
            }
          }
          return try await group.reduce(into: [H4Server]()) { if let server = $1 { $0.append(server) } }
        }
        #expect(servers.count == 1)
        let stream = try await H4Stream.connect(to: spec, on: loop)
        try await loop.run { stream.close() }
        for server in servers { await server.close() }
        #expect(!FileManager.default.fileExists(atPath: path))
      }
    }
  }

  @Test func itRunsOnceAndGoesWithItsProcess() async throws {
    let name = "test-\(UInt64.random(in: 0 ... .max))", spec = TransportSpec.radio(name: name)
    let path = try SharedRadio(name).path(creates: true).string
    try await withLoop { loop in
      await #expect(throws: TransportError.noRadio(name: name, path: path)) {
        try await H4Stream.connect(to: spec, on: loop)
      }
      // The socket file of a killed process has no listener, and is replaced.
      let dead = try await H4Server.listen(on: .unix(path: path + "x"), loop: loop) { _ in }
      try FileManager.default.moveItem(atPath: path + "x", toPath: path)
      await dead.close()
      await #expect(throws: TransportError.noRadio(name: name, path: path)) {
        try await H4Stream.connect(to: spec, on: loop)
      }
      let server = try await H4Server.listen(on: spec, loop: loop) { stream in
        let recorder = Recorder(loop)
        recorder.onPacket = { _, packet in
          stream.send(packet)
          stream.flush()
        }
        stream.start(recorder)
      }
      #expect(server.address == spec)
      await #expect(throws: TransportError.addressInUse(spec)) {
        try await H4Server.listen(on: spec, loop: loop) { _ in }
      }
      let stream = try await H4Stream.connect(to: spec, on: loop)
      let recorder = Recorder(loop)
      try await loop.run {
        stream.start(recorder)
        stream.send(acl(1))
        stream.flush()
      }
      try await recorder.wait { $0.packets == [acl(1)] }
      try await loop.run { stream.close() }
      await server.close()
      #expect(!FileManager.default.fileExists(atPath: path))
    }
  }
}
