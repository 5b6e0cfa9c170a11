import CoreFoundation
import Foundation
import TestSupport
import Testing

@testable import CoreBluetooth

/// The streams of a channel as programs use them. Each test runs on a thread of its own, whose run loop it runs itself;
/// `StreamProgram` is the same on a main thread.
@Suite(.realTime, .hang) struct ChannelStreamTests {
  /// Schedules both streams on the current loop and opens them.
  static func open(
    _ channel: CBL2CAPChannel, _ delegate: any StreamDelegate, in loop: RunLoop = .current,
    forMode mode: RunLoop.Mode = .default
  ) {
    for stream in [channel.inputStream, channel.outputStream] as [Foundation.Stream] {
      stream.delegate = delegate
      stream.schedule(in: loop, forMode: mode)
      stream.open()
    }
  }

  // MARK: Where the streams are scheduled

  @Test(
    "scheduled on the main loop: in the default mode, in the common modes from another queue, event by event, polled",
    arguments: ["default", "common", "turns", "poll"])
  func mainLoop(_ manner: String) async throws {
    let output = try await onThread {
      Result {
        let process = Process(), pipe = Pipe()
        process.executableURL = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
          .appending(path: "StreamProgram")
        process.arguments = [manner]
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = pipe
        try process.run()
        let output = pipe.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return String(decoding: output, as: UTF8.self) + "status \(process.terminationStatus)"
      }
    }.get()
    #expect(output == "equal: 1000, main thread only: true\nclosed\nstatus 0")
  }

  @Test(
    "scheduled on `.current`, in the default mode and in the common modes", arguments: [RunLoop.Mode.default, .common])
  func currentLoop(_ mode: RunLoop.Mode) async {
    let (before, events) = await onThread {
      let far = FarEnd(), channel = far.channel()
      let recorder = StreamRecorder { stream, event in
        if event == .hasBytesAvailable { _ = (stream as? InputStream)?.read(64) }
      }
      Self.open(channel, recorder, forMode: mode)
      let before = recorder.events
      RunLoop.turnAll()
      _ = far.offer([1])
      RunLoop.turnAll()
      return (before, recorder.events)
    }
    #expect(before == [])  // not before the loop runs
    #expect(events.filter { $0.hasPrefix("in") } == ["in open", "in bytes"])
    #expect(events.filter { $0.hasPrefix("out") } == ["out open", "out space"])
  }

  @Test("scheduled from another thread on a private thread's loop: events come there, also octets from a third")
  func privateThread() async {
    let events = await onThread { () -> [String]? in
      let far = FarEnd(outputCapacity: 1)
      let channel = far.channel(), threads = Shared<Set<ObjectIdentifier>>([])
      let recorder = StreamRecorder { stream, event in
        threads.value.insert(ObjectIdentifier(Thread.current))
        if event == .hasBytesAvailable { _ = (stream as? InputStream)?.read(64) }
      }
      let loop = Shared<RunLoop?>(nil), isRunning = DispatchSemaphore(value: 0)
      let privateThread = Worker { () -> [String] in
        // The timer's event comes from within the loop. It repeats, so that the loop has something to run for.
        let timer = Timer(timeInterval: 0, repeats: true) { timer in
          loop.value = .current
          isRunning.signal()
          timer.fireDate = .distantFuture
        }
        RunLoop.current.add(timer, forMode: .default)
        let isDone = RunLoop.turn { recorder.events.count == 4 }
        timer.invalidate()
        let isThere = threads.value == [ObjectIdentifier(Thread.current)]
        return isDone && isThere ? recorder.events.sorted() : ["\(isDone) \(isThere) \(recorder.events)"]
      }
      guard isRunning.wait(timeout: .now() + Hang.seconds) == .success else { return nil }
      Self.open(channel, recorder, in: loop.value!)
      guard Worker({ far.offer([1, 2, 3]) }).value == true else { return nil }
      defer {
        channel.inputStream.close()
        channel.outputStream.close()
      }
      return privateThread.value
    }
    #expect(events == ["in bytes", "in open", "out open", "out space"])
  }

