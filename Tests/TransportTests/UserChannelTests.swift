import BindruneAdapters
import BindruneSystem
import Glibc
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import BindruneTransport

/// A scripted kernel: its answers to `bind`, in order, and a list of the calls.
private final class ScriptedKernel: Sendable {
  enum Call: Equatable { case bind, down, up(isClosed: Bool) }
  struct State {
    var answers: [Errno?]
    var view: HCISocketView.Entry?
    var isPresent = true
    var powerAnswers: [Errno?] = []
    var calls: [Call] = []
  }
  let pair = PacketPair()
  let state: Mutex<State>
  init(
    bind answers: [Errno?], up: Bool = false, taken: Bool = false, isListed: Bool = true, isPresent: Bool = true,
    power: [Errno?] = []
  ) {
    let entry = HCISocketView.Entry(number: 3, address: nil, bus: 0, flags: up ? 1 : 0, hasUserChannel: taken)
    state = Mutex(State(answers: answers, view: isListed ? entry : nil, isPresent: isPresent, powerAnswers: power))
  }
  var calls: [Call] { state.withLock { $0.calls } }

  var kernel: HCIKernel {
    var kernel = HCIKernel()
    kernel.socket = { FileDescriptor(rawValue: self.pair.host) }
    kernel.bind = { socket, adapter throws(Errno) in
      #expect(socket.rawValue == self.pair.host && adapter == 3)
      let answer = self.state.withLock { state in
        state.calls.append(.bind)
        // The last answer repeats.
        return state.answers.count > 1 ? state.answers.removeFirst() : state.answers[0]
      }
      if let answer { throw answer }
    }
    kernel.power = { adapter, isUp throws(Errno) in
      let isClosed = self.pair.hostDescriptors().isEmpty
      let answer = self.state.withLock { state in
        state.calls.append(isUp ? .up(isClosed: isClosed) : .down)
        let answer = state.powerAnswers.isEmpty ? nil : state.powerAnswers.removeFirst()
        if answer == nil { state.view?.flags = isUp ? 1 : 0 }
        return answer
      }
      if let answer { throw answer }
    }
    kernel.view = { HCISocketView(adapters: self.state.withLock { $0.view.map { [$0] } ?? [] }) }
    kernel.isPresent = { _ in self.state.withLock { $0.isPresent } }
    kernel.error = { code, adapter in .system(adapter, code) }
    kernel.patience = .minutes(1)
    return kernel
  }

  func open(takesDown: Bool = false, _ kernel: HCIKernel? = nil) async throws(TransportError) -> UserChannelSocket {
    let loop = MultiThreadedEventLoopGroup.singleton.next()
    return try await UserChannelSocket.open(3, takesDown: takesDown, on: loop, kernel ?? self.kernel)
  }
  func error(takesDown: Bool = false, _ kernel: HCIKernel? = nil) async -> TransportError? {
    do throws(TransportError) { _ = try await open(takesDown: takesDown, kernel) } catch { return error }
    return nil
  }
}

extension UserChannelSocket {
  fileprivate func end() async throws {
    try await eventLoop.run { self.close() }
    try await closeFuture.get()
  }
}

@Suite(.realTime, .hang) struct UserChannelTests {
  /// Observed on 6.1 and 6.12: a new adapter gives ENODEV, then EBUSY, then success.
  @Test func anAdapterInSetUpIsWaitedFor() async throws {
    let script = ScriptedKernel(bind: [.noSuchDevice, .noSuchDevice, .resourceBusy, .resourceBusy, nil])
    let socket = try await script.open()
    #expect(script.calls == Array(repeating: .bind, count: 5))
    #expect(socket.receiveBuffer > 0)
    try await socket.end()
    #expect(script.calls.count == 5 && script.pair.hostDescriptors().isEmpty)
  }

  @Test func andNoLongerThanItsTime() async throws {
    for script in [ScriptedKernel(bind: [.resourceBusy]), ScriptedKernel(bind: [.resourceBusy], isListed: false)] {
      var kernel = script.kernel
      kernel.patience = .milliseconds(100)
      #expect(await script.error(kernel) == .adapter(.system(3, .resourceBusy)))
      #expect(!script.calls.isEmpty && script.pair.hostDescriptors().isEmpty)
    }
  }

  @Test func aCancelledTaskDoesNotWait() async throws {
    let script = ScriptedKernel(bind: [.resourceBusy])
    var kernel = script.kernel
    kernel.patience = .hours(1)
    let task = Task { [kernel] in await script.error(kernel) }
    while script.calls.isEmpty { await Task.yield() }
    task.cancel()
    #expect(await task.value == .adapter(.system(3, .resourceBusy)))
    #expect(script.pair.hostDescriptors().isEmpty)
  }

