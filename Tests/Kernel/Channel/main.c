// KernelChannel read|write listen|connect le|enhanced PSM OWN [PEER]: standard output or input of this process, and a
// credit-based channel of the kernel's L2CAP: a socket as any Linux program opens one.
//
//   KernelChannel read listen le 129 00:AA:01:01:00:01 >octets
//   KernelChannel write connect enhanced 128 00:AA:01:01:00:01 00:AA:01:00:00:00 <octets
//
// PSM: decimal. OWN: the public address of an adapter of this machine. The socket's numbers are those of the kernel's
// net/bluetooth/bluetooth.h and l2cap.h.
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BTPROTO_L2CAP = 0, BT_SNDMTU = 12, BT_RCVMTU = 13, BT_MODE = 15 };
enum { MODE_EXT_FLOWCTL = 4, ADDRESS_LE_PUBLIC = 1 };

struct address {
  sa_family_t family;
  uint16_t psm; // little-endian
  uint8_t octets[6];
  uint16_t cid;
  uint8_t type;
};

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static struct address address(const char *text, int psm) {
  struct address address = {.family = AF_BLUETOOTH, .psm = htole16(psm), .type = ADDRESS_LE_PUBLIC};
  uint8_t *at = address.octets;
  if (sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", at + 5, at + 4, at + 3, at + 2, at + 1, at) != 6) {
    fprintf(stderr, "no address: %s\n", text);
    exit(2);
  }
  return address;
}

static int mtu(int fd, int name) {
  uint16_t mtu = 0;
  socklen_t size = sizeof mtu;
  if (getsockopt(fd, SOL_BLUETOOTH, name, &mtu, &size) < 0) fail("the MTU");
  return mtu;
}

// Octets of room for what is sent, which comes back when the controller has sent it.
static int room(int fd) {
  int room = 0;
  if (ioctl(fd, TIOCOUTQ, &room) < 0) fail("the socket's room");
  return room;
}

int main(int count, char **words) {
  if (count < 6) {
    fprintf(stderr, "usage: KernelChannel read|write listen|connect le|enhanced PSM OWN [PEER]\n");
    return 2;
  }
  int writes = !strcmp(words[1], "write"), listens = !strcmp(words[2], "listen"), psm = atoi(words[4]);
  uint8_t enhanced = MODE_EXT_FLOWCTL; // the other one is the default of a socket of LE
  int fd = socket(AF_BLUETOOTH, SOCK_SEQPACKET, BTPROTO_L2CAP);
  if (fd < 0) fail("a socket");
  struct address own = address(words[5], listens ? psm : 0);
  if (bind(fd, (struct sockaddr *)&own, sizeof own) < 0) fail("this address");
  if (!strcmp(words[3], "enhanced") && setsockopt(fd, SOL_BLUETOOTH, BT_MODE, &enhanced, sizeof enhanced) < 0)
    fail("enhanced channels");
  if (listens) {
    if (listen(fd, 1) < 0) fail("listening");
    fprintf(stderr, "listening\n");
    if ((fd = accept(fd, NULL, NULL)) < 0) fail("a channel");
  } else {
    struct address peer = address(count > 6 ? words[6] : "", psm);
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0) fail("connecting");
  }
  int sends = mtu(fd, BT_SNDMTU), receives = mtu(fd, BT_RCVMTU), all = room(fd);
  fprintf(stderr, "open: sends %d, receives %d\n", sends, receives);

  static uint8_t sdu[65536];
  ssize_t length;
  if (writes) {
    while ((length = read(0, sdu, sends)) > 0)
      if (send(fd, sdu, length, 0) != length) fail("an SDU");
    // The end of a socket drops what waits in the kernel.
    for (int turn = 0; room(fd) < all && turn < 200; turn++) usleep(100000);
    if (room(fd) < all) errno = ETIMEDOUT, fail("what was to be sent");
  } else {
    while ((length = recv(fd, sdu, sizeof sdu, 0)) > 0)
      if (write(1, sdu, length) != length) fail("standard output");
    if (length < 0 && errno != ECONNRESET) fail("an SDU");
  }
  if (shutdown(fd, SHUT_RDWR) < 0 && errno != ENOTCONN) fail("the end");
  fprintf(stderr, "ended\n");
  return 0;
}