  @Test("scheduled in a mode of the program's own: events come when the loop runs in it")
  func ownMode() async {
    let (before, after) = await onThread {
      let far = FarEnd(), channel = far.channel(), recorder = StreamRecorder()
      let mode = RunLoop.Mode("org.example.streams")
      Self.open(channel, recorder, forMode: mode)
      RunLoop.turnAll()
      let before = recorder.take()
      let isDone = RunLoop.turn(mode) { recorder.events.count == 3 }
      return (before, isDone ? recorder.take().sorted() : [])
    }
    #expect(before == [] && after == ["in open", "out open", "out space"])
  }

  @Test("never scheduled: the flags say what can be done, and are false before `open` and after `close`")
  func polled() {
    let far = FarEnd(inputCapacity: 8, outputCapacity: 4), channel = far.channel()
    let input: InputStream = channel.inputStream, output: OutputStream = channel.outputStream
    #expect(far.offer([1, 2, 3]))
    #expect(input.streamStatus == .notOpen && output.streamStatus == .notOpen)
    #expect(!input.hasBytesAvailable && !output.hasSpaceAvailable)
    #expect(input.read(3) == nil && output.write([1]) == -1)
    input.open()
    output.open()
    #expect(input.streamStatus == .open && output.streamStatus == .open)
    #expect(input.hasBytesAvailable && output.hasSpaceAvailable)
    #expect(input.read(2) == [1, 2] && input.hasBytesAvailable && input.read(2) == [3] && !input.hasBytesAvailable)
    #expect(output.write(ramp(9)) == 4 && !output.hasSpaceAvailable)
    #expect(far.take(1) == [0] && output.hasSpaceAvailable)
    #expect(far.offer([4]) && input.hasBytesAvailable)
    input.close()
    output.close()
    #expect(!input.hasBytesAvailable && !output.hasSpaceAvailable)
    #expect(input.streamStatus == .closed && output.streamStatus == .closed)
    #expect(input.read(1) == nil && output.write([1]) == -1)
  }
  @Test("an output that was never scheduled is written")
  func unscheduledWrites() {
    let far = FarEnd(), channel = far.channel()
    channel.outputStream.open()
    #expect(channel.outputStream.write([1, 2]) == 2 && far.count(.outputWaits) == 1 && far.take() == [1, 2])
  }

  // MARK: Events

