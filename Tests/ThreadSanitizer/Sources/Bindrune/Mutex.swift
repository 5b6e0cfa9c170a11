import Glibc

/// Stands for `Synchronization.Mutex`, which it hides, because ThreadSanitizer does not see that one: where it has to
/// wait it does so inside the Swift runtime, and every contended access is reported as a race. This is the same promise
/// on a mutex of the C library, which ThreadSanitizer knows.
///
/// With BINDRUNE_WITHOUT_LOCKS in the environment it does not lock: then there must be reports, or nobody was looking.
@safe final class Mutex<Value: ~Copyable>: @unchecked Sendable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>
  private let isLocking = unsafe getenv("BINDRUNE_WITHOUT_LOCKS") == nil
  // The last one: a value of no octets has the address of what follows it, which threads would read without the lock.
  private var value: Value

  init(_ value: consuming sending Value) {
    self.value = value
    unsafe mutex = .allocate(capacity: 1)
    unsafe pthread_mutex_init(mutex, nil)
  }
  deinit {
    unsafe pthread_mutex_destroy(mutex)
    unsafe mutex.deallocate()
  }
  func withLock<Result: ~Copyable, Failure: Error>(
    _ body: (inout sending Value) throws(Failure) -> sending Result
  ) throws(Failure) -> sending Result {
    if isLocking { unsafe pthread_mutex_lock(mutex) }
    defer { if isLocking { unsafe pthread_mutex_unlock(mutex) } }
    return try body(&value)
  }
}
