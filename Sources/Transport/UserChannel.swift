import CBluetooth
import HCI
import NIOCore
import NIOPosix
import SystemPackage

extension UserChannelSocket {
  /// Takes adapter `hciN` for this process alone, until it is closed. The kernel's own Bluetooth stack, and bluetoothd with
  /// it, lose sight of it for that time.
  ///
  /// The adapter must be down. With `takesDown` one that is up is taken down first, which ends whatever it was doing, and
  /// is up again once `closeFuture` is ready; a process that is killed leaves it down. Waits for up to two seconds for an
  /// adapter that the kernel is still setting up; a cancelled task does not wait.
  ///
  /// Needs CAP_NET_ADMIN and the host's network namespace: `TransportError.adapter` says what is missing.
  public static func open(
    _ adapter: UInt16, takesDown: Bool = false, on loop: any EventLoop
  ) async throws(TransportError) -> UserChannelSocket {
    try await open(adapter, takesDown: takesDown, on: loop, HCIKernel())
  }

  static func open(
    _ adapter: UInt16, takesDown: Bool, on loop: any EventLoop, _ kernel: HCIKernel
  ) async throws(TransportError) -> UserChannelSocket {
    let channel = try UserChannel(adapter, kernel)
    let deadline = NIODeadline.now() + kernel.patience
    do throws(TransportError) {
      while true {
        // A driver may load a controller's firmware inside `bind`.
        switch await blocking({ channel.bind(takesDown: takesDown) }) {
        case .bound: return try await make(channel, on: loop)
        case .failed(let error): throw TransportError.adapter(kernel.error(error, adapter))
        case .inSetUp(let error):
          guard NIODeadline.now() < deadline, !Task.isCancelled else {
            throw TransportError.adapter(kernel.error(error, adapter))
          }
          try? await Task.sleep(for: .milliseconds(10))
        }
      }
    } catch {
      await blocking { try? channel.abandon() }
      throw error
    }
  }

  private static func blocking<Result: Sendable>(_ body: @escaping @Sendable () -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      NIOThreadPool.singleton.submit { _ in continuation.resume(returning: body()) }
    }
  }
}

/// The system calls that an adapter takes. A test puts others in their place.
struct HCIKernel: Sendable {
  var socket: @Sendable () throws(Errno) -> FileDescriptor = Linux.socket
  var bind: @Sendable (_ socket: FileDescriptor, _ adapter: UInt16) throws(Errno) -> Void = Linux.bind
  var power: @Sendable (_ adapter: UInt16, _ isUp: Bool) throws(Errno) -> Void = Linux.power
  var view: @Sendable () -> HCISocketView = HCISocketView.now
  /// The kernel has begun to make this adapter, or has made it.
  var isPresent: @Sendable (_ adapter: UInt16) -> Bool = { Machine().exists(FilePath("/sys/class/bluetooth/hci\($0)")) }
  /// What an error means here and now.
  var error: @Sendable (_ error: Errno, _ adapter: UInt16) -> AdapterError = { AdapterError($0, adapter: $1) }
  /// How long an adapter may be in set-up.
  var patience = TimeAmount.seconds(2)
}

private enum Linux {
  static func socket() throws(Errno) -> FileDescriptor { try .hciSocket(isNonBlocking: true) }
  static func bind(_ socket: FileDescriptor, _ adapter: UInt16) throws(Errno) {
    try socket.bind(toAdapter: adapter, channel: bindrune_HCI_CHANNEL_USER)
  }
  /// Over a socket of its own: one that has the user channel is refused.
  static func power(_ adapter: UInt16, _ isUp: Bool) throws(Errno) {
    let socket = try socket()
    defer { try? socket.close() }
    try socket.power(adapter: adapter, isUp: isUp)
  }
}

/// A socket on its way to an adapter's user channel.
final class UserChannel: @unchecked Sendable {
  // Sendable because one call follows another, whichever thread they are on.
  let adapter: UInt16
  let descriptor: FileDescriptor
  let receiveBuffer: Int
  private let kernel: HCIKernel
  /// The adapter was up, and is to be so again.
  private(set) var owesPower = false

  /// Octets that the kernel is asked to keep for us: what a controller says in a second and more, while we are held up.
  private static var wantedBuffer: CInt { 4 << 20 }

  init(_ adapter: UInt16, _ kernel: HCIKernel) throws(TransportError) {
    do throws(Errno) { descriptor = try kernel.socket() } catch { throw .adapter(kernel.error(error, adapter)) }
    self.adapter = adapter
    self.kernel = kernel
    // Before there can be a packet.
    descriptor.setReceiveBuffer(Self.wantedBuffer)
    receiveBuffer = descriptor.receiveBuffer
  }

  /// A socket that is bound already.
  init(_ adapter: UInt16, adopting descriptor: FileDescriptor) {
    self.adapter = adapter
    kernel = HCIKernel()
    self.descriptor = descriptor
    receiveBuffer = descriptor.receiveBuffer
  }

  enum Attempt: Sendable, Equatable {
    case bound
    /// Of no use to try again.
    case failed(Errno)
    case inSetUp(Errno)
  }

  /// EBUSY and ENODEV have several causes, of which one goes away by itself: the kernel makes an adapter in steps. First it
  /// cannot be found, then it is busy with the controller's start.
  func bind(takesDown: Bool) -> Attempt {
    do throws(Errno) { try kernel.bind(descriptor, adapter) } catch {
      switch error {
      case .noSuchDevice: return kernel.isPresent(adapter) ? .inSetUp(error) : .failed(error)
      case .resourceBusy:
        guard let entry = kernel.view().adapters.first(where: { $0.number == adapter }) else { return .inSetUp(error) }
        // A taken adapter says that it is up, too. In set-up none does.
        if entry.hasUserChannel == true { return .failed(error) }
        guard entry.isUp else { return .inSetUp(error) }
        return takesDown ? bindTakenDown() : .failed(error)
      default: return .failed(error)
      }
    }
    return .bound
  }

  private func bindTakenDown() -> Attempt {
    do throws(Errno) { try kernel.power(adapter, false) } catch { return .failed(error) }
    owesPower = true
    // Whoever took it up may do so again: no more than the time for a set-up is spent on that.
    do throws(Errno) { try kernel.bind(descriptor, adapter) } catch { return .inSetUp(error) }
    return .bound
  }

  /// Closes a socket that has become no transport.
  func abandon() throws {
    try? descriptor.close()
    try restorePower()
  }

  /// Brings an adapter up that was taken down: once the socket is closed.
  func restorePower() throws {
    guard owesPower else { return }
    owesPower = false
    do throws(Errno) { try kernel.power(adapter, true) } catch {
      switch error {
      // Up already, by another's hand; or unplugged.
      case .alreadyInProcess, .noSuchDevice: return
      default: throw TransportError.adapter(kernel.error(error, adapter))
      }
    }
  }
}