  @Test(
    "`openCompleted` is first; room is told unprompted, and again after each write that leaves some; one event a call")
  func roomAgain() async {
    let (events, written) = await onThread {
      let far = FarEnd(outputCapacity: 10), channel = far.channel()
      var written = 0
      let recorder = StreamRecorder { stream, event in
        guard event == .hasSpaceAvailable, written < 30 else { return }
        written += (stream as? OutputStream)?.write(ramp(4)) ?? 0
      }
      channel.outputStream.delegate = recorder
      channel.outputStream.schedule(in: .current, forMode: .default)
      channel.outputStream.open()
      RunLoop.turnAll()
      let first = recorder.take()
      _ = far.take(4)
      RunLoop.turnAll()  // less than half is free
      let second = recorder.take()
      _ = far.take(1)
      RunLoop.turnAll()
      return ([first, second, recorder.take()], written)
    }
    // 4 + 4 + 2; then 4 + 1.
    #expect(events == [["out open", "out space", "out space", "out space"], [], ["out space", "out space"]])
    #expect(written == 15)
  }
  @Test("octets are told again while some remain, and then when others come")
  func octetsAgain() async {
    let (events, read) = await onThread {
      let far = FarEnd(), channel = far.channel()
      var read: [UInt8] = []
      let recorder = StreamRecorder { stream, event in
        if event == .hasBytesAvailable { read += (stream as? InputStream)?.read(4) ?? [] }
      }
      Self.open(channel, recorder)
      _ = far.offer(ramp(10))
      RunLoop.turnAll()
      let first = recorder.take().filter { $0.hasPrefix("in") }
      _ = far.offer([10])
      RunLoop.turnAll()
      return ([first, recorder.take()], read)
    }
    #expect(events == [["in open", "in bytes", "in bytes", "in bytes"], ["in bytes"]])
    #expect(read == ramp(11))
  }
  @Test("an event is not repeated while its delegate does nothing; what it does later, elsewhere, makes it due again")
  func events() async {
    let events = await onThread {
      let far = FarEnd(), channel = far.channel(), recorder = StreamRecorder()
      Self.open(channel, recorder)
      RunLoop.turnAll()
      let first = recorder.take().sorted()
      _ = far.offer([1])
      RunLoop.turnAll()
      _ = far.offer([2])
      RunLoop.turnAll()
      let second = recorder.take()
      _ = channel.inputStream.read(1)
      _ = channel.outputStream.write([1])
      RunLoop.turnAll()
      return [first, second, recorder.take().sorted()]
    }
    #expect(events == [["in open", "out open", "out space"], ["in bytes"], ["in bytes", "out space"]])
  }
  @Test("without a delegate events wait for one; it is weak")
  func weakDelegate() async {
    let (events, isReleased) = await onThread {
      let far = FarEnd(), channel = far.channel(), input = channel.inputStream!
      input.schedule(in: .current, forMode: .default)
      input.open()
      RunLoop.turnAll()
      var recorder: StreamRecorder? = StreamRecorder()
      input.delegate = recorder
      RunLoop.turnAll()
      let events = recorder!.events
      recorder = nil
      let isReleased = input.delegate == nil
      _ = far.offer([1])
      RunLoop.turnAll()
      let next = StreamRecorder()
      input.delegate = next
      RunLoop.turnAll()
      return (events + next.events, isReleased)
    }
    #expect(events == ["in open", "in bytes"] && isReleased)
  }
  @Test("`run(mode:before:)` returns after an event, and when the streams have left the loop")
  func runReturns() async {
    let log = await onThread {
      let far = FarEnd(), channel = far.channel(), recorder = StreamRecorder()
      channel.inputStream.delegate = recorder
      channel.inputStream.schedule(in: .current, forMode: .default)
      channel.inputStream.open()
      var log: [String] = []
      func turn() {
        let ran = RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: Hang.seconds))
        log.append("\(ran) \(recorder.take())")
      }
      /// From another thread, when the loop is about to wait.
      func turn(_ action: @escaping @Sendable () -> Void) {
        let observer = CFRunLoopObserverCreateWithHandler(nil, CFRunLoopActivity.beforeWaiting.rawValue, false, 0) {
          _, _ in Thread(block: action).start()
        }
        CFRunLoopAddObserver(CFRunLoopGetCurrent(), observer, kCFRunLoopDefaultMode)
        turn()
      }
      turn()
      turn { _ = far.offer([1]) }
      turn { channel.inputStream.close() }
      turn()
      return log
    }
    #expect(log == [#"true ["in open"]"#, #"true ["in bytes"]"#, "true []", "false []"])
  }
  @Test("a delegate that runs the loop within a call gets the next events in it")
  func nestedLoop() async {
    let events = await onThread {
      let far = FarEnd(), channel = far.channel()
      let inner = Shared<StreamRecorder?>(nil)
      let recorder = StreamRecorder { stream, event in
        guard event == .openCompleted, let recorder = inner.value else { return }
        if !RunLoop.turn(until: { recorder.events.count == 2 }) { stream.close() }
      }
      inner.value = recorder
      channel.outputStream.delegate = recorder
      channel.outputStream.schedule(in: .current, forMode: .default)
      channel.outputStream.open()
      RunLoop.turnAll()
      inner.value = nil
      return recorder.events
    }
    #expect(events == ["out open", "out space"])
  }
  @Test("`remove(from:)` ends the events there, and `schedule` resumes them")
  func remove() async {
    let events = await onThread {
      let far = FarEnd(), channel = far.channel(), recorder = StreamRecorder()
      Self.open(channel, recorder)
      RunLoop.turnAll()
      let first = recorder.take().count
      channel.inputStream.remove(from: .current, forMode: .common)  // is not there
      channel.inputStream.remove(from: .current, forMode: .default)
      channel.inputStream.remove(from: .current, forMode: .default)
      _ = far.offer([1])
      RunLoop.turnAll()
      let second = recorder.take()
      channel.inputStream.schedule(in: .current, forMode: .default)
      channel.inputStream.schedule(in: .current, forMode: .common)
      RunLoop.turnAll()
      return ["\(first)"] + second + recorder.take()
    }
    #expect(events == ["3", "in bytes"])
  }

  // MARK: Reads and writes

  @Test("a read right after `open` blocks its thread until octets come")
  func readBlocks() async {
    let read = await onThread { () -> [UInt8]? in
      let far = FarEnd(), channel = far.channel()
      channel.inputStream.open()
      let read = Worker { channel.inputStream.read(10) }
      guard far.pipe.haveSleepers(1), far.offer([1, 2, 3]) else { return nil }
      return read.value ?? nil
    }
    #expect(read == [1, 2, 3])
  }
  @Test("a write without room blocks its thread; otherwise it takes a part")
  func writeBlocks() async {
    let (counts, taken) = await onThread {
      let far = FarEnd(outputCapacity: 8), channel = far.channel()
      let output = channel.outputStream!
      output.open()
      let counts = [output.write(ramp(5)), output.write(ramp(5, from: 5))]
      let written = Worker { channel.outputStream.write(ramp(5, from: 8)) }
      let first = far.pipe.haveSleepers(1) ? far.take(6) : nil
      return (counts + [written.value], [first] + far.takeAll())
    }
    #expect(counts == [5, 3, 5] && taken == [ramp(6), ramp(7, from: 6)])
  }
  @Test("a write that took octets returns their count, also when the channel ends during it; the next one fails")
  func endDuringWrite() {
    for end in [ChannelEnd.closed, .failed(CBError(.connectionTimeout))] {
      let far = FarEnd(outputCapacity: 8), channel = far.channel()
      let output = channel.outputStream!
      output.open()
      // The call of the driver is within the write.
      far.onOutputWaits = { $0.end(end) }
      #expect(output.write(ramp(5)) == 5 && output.write(ramp(5, from: 5)) == -1 && output.streamStatus == .error)
      switch end {
      case .closed: #expect((output.streamError as? POSIXError)?.code == .EPIPE)
      case .failed: #expect((output.streamError as? CBError)?.code == .connectionTimeout)
      }
    }
  }
  @Test("a thread that waits is woken by the end, by `close` from another thread, and when the channel is released")
  func woken() async {
    @Sendable func outcome(_ body: (FarEnd, Shared<CBL2CAPChannel?>) -> Void) -> String {
      let far = FarEnd(outputCapacity: 1)
      let channel = Shared<CBL2CAPChannel?>(far.channel())
      let input = Shared(channel.value!.inputStream!), output = Shared(channel.value!.outputStream!)
      input.value.open()
      output.value.open()
      _ = output.value.write([1])
      let read = Worker { input.value.read(1).map { "\($0)" } ?? "-1" }
      let written = Worker { output.value.write([2]) }
      guard far.pipe.haveSleepers(2) else { return "they do not wait" }
      body(far, channel)
      return "\(read.value ?? "late") \(written.value.map(String.init) ?? "late")"
    }
    let outcomes = await onThread {
      [
        outcome { far, _ in far.pipe.end(.closed) },
        outcome { far, _ in far.pipe.end(.failed(CBError(.peripheralDisconnected))) },
        outcome { _, channel in
          channel.value!.inputStream.close()
          channel.value!.outputStream.close()
        },
        outcome { _, channel in channel.value = nil },
      ]
    }
    #expect(outcomes == ["[] -1", "-1 -1", "-1 -1", "[] -1"])
  }
  @Test("reads and writes of no octets return 0")
  func nothing() {
    let far = FarEnd(), channel = far.channel()
    channel.inputStream.open()
    channel.outputStream.open()
    #expect(channel.inputStream.read(0) == [] && channel.outputStream.write([]) == 0)
    #expect(far.count(.outputWaits) == 0)
  }

  // MARK: Ends

  @Test("when the peer closes, what has arrived is read first; then both streams end, `read` returns 0 and `write` −1")
  func peerCloses() async {
    let (events, words) = await onThread {
      let far = FarEnd(), channel = far.channel(), recorder = StreamRecorder()
      let input = channel.inputStream!, output = channel.outputStream!
      Self.open(channel, recorder)
      RunLoop.turnAll()
      _ = recorder.take()
      _ = far.offer([1, 2])
      far.pipe.end(.closed)
      RunLoop.turnAll()
      var words = ["\(input.streamStatus == .open) \(output.streamStatus == .atEnd)"]
      words.append("\(input.read(1) ?? []) \(input.read(9) ?? [])")
      RunLoop.turnAll()
      words.append("\(input.streamStatus == .atEnd) \(input.read(1) ?? [9]) \(input.streamError == nil)")
      words.append("\(output.streamError == nil) \(output.write([1])) \(output.streamStatus == .error)")
      words.append("\((output.streamError as? POSIXError)?.code == .EPIPE)")
      RunLoop.turnAll()
      return (recorder.events, words)
    }
    #expect(
      events == ["in bytes", "out end", "in end", "out error"]
        || events == ["out end", "in bytes", "in end", "out error"])
    #expect(words == ["true true", "[1] [2]", "true [] true", "true -1 true", "true"])
  }
  @Test("when the link is lost, what has arrived is read first; then both streams fail with its error")
  func linkIsLost() async {
    let (events, words) = await onThread {
      let far = FarEnd(), channel = far.channel(), recorder = StreamRecorder()
      let input = channel.inputStream!, output = channel.outputStream!
      Self.open(channel, recorder)
      _ = far.offer([1])
      far.pipe.end(.failed(CBError(.connectionTimeout)))
      RunLoop.turnAll()
      let first = recorder.take().sorted()
      var words = ["\(output.write([1])) \(output.streamStatus == .error)"]
      words.append("\(input.streamStatus == .open) \(input.read(9) ?? []) \(input.streamStatus == .error)")
      words.append("\(input.read(9) == nil)")
      for stream in [input, output] as [Foundation.Stream] {
        words.append("\((stream.streamError as? CBError)?.code == .connectionTimeout)")
        stream.close()
        words.append(
          "\((stream.streamError as? CBError)?.code == .connectionTimeout) \(stream.streamStatus == .closed)")
      }
      RunLoop.turnAll()
      return (first + recorder.take(), words)
    }
    // The input's error is not due until the octet is read, and then the stream is closed at once.
    #expect(events == ["in bytes", "in open", "out error", "out open"])
    #expect(words == ["-1 true", "true [1] true", "true", "true", "true true", "true", "true true"])
  }
  @Test("closed twice, in either order, and then removed: the peer learns of it once, after the last octet")
  func closedTwice() async {
    for isInputFirst in [true, false] {
      let words = await onThread {
        let far = FarEnd(), channel = far.channel(), recorder = StreamRecorder()
        Self.open(channel, recorder)
        RunLoop.turnAll()
        _ = recorder.take()
        _ = channel.outputStream.write([1, 2, 3])
        _ = far.offer([1])
        let streams = [channel.inputStream, channel.outputStream] as [Foundation.Stream]
        var words: [String] = []
        for stream in (isInputFirst ? streams : streams.reversed()) + streams {
          stream.close()
          words.append("\(far.count(.appHasClosed))")
          stream.remove(from: .current, forMode: .default)
          stream.open()  // not again
        }
        for stream in streams {
          stream.schedule(in: .current, forMode: .default)
          stream.delegate = nil
        }
        RunLoop.turnAll()
        words.append("\(far.take(2) ?? []) \(far.take(2) ?? []) \(far.take(2) == nil) \(recorder.events)")
        return words
      }
      #expect(words == ["0", "1", "0", "0", "[1, 2] [3] true []"])
    }
  }
  @Test(
    "closed from its own delegate, in each kind of event: no event comes after it",
    arguments: [
      Foundation.Stream.Event.openCompleted, .hasBytesAvailable, .hasSpaceAvailable, .endEncountered, .errorOccurred,
    ])
  func closedByDelegate(_ last: Foundation.Stream.Event) async {
    let (events, isClosed) = await onThread {
      let far = FarEnd(), channel = far.channel()
      var streams: [Foundation.Stream] = [channel.inputStream, channel.outputStream]
      let recorder = StreamRecorder { stream, event in
        if event == .hasBytesAvailable, last == .endEncountered || last == .errorOccurred {
          _ = (stream as? InputStream)?.read(64)
        }
        guard event == last else { return }
        for stream in streams {
          stream.close()
          stream.remove(from: .current, forMode: .default)
        }
        streams = []
      }
      Self.open(channel, recorder)
      _ = far.offer([1])
      // What the far end does leads to the event, for which the loop runs.
      let count: () -> Int = { recorder.events.count }
      var before = -1
      while before < count() {
        before = count()
        RunLoop.turnAll()
        if last == .endEncountered { far.pipe.end(.closed) }
        if last == .errorOccurred { far.pipe.end(.failed(CBError(.connectionTimeout))) }
      }
      let isClosed = channel.inputStream.streamStatus == .closed && channel.outputStream.streamStatus == .closed
      return (recorder.events, isClosed)
    }
    let word = [1: "open", 2: "bytes", 4: "space", 8: "error", 16: "end"][Int(last.rawValue)]!
    #expect(isClosed && events.filter { $0.hasSuffix(word) }.count == 1 && events.last?.hasSuffix(word) == true)
  }
  @Test("releasing the channel closes it: what was written is taken, and kept streams are at their ends")
  func released() async {
    let words = await onThread {
      let far = FarEnd(), recorder = StreamRecorder()
      var channel: CBL2CAPChannel? = far.channel()
      Self.open(channel!, recorder)
      let input = channel!.inputStream!, output = channel!.outputStream!
      RunLoop.turnAll()
      _ = recorder.take()
      _ = output.write([1])
      _ = far.offer([1])
      channel = nil
      var words = ["\(far.count(.appHasClosed)) \(far.take() ?? []) \(far.take() == nil)"]
      words.append("\(input.read(1) ?? [9]) \(input.streamStatus == .atEnd) \(output.write([1]))")
      words.append("\(input.hasBytesAvailable) \(output.hasSpaceAvailable)")
      RunLoop.turnAll()
      words += recorder.events.sorted()
      return words
    }
    #expect(words == ["1 [1] true", "[] true -1", "false false", "in end", "out error"])
  }
  @Test("released while open and scheduled, with events due: nothing is called, and nothing is kept")
  func releasedWhileOpen() async {
    let words = await onThread {
      let far = FarEnd()
      let recorder = StreamRecorder()
      weak var input: InputStream?
      weak var output: OutputStream?
      do {
        let channel = far.channel()
        Self.open(channel, recorder)
        _ = far.offer([1])
        (input, output) = (channel.inputStream, channel.outputStream)
      }
      let areReleased = input == nil && output == nil
      RunLoop.turnAll()
      // Nothing is left on the loop.
      let ran = RunLoop.current.run(mode: .default, before: .distantFuture)
      return "\(areReleased) \(recorder.events) \(ran) \(far.count(.appHasClosed)) \(far.take() == nil)"
    }
    #expect(words == "true [] false 1 true")
  }
  @Test("released by its own delegate, with the streams")
  func releasedByDelegate() async {
    let words = await onThread {
      let far = FarEnd()
      var channel: CBL2CAPChannel? = far.channel()
      weak let kept = channel
      let recorder = StreamRecorder { _, _ in channel = nil }
      Self.open(channel!, recorder)
      RunLoop.turnAll()
      return "\(recorder.events.count) \(kept == nil) \(far.count(.appHasClosed))"
    }
    #expect(words == "1 true 1")
  }
  @Test("a loop that has ended: events go nowhere, the streams are read and written, closed and scheduled elsewhere")
  func endedLoop() async {
    let far = FarEnd(), recorder = StreamRecorder()
    let channel = far.channel()
    let box = await onThread {
      Self.open(channel, recorder)
      RunLoop.turnAll()
      return Shared(RunLoop.current)
    }
    #expect(recorder.take().count == 3)
    let words = await onThread {
      _ = far.offer(ramp(3))
      var words = ["\(channel.inputStream.read(2) ?? []) \(channel.outputStream.write([1])) \(recorder.events)"]
      channel.inputStream.schedule(in: .current, forMode: .default)
      RunLoop.turnAll()
      words.append("\(recorder.take())")
      // On the loop of no thread.
      channel.outputStream.schedule(in: box.value, forMode: .common)
      channel.inputStream.remove(from: box.value, forMode: .default)
      channel.inputStream.close()
      channel.outputStream.close()
      channel.outputStream.remove(from: box.value, forMode: .common)
      RunLoop.turnAll()
      words.append("\(recorder.events) \(far.count(.appHasClosed))")
      return words
    }
    #expect(words == ["[0, 1] 1 []", #"["in bytes"]"#, "[] 1"])
  }

  // MARK: The channel

  @Test("the same objects each time, of Foundation's classes; the peer and the PSM are the maker's")
  func objects() {
    let peer = CBPeripheral(), far = FarEnd(), channel = far.channel(peer)
    let central = CBCentral(identifier: UUID(), longestUpdate: 20)
    #expect(FarEnd().channel(central).peer is CBCentral && FarEnd().channel(central).peer === central)
    let stream: Foundation.Stream = channel.inputStream
    #expect(stream as? InputStream === channel.inputStream && stream as? OutputStream == nil)
    #expect(channel.outputStream === channel.outputStream && channel.inputStream === channel.inputStream)
    #expect(channel.peer === peer && channel.peer is CBPeripheral && channel.psm == 0x80)
    let empty = CBL2CAPChannel()
    #expect(empty.inputStream == nil && empty.outputStream == nil && empty.peer == nil && empty.psm == 0)
  }
  @Test("a stream has no properties: no descriptor, which one program asks for, and none can be set")
  func properties() {
    let channel = FarEnd().channel()
    let key = Foundation.Stream.PropertyKey("kCFStreamPropertySocketNativeHandle")
    for stream in [channel.inputStream, channel.outputStream] as [Foundation.Stream] {
      stream.open()
      #expect(stream.property(forKey: key) == nil && !stream.setProperty(NSNumber(value: 1), forKey: key))
      #expect(stream.property(forKey: .dataWrittenToMemoryStreamKey) == nil)
    }
    var buffer: UnsafeMutablePointer<UInt8>?
    var length = 0
    #expect(unsafe !channel.inputStream.getBuffer(&buffer, length: &length))
  }
}
