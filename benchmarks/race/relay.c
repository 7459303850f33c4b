/* The limit that bench_race.py compares with: a relay in C that numbers PUSHes and passes them on in whole bursts.
 *
 * It reads bursts with UDP_GRO, rewrites the headers in place and sends each burst to each subscriber as one message
 * with UDP_SEGMENT, all of them in one sendmmsg. It speaks as much of the wire as the benchmark's load needs: a
 * KEEPALIVE makes its sender a subscriber until one with NOSUBSCRIBE comes, and is acknowledged. It repairs nothing,
 * keeps nothing, and forgets nobody who is silent.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { BURSTS = 16, BURST_BYTES = 65536, SUBSCRIBERS = 2048, MESSAGES = 1024, KERNEL_BUFFER = 4 << 20 };
enum { DELIVER = 0x01, PUSH = 0x02, KEEPALIVE = 0x10, KEEPALIVE_ACK = 0x20 };
enum { HEADER = 9, KEEPALIVE_SIZE = 29, FLAGS_END = 12, TOKEN_AT = 13, ACK_SIZE = 17, NOSUBSCRIBE = 0x01 };

typedef union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
} Control;

static unsigned char buffers[BURSTS][BURST_BYTES];
static struct mmsghdr received[BURSTS], sent[MESSAGES];
static struct iovec receive_into[BURSTS], send_from[BURSTS];
static struct sockaddr_in senders[BURSTS], subscribers[SUBSCRIBERS];
static Control receive_control[BURSTS], send_control[BURSTS];
static size_t subscriber_count;
static uint64_t sequence;

static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

static void flush(int port, unsigned count)
{
    unsigned done = 0;
    while (done < count) {
        int accepted = sendmmsg(port, sent + done, count - done, 0);
        if (accepted < 0 && errno == EINTR)
            continue;
        done += accepted < 0 ? 1 : (unsigned)accepted; /* What cannot be sent is skipped. */
    }
}

static void know(int port, const unsigned char *keepalive, struct sockaddr_in *sender)
{
    unsigned char ack[ACK_SIZE] = {KEEPALIVE_ACK};
    size_t index = 0;
    while (index < subscriber_count && memcmp(&subscribers[index], sender, sizeof *sender))
        index++;
    if (keepalive[FLAGS_END] & NOSUBSCRIBE) {
        if (index < subscriber_count)
            subscribers[index] = subscribers[--subscriber_count];
    } else if (index == subscriber_count) {
        if (subscriber_count == SUBSCRIBERS)
            return;
        subscribers[subscriber_count++] = *sender;
    }
    memcpy(ack + 1, keepalive + TOKEN_AT, sizeof ack - 1);
    sendto(port, ack, sizeof ack, 0, (struct sockaddr *)sender, sizeof *sender);
}

/* Turn a burst of PUSHes into DELIVERs; a burst with anything malformed in it is dropped whole. */
static int number(unsigned char *burst, size_t size, size_t step)
{
    uint64_t next = sequence;
    for (size_t at = 0; at < size; at += step) {
        unsigned char *row = burst + at;
        size_t here = size - at < step ? size - at : step;
        if (here < HEADER || row[0] != PUSH || (size_t)(row[1] << 8 | row[2]) != here - HEADER)
            return 0;
        next++;
        row[0] = DELIVER;
        for (int byte = 0; byte < 6; byte++)
            row[8 - byte] = (unsigned char)(next >> (8 * byte));
    }
    sequence = next;
    return 1;
}

static int segment_size(struct msghdr *message)
{
    int size = 0;
    for (struct cmsghdr *each = CMSG_FIRSTHDR(message); each; each = CMSG_NXTHDR(message, each))
        if (each->cmsg_level == IPPROTO_UDP && each->cmsg_type == UDP_GRO)
            memcpy(&size, CMSG_DATA(each), sizeof size);
    return size;
}

static unsigned pass_on(int port, unsigned waiting, int burst, size_t size, size_t step)
{
    struct cmsghdr *header = &send_control[burst].header;
    uint16_t segment = (uint16_t)step;
    header->cmsg_level = IPPROTO_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof segment);
    memcpy(CMSG_DATA(header), &segment, sizeof segment);
    send_from[burst] = (struct iovec){buffers[burst], size};
    for (size_t index = 0; index < subscriber_count; index++) {
        if (waiting == MESSAGES) {
            flush(port, waiting);
            waiting = 0;
        }
        sent[waiting++].msg_hdr = (struct msghdr){
            .msg_name = &subscribers[index],
            .msg_namelen = sizeof subscribers[index],
            .msg_iov = &send_from[burst],
            .msg_iovlen = 1,
            .msg_control = size > step ? header : NULL,
            .msg_controllen = size > step ? CMSG_SPACE(sizeof segment) : 0,
        };
    }
    return waiting;
}

int main(int count, char **arguments)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int port = socket(AF_INET, SOCK_DGRAM, 0), on = 1, room = KERNEL_BUFFER;
    if (count != 2) {
        fputs("usage: relay PORT\n", stderr);
        return 2;
    }
    address.sin_port = htons((uint16_t)atoi(arguments[1]));
    setsockopt(port, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(port, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (setsockopt(port, IPPROTO_UDP, UDP_GRO, &on, sizeof on))
        give_up("UDP_GRO");
    if (bind(port, (struct sockaddr *)&address, sizeof address))
        give_up("bind");
    for (;;) {
        for (int index = 0; index < BURSTS; index++) {
            receive_into[index] = (struct iovec){buffers[index], BURST_BYTES};
            received[index].msg_hdr = (struct msghdr){
                .msg_name = &senders[index],
                .msg_namelen = sizeof senders[index],
                .msg_iov = &receive_into[index],
                .msg_iovlen = 1,
                .msg_control = &receive_control[index],
                .msg_controllen = sizeof receive_control[index],
            };
        }
        int bursts = recvmmsg(port, received, BURSTS, MSG_WAITFORONE, NULL);
        if (bursts < 0 && errno != EINTR && errno != ECONNREFUSED)
            give_up("recvmmsg");
        unsigned waiting = 0;
        for (int index = 0; index < bursts; index++) {
            size_t size = received[index].msg_len, step = (size_t)segment_size(&received[index].msg_hdr);
            if (!step)
                step = size;
            if (buffers[index][0] == KEEPALIVE && size == KEEPALIVE_SIZE)
                know(port, buffers[index], &senders[index]);
            else if (size && number(buffers[index], size, step))
                waiting = pass_on(port, waiting, index, size, step);
        }
        flush(port, waiting);
    }
}
