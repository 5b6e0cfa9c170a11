import CoreFoundation
import Foundation

/// # StreamEvents
/// **Overview**: the state of one stream of a channel, and the calls of its delegate on the run loops where the stream
/// is scheduled. Foundation's own `schedule(in:forMode:)` delivers nothing on Linux; so this is a source of Core
/// Foundation's run loops, which wakes them, and lets `run(mode:before:)` return after each event.
///
/// **Function**: an event is due when it describes the stream, and has not been delivered since the stream was last
/// used: `openCompleted`, the end and an error once; octets and room again after each `read` and `write`. Each turn of
/// the loop delivers one event. Without a delegate, events stay due.
///
/// **Phases**: notOpen → open → failed → closed; the pipe knows whether the channel has ended.
final class StreamEvents: ChannelPipeUser, @unchecked Sendable {
  // Sendable: everything that changes is guarded by the lock.
  private enum Phase {
    case notOpen
    case open
    /// The app has written after the end of the channel.
    case failed(any Error)
    /// By the app, with the error that the stream had.
    case closed((any Error)?)
  }
  /// Where the stream is scheduled.
  private struct Place {
    enum State {
      /// The loop is another thread's: the timer adds the source there.
      case awaiting(Timer)
      case added(CFRunLoop)
    }
    let loop: RunLoop
    let mode: RunLoop.Mode
    var state: State
  }

  private let lock = Lock()
  private let readiness: @Sendable () -> ChannelPipe.Readiness
  /// The event that says that the pipe is ready: `hasBytesAvailable` or `hasSpaceAvailable`.
  private let readyEvent: Stream.Event
  private weak var stream: Stream?
  private weak var delegate: (any StreamDelegate)?
  private var phase = Phase.notOpen
  /// The events that are not due again.
  private var delivered: Stream.Event = []
  private var places: [Place] = []
  /// Of all places: a signal is one event, on one of the loops. It retains this object, until the stream is closed or
  /// released.
  private var source: CFRunLoopSource?

  init(_ readyEvent: Stream.Event, of readiness: @escaping @Sendable () -> ChannelPipe.Readiness) {
    self.readyEvent = readyEvent
    self.readiness = readiness
  }
  func attach(_ stream: Stream) { lock.withLock { self.stream = stream } }

  // MARK: State

  var currentDelegate: (any StreamDelegate)? {
    get { lock.withLock { delegate } }
    set {
      lock.withLock {
        delegate = newValue
        signal()
      }
    }
  }
  var isOpen: Bool {
    lock.withLock {
      switch phase {
      case .open: true
      case .notOpen, .failed, .closed: false
      }
    }
  }
  /// The stream is open, and can be used without waiting.
  var isReady: Bool { if isOpen, case .ready = readiness() { true } else { false } }
  var status: Stream.Status {
    switch lock.withLock({ phase }) {
    case .notOpen: .notOpen
    case .failed: .error
    case .closed: .closed
    case .open:
      switch readiness() {
      case .ready, .waiting: .open
      case .ended(.closed), .closed: .atEnd
      case .ended(.failed): .error
      }
    }
  }
  var error: (any Error)? {
    switch lock.withLock({ phase }) {
    case .notOpen: return nil
    case .failed(let error): return error
    case .closed(let error): return error
    case .open:
      guard case .ended(.failed(let error)) = readiness() else { return nil }
      return error
    }
  }

  /// A stream can be opened once.
  func open() {
    lock.withLock {
      guard case .notOpen = phase else { return }
      phase = .open
      signal()
    }
  }
  /// The stream was read or written: if octets or room are left, or when there are some again, that is due again.
  func used() {
    lock.withLock {
      delivered.remove(readyEvent)
      signal()
    }
  }
  func fail(_ error: any Error) {
    lock.withLock {
      guard case .open = phase else { return }
      phase = .failed(error)
      signal()
    }
  }
  /// No more events. The stream leaves its loops.
  func close() {
    let error = error
    lock.withLock {
      switch phase {
      case .notOpen, .open, .failed: phase = .closed(error)
      case .closed: break
      }
    }
    unschedule()
  }
  func readinessChanged() { lock.withLock { signal() } }

  // MARK: Events

