import SystemPackage

/// Marks the process that listens at a socket's path. A socket file alone cannot: of two processes that both find an
/// abandoned one, the slower would remove the new socket of the faster.
///
/// The kernel holds the lock and releases it when its owner ends in any way. The file stays, so that no process locks
/// one that another has just removed.
package struct LockFile: Sendable {
  /// Why the lock cannot be taken.
  package enum Failure: Error, Equatable, Sendable {
    /// Another owner has it.
    case taken
    /// The name of the lock's file is that of something else.
    case isNoFile(FilePath)
    case isNotOpened(FilePath, Errno)
    /// There is no such folder, or the system refuses the lock.
    case system(Errno)
  }

  /// Next to the socket.
  package let path: FilePath
  package let descriptor: FileDescriptor

  /// Takes the lock for the socket at `path`. Throws `.taken` while another owner has it.
  package init(ofSocket socket: FilePath) throws(Failure) {
    let path = FilePath(text: "\(socket).lock")
    self.path = path
    do throws(Errno) {
      descriptor = try Errno.typed {
        // Follows no link, and does not wait for a fifo.
        try FileDescriptor.opened(
          path, .readWrite, options: [.create, .noFollow, .nonBlocking],
          permissions: .ownerReadWrite)
      }
    } catch {
      throw switch error {
      case .tooManySymbolicLinkLevels, .isDirectory, .noSuchAddressOrDevice: .isNoFile(path)
      case .noSuchFileOrDirectory: .system(error)  // no such folder
      default: .isNotOpened(path, error)
      }
    }
    do throws(Failure) { try lock() } catch {
      try? descriptor.close()
      throw error
    }
  }

  private func lock() throws(Failure) {
    guard (try? descriptor.stat())?.type == .regular else { throw .isNoFile(path) }
    do throws(Errno) { try descriptor.lock() } catch {
      throw error == .resourceTemporarilyUnavailable ? .taken : .system(error)
    }
  }

  /// Releases the lock. Call it once.
  package func release() {
    // Closing is not enough: a forked child also has the descriptor until its `exec`.
    descriptor.unlock()
    try? descriptor.close()
  }
}
