import Foundation

/// What has arrived on a channel, as a stream.
///
/// It can be scheduled on run loops, also of other threads, or polled with `hasBytesAvailable`. `read` returns what has
/// arrived, and blocks its thread while that is nothing: call it in answer to `hasBytesAvailable`, or on a thread of
/// its own. The peer is stopped while octets wait here. After the channel's end they can still be read; then `read`
/// returns 0, or −1 with `streamError` if the channel did not end by being closed.
final class ChannelInputStream: InputStream {
  private let pipe: ChannelPipe
  private let events: StreamEvents

  init(_ pipe: ChannelPipe) {
    self.pipe = pipe
    events = StreamEvents(.hasBytesAvailable) { pipe.inputReadiness }
    // What the superclass has is not used.
    super.init(data: Data())
    events.attach(self)
    pipe.attach(events, to: .input)
  }
  deinit { events.unschedule() }

  override weak var delegate: (any StreamDelegate)? {
    get { events.currentDelegate }
    set { events.currentDelegate = newValue }
  }
  override var streamStatus: Status { events.status }
  override var streamError: (any Error)? { events.error }
  override var hasBytesAvailable: Bool { events.isReady }
  override func open() { events.open() }
  override func close() {
    events.close()
    pipe.close(.input)
  }
  override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
    events.schedule(in: aRunLoop, forMode: mode)
  }
  override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
    events.remove(from: aRunLoop, forMode: mode)
  }
  /// None: a channel has no descriptor.
  override func property(forKey key: PropertyKey) -> AnyObject? { nil }
  override func setProperty(_ property: AnyObject?, forKey key: PropertyKey) -> Bool { false }
  override func getBuffer(
    _ buffer: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>, length len: UnsafeMutablePointer<Int>
  ) -> Bool { false }

  override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
    guard events.isOpen else { return -1 }
    guard len > 0 else { return 0 }
    while true {
      let count = unsafe pipe.read(into: UnsafeMutableRawBufferPointer(start: buffer, count: len))
      if count > 0 {
        events.used()
        return count
      }
      switch pipe.waitForInput() {
      case .ready, .waiting: continue
      case .ended(.closed): return 0
      case .ended(.failed): return -1
      case .closed: return events.isOpen ? 0 : -1  // open: the channel was released
      }
    }
  }
}

/// What is to be sent on a channel, as a stream.
///
/// It can be scheduled on run loops, also of other threads, polled with `hasSpaceAvailable`, or written unscheduled.
/// `write` takes as many octets as there is room for, and blocks its thread while that is none: call it in answer to
/// `hasSpaceAvailable`, or on a thread of its own. What was written before `close` is still sent. After the channel's
/// end it returns −1 with `streamError`.
final class ChannelOutputStream: OutputStream {
  private let pipe: ChannelPipe
  private let events: StreamEvents

  init(_ pipe: ChannelPipe) {
    self.pipe = pipe
    events = StreamEvents(.hasSpaceAvailable) { pipe.outputReadiness }
    // What the superclass has is not used.
    super.init(toMemory: ())
    events.attach(self)
    pipe.attach(events, to: .output)
  }
  required init(toMemory: ()) { preconditionFailure("a stream of a channel is made with its pipe") }
  deinit { events.unschedule() }

  override weak var delegate: (any StreamDelegate)? {
    get { events.currentDelegate }
    set { events.currentDelegate = newValue }
  }
  override var streamStatus: Status { events.status }
  override var streamError: (any Error)? { events.error }
  override var hasSpaceAvailable: Bool { events.isReady }
  override func open() { events.open() }
  override func close() {
    events.close()
    pipe.close(.output)
  }
  override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
    events.schedule(in: aRunLoop, forMode: mode)
  }
  override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
    events.remove(from: aRunLoop, forMode: mode)
  }
  /// None: a channel has no descriptor.
  override func property(forKey key: PropertyKey) -> AnyObject? { nil }
  override func setProperty(_ property: AnyObject?, forKey key: PropertyKey) -> Bool { false }

  override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
    guard events.isOpen else { return -1 }
    guard len > 0 else { return 0 }
    while true {
      let count = unsafe pipe.write(UnsafeRawBufferPointer(start: buffer, count: len))
      if count > 0 {
        events.used()
        return count
      }
      switch pipe.waitForOutput() {
      case .ready, .waiting: continue
      case .ended(.closed), .closed: events.fail(POSIXError(.EPIPE))
      case .ended(.failed): break
      }
      return -1
    }
  }
}
