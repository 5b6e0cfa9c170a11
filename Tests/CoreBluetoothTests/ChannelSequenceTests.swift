import CoreFoundation
import Foundation
import TestSupport
import Testing

@testable import CoreBluetooth

/// One thread does what an app, a driver and a run loop do, in random orders. After each step a model of plain arrays
/// says what the call returns, what the pipe has called, what the streams say of themselves, and which events they have
/// sent. At the end nothing is left: no stream, no pipe, and no source on the loop.
@Suite(.realTime, .hang) struct ChannelSequenceTests {
  /// `BINDRUNE_SEEDS` of them, 2,000 if it is not set.
  private static let seeds = ProcessInfo.processInfo.environment["BINDRUNE_SEEDS"].flatMap { UInt64($0) } ?? 2000

  @Test("in every order of calls the streams, the pipe and their events are as the model says, and nothing is left")
  func sequences() async {
    let failures = await onThread { () -> [String] in
      let deadLoop = Worker { Shared(RunLoop.current) }
      guard let deadLoop = deadLoop.value?.value else { return ["no loop"] }
      let failures = (1...Self.seeds).lazy.compactMap { seed in
        Self.failure(seed, deadLoop).map { "seed \(seed): \($0)" }
      }
      return Array(failures.prefix(5))
    }
    #expect(failures == [])
  }

  private static func failure(_ seed: UInt64, _ deadLoop: RunLoop) -> String? {
    weak var pipe: ChannelPipe?
    weak var input: InputStream?
    weak var output: OutputStream?
    let failure = { () -> String? in
      let walk = ChannelWalk(seed, deadLoop)
      pipe = walk.far.pipe
      (input, output) = (walk.input?.stream as? InputStream, walk.output?.stream as? OutputStream)
      return walk.failure()
    }()
    guard failure == nil else { return failure }
    guard pipe == nil && input == nil && output == nil else { return "something is kept" }
    return CFRunLoopRunInMode(kCFRunLoopDefaultMode, 0, true) == .finished ? nil : "the loop is not empty"
  }
}

/// One sequence of steps, and its model.
private final class ChannelWalk {
  /// A stream, and what the model knows of it.
  final class Side {
    enum Phase { case notOpen, open, failed, closed }
    let stream: Foundation.Stream
    let recorder: StreamRecorder
    var phase = Phase.notOpen
    var isScheduled = false
    /// On the loop whose thread has ended.
    var isScheduledElsewhere = false
    /// It has been scheduled: there is a source that can be signalled.
    var hasSource = false
    var isSignalled = false
    var hasDelegate = true
    var delivered: Set<String> = []
    init(_ stream: Foundation.Stream, _ recorder: StreamRecorder) { (self.stream, self.recorder) = (stream, recorder) }
  }
  enum State { case ready, waiting, ended, failed, closed }

  private var random: SplitMix64
  private let deadLoop: RunLoop
  let far: FarEnd
  private var channel: CBL2CAPChannel?
  private(set) var input: Side?
  private(set) var output: Side?
  /// What the delegates do in the next event, once.
  private let action = Shared<(() -> Void)?>(nil)

  // The model of the pipe.
  private let inputCapacity: Int, outputCapacity: Int
  /// What has not been read of the SDUs.
  private var sdus: [Int] = []
  private var waiting = 0
  private var end: State?
  private var isInputClosed = false
  private var isOutputClosed = false
  private var readCount = 0
  private var refused: Int?
  private var isOutputAwaited = true
  private var isRoomAwaited = false
  // The octets are a ramp on both sides.
  private var offered = 0, read = 0, written = 0, taken = 0
  private var calls: [FarEnd.Call] = []

