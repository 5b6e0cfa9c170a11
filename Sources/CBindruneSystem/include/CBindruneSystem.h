// The few words of Linux's Bluetooth sockets that no header of the C library has: numbers and layouts of the kernel's
// interface, each with its width said. Everything that acts is in Swift.
#ifndef BINDRUNE_CBLUETOOTH_H
#define BINDRUNE_CBLUETOOTH_H

#include <spawn.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
  bindrune_AF_BLUETOOTH = 31,
  bindrune_BTPROTO_HCI = 1,
  bindrune_HCI_CHANNEL_RAW = 0,
  bindrune_HCI_CHANNEL_USER = 1,
  bindrune_HCI_CHANNEL_CONTROL = 3,
  bindrune_HCI_DEV_NONE = 0xFFFF,
  bindrune_SOL_BLUETOOTH = 274,
};

/// The address of an HCI socket. All six octets count: the kernel takes four for channel 0, the raw one.
typedef struct {
  uint16_t family;
  uint16_t device;
  uint16_t channel;
} bindrune_sockaddr_hci;
_Static_assert(sizeof(bindrune_sockaddr_hci) == 6, "the kernel's sockaddr_hci has six octets");

/// What HCIGETDEVLIST fills: `count` says how many entries there is room for, and then how many there are.
typedef struct {
  uint16_t count;
  struct {
    uint16_t device;
    uint32_t flags;
  } entries[64];
} bindrune_hci_dev_list;
enum { bindrune_hci_dev_list_room = 64 };
static inline uint16_t bindrune_hci_dev_list_device(const bindrune_hci_dev_list *list, int place) {
  return list->entries[place].device;
}

/// What HCIGETDEVINFO fills for the `device` asked for.
typedef struct {
  uint16_t device;
  char name[8];
  uint8_t address[6];
  uint32_t flags;
  uint8_t type; // low four bits: the bus; then two bits: primary or AMP
  uint8_t features[8];
  uint32_t packet_type, link_policy, link_mode;
  uint16_t acl_mtu, acl_packets, sco_mtu, sco_packets;
  uint32_t statistics[10];
} bindrune_hci_dev_info;
_Static_assert(sizeof(bindrune_hci_dev_info) == 92, "the kernel's hci_dev_info has 92 octets");

/// Bits of an adapter's flags.
enum {
  bindrune_HCI_UP = 1u << 0,
  bindrune_HCI_INIT = 1u << 1,
  bindrune_HCI_RUNNING = 1u << 2,
};

/// The adapter's number is the argument itself, not a pointer to it.
static inline int bindrune_hci_up(int socket, int device) { return ioctl(socket, _IOW('H', 201, int), (long)device); }
static inline int bindrune_hci_down(int socket, int device) { return ioctl(socket, _IOW('H', 202, int), (long)device); }
static inline int bindrune_hci_list(int socket, bindrune_hci_dev_list *list) {
  return ioctl(socket, _IOR('H', 210, int), list);
}
static inline int bindrune_hci_info(int socket, bindrune_hci_dev_info *info) {
  return ioctl(socket, _IOR('H', 211, int), info);
}
/// For a socket bound to an adapter's raw channel: EBUSY while somebody has the adapter's user channel. (HCIGETAUTHINFO of a
/// peer that there is not; every ioctl of a bound socket is refused so, whoever asks.)
static inline int bindrune_hci_ask_user_channel(int socket) {
  uint8_t request[7] = {0}; // a peer's address, and room for the answer
  return ioctl(socket, _IOR('H', 215, int), request);
}
static inline int bindrune_hci_bind(int socket, uint16_t device, uint16_t channel) {
  bindrune_sockaddr_hci address = {bindrune_AF_BLUETOOTH, device, channel};
  return bind(socket, (struct sockaddr *)&address, sizeof address);
}

/// From now on the signal's number is written to the pipe, once for the process: a second signal ends it. 0: the program does
/// not leave the signal at its default, and nothing was changed.
int bindrune_catch_signal(int number, int writing);
/// The process ends by this signal.
void bindrune_end_by_signal(int number);

/// Descriptors, each closed on exec from its first moment: a flag that is set afterwards comes too late for a child that another
/// thread starts in between. Nothing else makes descriptors. −1: errno.
int bindrune_open(const char *path, int flags, int mode);
int bindrune_pipe(int ends[2]);
/// A file in memory, without a path; `name` is shown by /proc.
int bindrune_memory_file(const char *name);
/// `type`: SOCK_STREAM …, with SOCK_NONBLOCK or without.
int bindrune_socket(int family, int type, int protocol);
/// `flags`: SOCK_NONBLOCK, or 0.
int bindrune_accept(int socket, int flags);
/// Another descriptor of the same file, with the least free number from `least` on.
int bindrune_copy(int descriptor, int least);

/// A descriptor of a child of this process, closed on exec, or -1: older C libraries have no function for it.
int bindrune_open_process(int pid);

/// Sends the signal to the process of the descriptor, and to no other that has its number by now. −1: errno. Linux 5.1.
int bindrune_signal_process(int descriptor, int number);
/// The socket option that gives a descriptor of the process at the other end. Linux 6.5.
enum { bindrune_SO_PEERPIDFD = 77 };

/// The new program has no file from `first` on. The C library declares its function for GNU's C alone, which Swift's importer does not speak.
int bindrune_close_from(posix_spawn_file_actions_t *files, int first);

/// The variables of this process, as execve takes them: Swift does not import `environ`.
char **bindrune_environment(void);

#endif
