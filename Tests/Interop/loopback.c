// Between RootCanal and the C library: it listens on every address of the machine and has no option to change that, and it
// writes an H4 packet in two pieces, which Nagle's algorithm makes 40 ms each.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

int bind(int socket, const struct sockaddr *address, socklen_t length) {
  int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
  struct sockaddr_in local;
  if (address && address->sa_family == AF_INET && length >= sizeof local) {
    local = *(const struct sockaddr_in *)address;
    if (local.sin_addr.s_addr == htonl(INADDR_ANY)) local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return next(socket, (struct sockaddr *)&local, sizeof local);
  }
  return next(socket, address, length);
}

static int without_delay(int socket) {
  int one = 1;
  if (socket >= 0) setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return socket;
}

int accept(int socket, struct sockaddr *address, socklen_t *length) {
  int (*next)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "accept");
  return without_delay(next(socket, address, length));
}

int accept4(int socket, struct sockaddr *address, socklen_t *length, int flags) {
  int (*next)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");
  return without_delay(next(socket, address, length, flags));
}
