import SystemPackage

/// Marks the process that listens at a socket's path. A socket file alone cannot: of two processes that both find an
/// abandoned one, the slower would remove the new socket of the faster.
///
/// The kernel holds the lock and releases it when its owner ends in any way. The file stays, so that no process locks
/// one that another has just removed.
package struct LockFile: Sendable {
  /// Next to the socket.
  package let path: FilePath
  let descriptor: FileDescriptor

  /// Takes the lock for the socket at `path`. Throws `.addressInUse` while another owner has it.
  package init(ofSocket socket: FilePath, for spec: TransportSpec) throws(TransportError) {
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
      case .tooManySymbolicLinkLevels, .isDirectory, .noSuchAddressOrDevice: Self.isNoFile(path, spec)
      case .noSuchFileOrDirectory: TransportError(error, at: spec)  // no such folder
      default: .unsuitable(spec, "the lock file \(path) cannot be opened: \(error)")
      }
    }
    do throws(TransportError) { try lock(spec) } catch {
      try? descriptor.close()
      throw error
    }
  }

  private func lock(_ spec: TransportSpec) throws(TransportError) {
    guard (try? descriptor.stat())?.type == .regular else { throw Self.isNoFile(path, spec) }
    do throws(Errno) { try descriptor.lock() } catch {
      throw error == .resourceTemporarilyUnavailable ? .addressInUse(spec) : TransportError(error, at: spec)
    }
  }
  private static func isNoFile(_ path: FilePath, _ spec: TransportSpec) -> TransportError {
    .unsuitable(spec, "\(path) is not a regular file, remove it or choose another address")
  }

  /// Releases the lock. Call it once.
  package func release() {
    // Closing is not enough: a forked child also has the descriptor until its `exec`.
    descriptor.unlock()
    try? descriptor.close()
  }
}
