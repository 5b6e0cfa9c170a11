// The bound of B11: SDUs of 2,000 octets on a credit-based channel. Rows B11.down.MPS and B11.up.MPS.
//
// Down: an SDU is copied once, because it must wait for credits and buffers, and cut into K-frames (Vol 3, Part A, §3.4.3)
// and those into the ACL packets of a controller that has 8 buffers of 251 octets. Up: packets are recombined (a frame that
// lies whole in one is not copied), K-frames joined into the SDU, its length checked, and the peer gets credits when half
// of them are used.
//
// A repetition is 200 SDUs. The controller gives its buffers back when it has no more; the peer gives the credits of four
// SDUs at once.
#include "cbound.h"

enum { sdus = 200, length = 2000, per_credit = 4, buffers = 8, buffer_octets = 251, most_mps = 1024 };
enum { acl_header = 4, l2cap_header = 4, peers_channel = 0x41, our_channel = 0x40, signaling = 5, link = 1 };

static uint32_t mps, peer_credits, controller = buffers;
static uint64_t sum; // packets, their octets, and the last octet of each; or the same of SDUs

// Down

static uint8_t waiting[length + 2], packet[acl_header + buffer_octets];
static uint32_t at, end; // in `waiting`; at == end: none waits
static uint32_t frame_rest; // octets of the K-frame that has begun

OWN_CALL void transmit(const uint8_t *bytes, uint32_t count) { sum += 1 + count + bytes[count - 1]; }

static void drain(void) {
  while (controller && at < end) {
    uint32_t begins = frame_rest == 0, header = 0;
    uint8_t *data = packet + acl_header;
    if (begins) {
      if (!peer_credits) return;
      peer_credits--;
      frame_rest = end - at < mps ? end - at : mps;
      put16(data, (uint16_t)frame_rest);
      put16(data + 2, peers_channel);
      header = l2cap_header;
    }
    uint32_t count = frame_rest < buffer_octets - header ? frame_rest : buffer_octets - header;
    memcpy(data + header, waiting + at, count);
    put16(packet, (uint16_t)(link | (begins ? 0 : 0x1000)));
    put16(packet + 2, (uint16_t)(header + count));
    at += count;
    frame_rest -= count;
    controller--;
    transmit(packet, acl_header + header + count);
  }
}

// 0 if it must wait.
OWN_CALL int send_sdu(const uint8_t *sdu, uint32_t count) {
  if (at < end || count > length) return 0;
  put16(waiting, (uint16_t)count);
  memcpy(waiting + 2, sdu, count);
  at = 0;
  end = count + 2;
  drain();
  return 1;
}

OWN_CALL void completed(void) {
  controller = buffers;
  drain();
}

OWN_CALL void signal_received(const uint8_t *signal, uint32_t count) {
  if (count < 8 || signal[0] != 0x16 || le16(signal + 2) != 4 || le16(signal + 4) != peers_channel) return;
  uint32_t more = le16(signal + 6);
  if (more == 0 || peer_credits + more > 65535) abort();
  peer_credits += more;
  drain();
}

static uint64_t down(void *context) {
  static uint8_t sdu[length];
  (void)context;
  memset(sdu, 7, sizeof sdu);
  uint32_t given = per_credit * ((length + 2 + mps - 1) / mps);
  uint8_t credits[8] = {0x16, 1, 4, 0, peers_channel, 0, (uint8_t)given, (uint8_t)(given >> 8)};
  sum = 0;
  for (uint32_t number = 1; number <= sdus; number++) {
    if (!send_sdu(sdu, length)) abort();
    while (controller < buffers) completed();
    if (number % per_credit == 0) signal_received(credits, 8);
  }
  return sum;
}

// Up

static uint8_t recombined[l2cap_header + most_mps], joined[length];
static uint32_t collected, joined_count, sdu_length, owed, window;

