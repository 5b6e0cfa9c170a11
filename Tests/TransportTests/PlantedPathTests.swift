import BindruneSystem
import Foundation
import Glibc
import SystemPackage
import TestSupport
import Testing

@testable import BindruneTransport

/// What another user could have written, or put there, is neither believed nor run.
@Suite struct PlantedPathTests {
  private let stranger: uid_t = 65_534

  /// A folder of this user, in which `body` works.
  private func withFolder(_ body: (String) throws -> Void) throws {
    let root = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path
    try FileManager.default.createDirectory(atPath: root + "/a/b", withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: root) }
    for path in [root, root + "/a", root + "/a/b"] { set(0o755, path) }
    try body(root)
  }
  private func set(_ mode: mode_t, _ path: String) { #expect(unsafe chmod(path, mode) == 0) }
  private func write(_ path: String, _ text: String = "adapter = sim") throws {
    try Data(text.utf8).write(to: URL(filePath: path))
    set(0o644, path)
  }
  private func planted(_ path: String, _ use: FilePath.Use = .file) throws -> PlantedPath.Fault? {
    try FilePath(path).planted(use)?.fault
  }

  @Test func modes() throws {
    try withFolder { root in
      let folder = root + "/a/b", file = folder + "/file"
      #expect(try planted(file) == nil && planted(root + "/none/file") == nil)
      try write(file)
      for (mode, isSafe) in [(0o600, true), (0o644, true), (0o602, false), (0o646, false), (0o666, false)]
        as [(mode_t, Bool)]
      {
        set(mode, file)
        #expect(try (planted(file) == nil) == isSafe, "\(String(mode, radix: 8))")
        // A socket's mode says who may connect.
        #expect(try planted(file, .socket) == nil)
      }
      set(0o644, file)
      for (mode, isSafe, isSafeAbove) in [
        (0o700, true, true), (0o755, true, true), (0o757, false, false), (0o777, false, false), (0o1777, false, true),
      ] as [(mode_t, Bool, Bool)] {
        set(mode, folder)
        #expect(try (planted(folder, .folder) == nil) == isSafe, "\(String(mode, radix: 8))")
        // Where nothing is, somebody else could put something.
        for path in [file, folder + "/none"] {
          for use in [FilePath.Use.file, .socket] {
            #expect(try (planted(path, use) == nil) == isSafeAbove, "\(String(mode, radix: 8))")
          }
        }
        set(0o755, folder)
        set(mode, root + "/a")
        #expect(try (planted(folder, .folder) == nil) == isSafeAbove, "\(String(mode, radix: 8))")
        set(0o755, root + "/a")
      }
      #expect(try planted(file, .folder) == .isNoFolder)
    }
  }
  /// Only a private group of the user counts as the user. Others may be in root's.
  @Test func groups() throws {
    try withFolder { root in
      let file = root + "/a/file", isPrivate = geteuid() != 0 && getegid() == geteuid()
      try write(file)
      set(0o664, file)
      #expect(try (planted(file) == nil) == isPrivate)
      set(0o644, file)
      set(0o775, root + "/a")
      #expect(try (planted(file) == nil) == isPrivate)
      #expect(try (planted(root + "/a", .folder) == nil) == isPrivate)
    }
  }
  @Test("Each link on the way is examined, and the folders to which it leads")
  func links() throws {
    try withFolder { root in
      let file = root + "/a/b/file", manager = FileManager.default
      try write(file)
      try manager.createSymbolicLink(atPath: root + "/far", withDestinationPath: "a/b")
      try manager.createDirectory(atPath: root + "/open", withIntermediateDirectories: false)
      try manager.createSymbolicLink(atPath: root + "/open/link", withDestinationPath: "../far/file")
      try manager.createSymbolicLink(atPath: root + "/first", withDestinationPath: root + "/open/link")
      for path in ["/far/file", "/open/link", "/first", "/a/../a/./b/file"] { #expect(try planted(root + path) == nil) }
      set(0o777, root + "/a/b")
      for path in ["/far/file", "/open/link", "/first"] {
        let found = try FilePath(root + path).planted(.file)
        #expect(found?.fault == .writable && found?.path.string.hasSuffix("/a/b") == true)
      }
      set(0o755, root + "/a/b")
      // Neither the beginning nor the end of the way, but a folder that a link names in between.
      set(0o777, root + "/open")
      #expect(try planted(root + "/first") == .writable)
      set(0o755, root + "/open")
      try manager.createSymbolicLink(atPath: root + "/loop", withDestinationPath: "loop")
      #expect(throws: Errno.tooManySymbolicLinkLevels) { try FilePath(root + "/loop").planted(.file) }
      #expect(throws: Errno.notDirectory) { try FilePath(file + "/x").planted(.file) }
      guard geteuid() == 0 else { return }
      #expect(unsafe lchown(root + "/open/link", stranger, stranger) == 0)
      #expect(try planted(root + "/first") == .owner(stranger))
    }
  }
  @Test("What belongs to another user is refused; root's is not", .enabled(if: geteuid() == 0))
  func owners() throws {
    try withFolder { root in
      let file = root + "/a/b/file"
      try write(file)
      for path in [file, root + "/a/b", root + "/a"] {
        #expect(unsafe chown(path, stranger, 0) == 0)
        let found = try FilePath(file).planted(.file)
        #expect(found?.fault == .owner(stranger) && found?.path.string.hasSuffix(path) == true)
        #expect(
          found?.description
            == "\(file) is not safe, as \(path) belongs to user 65534: make it yours with chown, or use another place.")
        #expect(throws: FilePath.DistrustedFile.self) { try FilePath(file).trustedContents(upTo: 100) }
        #expect(unsafe chown(path, 0, 0) == 0)
      }
      #expect(try FilePath(file).trustedContents(upTo: 100) == Array("adapter = sim".utf8))
    }
    #expect(try planted("/etc/passwd") == nil && planted("/etc", .folder) == nil)
  }

  // MARK: Those that follow the rule

  @Test func aConfigurationIsBelieved() throws {
    try withFolder { root in
      let path = root + "/bindrune/config"
      try FileManager.default.createDirectory(atPath: root + "/bindrune", withIntermediateDirectories: false)
      try write(path)
      func sentence() -> String? {
        do throws(TransportError) {
          _ = try AdapterChoice(environment: { ["XDG_CONFIG_HOME": root][$0] })
          return nil
        } catch { return error.description }
      }
      #expect(sentence() == nil)
      set(0o646, path)
      #expect(
        sentence()
          == "\(path) is not safe, as other users may write to \(path): close it with chmod go-w \(path), or remove it."
      )
      set(0o644, path)
      set(0o777, root)
      #expect(sentence()?.contains("as other users may write to \(root): ") == true)
    }
  }
  @Test func theFolderOfARadio() throws {
    try withFolder { root in
      set(0o700, root + "/a")
      var radio = SharedRadio("desk")
      radio.runtimeFolder = FilePath(root + "/a")
      _ = try radio.path(creates: true)
      set(0o777, root)
      let error = #expect(throws: TransportError.self) { try radio.path(creates: false) }
      #expect(error?.description.contains("other users may write to \(root)") == true)
    }
  }
}
