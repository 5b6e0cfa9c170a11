import Glibc
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import BindruneTransport

/// A kernel of few words: its answers to `bind`, one after another, and a list of what was asked of it.
private final class ScriptedKernel: Sendable {
  enum Call: Equatable { case bind, down, up(isClosed: Bool) }
  struct State {
    var answers: [CInt]
    var view: HCISocketView.Entry?
    var isPresent = true
    var powerAnswers: [CInt] = []
    var calls: [Call] = []
  }
  let pair = PacketPair()
  let state: Mutex<State>
  init(
    bind answers: [CInt], up: Bool = false, taken: Bool = false, isListed: Bool = true, isPresent: Bool = true,
    power: [CInt] = []
  ) {
    let entry = HCISocketView.Entry(number: 3, address: nil, bus: 0, flags: up ? 1 : 0, hasUserChannel: taken)
    state = Mutex(State(answers: answers, view: isListed ? entry : nil, isPresent: isPresent, powerAnswers: power))
  }
  var calls: [Call] { state.withLock { $0.calls } }

  var kernel: HCIKernel {
    var kernel = HCIKernel()
    kernel.socket = { self.pair.host }
    kernel.bind = { socket, adapter in
      #expect(socket == self.pair.host && adapter == 3)
      return self.state.withLock { state in
        state.calls.append(.bind)
        // The last answer is for ever.
        return state.answers.count > 1 ? state.answers.removeFirst() : state.answers[0]
      }
    }
    kernel.power = { adapter, isUp in
      let isClosed = self.pair.hostDescriptors().isEmpty
      return self.state.withLock { state in
        state.calls.append(isUp ? .up(isClosed: isClosed) : .down)
        let answer = state.powerAnswers.isEmpty ? 0 : state.powerAnswers.removeFirst()
        if answer == 0 { state.view?.flags = isUp ? 1 : 0 }
        return answer
      }
    }
    kernel.view = { HCISocketView(error: 0, adapters: self.state.withLock { $0.view.map { [$0] } ?? [] }) }
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
  /// Seen on 6.1 and 6.12: a new adapter says ENODEV, then EBUSY, then it is there.
  @Test func anAdapterInSetUpIsWaitedFor() async throws {
    let script = ScriptedKernel(bind: [ENODEV, ENODEV, EBUSY, EBUSY, 0])
    let socket = try await script.open()
    #expect(script.calls == Array(repeating: .bind, count: 5))
    #expect(socket.receiveBuffer > 0)
    try await socket.end()
    #expect(script.calls.count == 5 && script.pair.hostDescriptors().isEmpty)
  }

  @Test func andNoLongerThanItsTime() async throws {
    for script in [ScriptedKernel(bind: [EBUSY]), ScriptedKernel(bind: [EBUSY], isListed: false)] {
      var kernel = script.kernel
      kernel.patience = .milliseconds(100)
      #expect(await script.error(kernel) == .adapter(.system(3, EBUSY)))
      #expect(!script.calls.isEmpty && script.pair.hostDescriptors().isEmpty)
    }
  }

  @Test func aCancelledTaskDoesNotWait() async throws {
    let script = ScriptedKernel(bind: [EBUSY])
    var kernel = script.kernel
    kernel.patience = .hours(1)
    let task = Task { [kernel] in await script.error(kernel) }
    while script.calls.isEmpty { await Task.yield() }
    task.cancel()
    #expect(await task.value == .adapter(.system(3, EBUSY)))
    #expect(script.pair.hostDescriptors().isEmpty)
  }

  /// What waiting does not cure: one attempt.
  @Test(arguments: [EPERM, EACCES, ERFKILL, EINVAL, EALREADY, EUSERS, EIO]) func otherErrorsAreSaidAtOnce(code: CInt)
    async
  {
    let script = ScriptedKernel(bind: [code])
    #expect(await script.error(takesDown: true) == .adapter(.system(3, code)))
    #expect(script.calls == [.bind] && script.pair.hostDescriptors().isEmpty)
  }
  @Test func anAdapterThatIsNotThereIsSaidAtOnce() async {
    let script = ScriptedKernel(bind: [ENODEV], isPresent: false)
    #expect(await script.error(takesDown: true) == .adapter(.system(3, ENODEV)))
    #expect(script.calls == [.bind])
  }
  @Test func oneThatIsUpOrTakenIsSaidAtOnce() async {
    let up = ScriptedKernel(bind: [EBUSY], up: true)
    #expect(await up.error() == .adapter(.system(3, EBUSY)))
    #expect(up.calls == [.bind])
    let taken = ScriptedKernel(bind: [EBUSY], up: true, taken: true)
    #expect(await taken.error(takesDown: true) == .adapter(.system(3, EBUSY)))
    #expect(taken.calls == [.bind])
  }
  @Test func noSocketAtAll() async {
    let script = ScriptedKernel(bind: [0])
    var kernel = script.kernel
    kernel.socket = { -EAFNOSUPPORT }
    #expect(await script.error(kernel) == .adapter(.system(3, EAFNOSUPPORT)))
    #expect(script.calls.isEmpty)
  }

  // MARK: Power

  @Test func takenDownAndUpAgainOnceItIsClosed() async throws {
    let script = ScriptedKernel(bind: [EBUSY, 0], up: true)
    let socket = try await script.open(takesDown: true)
    #expect(script.calls == [.bind, .down, .bind])
    try await socket.end()
    #expect(script.calls == [.bind, .down, .bind, .up(isClosed: true)])
    try await socket.closeFuture.get()
    #expect(script.calls.count == 4)
  }

  /// Whoever took it up does so again, twice.
  @Test func andAgainIfNeedBe() async throws {
    let script = ScriptedKernel(bind: [EBUSY, EBUSY, EBUSY, 0], up: true)
    let kernel = script.kernel
    var restless = kernel
    restless.bind = { socket, adapter in
      let code = kernel.bind(socket, adapter)
      if code == EBUSY { script.state.withLock { $0.view?.flags = 1 } }
      return code
    }
    let socket = try await script.open(takesDown: true, restless)
    #expect(script.calls == [.bind, .down, .bind, .bind, .down, .bind])
    try await socket.end()
    #expect(script.calls.last == .up(isClosed: true) && script.calls.count == 7)
  }

  @Test func oneThatIsDownStaysDown() async throws {
    let script = ScriptedKernel(bind: [0])
    try await script.open(takesDown: true).end()
    #expect(script.calls == [.bind])
  }

  @Test func upAgainAlsoWhenItCannotBeOpened() async {
    let script = ScriptedKernel(bind: [EBUSY, ERFKILL], up: true)
    #expect(await script.error(takesDown: true) == .adapter(.system(3, ERFKILL)))
    #expect(script.calls == [.bind, .down, .bind, .bind, .up(isClosed: true)])
  }

  @Test func upAgainAlsoWhenTheOtherSideEnds() async throws {
    let script = ScriptedKernel(bind: [EBUSY, 0], up: true)
    let socket = try await script.open(takesDown: true)
    script.pair.hangUp()
    try await socket.closeFuture.get()
    #expect(script.calls.last == .up(isClosed: true))
  }

  @Test func noRightToTakeItDown() async {
    let script = ScriptedKernel(bind: [EBUSY], up: true, power: [EPERM])
    #expect(await script.error(takesDown: true) == .adapter(.system(3, EPERM)))
    #expect(script.calls == [.bind, .down])
  }

  @Test func whatCannotBeBroughtUpIsSaid() async throws {
    let script = ScriptedKernel(bind: [EBUSY, 0], up: true, power: [0, ERFKILL])
    let socket = try await script.open(takesDown: true)
    await #expect(throws: TransportError.adapter(.system(3, ERFKILL))) { try await socket.end() }
    // Somebody else has done it, or it has been unplugged: neither is a failure.
    for code in [EALREADY, ENODEV] {
      let script = ScriptedKernel(bind: [EBUSY, 0], up: true, power: [0, code])
      try await script.open(takesDown: true).end()
      #expect(script.calls.count == 4)
    }
  }

  /// On a machine that has no Bluetooth, as most that run this; where there is an adapter it is left alone.
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