  /// Under the lock: the next event, and whether others follow.
  private var due: (event: Stream.Event, isLast: Bool)? {
    let occurred: Stream.Event =
      switch phase {
      case .notOpen, .closed: []
      case .failed: [.openCompleted, .errorOccurred]
      case .open:
        switch readiness() {
        case .ready: [.openCompleted, readyEvent]
        case .waiting: .openCompleted
        case .ended(.closed), .closed: [.openCompleted, .endEncountered]
        case .ended(.failed): [.openCompleted, .errorOccurred]
        }
      }
    let waiting = occurred.subtracting(delivered)
    let order: [Stream.Event] = [.openCompleted, readyEvent, .errorOccurred, .endEncountered]
    guard let event = order.first(where: waiting.contains) else { return nil }
    return (event, waiting == event)
  }
  /// Under the lock: asks the loops for a turn if an event is due.
  private func signal() {
    guard let source, due != nil else { return }
    CFRunLoopSourceSignal(source)
    for place in places { if case .added(let core) = place.state { CFRunLoopWakeUp(core) } }
  }
  /// On one of the loops.
  private func deliver() {
    // They are released without the lock: each may be the last reference, whose end may use this object.
    let (stream, delegate) = lock.withLock { (self.stream, self.delegate) }
    guard let stream, let delegate else { return }
    let next = lock.withLock { () -> Stream.Event? in
      guard let (event, isLast) = due else { return nil }
      delivered.insert(event)
      // Before the call: the delegate may run the loop itself.
      if !isLast { signal() }
      return event
    }
    guard let event = next else { return }
    delegate.stream(stream, handle: event)
    lock.withLock { signal() }
  }

  // MARK: Run loops

  func schedule(in loop: RunLoop, forMode mode: RunLoop.Mode) {
    lock.withLock {
      if case .closed = phase { return }
      guard !places.contains(where: { $0.loop === loop && $0.mode == mode }) else { return }
      let source = source ?? makeSource()
      self.source = source
      // Foundation does not show the loop of Core Foundation's that a `RunLoop` stands for, except these two. Another
      // one gets a timer, which wakes it (`perform` does not). Foundation does not release a timer, fired or invalidated
      // (Swift 6.3): about 300 octets remain of each.
      let core: CFRunLoop? =
        loop === RunLoop.main ? CFRunLoopGetMain() : loop === RunLoop.current ? CFRunLoopGetCurrent() : nil
      if let core {
        CFRunLoopAddSource(core, source, mode.core)
        places.append(Place(loop: loop, mode: mode, state: .added(core)))
      } else {
        let timer = Timer(timeInterval: 0, repeats: false) { [weak self] in self?.add($0) }
        places.append(Place(loop: loop, mode: mode, state: .awaiting(timer)))
        loop.add(timer, forMode: mode)
      }
      signal()
    }
  }
  /// On the loop on which the timer was scheduled.
  private func add(_ timer: Timer) {
    lock.withLock {
      let index = places.firstIndex { if case .awaiting(timer) = $0.state { true } else { false } }
      guard let source, let index, let core = CFRunLoopGetCurrent() else { return }
      CFRunLoopAddSource(core, source, places[index].mode.core)
      places[index].state = .added(core)
      signal()
    }
  }
  func remove(from loop: RunLoop, forMode mode: RunLoop.Mode) {
    lock.withLock {
      guard let index = places.firstIndex(where: { $0.loop === loop && $0.mode == mode }) else { return }
      switch places.remove(at: index).state {
      case .awaiting(let timer): timer.invalidate()
      case .added(let core):
        guard let source else { return }
        CFRunLoopRemoveSource(core, source, mode.core)
        // A loop without sources ends, if it runs.
        CFRunLoopWakeUp(core)
        // The others may have it to deliver.
        signal()
      }
    }
  }
  /// The stream leaves all loops, for good.
  func unschedule() {
    let (places, source) = lock.withLock {
      defer { (self.places, self.source) = ([], nil) }
      return (self.places, self.source)
    }
    if let source { CFRunLoopSourceInvalidate(source) }
    for place in places {
      switch place.state {
      case .awaiting(let timer): timer.invalidate()
      case .added(let core): CFRunLoopWakeUp(core)
      }
    }
  }
  private func makeSource() -> CFRunLoopSource {
    var context = unsafe CFRunLoopSourceContext()
    unsafe context.info = Unmanaged.passUnretained(self).toOpaque()
    unsafe context.retain = { info in
      unsafe info.map { unsafe UnsafeRawPointer(Unmanaged<StreamEvents>.fromOpaque($0).retain().toOpaque()) }
    }
    unsafe context.release = { info in
      if let info = unsafe info { unsafe Unmanaged<StreamEvents>.fromOpaque(info).release() }
    }
    unsafe context.perform = { info in
      if let info = unsafe info { unsafe Unmanaged<StreamEvents>.fromOpaque(info).takeUnretainedValue().deliver() }
    }
    // It copies the context.
    return unsafe CFRunLoopSourceCreate(kCFAllocatorDefault, 0, &context)
  }
}

extension RunLoop.Mode {
  /// The common modes are known by their object: an equal string is the name of a mode of its own.
  fileprivate var core: CFRunLoopMode {
    switch self {
    case .default: kCFRunLoopDefaultMode
    case .common: kCFRunLoopCommonModes
    default: unsafe CFStringCreateWithCString(kCFAllocatorDefault, rawValue, CFStringBuiltInEncodings.UTF8.rawValue)
    }
  }
}
