// KernelNotifier PID VALUE…: notifications of BlueZ's GATT server, each with the octets that VALUE spells in hex.
//
// bluetoothctl 5.66 can register a characteristic that notifies, and get the socket for its values from bluetoothd
// (AcquireNotify, org.bluez.GattCharacteristic), but has no command that writes a value there. This takes the socket of
// the bluetoothctl that runs as PID, by pidfd_getfd(2), and writes them: bluetoothd makes a notification of each.
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fail(const char *what) {
  perror(what);
  return 1;
}

static int option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

// Its only local socket that keeps packets apart: D-Bus is a stream.
static int acquired(const char *process) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/fd", process);
  int pidfd = (int)syscall(SYS_pidfd_open, atoi(process), 0);
  DIR *folder = opendir(path);
  if (pidfd < 0 || !folder) return -1;
  for (struct dirent *entry; (entry = readdir(folder));) {
    int fd = entry->d_name[0] == '.' ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, atoi(entry->d_name), 0);
    if (fd < 0) continue;
    if (option(fd, SO_DOMAIN) == AF_UNIX && option(fd, SO_TYPE) == SOCK_SEQPACKET) return fd;
    close(fd);
  }
  return -1;
}

int main(int count, char **arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: KernelNotifier PID VALUE…\n");
    return 2;
  }
  int fd = acquired(arguments[1]);
  if (fd < 0) return fail("the socket that bluetoothctl has got");
  for (int index = 2; index < count; index++) {
    unsigned char value[512];
    size_t length = strlen(arguments[index]) / 2;
    if (length > sizeof value) length = sizeof value;
    for (size_t place = 0; place < length; place++) sscanf(arguments[index] + 2 * place, "%2hhx", &value[place]);
    // It does not block: bluetoothd gets time to read the waiting values.
    int attempts = 100;
    while (write(fd, value, length) != (ssize_t)length && attempts-- > 0) usleep(100000);
    if (attempts < 0) return fail("a value");
  }
  return 0;
}