  init(_ seed: UInt64, _ deadLoop: RunLoop) {
    random = SplitMix64(seed: seed)
    self.deadLoop = deadLoop
    inputCapacity = .random(in: 1...20, using: &random)
    outputCapacity = .random(in: 1...20, using: &random)
    far = FarEnd(inputCapacity: inputCapacity, outputCapacity: outputCapacity)
    let channel = far.channel(), action = action
    self.channel = channel
    let act: (Foundation.Stream, Foundation.Stream.Event) -> Void = { _, _ in
      guard let body = action.value else { return }
      action.value = nil
      body()
    }
    input = Side(channel.inputStream, StreamRecorder(act))
    output = Side(channel.outputStream, StreamRecorder(act))
    for side in sides { side.stream.delegate = side.recorder }
  }

  private var sides: [Side] { [input, output].compactMap { $0 } }
  private var unread: Int { sdus.reduce(0, +) }
  /// A long SDU may be more than the capacity.
  private var inputRoom: Int { max(inputCapacity - unread, 0) }
  private func state(_ side: Side) -> State {
    if side === input {
      if isInputClosed { return .closed }
      return unread > 0 ? .ready : end ?? .waiting
    }
    if isOutputClosed { return .closed }
    return end ?? (waiting < outputCapacity ? .ready : .waiting)
  }
  private func number(_ limit: Int) -> Int { .random(in: 0...limit, using: &random) }

  /// What differs from the model; nil: nothing.
  func failure() -> String? {
    var steps: [String] = []
    for _ in 0..<(10 + number(40)) {
      let (step, difference) = step()
      steps.append(step)
      if let difference = difference ?? self.difference() { return "\(steps.joined(separator: ", ")): \(difference)" }
    }
    return nil
  }

  /// A step, by name, and what was wrong with what it returned.
  private func step() -> (String, String?) {
    switch number(23) {
    case 0...3: return offer(number(inputCapacity + 3))
    case 4...6: return take(1 + number(9))
    case 7...9: return readInput(number(12))
    case 10...12: return write(number(12))
    case 13: return countRead()
    case 14...17: return turn()
    case 18: return open()
    case 19: return schedule()
    case 20: return remove()
    case 21: return setDelegate()
    case 22: return number(3) == 0 ? close(input: Bool.random(using: &random)) : turn()
    default:
      switch number(7) {
      case 0: return endChannel()
      case 1: return release()
      case 2: return releaseStreams()
      default: return turn()
      }
    }
  }
  /// What differs after a step.
  private func difference() -> String? {
    for call in FarEnd.Call.allCases {
      let count = far.count(call), expected = calls.count { $0 == call }
      guard count == expected else { return "\(call) came \(count) times, not \(expected)" }
    }
    calls = []
    for side in sides {
      let isUsable = side.phase == .open && state(side) == .ready
      let isReady =
        (side.stream as? InputStream)?.hasBytesAvailable ?? (side.stream as? OutputStream)?.hasSpaceAvailable ?? false
      guard isReady == isUsable else { return "a flag is \(isReady)" }
      let status: Foundation.Stream.Status =
        switch (side.phase, state(side)) {
        case (.notOpen, _): .notOpen
        case (.closed, _): .closed
        case (.failed, _), (.open, .failed): .error
        case (.open, .ready), (.open, .waiting): .open
        case (.open, .ended), (.open, .closed): .atEnd
        }
      guard side.stream.streamStatus == status else { return "a status is \(side.stream.streamStatus)" }
    }
    return nil
  }

  // MARK: The driver

