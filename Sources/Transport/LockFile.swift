import Glibc

/// The file that says which process listens at a socket's path. A socket file alone cannot: of two processes that both find
/// one abandoned, the slower would remove the new socket of the quicker.
///
/// The lock is the kernel's and goes with its owner, whichever way that ends. The file stays, so that nobody locks one that
/// another process has just removed.
struct LockFile {
  /// Beside the socket.
  let path: String
  let descriptor: CInt

  /// Takes the lock that belongs to the socket at `path`. `.addressInUse` while another owner has it.
  init(ofSocket socket: String, for spec: TransportSpec) throws(TransportError) {
    path = socket + ".lock"
    // Neither a link nor a fifo is followed or waited for.
    descriptor = unsafe open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600)
    if descriptor < 0 {
      throw switch errno {
      case ELOOP, EISDIR, ENXIO: isNoFile(spec)
      case ENOENT: TransportError(errno: ENOENT, at: spec)  // no such folder
      case let code: .unsuitable(spec, "the lock file \(path) cannot be opened: \(systemWords(code))")
      }
    }
    do throws(TransportError) { try lock(spec) } catch {
      close(descriptor)
      throw error
    }
  }

  private func lock(_ spec: TransportSpec) throws(TransportError) {
    var status = stat()
    guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { throw isNoFile(spec) }
    while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
      switch errno {
      case EINTR: continue
      case EWOULDBLOCK: throw .addressInUse(spec)
      case let code: throw TransportError(errno: code, at: spec)
      }
    }
  }
  private func isNoFile(_ spec: TransportSpec) -> TransportError {
    .unsuitable(spec, "\(path) is not a regular file, remove it or choose another address")
  }

  /// Gives the lock back. Once.
  func release() {
    // To close it is not enough: a child that has been forked has the descriptor too, until its `exec`.
    flock(descriptor, LOCK_UN)
    close(descriptor)
  }
}
