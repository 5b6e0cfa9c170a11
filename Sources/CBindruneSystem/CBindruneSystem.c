#define _GNU_SOURCE
#include "CBindruneSystem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile sig_atomic_t pipe_end = -1;
static volatile sig_atomic_t is_caught;
// A child of `fork` has the handler, and nobody who reads from the pipe.
static pid_t owner;

void bindrune_end_by_signal(int number) {
  struct sigaction standard = {.sa_handler = SIG_DFL};
  sigaction(number, &standard, NULL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  raise(number);
}

static void caught(int number) {
  int saved = errno;
  unsigned char octet = (unsigned char)number;
  if (is_caught || getpid() != owner || write(pipe_end, &octet, 1) != 1) bindrune_end_by_signal(number);
  is_caught = 1;
  errno = saved;
}

int bindrune_catch_signal(int number, int writing) {
  struct sigaction known;
  if (sigaction(number, NULL, &known) != 0 || (known.sa_flags & SA_SIGINFO) || known.sa_handler != SIG_DFL) return 0;
  owner = getpid();
  pipe_end = writing;
  struct sigaction ours = {.sa_handler = caught, .sa_flags = SA_RESTART};
  sigemptyset(&ours.sa_mask);
  return sigaction(number, &ours, NULL) == 0;
}

extern char **environ;
char **bindrune_environment(void) { return environ; }

int bindrune_open(const char *path, int flags, int mode) {
  int descriptor;
  do descriptor = open(path, flags | O_CLOEXEC, mode);
  while (descriptor < 0 && errno == EINTR);
  return descriptor;
}
int bindrune_memory_file(const char *name) { return (int)syscall(SYS_memfd_create, name, 1U /* MFD_CLOEXEC */); }
int bindrune_pipe(int ends[2]) { return pipe2(ends, O_CLOEXEC); }
int bindrune_socket(int family, int type, int protocol) { return socket(family, type | SOCK_CLOEXEC, protocol); }
int bindrune_accept(int socket, int flags) { return accept4(socket, NULL, NULL, flags | SOCK_CLOEXEC); }
int bindrune_copy(int descriptor, int least) { return fcntl(descriptor, F_DUPFD_CLOEXEC, least); }

int bindrune_open_process(int pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }
int bindrune_signal_process(int descriptor, int number) {
  return (int)syscall(SYS_pidfd_send_signal, descriptor, number, NULL, 0);
}
int bindrune_close_from(posix_spawn_file_actions_t *files, int first) {
  return posix_spawn_file_actions_addclosefrom_np(files, first);
}
