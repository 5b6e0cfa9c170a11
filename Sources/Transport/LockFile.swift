import SystemPackage

/// The file that says which process listens at a socket's path. A socket file alone cannot: of two processes that both find
/// one abandoned, the slower would remove the new socket of the quicker.
///
/// The lock is the kernel's and goes with its owner, whichever way that ends. The file stays, so that nobody locks one that
/// another process has just removed.
struct LockFile {
  /// Beside the socket.
  let path: FilePath
  let descriptor: FileDescriptor

  /// Takes the lock that belongs to the socket at `path`. `.addressInUse` while another owner has it.
  init(ofSocket socket: FilePath, for spec: TransportSpec) throws(TransportError) {
    let path = FilePath(text: "\(socket).lock")
    self.path = path
    do throws(Errno) {
      descriptor = try Errno.typed {
        // Neither a link nor a fifo is followed or waited for.
        try FileDescriptor.open(
          path, .readWrite, options: [.create, .noFollow, .nonBlocking, .closeOnExec],
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

  /// Gives the lock back. Once.
  func release() {
    // To close it is not enough: a child that has been forked has the descriptor too, until its `exec`.
    descriptor.unlock()
    try? descriptor.close()
  }
}