  /// Errors that waiting does not change: one attempt.
  @Test(arguments: [
    Errno.notPermitted, .permissionDenied, .blockedByRadioSwitch, .invalidArgument, .alreadyInProcess, .tooManyUsers,
    .ioError,
  ]) func otherErrorsAreSaidAtOnce(error: Errno)
    async
  {
    let script = ScriptedKernel(bind: [error])
    #expect(await script.error(takesDown: true) == .adapter(.system(3, error)))
    #expect(script.calls == [.bind] && script.pair.hostDescriptors().isEmpty)
  }
  @Test func aMissingAdapterFailsAtOnce() async {
    let script = ScriptedKernel(bind: [.noSuchDevice], isPresent: false)
    #expect(await script.error(takesDown: true) == .adapter(.system(3, .noSuchDevice)))
    #expect(script.calls == [.bind])
  }
  @Test func anAdapterThatIsUpOrTakenFailsAtOnce() async {
    let up = ScriptedKernel(bind: [.resourceBusy], up: true)
    #expect(await up.error() == .adapter(.system(3, .resourceBusy)))
    #expect(up.calls == [.bind])
    let taken = ScriptedKernel(bind: [.resourceBusy], up: true, taken: true)
    #expect(await taken.error(takesDown: true) == .adapter(.system(3, .resourceBusy)))
    #expect(taken.calls == [.bind])
  }
  @Test func noSocketAtAll() async {
    let script = ScriptedKernel(bind: [nil])
    var kernel = script.kernel
    kernel.socket = { () throws(Errno) in throw Errno.addressFamilyNotSupported }
    #expect(await script.error(kernel) == .adapter(.system(3, .addressFamilyNotSupported)))
    #expect(script.calls.isEmpty)
  }

  // MARK: Power

  @Test func takenDownAndUpAgainOnceItIsClosed() async throws {
    let script = ScriptedKernel(bind: [.resourceBusy, nil], up: true)
    let socket = try await script.open(takesDown: true)
    #expect(script.calls == [.bind, .down, .bind])
    try await socket.end()
    #expect(script.calls == [.bind, .down, .bind, .up(isClosed: true)])
    try await socket.closeFuture.get()
    #expect(script.calls.count == 4)
  }

  /// Another program brings it up again, twice.
  @Test func andAgainIfNeedBe() async throws {
    let script = ScriptedKernel(bind: [.resourceBusy, .resourceBusy, .resourceBusy, nil], up: true)
    let kernel = script.kernel
    var restless = kernel
    restless.bind = { socket, adapter throws(Errno) in
      do throws(Errno) { try kernel.bind(socket, adapter) } catch {
        if error == .resourceBusy { script.state.withLock { $0.view?.flags = 1 } }
        throw error
      }
    }
    let socket = try await script.open(takesDown: true, restless)
    #expect(script.calls == [.bind, .down, .bind, .bind, .down, .bind])
    try await socket.end()
    #expect(script.calls.last == .up(isClosed: true) && script.calls.count == 7)
  }

  @Test func oneThatIsDownStaysDown() async throws {
    let script = ScriptedKernel(bind: [nil])
    try await script.open(takesDown: true).end()
    #expect(script.calls == [.bind])
  }

  @Test func upAgainAlsoWhenItCannotBeOpened() async {
    let script = ScriptedKernel(bind: [.resourceBusy, .blockedByRadioSwitch], up: true)
    #expect(await script.error(takesDown: true) == .adapter(.system(3, .blockedByRadioSwitch)))
    #expect(script.calls == [.bind, .down, .bind, .bind, .up(isClosed: true)])
  }

  @Test func upAgainAlsoWhenTheOtherSideEnds() async throws {
    let script = ScriptedKernel(bind: [.resourceBusy, nil], up: true)
    let socket = try await script.open(takesDown: true)
    script.pair.hangUp()
    try await socket.closeFuture.get()
    #expect(script.calls.last == .up(isClosed: true))
  }

  @Test func noRightToTakeItDown() async {
    let script = ScriptedKernel(bind: [.resourceBusy], up: true, power: [.notPermitted])
    #expect(await script.error(takesDown: true) == .adapter(.system(3, .notPermitted)))
    #expect(script.calls == [.bind, .down])
  }

  @Test func aFailureToBringUpIsReported() async throws {
    let script = ScriptedKernel(bind: [.resourceBusy, nil], up: true, power: [nil, .blockedByRadioSwitch])
    let socket = try await script.open(takesDown: true)
    await #expect(throws: TransportError.adapter(.system(3, .blockedByRadioSwitch))) { try await socket.end() }
    // Another program has done it, or the adapter was unplugged: neither is a failure.
    for code in [Errno.alreadyInProcess, .noSuchDevice] {
      let script = ScriptedKernel(bind: [.resourceBusy, nil], up: true, power: [nil, code])
      try await script.open(takesDown: true).end()
      #expect(script.calls.count == 4)
    }
  }

  /// For a machine without Bluetooth, as most are that run this; an existing adapter is left alone.
  @Test func theRealKernelSaysWhy() async throws {
    let loop = MultiThreadedEventLoopGroup.singleton.next()
    do throws(TransportError) {
      let socket = try await UserChannelSocket.open(54_321, on: loop)
      Issue.record("there is an hci54321")
      try? await socket.end()
    } catch {
      guard case .adapter = error else {
        Issue.record("\(error)")
        return
      }
      #expect(error.description.hasSuffix(".") && error.description.contains(": "))
    }
  }
}