  private func offer(_ count: Int) -> (String, String?) {
    let isTaken = far.offer(ramp(count, from: offered))
    var isExpected = true
    if end == nil && isInputClosed {
      add(read: 1)
    } else if end == nil && (unread == 0 || count <= inputRoom) {
      let wasEmpty = unread == 0
      (offered, refused) = (offered + count, nil)
      sdus.append(count)
      popRead()
      if wasEmpty && count > 0, let input { signal(input) }
    } else if end == nil {
      (refused, isExpected) = (count, false)
    }
    return ("offer \(count)", isTaken == isExpected ? nil : "\(isTaken)")
  }
  private func popRead() {
    let count = sdus.prefix { $0 == 0 }.count
    sdus.removeFirst(count)
    add(read: count)
  }
  private func add(read count: Int) {
    if readCount == 0 && count > 0 { calls.append(.inputWasRead) }
    readCount += count
  }
  private func take(_ count: Int) -> (String, String?) {
    let sdu = far.take(count)
    var expected: [UInt8]?
    if end == nil {
      let moved = min(count, waiting)
      expected = ramp(moved, from: taken)
      (taken, waiting) = (taken + moved, waiting - moved)
      if moved == 0 {
        isOutputAwaited = true
        if isInputClosed && isOutputClosed { expected = nil }
      } else if isRoomAwaited, 2 * (outputCapacity - waiting) >= outputCapacity {
        isRoomAwaited = false
        if let output { signal(output) }
      }
    }
    return ("take \(count)", sdu == expected ? nil : "\(sdu as Any)")
  }
  private func countRead() -> (String, String?) {
    let count = far.pipe.takeReadCount()
    defer { readCount = 0 }
    return ("count", count == readCount ? nil : "\(count), not \(readCount)")
  }
  private func endChannel() -> (String, String?) {
    let state = Bool.random(using: &random) ? State.ended : .failed
    far.pipe.end(state == .ended ? .closed : .failed(CBError(.connectionTimeout)))
    if end == nil {
      (end, refused, waiting) = (state, nil, 0)
      for side in sides { signal(side) }
    }
    return ("\(state)", nil)
  }

  // MARK: The app

  /// Without waiting.
  private func readInput(_ count: Int) -> (String, String?) {
    guard let input, let stream = input.stream as? InputStream else { return ("none", nil) }
    guard input.phase != .open || state(input) != .waiting || count == 0 else { return ("would wait", nil) }
    let octets = stream.read(count)
    var expected: [UInt8]?
    if input.phase == .open {
      expected = []
      if count > 0 {
        if state(input) == .failed { expected = nil }
        var left = state(input) == .ready ? min(count, unread) : 0
        if left > 0 {
          expected = ramp(left, from: read)
          read += left
          for index in sdus.indices {
            let part = min(left, sdus[index])
            (sdus[index], left) = (sdus[index] - part, left - part)
          }
          if end == nil {
            popRead()
            if let waiting = refused, unread == 0 || waiting <= inputRoom {
              refused = nil
              calls.append(.inputHasRoom)
            }
          }
          use(input, "bytes")
        }
      }
    }
    return ("read \(count)", octets == expected ? nil : "\(octets as Any)")
  }
  private func write(_ count: Int) -> (String, String?) {
    guard let output, let stream = output.stream as? OutputStream else { return ("none", nil) }
    guard output.phase != .open || state(output) != .waiting || count == 0 else { return ("would wait", nil) }
    let result = stream.write(ramp(count, from: written))
    var expected = -1
    if output.phase == .open, count == 0 {
      expected = 0
    } else if output.phase == .open, state(output) == .ready {
      expected = min(count, outputCapacity - waiting)
      (written, waiting) = (written + expected, waiting + expected)
      if waiting == outputCapacity { isRoomAwaited = true }
      if isOutputAwaited {
        isOutputAwaited = false
        calls.append(.outputWaits)
      }
      use(output, "space")
    } else if output.phase == .open, state(output) != .failed {
      output.phase = .failed
      signal(output)
    }
    return ("write \(count)", result == expected ? nil : "\(result)")
  }
  private func open() -> (String, String?) {
    for side in sides {
      side.stream.open()
      guard side.phase == .notOpen else { continue }
      side.phase = .open
      signal(side)
    }
    return ("open", nil)
  }
  private func close(input isInput: Bool) -> (String, String?) {
    guard let side = isInput ? input : output else { return ("none", nil) }
    side.stream.close()
    close(side)
    return ("close \(isInput ? "input" : "output")", nil)
  }
  private func close(_ side: Side) {
    (side.phase, side.isScheduled, side.hasSource) = (.closed, false, false)
    closePipe(input: side === input, output: side === output)
  }
  private func closePipe(input closesInput: Bool, output closesOutput: Bool) {
    let wasClosed = isInputClosed && isOutputClosed
    if closesInput && !isInputClosed {
      isInputClosed = true
      if end == nil {
        sdus = sdus.map { _ in 0 }
        popRead()
        if refused != nil { calls.append(.inputHasRoom) }
        refused = nil
      }
      sdus = []
      read = offered
      if let input { signal(input) }
    }
    if closesOutput && !isOutputClosed {
      isOutputClosed = true
      if let output { signal(output) }
    }
    if !wasClosed && isInputClosed && isOutputClosed && end == nil { calls.append(.appHasClosed) }
  }
  /// The app keeps the streams.
  private func release() -> (String, String?) {
    if channel != nil {
      channel = nil
      closePipe(input: true, output: true)
    }
    return ("release", nil)
  }
  /// The app keeps nothing.
  private func releaseStreams() -> (String, String?) {
    (input, output) = (nil, nil)
    _ = release()
    return ("release all", nil)
  }

