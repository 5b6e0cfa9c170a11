import CBluetooth
import Glibc
import HCI
import NIOCore
import NIOPosix

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
        case .failed(let code): throw TransportError.adapter(kernel.error(code, adapter))
        case .inSetUp(let code):
          guard NIODeadline.now() < deadline, !Task.isCancelled else {
            throw TransportError.adapter(kernel.error(code, adapter))
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
  /// A descriptor, or an error number below zero.
  var socket: @Sendable () -> CInt = Linux.socket
  /// Zero or an error number, as below.
  var bind: @Sendable (_ socket: CInt, _ adapter: UInt16) -> CInt = Linux.bind
  var power: @Sendable (_ adapter: UInt16, _ isUp: Bool) -> CInt = Linux.power
  var view: @Sendable () -> HCISocketView = HCISocketView.now
  /// The kernel has begun to make this adapter, or has made it.
  var isPresent: @Sendable (_ adapter: UInt16) -> Bool = { unsafe access("/sys/class/bluetooth/hci\($0)", F_OK) == 0 }
  /// What an error number means here and now.
  var error: @Sendable (_ code: CInt, _ adapter: UInt16) -> AdapterError = { AdapterError(errno: $0, adapter: $1) }
  /// How long an adapter may be in set-up.
  var patience = TimeAmount.seconds(2)
}

private enum Linux {
  static func socket() -> CInt {
    let type = SOCK_RAW.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue
    let descriptor = Glibc.socket(CInt(bindrune_AF_BLUETOOTH), CInt(type), CInt(bindrune_BTPROTO_HCI))
    return descriptor < 0 ? -errno : descriptor
  }
  static func bind(_ socket: CInt, _ adapter: UInt16) -> CInt {
    bindrune_hci_bind(socket, adapter, UInt16(bindrune_HCI_CHANNEL_USER)) == 0 ? 0 : errno
  }
  /// Over a socket of its own: one that has the user channel is refused.
  static func power(_ adapter: UInt16, _ isUp: Bool) -> CInt {
    let socket = socket()
    guard socket >= 0 else { return -socket }
    defer { _ = Glibc.close(socket) }
    let result = isUp ? bindrune_hci_up(socket, CInt(adapter)) : bindrune_hci_down(socket, CInt(adapter))
    return result == 0 ? 0 : errno
  }
}

/// A socket on its way to an adapter's user channel.
final class UserChannel: @unchecked Sendable {
  // Sendable because one call follows another, whichever thread they are on.
  let adapter: UInt16
  let descriptor: CInt
  let receiveBuffer: Int
  private let kernel: HCIKernel
  /// The adapter was up, and is to be so again.
  private(set) var owesPower = false

  /// Octets that the kernel is asked to keep for us: what a controller says in a second and more, while we are held up.
  private static var wantedBuffer: CInt { 4 << 20 }

  init(_ adapter: UInt16, _ kernel: HCIKernel) throws(TransportError) {
    let descriptor = kernel.socket()
    guard descriptor >= 0 else { throw .adapter(kernel.error(-descriptor, adapter)) }
    self.adapter = adapter
    self.kernel = kernel
    self.descriptor = descriptor
    // Before there can be a packet. The first is not held to the system's limit, and needs the right that `bind` needs.
    if !Self.set(SO_RCVBUFFORCE, Self.wantedBuffer, descriptor) {
      _ = Self.set(SO_RCVBUF, Self.wantedBuffer, descriptor)
    }
    receiveBuffer = Self.receiveBuffer(descriptor)
  }

  /// A socket that is bound already.
  init(_ adapter: UInt16, adopting descriptor: CInt) {
    self.adapter = adapter
    kernel = HCIKernel()
    self.descriptor = descriptor
    receiveBuffer = Self.receiveBuffer(descriptor)
  }

  enum Attempt: Sendable, Equatable {
    case bound
    /// Of no use to try again.
    case failed(CInt)
    case inSetUp(CInt)
  }

  /// EBUSY and ENODEV have several causes, of which one goes away by itself: the kernel makes an adapter in steps. First it
  /// cannot be found, then it is busy with the controller's start.
  func bind(takesDown: Bool) -> Attempt {
    let code = kernel.bind(descriptor, adapter)
    switch code {
    case 0: return .bound
    case ENODEV: return kernel.isPresent(adapter) ? .inSetUp(code) : .failed(code)
    case EBUSY:
      guard let entry = kernel.view().adapters.first(where: { $0.number == adapter }) else { return .inSetUp(code) }
      // A taken adapter says that it is up, too. In set-up none does.
      if entry.hasUserChannel == true { return .failed(code) }
      guard entry.isUp else { return .inSetUp(code) }
      guard takesDown else { return .failed(code) }
      let refusal = kernel.power(adapter, false)
      guard refusal == 0 else { return .failed(refusal) }
      owesPower = true
      // Whoever took it up may do so again: no more than the time for a set-up is spent on that.
      let again = kernel.bind(descriptor, adapter)
      return again == 0 ? .bound : .inSetUp(again)
    default: return .failed(code)
    }
  }

  /// Closes a socket that has become no transport.
  func abandon() throws {
    _ = Glibc.close(descriptor)
    try restorePower()
  }

  /// Brings an adapter up that was taken down: once the socket is closed.
  func restorePower() throws {
    guard owesPower else { return }
    owesPower = false
    let code = kernel.power(adapter, true)
    switch code {
    // Up already, by another's hand; or unplugged.
    case 0, EALREADY, ENODEV: return
    default: throw TransportError.adapter(kernel.error(code, adapter))
    }
  }

  private static func set(_ option: CInt, _ value: CInt, _ descriptor: CInt) -> Bool {
    var value = value
    return unsafe setsockopt(descriptor, SOL_SOCKET, option, &value, socklen_t(MemoryLayout<CInt>.size)) == 0
  }
  /// The kernel counts its own bookkeeping, and so doubles what it is asked for. socket(7).
  private static func receiveBuffer(_ descriptor: CInt) -> Int {
    var value: CInt = 0, size = socklen_t(MemoryLayout<CInt>.size)
    return unsafe getsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &value, &size) == 0 ? Int(value) : 0
  }
}
