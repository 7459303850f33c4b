/* Prints a fyrehose stream in order, each number once, as SEQUENCE, a tab and DATA: ./subscriber HOST PORT
 * Trusts all senders, prints repeats, never gives up, misses a lost last message: see careful_subscriber.c */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/times.h>
enum { DELIVER = 1, REQUEST = 4, KEEPALIVE = 16, NOJOURNAL = 2, HEADER = 9, ENVELOPE = 20, RING = 4096 };
static unsigned char in[65536], held[RING][65536]; /* Held until it is due. Mostly never touched. */
static long long numbers[RING], sizes[RING];
static void tell(int wire, struct addrinfo *to, int type, size_t size, long long first, long long last) {
    unsigned char packet[29] = {type}; /* KEEPALIVE has FLAGS and TOKEN where REQUEST has FROM and TO. */
    for (int i = 0; i < 6; i++) packet[7 + i] = first >> (40 - 8 * i), packet[13 + i] = last >> (40 - 8 * i);
    sendto(wire, packet, size, 0, to->ai_addr, to->ai_addrlen);
}
int main(int argc, char **argv) {
    struct addrinfo *to, ask = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    if (argc != 3 || getaddrinfo(argv[1], argv[2], &ask, &to)) return puts("usage: subscriber HOST PORT"), 2;
    int wire = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(wire, SOL_SOCKET, SO_RCVBUF, &(int){4 << 20}, sizeof(int));
    setsockopt(wire, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_usec = 100000}, sizeof(struct timeval));
    for (long long next = 1, live = 0, from, end, number = 0, tick, old = 0;; old = tick, number = 0) {
        if ((tick = times(&(struct tms){0}) / 10) > old) fflush(stdout); /* times() counts hundredths. */
        if (tick / 10 > old / 10) tell(wire, to, KEEPALIVE, 29, NOJOURNAL, 0);
        for (from = next; tick > old && from <= live && from < next + RING; from = end + (end == from)) {
            for (end = from; end <= live && end < from + 1024 && numbers[end % RING] != end;) end++;
            if (end > from) tell(wire, to, REQUEST, 19, from, end - 1);
        }
        ssize_t got = recv(wire, in, sizeof in, 0), skip = HEADER;
        for (int i = 3; i < HEADER; i++) number = number << 8 | in[i];
        if (got < HEADER || *in != DELIVER || got - HEADER != (in[1] << 8 | in[2]) || number < next) continue;
        if (live == 0) next = number;
        if (number > live && number < next + 256 * RING) live = number; /* A higher one was damaged. */
        if (number >= next + RING) continue;
        if (got >= HEADER + ENVELOPE && !memcmp(in + HEADER, "\xf7\x46\x59\x01", 4)) skip += ENVELOPE;
        memcpy(held[number % RING], in + skip, sizes[number % RING] = got - skip);
        numbers[number % RING] = number;
        for (int i; numbers[i = next % RING] == next; next++)
            printf("%lld\t", next), fwrite(held[i], 1, sizes[i], stdout), putchar('\n');
    }
}
