import Glibc
import SystemPackage

/// A thread of its own that calls `body` and ends.
package func detachThread(_ body: @escaping @Sendable () -> Void) throws(Errno) {
  final class Body: Sendable {
    let call: @Sendable () -> Void
    init(_ call: @escaping @Sendable () -> Void) { self.call = call }
  }
  let argument = unsafe Unmanaged.passRetained(Body(body))
  var thread = pthread_t()
  let code = unsafe pthread_create(
    &thread, nil,
    { argument in
      guard let argument = unsafe argument else { return nil }
      unsafe Unmanaged<Body>.fromOpaque(argument).takeRetainedValue().call()
      return nil
    }, argument.toOpaque())
  guard code == 0 else {
    unsafe argument.release()
    throw Errno(rawValue: code)
  }
  pthread_detach(thread)
}