static void receive_frame(const uint8_t *frame, uint32_t count) {
  if (le16(frame + 2) != our_channel || count - l2cap_header > mps) return;
  const uint8_t *data = frame + l2cap_header;
  uint32_t octets = count - l2cap_header;
  if (sdu_length == 0) {
    if (octets < 2 || le16(data) > length) return;
    sdu_length = le16(data);
    joined_count = 0;
    data += 2;
    octets -= 2;
  }
  if (joined_count + octets > sdu_length) abort();
  memcpy(joined + joined_count, data, octets);
  joined_count += octets;
  owed++;
  if (joined_count < sdu_length) return;
  sum += 1 + joined_count + joined[joined_count - 1];
  sdu_length = 0;
  if (owed < window / 2) return;
  uint8_t credits[8] = {0x16, 1, 4, 0, our_channel, 0, (uint8_t)owed, (uint8_t)(owed >> 8)};
  memcpy(packet, credits, sizeof credits);
  owed = 0;
}

OWN_CALL void receive_packet(const uint8_t *bytes, uint32_t count) {
  if (count < 5 || bytes[0] != 2) return;
  uint32_t octets = le16(bytes + 3), is_first = (bytes[2] >> 4 & 3) == 2;
  const uint8_t *data = bytes + 5;
  if (octets != count - 5) return;
  if (is_first && octets >= l2cap_header && octets == l2cap_header + (uint32_t)le16(data)) return receive_frame(data, octets);
  if (is_first) collected = 0;
  if (collected + octets > sizeof recombined) abort();
  memcpy(recombined + collected, data, octets);
  collected += octets;
  if (collected >= l2cap_header && collected == l2cap_header + (uint32_t)le16(recombined)) {
    receive_frame(recombined, collected);
    collected = 0;
  }
}

typedef struct {
  uint32_t count, size[64];
  uint8_t bytes[64][5 + buffer_octets];
} sdu_packets;

static uint64_t up(void *context) {
  const sdu_packets *packets = context;
  sum = 0;
  for (uint32_t number = 0; number < sdus; number++)
    for (uint32_t i = 0; i < packets->count; i++) receive_packet(packets->bytes[i], packets->size[i]);
  return sum;
}

static sdu_packets cut(void) {
  static uint8_t sdu[length + 2];
  sdu_packets packets = {0};
  memset(sdu, 7, sizeof sdu);
  put16(sdu, length);
  for (uint32_t start = 0; start < sizeof sdu; start += mps) {
    uint8_t frame[l2cap_header + most_mps];
    uint32_t count = sizeof sdu - start < mps ? (uint32_t)sizeof sdu - start : mps;
    put16(frame, (uint16_t)count);
    put16(frame + 2, our_channel);
    memcpy(frame + l2cap_header, sdu + start, count);
    for (uint32_t from = 0; from < count + l2cap_header; from += buffer_octets) {
      uint32_t rest = count + l2cap_header - from, octets = rest < buffer_octets ? rest : buffer_octets;
      uint8_t *bytes = packets.bytes[packets.count];
      bytes[0] = 2;
      put16(bytes + 1, (uint16_t)(link | (from ? 0x1000 : 0x2000)));
      put16(bytes + 3, (uint16_t)octets);
      memcpy(bytes + 5, frame + from, octets);
      packets.size[packets.count++] = 5 + octets;
    }
  }
  return packets;
}

int main(int count, char **argument) {
  if (count != 5) return 2;
  char way[8];
  if (sscanf(argument[1], "B11.%7[a-z].%u", way, &mps) != 2 || mps > most_mps || mps < 23)
    return fprintf(stderr, "no row %s\n", argument[1]), 2;
  uint32_t frames = (length + 2 + mps - 1) / mps;
  peer_credits = 2 * per_credit * frames;
  window = 2 * frames;
  sdu_packets packets = cut();
  measure(argument[1], way[0] == 'u' ? up : down, &packets, sdus, atoi(argument[3]), atoi(argument[4]));
  putchar('\n');
}