  // MARK: The loop

  private func schedule() -> (String, String?) {
    // A loop whose thread has ended delivers nothing.
    let isDead = number(4) == 0
    for side in sides {
      side.stream.schedule(in: isDead ? deadLoop : .current, forMode: .default)
      guard side.phase != .closed else { continue }
      side.hasSource = true
      if isDead ? side.isScheduledElsewhere : side.isScheduled { continue }
      if isDead { side.isScheduledElsewhere = true } else { side.isScheduled = true }
      signal(side)
    }
    return (isDead ? "schedule elsewhere" : "schedule", nil)
  }
  private func remove() -> (String, String?) {
    for side in sides {
      side.stream.remove(from: .current, forMode: .default)
      if side.isScheduled {
        side.isScheduled = false
        signal(side)
      }
    }
    return ("remove", nil)
  }
  private func setDelegate() -> (String, String?) {
    for side in sides {
      side.hasDelegate.toggle()
      side.stream.delegate = side.hasDelegate ? side.recorder : nil
      signal(side)
    }
    return ("delegate", nil)
  }
  /// Lets the loop deliver all events. Now and then the delegate closes both streams in the first one, or releases the
  /// channel.
  private func turn() -> (String, String?) {
    let isClosing = number(9) == 0
    if isClosing {
      action.value = { [unowned self] in
        for side in sides { side.stream.close() }
      }
    }
    RunLoop.turnAll()
    let isClosed = isClosing && action.value == nil
    action.value = nil
    let events = sides.map { $0.recorder.take() }
    let expected = sides.map { side in
      guard side.isScheduled, side.isSignalled else { return [String]() }
      side.isSignalled = false
      guard side.hasDelegate else { return [] }
      return due(side)
    }
    if isClosed {
      for side in sides { close(side) }
      let count = events.reduce(0) { $0 + $1.count }
      return ("turn, closed", count == 1 && expected.contains { !$0.isEmpty } ? nil : "\(events)")
    }
    for (side, events) in zip(sides, events) {
      side.delivered.formUnion(events.map { String($0.split(separator: " ")[1]) })
    }
    return ("turn", events == expected ? nil : "\(events), not \(expected)")
  }
  /// The events that are due, in order.
  private func due(_ side: Side) -> [String] {
    let name = side === input ? "in" : "out", ready = side === input ? "bytes" : "space"
    var words: [String]
    switch (side.phase, state(side)) {
    case (.notOpen, _), (.closed, _): words = []
    case (.failed, _), (.open, .failed): words = ["open", "error"]
    case (.open, .ready): words = ["open", ready]
    case (.open, .waiting): words = ["open"]
    case (.open, .ended), (.open, .closed): words = ["open", "end"]
    }
    words.removeAll(where: side.delivered.contains)
    return words.map { "\(name) \($0)" }
  }
  private func signal(_ side: Side) { if side.hasSource, !due(side).isEmpty { side.isSignalled = true } }
  private func use(_ side: Side, _ word: String) {
    side.delivered.remove(word)
    signal(side)
  }
}
